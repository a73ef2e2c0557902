//! Taking, deleting and renaming snapshots of a mounted store.
//!
//! **Problem.** The tables of a checkpoint lack what operations change while it runs, so they are
//! consistent with the log only; a snapshot has no log.
//!
//! **Structure.** A checkpoint is made first, so that little is dirty. Then the gate of the journal
//! closes: no operation begins, and those under way end. The next checkpoint has all operations
//! before its cut and none behind it: its tables are the snapshot. Operations go on when the blocks
//! are pinned and the header is durable.
//!
//! **Invariants.** The task holds the checkpoint lock all the time, so that operations which find the log
//! full wait for it. An operation that is under way waits for no task that waits to begin one; should
//! one do so all the same, the gate opens after [`QUIET_NS_MAX`], and no snapshot is taken.
//!
//! **On a crash** the snapshot is there wholly or not at all: the volume header names it.

use std::time::Duration;

use dure_journal::ClosedGate;
use dure_sync::{Arc, clock, thread};

use super::{Mount, Store};
use crate::census::Census;
use crate::checkpoint::{CheckpointState, Written};
use crate::error::{Error, Result};
use crate::format::feature::PROJECTS;
use crate::format::volume::VolumeHeader;
use crate::options::StoreOptions;
use crate::rules::StoreRules;
use crate::settle::Settler;
use crate::snapshot::{Change, SnapshotInfo, View};
use crate::space::Space;

/// Nanoseconds that operations under way may take to end.
const QUIET_NS_MAX: u64 = 2_000_000_000;
/// Between two looks whether they have.
const PAUSE: Duration = Duration::from_micros(20);

/// A change of the snapshots by a checkpoint. Dropping it opens the gate, if it was closed.
#[derive(Debug)]
pub(super) struct SnapshotChange<'j> {
    pub(super) what: Change,
    _gate: Option<ClosedGate<'j, Settler>>,
}

impl SnapshotChange<'_> {
    /// Whether the checkpoint is a snapshot's, and so has no operation behind its cut.
    pub(super) fn creates(&self) -> bool {
        matches!(self.what, Change::Create(_))
    }

    /// Counts what a new snapshot has.
    pub(super) fn count<'w>(
        &mut self,
        space: &Space,
        header: &VolumeHeader,
        written: impl Iterator<Item = &'w Written>,
    ) {
        if let Change::Create(info) = &mut self.what {
            let mut header = *header;
            written.for_each(|written| written.census.apply(&mut header));
            (info.nodes, info.inodes) = (header.nodes.get(), header.inodes.get());
            info.blocks = space.live_blocks();
        }
    }

    /// The SIT of a new snapshot is written: what it has live stays, whatever operations do that
    /// may begin now. Crash scenario if the gate opened before: an operation frees a block of the
    /// snapshot, settles, and another file's data is written to it.
    pub(super) fn pin(&self, space: &Space, rules: &StoreRules) {
        if self.creates() && rules.pin_before_opening.holds() {
            space.pin_live();
        }
    }
}

impl Store {
    /// Whether a snapshot may have this name, and there may be one more.
    ///
    /// # Errors
    /// `BadOption` for a name that cannot be, `SnapshotExists`; `NoSpace` for more than 248.
    pub fn check_snapshot(&self, name: &str) -> Result<()> {
        self.snapshots.check_new(name)?;
        self.snapshots.check_room()
    }

    /// Takes a snapshot of everything that operations have changed: the caller has written back what
    /// is only in memory. Returns what it is.
    ///
    /// # Errors
    /// `BadOption` for a name that cannot be, `SnapshotExists`, `SnapshotBusy`; `NoSpace` when there
    /// are not as many blocks as it may need; those of [`Store::checkpoint`].
    pub fn create_snapshot(&self, name: &str) -> Result<SnapshotInfo> {
        self.check_writable()?;
        let mut state = self.lock_checkpoint();
        self.snapshots.check_new(name)?;
        self.snapshots.check_room()?;
        self.checkpoint_locked(&mut state)?;
        if state.replaced {
            self.checkpoint_locked(&mut state)?;
        }
        if !self.hold_for_snapshots(true) {
            return Err(Error::NoSpace {
                what: "blocks that a snapshot may need",
            });
        }
        let taken = self.create_quiet(&mut state, name);
        self.hold_for_snapshots(false);
        taken
    }

    fn create_quiet(&self, state: &mut CheckpointState, name: &str) -> Result<SnapshotInfo> {
        let busy = |why| Error::SnapshotBusy {
            name: name.into(),
            why,
        };
        let quiet = self.options.store_rules.quiet_snapshots.holds();
        let gate = quiet.then(|| self.journal().close_gate());
        let since = clock::monotonic_ns();
        while gate.as_ref().is_some_and(|gate| !gate.is_quiet()) {
            if clock::monotonic_ns().saturating_sub(since) > QUIET_NS_MAX {
                return Err(busy("an operation of the volume does not end; try again"));
            }
            thread::sleep(PAUSE);
        }
        let last = self.snapshots.list().last().map_or(0, |last| last.id);
        let info = SnapshotInfo {
            id: last + 1,
            name: name.to_owned(),
            created: self.now().secs.get(),
            inodes: 0,
            blocks: 0,
            checkpoint: state.header.checkpoint.get() + 1,
            nodes: 0,
        };
        let mut change = Some(SnapshotChange {
            what: Change::Create(info),
            _gate: gate,
        });
        self.checkpoint_changing(state, &mut change)?;
        match change.map(|change| change.what) {
            Some(Change::Create(info)) => Ok(info),
            _ => Err(busy(
                "a block of the device takes no data, and its page had to go elsewhere; try again",
            )),
        }
    }

    /// Deletes a snapshot; what only it needed is free then.
    ///
    /// # Errors
    /// `NoSnapshot`; `SnapshotBusy` while it is mounted; those of [`Store::checkpoint`]. An error
    /// after it is gone leaves its blocks to the next mount.
    pub fn delete_snapshot(&self, name: &str) -> Result<()> {
        self.check_writable()?;
        let mut state = self.lock_checkpoint();
        let id = self.snapshots.find_unused(name)?;
        self.change_snapshots(&mut state, Change::Delete(id))?;
        self.keeper().unpin()?;
        self.hold_for_snapshots(false);
        Ok(())
    }

    /// Gives a snapshot another name.
    ///
    /// # Errors
    /// `NoSnapshot`, `BadOption`, `SnapshotExists`, those of [`Store::checkpoint`].
    pub fn rename_snapshot(&self, name: &str, to: &str) -> Result<()> {
        self.check_writable()?;
        let mut state = self.lock_checkpoint();
        let id = self.snapshots.find(name)?.id;
        self.snapshots.check_new(to)?;
        self.change_snapshots(&mut state, Change::Rename(id, to.to_owned()))
    }

    fn change_snapshots(&self, state: &mut CheckpointState, what: Change) -> Result<()> {
        let mut change = Some(SnapshotChange { what, _gate: None });
        self.checkpoint_changing(state, &mut change)
    }

    fn keeper(&self) -> crate::snapshot::Keeper<'_> {
        self.checkpoint_writer().keeper(self.alloc_partition())
    }

    fn hold_for_snapshots(&self, adds: bool) -> bool {
        self.keeper().hold(adds)
    }

    /// The mount of a snapshot of this volume, while the volume is mounted: read-only.
    ///
    /// # Errors
    /// `NoSnapshot`.
    pub fn snapshot(&self, name: &str, options: StoreOptions) -> Result<Mount> {
        // Not while a checkpoint adds or removes one. Race otherwise: one that was found not to be
        // mounted is mounted, and then removed; or a new one is read before its slots count.
        let view = {
            let _no_checkpoint = self.lock_checkpoint();
            Arc::new(View::of(&self.snapshots, name)?)
        };
        let mut layout = self.layout.clone();
        if self.has_projects() {
            layout.superblock = layout.superblock.with(PROJECTS);
        }
        Ok(Mount::of_snapshot(
            (self.region.clone(), layout),
            (self.nat.packs.clone(), self.snapshots.clone()),
            view,
            options,
        ))
    }
}

/// What the volume header would say of a snapshot.
pub(super) fn header_of(info: &SnapshotInfo) -> VolumeHeader {
    let mut header: VolumeHeader = zerocopy::FromZeros::new_zeroed();
    header.checkpoint.set(info.checkpoint);
    header.state.set(crate::format::volume::STATE_CLEAN);
    let counts = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    let census = Census {
        nodes: counts(info.nodes),
        inodes: counts(info.inodes),
    };
    census.apply(&mut header);
    header
}
