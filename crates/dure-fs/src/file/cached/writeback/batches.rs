//! The batches of one inode, one after the other.
//!
//! **Problem.** While the device writes a batch, write-back could copy the next one; and a device
//! does more with several requests at hand. **Structure.** A batch that others follow is submitted,
//! and the next one is copied meanwhile; as many are at the device as the cache has room for. Their
//! slots are logged in the order of the batches.
//!
//! # Invariants
//! A batch is logged when its own data is on the device and all batches before it are logged, so the
//! logged size never covers a page that is missing. When one fails those behind it, too, stay dirty;
//! their blocks are free when the device has let them go, not before.
//!
//! **On a crash** data of batches that were not logged lies in free blocks.

use std::collections::VecDeque;

use dure_store::error::Result;
use dure_store::placement::{Target, Tier, Writing};
use dure_store::units::to_u64;
use dure_sync::Arc;

use super::batch::{Batch, Copies, Taken};
use super::{Left, Way};
use crate::file::Files;
use crate::file::bytes::pages_up_to;
use crate::file::placing::{Needs, Plan};
use crate::inode::Inode;
use crate::volume::DataMode;

/// A batch whose pages the device is writing.
#[derive(Debug)]
struct Saving {
    batch: Batch,
    targets: Vec<Target>,
    needs: Needs,
    tier: Tier,
    /// Until it was waited for.
    writing: Option<Writing>,
}

/// What was done of the batches of an inode.
#[derive(Debug, Default)]
struct Progress {
    /// Pages whose slots are logged.
    written: u64,
    /// What the last batch has left.
    left: Option<Left>,
    under_way: VecDeque<Saving>,
}

impl Files {
    /// Writes the dirty pages, batch by batch, after what a truncate has left. Returns how many, and
    /// what the last batch has left. The caller holds the write-back mutex.
    pub(super) fn write_batches(
        &self,
        inode: &Arc<Inode>,
        way: Way,
    ) -> Result<(u64, Option<Left>)> {
        let mut progress = Progress::default();
        let written = self.write_each(inode, way, &mut progress);
        // What was submitted before a failure counts.
        self.end_savings(inode, &mut progress, 0).and(written)?;
        Ok((progress.written, progress.left))
    }

    fn write_each(&self, inode: &Arc<Inode>, way: Way, progress: &mut Progress) -> Result<()> {
        let (mut from, mut end) = (0, u64::MAX);
        let limits = self.batch_limits();
        loop {
            let (mut batch, plan) = match self.copy_dirty(inode, from..end, limits, None) {
                Taken::Batch(batch, plan) => (batch, plan),
                Taken::Nothing => return Ok(()),
                Taken::Cut => {
                    self.end_savings(inode, progress, 0)?;
                    self.finish_cut(inode)?;
                    continue;
                }
            };
            let copied = batch.pages.len();
            from = batch.pages[copied - 1] + 1;
            // What is appended from now on is not waited for.
            end = end.min(pages_up_to(batch.size));
            let more = batch.next.is_some_and(|next| next < end);
            let tier = self.options.tier(way == Way::Log);
            let way = match self.options.data {
                DataMode::Journal => Way::Log,
                DataMode::Ordered | DataMode::Writeback if more => Way::Blocks,
                DataMode::Ordered | DataMode::Writeback => way,
            };
            if self.goes_on_alone(way, &batch) && (more || !progress.under_way.is_empty()) {
                let saving = plan.and_then(|plan| self.begin_save(&mut batch, plan, tier));
                match saving {
                    Ok((targets, needs, writing)) => progress.under_way.push_back(Saving {
                        batch,
                        targets,
                        needs,
                        tier,
                        writing: Some(writing),
                    }),
                    Err(error) => {
                        self.give_batch_up(inode, batch);
                        return Err(error);
                    }
                }
                let keep = if more {
                    self.pages.batches_max() - 1
                } else {
                    0
                };
                self.end_savings(inode, progress, keep)?;
            } else {
                let ended = self.end_savings(inode, progress, 0);
                let saved = ended
                    .and(plan)
                    .and_then(|plan| self.save(inode, &mut batch, plan, (way, tier)));
                if saved.is_err() {
                    self.give_up(inode, &batch);
                }
                self.give_copies(batch.copies);
                progress.left = Some(saved?);
                progress.written += to_u64(copied);
                self.count_written(copied);
            }
            if !more {
                return Ok(());
            }
        }
    }

    /// Whether the pages of a batch can be at the device while the next one is copied.
    fn goes_on_alone(&self, way: Way, batch: &Batch) -> bool {
        way == Way::Blocks
            && self.store.reads_wait()
            && self.options.rules.data_before_log.holds()
            && matches!(batch.copies, Copies::Many(_))
    }

    /// Gives blocks to the pages of a batch, and submits them.
    fn begin_save(
        &self,
        batch: &mut Batch,
        plan: Plan,
        tier: Tier,
    ) -> Result<(Vec<Target>, Needs, Writing)> {
        let Plan { mut targets, needs } = plan;
        let allocated = self
            .store
            .placement
            .allocate(self.store.partition(), &mut targets, tier);
        if let Err(error) = allocated {
            self.store.placement.release(&targets);
            return Err(error);
        }
        let writing = self
            .store
            .placement
            .begin_write(&targets, batch.take_many());
        Ok((targets, needs, writing))
    }

    /// Ends the oldest batches until `keep` are under way. After a failure the others are given up.
    fn end_savings(&self, inode: &Arc<Inode>, progress: &mut Progress, keep: usize) -> Result<()> {
        let mut result = Ok(());
        while result.is_err() || progress.under_way.len() > keep {
            let Some(mut saving) = progress.under_way.pop_front() else {
                break;
            };
            let saved = self.end_save(inode, &mut saving, result.is_ok());
            self.end_targets(saving.tier, &saving.targets, matches!(saved, Ok(Some(_))));
            match saved {
                Ok(Some(left)) => {
                    progress.left = Some(left);
                    progress.written += to_u64(saving.batch.pages.len());
                    self.count_written(saving.batch.pages.len());
                    continue;
                }
                Ok(None) => {}
                Err(error) => result = Err(error),
            }
            self.give_up(inode, &saving.batch);
        }
        result
    }

    /// Waits for the data of a batch and logs its slots, if those before it are logged. Returns
    /// what that has left.
    fn end_save(
        &self,
        inode: &Arc<Inode>,
        saving: &mut Saving,
        is_next: bool,
    ) -> Result<Option<Left>> {
        let Saving {
            batch,
            targets,
            needs,
            writing,
            ..
        } = saving;
        let writing = writing.take().expect("it is waited for once");
        let (pages, placed) = self
            .store
            .end_placing(self.store.partition(), targets, writing);
        self.pages.give_scratch(self.store.partition(), pages);
        if !is_next {
            return Ok(None);
        }
        placed?;
        self.log_slots(inode, batch, targets, *needs, None)
            .map(Some)
    }

    fn give_batch_up(&self, inode: &Arc<Inode>, batch: Batch) {
        self.give_up(inode, &batch);
        self.give_copies(batch.copies);
    }
}
