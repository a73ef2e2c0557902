//! Projects: directories that count together with all below them.

use std::ops::ControlFlow;

use dure_store::error::Result;
use dure_store::format::quota::{Bounds, QuotaKind, Subject};
use dure_sync::atomic::Ordering;

use crate::inode::InodeRef;
use crate::quota::Quotas;
use crate::volume::{FileSystem, Statistics};

impl FileSystem {
    /// The project that an inode counts for; 0: none.
    #[must_use]
    pub fn project(&self, inode: &InodeRef) -> u32 {
        inode.inode().attributes().project.get()
    }

    /// Makes a directory, and all below it, count for a project, durably; 0: for none. What is made
    /// there later counts, too. `progress` is told how many inodes got it so far; if it breaks, or the power
    /// fails, the others stay as they are, and a second call does the rest. No limit refuses it. How many
    /// inodes got it.
    ///
    /// # Errors
    /// `NotDirectory`; `ProjectBusy` while it is done to another one; `ReadOnly`, `Stopped`, `Corrupt`, device errors: some inodes may have it.
    pub fn set_project(
        &self,
        directory: &InodeRef,
        project: u32,
        progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<u64> {
        let count = self.0.names.set_project(directory, project, progress)?;
        self.0.store.commit_all()?;
        Ok(count)
    }

    /// Whether inodes may have projects.
    #[must_use]
    pub fn has_projects(&self) -> bool {
        self.0.store.has_projects()
    }

    /// Gives one inode a project, whatever is below it; 0: none.
    ///
    /// # Errors
    /// `ReadOnly`, `Stopped`, device errors.
    pub fn give_project(&self, inode: &InodeRef, project: u32) -> Result<()> {
        if project != 0 {
            self.0.store.allow_projects()?;
        }
        let _given = self.0.names.give_project(inode.inode(), None, project)?;
        self.0.store.end_call()
    }

    /// Whether names may go from one project into another, and no limit of a project counts: for a
    /// caller that gives each inode its project itself.
    pub fn mix_projects(&self, may: bool) {
        if let Some(quotas) = self.0.inodes.quotas() {
            quotas.spares_projects.store(may, Ordering::Relaxed);
        }
        self.0.names.moves.mixes.store(may, Ordering::Relaxed);
    }

    /// Like [`FileSystem::statistics`], within the limits of the project of an inode: the soft limit, if
    /// there is one, else the hard one, as on ext4 and xfs.
    #[must_use]
    pub fn statistics_of(&self, inode: &InodeRef) -> Statistics {
        let mut room = self.statistics();
        let subject = Subject {
            kind: QuotaKind::Project,
            id: self.project(inode),
        };
        let of = |quotas: &Quotas| quotas.of(subject);
        let Some((usage, limits)) = self.0.inodes.quotas().and_then(of) else {
            return room;
        };
        // One above what the volume has says nothing.
        let limit = |bounds: Bounds, all: u64| {
            let limits = [bounds.soft, bounds.hard].into_iter();
            limits.filter(|limit| (1..all).contains(limit)).min()
        };
        if let Some(blocks) = limit(limits.blocks, room.blocks) {
            let free = blocks.saturating_sub(usage.blocks);
            room.blocks = blocks;
            room.blocks_free = free.min(room.blocks_free);
            room.blocks_available = free.min(room.blocks_available);
        }
        if let Some(inodes) = limit(limits.inodes, room.inodes) {
            room.inodes = inodes;
            room.inodes_free = inodes.saturating_sub(usage.inodes).min(room.inodes_free);
        }
        room
    }
}
