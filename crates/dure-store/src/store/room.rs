//! Reserving blocks, and what is done before a caller gets ENOSPC.
//!
//! **Problem.** Much of what is not available is on its way back: freed blocks whose operation is
//! not valid yet, images that the next checkpoint replaces, blocks that dirty pages hold although
//! they will free as many, log segments beyond the least.
//!
//! **Structure.** A reservation that fails brings all of these about, the cheap ones first, and
//! tries again after each.
//!
//! # Invariants
//! An operation that adds to the volume gets ENOSPC only after all of it. One that frees as many
//! blocks as it takes ([`OpClass::Rewrite`], [`OpClass::Delete`]) waits for tasks that hold kept
//! blocks: each of them gives its blocks back, or makes them come back with the next commit and
//! checkpoint, without waiting for another task. Write-back reserves as `Delete`, and only the other
//! classes ask for write-back, so it never asks for itself. Where snapshots or clones need the
//! old blocks nothing comes back: then the wait ends when round after round nobody has taken or given
//! a block, and a rewrite does not begin it again before somebody has.
//!
//! **On a crash** reservations are gone; the blocks are free.

use std::cell::OnceCell;
use std::time::Duration;

use dure_journal::Stall;
use dure_sync::atomic::Ordering;
use dure_sync::{CoreId, clock, thread};

use super::Store;
use crate::backlog::Fill;
use crate::error::{Error, Result};
use crate::space::{OpClass, SharedClaim};

/// Rounds of making room for an operation that frees as many blocks as it takes.
const ROUNDS_MAX: u32 = 500;
/// Rounds in a row in which nobody takes or gives a block: nobody will.
const STILL_ROUNDS_MAX: u32 = 20;
/// Rounds without a pause between them.
const ROUNDS_AT_ONCE: u32 = 4;
/// Pause between two later rounds.
const PAUSE: Duration = Duration::from_millis(2);

impl Store {
    /// Reserves blocks for the partition of `core`; makes room before it gives up. The caller holds
    /// no inode lock.
    ///
    /// # Errors
    /// `NoSpace`, or what a commit or a checkpoint reports.
    pub fn reserve_blocks(&self, core: CoreId, blocks: u32, class: OpClass) -> Result<()> {
        if blocks == 0 || self.space.reserve(core, blocks, class) {
            return Ok(());
        }
        let start = clock::monotonic_ns();
        let found = self.free_and_reserve(core, blocks, class);
        let waited = clock::monotonic_ns().saturating_sub(start);
        self.journal().stalled(core, Stall::Checkpoint, waited);
        if found? {
            return Ok(());
        }
        Err(Error::NoSpace { what: "blocks" })
    }

    /// [`Space::claim_shared`](crate::space::Space::claim_shared), which makes room before it gives up. The
    /// caller holds no inode lock.
    ///
    /// # Errors
    /// What a commit or a checkpoint reports.
    pub fn claim_shared(&self, core: CoreId, runs: u32) -> Result<Option<SharedClaim<'_>>> {
        if let Some(claim) = self.space.claim_shared(core, runs) {
            return Ok(Some(claim));
        }
        let found = OnceCell::new();
        let claim = || {
            let claim = self.space.claim_shared(core, runs);
            claim.is_some_and(|claim| found.set(claim).is_ok())
        };
        let _no_trim = self.trims.shut();
        self.free_once(OpClass::Normal, &claim)?;
        Ok(found.into_inner())
    }

    /// Brings about what frees blocks, then tries again to reserve some. What is being trimmed comes
    /// back first.
    fn free_and_reserve(&self, core: CoreId, blocks: u32, class: OpClass) -> Result<bool> {
        let rounds = match class {
            OpClass::Normal | OpClass::Promised => 1,
            OpClass::Rewrite | OpClass::Delete => ROUNDS_MAX,
        };
        let _no_trim = self.trims.shut();
        let reserve = || self.space.reserve(core, blocks, class);
        let (mut before, mut still) = (None, 0);
        for round in 0..rounds {
            if round >= ROUNDS_AT_ONCE {
                thread::sleep(PAUSE);
            }
            if self.free_once(class, &reserve)? {
                return Ok(true);
            }
            if !self.keeps_old_blocks() {
                continue;
            }
            let now = self.space.unreserved();
            still = if before == Some(now) { still + 1 } else { 0 };
            before = Some(now);
            // Relaxed: a hint; a task that misses it waits for some rounds more.
            let known = class == OpClass::Rewrite && self.stuck_at.load(Ordering::Relaxed) == now;
            if known || still >= STILL_ROUNDS_MAX {
                self.stuck_at.store(now, Ordering::Relaxed);
                break;
            }
        }
        Ok(false)
    }

    /// Whether a page that is written again may leave its old block to a snapshot or a clone.
    fn keeps_old_blocks(&self) -> bool {
        self.space.may_share() || !self.snapshots.is_empty()
    }

    /// Each way to free blocks, until `reserve` has found some.
    fn free_once(&self, class: OpClass, reserve: &dyn Fn() -> bool) -> Result<bool> {
        // Freed blocks count only when the transaction that freed them is valid.
        self.commit_all()?;
        if reserve() {
            return Ok(true);
        }
        if class != OpClass::Delete {
            self.free_reserved();
            self.commit_all()?;
            if reserve() {
                return Ok(true);
            }
        }
        // Freed images count only when the checkpoint that replaced them is complete.
        self.checkpoint()?;
        if reserve() {
            return Ok(true);
        }
        Ok(self.shrink_rings()? && reserve())
    }

    /// Makes room when too much waits for a checkpoint; asks for it when half as much does. The
    /// caller holds no inode lock.
    ///
    /// # Errors
    /// Those of [`Store::checkpoint`].
    #[inline]
    pub(crate) fn make_memory_room(&self, core: CoreId) -> Result<()> {
        match self.what_waits(core) {
            Fill::Little => Ok(()),
            Fill::Half => {
                self.want_memory_room(core);
                Ok(())
            }
            Fill::Full => self.checkpoint_for_memory(core),
        }
    }

    #[inline]
    fn what_waits(&self, core: CoreId) -> Fill {
        self.nodes.crowding(core).max(self.owners.fill(core))
    }

    #[cold]
    fn checkpoint_for_memory(&self, core: CoreId) -> Result<()> {
        let mut state = self.lock_checkpoint();
        // Of many tasks that find it crowded one makes room.
        if self.what_waits(core) == Fill::Full {
            self.checkpoint_locked(&mut state)?;
        }
        Ok(())
    }
}
