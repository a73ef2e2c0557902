//! The fuzzy checkpoint: puts dirty nodes on the medium and lets log tails pass. Operations go on
//! meanwhile.
//!
//! # Order, each step with the crash it guards against
//! 1. cut, copies and their images to free blocks, commit of everything copied: a NAT entry must
//!    never name an image that holds bytes of a handle that is lost (model case A4). Before the
//!    commit nothing names the image but itself; so a rebuild asks summaries which images counted
//!    (`dure_check`).
//! 2. NAT pairs to slots that do not count; then SIT and summaries, which must have every image as
//!    live, then packs. In any order on the medium: until the header is written, none of it counts,
//!    and the logs still have it all.
//! 3. flush, then the volume header, which names the packs and so everything: it must never name
//!    what is not there (A5, A6, A9).
//! 4. flush, then the journal headers: a tail must never pass what no durable table covers (A7).
//! 5. flush: log space and old images are used again only now (A8).
//!
//! Each partition has a [`Share`] of images, NAT pairs and SIT pairs, and no share has to do
//! with another: the tasks of a [`Crew`](crate::checkpoint::crew::Crew) do them at the same time.
//! Commit, flushes, packs and headers are made once, by the task that makes the checkpoint, when
//! all shares are done.

use dure_journal::{CommitError, TraceEvent};
use dure_sync::atomic::Ordering;
use dure_sync::{CoreId, MutexGuard};

use super::Store;
use super::snapshots::SnapshotChange;
use crate::checkpoint::crew::{Share, Step};
use crate::checkpoint::{CheckpointState, Writer, nat_pairs, targets_of};
use crate::error::{Error, Result};
use crate::node::NodeRef;
use crate::ranks::CHECKPOINT;
use crate::space::pair_index;
use crate::units::{nth_core, to_u64, to_usize};

impl Store {
    /// Makes one checkpoint; waits for a running one first, and helps it. It takes no write-back
    /// lock, so the caller may hold one; it takes an inode lock to give a page of the data log
    /// another block, so the caller holds none.
    ///
    /// # Errors
    /// `Stopped`, or the first failure (after which the volume is stopped).
    pub fn checkpoint(&self) -> Result<()> {
        self.check_writable()?;
        let mut state = self.lock_checkpoint();
        self.checkpoint_locked(&mut state)
    }

    /// Makes a checkpoint, if none was made since there were `checkpoints` of them; returns its lock
    /// then.
    ///
    /// # Errors
    /// Those of [`Store::checkpoint`].
    pub fn checkpoint_since(
        &self,
        checkpoints: i64,
    ) -> Result<Option<MutexGuard<'_, CHECKPOINT, CheckpointState>>> {
        self.check_writable()?;
        let mut state = self.lock_checkpoint();
        if self.counters.checkpoints.sum() != checkpoints {
            return Ok(None);
        }
        self.checkpoint_locked(&mut state)?;
        Ok(Some(state))
    }

    /// The lock of checkpoints. A task that would wait for a running one helps it instead.
    pub(super) fn lock_checkpoint(&self) -> MutexGuard<'_, CHECKPOINT, CheckpointState> {
        self.checkpoint.try_lock().unwrap_or_else(|| {
            self.help_checkpoint(&[self.partition()]);
            self.checkpoint.lock()
        })
    }

    /// Takes part in the checkpoint that runs now until it is over: first in the shares of these
    /// partitions. Returns how many images the caller wrote; at once if no checkpoint runs. The
    /// caller holds no more than one that makes a checkpoint may.
    pub fn help_checkpoint(&self, own: &[CoreId]) -> u64 {
        let images = std::cell::Cell::new(0);
        self.crew.help(own, &|step, share| {
            self.do_share(step, share)?;
            if step == Step::Images {
                images.set(images.get() + to_u64(share.written.images));
            }
            Ok(())
        });
        images.get()
    }

    pub(crate) fn checkpoint_locked(&self, state: &mut CheckpointState) -> Result<()> {
        self.checkpoint_changing(state, &mut None)
    }

    /// Like `checkpoint_locked`; the checkpoint changes the snapshots, too. `change` is `None`
    /// afterwards if it was to be a snapshot's and could not.
    pub(super) fn checkpoint_changing(
        &self,
        state: &mut CheckpointState,
        change: &mut Option<SnapshotChange<'_>>,
    ) -> Result<()> {
        // One that failed has left its nodes on dirty lists and their images half moved: a task that
        // has waited for it would take that for damage.
        self.check_running()?;
        let own = state.check_own(&self.region, &self.layout);
        own.inspect_err(|error| self.stop(error))?;
        self.mend_noted(state);
        let journal = self.journal();
        // Every granule changed by a handle up to this cut is on a dirty list by now, or was copied
        // by an earlier checkpoint: nodes go on the list before their handle joins.
        let cut = journal.cut();
        let checkpoint = state.header.checkpoint.get() + 1;
        let begun = |step| TraceEvent::Checkpoint { checkpoint, step };
        journal.trace().record(None, || begun("cut"));
        let mut shares = self.shares_of(self.nodes.take_dirty());
        self.checkpoint_number.store(checkpoint, Ordering::Relaxed);
        let session = self.crew.open();
        if shares.len() > 1 {
            self.want_checkpoint_help();
        }
        let result = self.checkpoint_write(state, &cut, &mut shares, change);
        if let Err(error) = &result {
            // Memory stays the only place of these changes: keep the nodes from eviction.
            let core = self.partition();
            for node in shares.iter().flat_map(|share| &share.nodes) {
                self.nodes.make_dirty(core, node);
            }
            self.stop(error);
            return result;
        }
        self.counters.checkpoints.add(1);
        self.owners.end_all();
        let ended = self.run_shares(Step::End, &mut shares);
        drop(session);
        ended
    }

    /// What each partition has to do: of those with dirty nodes, and of one at least.
    fn shares_of(&self, lists: Vec<Vec<NodeRef>>) -> Vec<Share> {
        let count = to_usize(u64::from(self.layout.journals));
        let mut all: Vec<Share> = (0..count)
            .map(|partition| Share::new(nth_core(partition, count)))
            .collect();
        for node in lists.into_iter().flatten() {
            all[self.nat.partition_of(node.nid).index()]
                .nodes
                .push(node);
        }
        let caller = self.partition();
        let any = all.iter().any(|share| !share.nodes.is_empty());
        all.retain(|share| !share.nodes.is_empty() || !any && share.partition == caller);
        all
    }

    fn run_shares(&self, step: Step, shares: &mut Vec<Share>) -> Result<()> {
        let work = |step, share: &mut Share| self.do_share(step, share);
        self.crew.run(step, shares, &work)
    }

    /// A partition's part of a step, for the task that makes the checkpoint or one that helps.
    fn do_share(&self, step: Step, share: &mut Share) -> Result<()> {
        match step {
            Step::Check => {
                let nids = share.nodes.iter().map(|node| node.nid);
                self.checkpoint_writer().check_images(nids)
            }
            Step::Images => {
                let core = self.options.alloc.partition(share.partition);
                let targets = targets_of(&mut share.nodes);
                let writer = self.checkpoint_writer();
                share.entries = writer.write_images(core, targets, &mut share.written)?;
                Ok(())
            }
            Step::Nat => {
                let entries = std::mem::take(&mut share.entries);
                let writer = self.checkpoint_writer();
                writer.write_nat(entries, &mut share.written)
            }
            Step::Space => {
                let writer = self.checkpoint_writer();
                writer.write_space(&share.sit_pairs, &mut share.written)
            }
            Step::End => {
                self.end_share(share);
                Ok(())
            }
        }
    }

    /// The checkpoint is durable.
    fn end_share(&self, share: &mut Share) {
        let images = share.written.images;
        let counted = i64::try_from(images).unwrap_or(i64::MAX);
        self.counters.images.add(counted);
        // Each node on a dirty list held a block for its image. Freed nodes got no image.
        let spare =
            u32::try_from(share.nodes.len() - images).expect("fewer than 2^32 nodes are in memory");
        self.space.unreserve(self.alloc_partition(), spare);
        // The NAT has the tombstones of these; not yet of those freed after the copy, which are
        // dirty again.
        let gone = |node: &NodeRef| node.freed_and_joined().is_some() && !node.is_dirty();
        for node in std::mem::take(&mut share.nodes) {
            if gone(&node) {
                self.nodes.remove_freed(&node);
            }
        }
    }

    pub(super) fn checkpoint_writer(&self) -> Writer<'_> {
        Writer {
            region: &self.region,
            layout: &self.layout,
            nat: &self.nat,
            space: &self.space,
            snapshots: &self.snapshots,
            // Relaxed: a task that does a share has taken it under a lock since this was stored.
            checkpoint: self.checkpoint_number.load(Ordering::Relaxed),
            rules: &self.options.store_rules,
            journal: self.journal_if_any(),
        }
    }

    /// Makes everything that has joined so far valid; at most twice in a checkpoint.
    ///
    /// # Errors
    /// Those of [`Store::commit`].
    pub(crate) fn commit_for_checkpoint(&self) -> Result<()> {
        let journal = self.journal();
        let committed = journal.commit_cut(&journal.cut());
        committed.map_err(|error| match error {
            CommitError::LogFull(_) => Error::NoSpace {
                what: "the log, which keeps room for this",
            },
            error => self.stopped_by_journal(&error),
        })?;
        self.space.check()
    }

    fn checkpoint_write(
        &self,
        state: &mut CheckpointState,
        cut: &dure_journal::Cut,
        shares: &mut Vec<Share>,
        change: &mut Option<SnapshotChange<'_>>,
    ) -> Result<()> {
        let (journal, writer) = (self.journal(), self.checkpoint_writer());
        // All shares, before any writes: if the space map is wrong, what it calls free may be
        // anything.
        self.run_shares(Step::Check, shares)?;
        // The copies may hold changes younger than the cut: those too must be valid before a NAT
        // entry names the image (model case A4). Crash scenario if a share is copied after this: an
        // image has half of an operation whose record is lost, and the other half is in no image.
        if !self.options.store_rules.commit_before_nat.holds() {
            self.commit_for_checkpoint()?;
        }
        self.run_shares(Step::Images, shares)?;
        writer.trace("images");
        if self.options.store_rules.commit_before_nat.holds() {
            self.commit_for_checkpoint()?;
        }
        // Data that is only in a log goes to its block before the first flush. Crash scenario
        // otherwise: the tail passes the handle that carries it, and a slot names a block that was
        // never written. After the cut was taken: what its handles logged is in the table.
        if self.options.store_rules.data_before_tail.holds() {
            let core = self.partition();
            let placed = self.placement.write_logged(core);
            state.replaced = match placed {
                Ok(()) => false,
                Err(unplaced) => {
                    // The operations that name other blocks come behind the cut: this checkpoint
                    // is no snapshot's, and opens the gate.
                    change.take_if(|change| change.creates());
                    self.replace_logged(core, unplaced)?
                }
            };
        }
        writer.trace("committed");
        self.write_tables(shares)?;
        let keeper = writer.keeper(self.alloc_partition());
        if let Some(change) = change {
            change.count(
                &self.space,
                &state.header,
                shares.iter().map(|share| &share.written),
            );
        }
        keeper.name(
            &mut state.header,
            change.as_ref().map(|change| &change.what),
        )?;
        self.space.name_shared(&mut state.header);
        if let Some(change) = change {
            change.pin(&self.space, writer.rules);
            if !writer.rules.unpin_after_header.holds() {
                keeper.unpin()?;
            }
        }
        writer.complete(state, shares.iter().map(|share| &share.written))?;
        state.write(&self.region, &self.layout)?;
        // Crash scenario without this flush: a tail has moved, the header that would make the
        // tables count is lost, and what lies between is in neither.
        if self.options.store_rules.header_before_tails.holds() {
            self.region.flush()?;
        }
        journal.checkpoint_done(cut, writer.checkpoint)?;
        writer.trace("headers");
        self.space.images_released();
        keeper.end();
        self.space.end_shared(self.alloc_partition());
        Ok(())
    }

    /// Writes NAT, SIT and summaries, and keeps for snapshots what is about to change.
    fn write_tables(&self, shares: &mut Vec<Share>) -> Result<()> {
        let writer = self.checkpoint_writer();
        let keeper = writer.keeper(self.alloc_partition());
        let entries = shares.iter().flat_map(|share| &share.entries);
        keeper.keep(nat_pairs(entries))?;
        // Crash scenario if SIT pairs are written before all partitions have moved their images:
        // the SIT has an image that the NAT names as free, and no log names it.
        let order = if self.options.store_rules.nodes_before_space.holds() {
            [Step::Nat, Step::Space]
        } else {
            [Step::Space, Step::Nat]
        };
        for step in order {
            if step == Step::Space {
                let core = self.alloc_partition();
                if self.options.store_rules.shared_before_space.holds() {
                    self.space.write_shared(core, writer.checkpoint)?;
                }
                let changed = self.space.changed_pairs();
                keeper.keep(changed.iter().copied().map(pair_index))?;
                deal(changed, shares);
            }
            self.run_shares(step, shares)?;
            if step == Step::Space && !self.options.store_rules.shared_before_space.holds() {
                let core = self.alloc_partition();
                self.space.write_shared(core, writer.checkpoint)?;
            }
            if step == Step::Nat {
                writer.trace("nat");
            }
        }
        Ok(())
    }
}

/// Deals SIT pairs, in runs.
fn deal(pairs: Vec<u32>, shares: &mut [Share]) {
    let each = pairs.len().div_ceil(shares.len()).max(1);
    for (share, run) in shares.iter_mut().zip(pairs.chunks(each)) {
        share.sit_pairs = run.to_vec();
    }
}
