//! The fuzzy checkpoint: puts dirty nodes on the medium and lets log tails pass. Operations go on
//! meanwhile.
//!
//! # Order, each step with the crash it guards against
//! 1. cut, copies, commit of everything copied: a NAT entry must never name an image that holds
//!    bytes of a handle that is lost (model case A4).
//! 2. images to free blocks; NAT, SIT, summaries and packs to slots that do not count. In any
//!    order: until the header is written, none of it counts, and the logs still have it all.
//! 3. flush, then the volume header, which names the packs and so everything: it must never name
//!    what is not there (A5, A6, A9).
//! 4. flush, then the journal headers: a tail must never pass what no durable table covers (A7).
//! 5. flush: log space and old images are used again only now (A8).

use dure_journal::{CommitError, TraceEvent};

use super::Store;
use crate::checkpoint::{CheckpointState, Target, Writer, targets_of};
use crate::error::{Error, Result};
use crate::node::NodeRef;
use crate::units::Nid;

impl Store {
    /// Makes one checkpoint; waits for a running one first. It takes no write-back lock, so the
    /// caller may hold one; it takes an inode lock to give a page of the data log another block, so
    /// the caller holds none.
    ///
    /// # Errors
    /// `Stopped`, or the first failure (after which the volume is stopped).
    pub fn checkpoint(&self) -> Result<()> {
        self.check_writable()?;
        let mut state = self.checkpoint.lock();
        self.checkpoint_locked(&mut state)
    }

    pub(crate) fn checkpoint_locked(&self, state: &mut CheckpointState) -> Result<()> {
        let own = state.check_own(&self.region, &self.layout);
        own.inspect_err(|error| self.stop(error))?;
        let journal = self.journal();
        // Every granule changed by a handle up to this cut is on a dirty list by now, or was copied
        // by an earlier checkpoint: nodes go on the list before their handle joins.
        let cut = journal.cut();
        let checkpoint = state.header.checkpoint.get() + 1;
        let begun = |step| TraceEvent::Checkpoint { checkpoint, step };
        journal.trace().record(None, || begun("cut"));
        let nodes = self.nodes.take_dirty();
        let targets = targets_of(&nodes);
        journal.trace().record(None, || begun("copied"));
        let result = self.checkpoint_write(state, &cut, &targets);
        match &result {
            Ok(()) => {
                self.counters.checkpoints.add(1);
                self.owners.end_all();
                let image = |(_, target): &&(Nid, Target)| matches!(target, Target::Image(_));
                let images = targets.iter().filter(image).count();
                self.counters
                    .images
                    .add(i64::try_from(images).unwrap_or(i64::MAX));
                // Each node on a dirty list held a block for its image. Freed nodes got no image.
                let spare = u32::try_from(nodes.len() - images)
                    .expect("fewer than 2^32 nodes are in memory");
                self.space.unreserve(self.alloc_partition(), spare);
                // The NAT has the tombstones of these; not yet of those freed after the copy, which
                // are dirty again.
                let gone = |node: &&NodeRef| node.freed_and_joined().is_some() && !node.is_dirty();
                for node in nodes.iter().filter(gone) {
                    self.nodes.remove_freed(node);
                }
            }
            Err(error) => {
                // Memory stays the only place of these changes: keep the nodes from eviction.
                let core = self.partition();
                for node in nodes {
                    self.nodes.make_dirty(core, &node);
                }
                self.stop(error);
            }
        }
        result
    }

    /// Makes everything that has joined so far valid; at most twice in a checkpoint.
    ///
    /// # Errors
    /// As [`Store::commit`].
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
        targets: &[(Nid, Target)],
    ) -> Result<()> {
        let journal = self.journal();
        // The copies may hold changes younger than the cut: those too must be valid before a NAT
        // entry names the image (model case A4).
        self.commit_for_checkpoint()?;
        // Data that is only in a log goes to its block before the first flush. Crash scenario
        // otherwise: the tail passes the handle that carries it, and a slot names a block that was
        // never written. After the cut was taken: what its handles logged is in the table.
        if self.options.store_rules.data_before_tail.holds() {
            let core = self.partition();
            let placed = self.placement.write_logged(core);
            state.replaced = match placed {
                Ok(()) => false,
                Err(unplaced) => self.replace_logged(core, unplaced)?,
            };
        }
        let checkpoint = state.header.checkpoint.get() + 1;
        let writer = Writer {
            region: &self.region,
            layout: &self.layout,
            nat: &self.nat,
            space: &self.space,
            checkpoint,
            rules: &self.options.store_rules,
            journal: Some(journal),
        };
        writer.trace("committed");
        writer.write(self.alloc_partition(), state, targets)?;
        state.write(&self.region, &self.layout)?;
        // Crash scenario without this flush: a tail has moved, the header that would make the
        // tables count is lost, and what lies between is in neither.
        if self.options.store_rules.header_before_tails.holds() {
            self.region.flush()?;
        }
        journal.checkpoint_done(cut, checkpoint)?;
        writer.trace("headers");
        self.space.images_released();
        Ok(())
    }
}
