//! Write-back of many inodes at once.
//!
//! **Problem.** Many small files that are written back one after the other are as many small
//! requests, and a wait for each, although their blocks lie side by side. **Structure.** A round
//! takes the dirty pages of several inodes, up to 1 MiB, copies them next to one another, gives them
//! neighbouring blocks, and writes each run of blocks in one request. Then an operation for each
//! inode stores its slots.
//!
//! # Invariants
//! A round holds the write-back locks of its inodes, and only tries to take them, so rounds wait for
//! no other and not in a circle. All data of a round is written before its first operation begins;
//! order and durability are those of each file by itself. A round promises nothing: what it could
//! not do stays dirty, and [`Files::write_back`] of the inode does it, or says why not.
//!
//! **On a crash** between two operations of a round some files have their pages, and others not, as
//! if they had been written back one after the other.

use dure_store::error::Result;
use dure_store::placement::Target;
use dure_store::units::BLOCK_BYTES;
use dure_sync::Arc;

use super::batch::{BATCH_PAGES, Batch, Taken};
use crate::file::Files;
use crate::file::placing::Needs;
use crate::inode::{HeldWriteback, Inode};
use crate::volume::DataMode;

/// An inode whose pages are written with those of others.
#[derive(Debug)]
struct Member<'i> {
    inode: &'i Arc<Inode>,
    _held: HeldWriteback<'i>,
    batch: Batch,
    needs: Needs,
}

/// What is written together.
#[derive(Debug, Default)]
struct Round<'i> {
    members: Vec<Member<'i>>,
    /// The targets of all members' pages, in their order.
    targets: Vec<Target>,
}

impl Files {
    /// Writes dirty pages of these inodes back, until a MiB was written or each was visited. Returns
    /// how many inodes were visited, at least one, and how many pages were written. Inodes whose
    /// write-back is under way are passed over.
    pub(super) fn write_round(&self, inodes: &[Arc<Inode>]) -> (usize, u64) {
        // In these modes data goes with the slots of its file, or after them.
        let together =
            self.options.data != DataMode::Journal && self.options.rules.data_before_log.holds();
        if !together || inodes.len() < 2 {
            return (1, 0);
        }
        let core = self.store.partition();
        let mut copies = self.pages.take_scratch(core, BATCH_PAGES);
        let (visited, mut round) = self.gather(inodes, copies.as_mut_slice());
        let bytes = &copies.as_slice()[..round.targets.len() * BLOCK_BYTES];
        let placed = self.place_round(&mut round.targets, bytes);
        self.pages.give_scratch(core, copies);
        let written = match placed {
            Ok(()) => self.log_round(&mut round),
            Err(_) => {
                let members = round.members.iter();
                members.for_each(|member| self.give_up(member.inode, &member.batch));
                0
            }
        };
        (visited, written)
    }

    /// Copies dirty pages of these inodes into `space`, until it is full. Returns how many inodes
    /// were visited, and whose pages they are.
    fn gather<'i>(&self, inodes: &'i [Arc<Inode>], mut space: &mut [u8]) -> (usize, Round<'i>) {
        let mut round = Round::default();
        for (visited, inode) in inodes.iter().enumerate() {
            let pages = space.len() / BLOCK_BYTES;
            if pages == 0 {
                return (visited, round);
            }
            let Some(held) = inode.try_lock_writeback() else {
                continue;
            };
            let limits = self.batch_limits().within(pages);
            match self.copy_dirty(inode, 0..u64::MAX, limits, Some(&mut *space)) {
                Taken::Batch(batch, Ok(plan)) => {
                    (_, space) = space.split_at_mut(batch.pages.len() * BLOCK_BYTES);
                    round.targets.extend(plan.targets);
                    round.members.push(Member {
                        inode,
                        _held: held,
                        batch,
                        needs: plan.needs,
                    });
                }
                Taken::Batch(batch, Err(_)) => self.give_up(inode, &batch),
                Taken::Nothing | Taken::Cut => {}
            }
        }
        (inodes.len(), round)
    }

    /// Writes the pages of a round to blocks.
    fn place_round(&self, targets: &mut [Target], bytes: &[u8]) -> Result<()> {
        if targets.is_empty() {
            return Ok(());
        }
        let core = self.store.partition();
        let tier = self.options.tier(false);
        let placed = self
            .store
            .placement
            .allocate(core, targets, tier)
            .and_then(|()| self.store.place_pages(core, targets, bytes));
        if placed.is_err() {
            self.store.placement.release(targets);
        }
        self.moves_if_many(tier, targets);
        placed
    }

    /// Stores the slots of a round, whose pages are written. Returns how many pages.
    fn log_round(&self, round: &mut Round<'_>) -> u64 {
        let mut rest = &round.targets[..];
        let mut written = 0;
        for member in &mut round.members {
            let (targets, after) = rest.split_at(member.batch.pages.len());
            rest = after;
            match self.log_slots(member.inode, &mut member.batch, targets, member.needs, None) {
                Ok(_) => {
                    self.unreserve_in_place(targets);
                    self.count_written(targets.len());
                    written += targets.len();
                }
                Err(_) => {
                    self.store.placement.release(targets);
                    self.give_up(member.inode, &member.batch);
                }
            }
        }
        dure_store::units::to_u64(written)
    }
}
