//! What valid handles and checkpoints did to blocks.
//!
//! **Problem.** A block that is freed may be used again only when no crash can undo that.
//! **Structure.** The journal passes the [`Effect`]s of handles that have become valid; a checkpoint says which
//! images it has moved, and when it is complete. **Invariants.** What contradicts the map is left
//! out and noted, and the next checkpoint fails with it: one of the two is corrupt. **Crash.** As
//! [`super`] says.

use dure_sync::current_core;

use super::partition::Piece;
use super::segment::Mismatch;
use super::shared::behind;
use super::{IMAGE_DENIED, Space, now};
use crate::error::{Error, Result};
use crate::units::{BlockNo, Nid, Run, SegNo, SlotRef};

/// What a handle does to space and nids once it is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It placed these blocks.
    Live(Run),
    /// It freed these blocks, which no slots share.
    Free(Run),
    /// It took these blocks out of their slots; one is free when no other slot names it.
    FreeOf(Owned),
    /// It let these slots name blocks that others name, too.
    Share(Owned),
    /// It freed this node at this version. Handled by the NAT, not by the space map.
    NidFree {
        /// The node.
        nid: Nid,
        /// Its tombstone.
        version: u64,
    },
}

/// Blocks, and the slots of one granule that name them, in the same order. Not a run and a slot, and packed: effects
/// are many, and this is as short as the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C, packed(4))]
pub struct Owned {
    first: BlockNo,
    nid: Nid,
    count: u16,
    granule: u8,
    slot: u8,
}

impl Owned {
    /// The blocks of `run`, which the slots from `owner` on name.
    pub(crate) fn new(owner: SlotRef, run: Run) -> Owned {
        let SlotRef { nid, granule, slot } = owner;
        Owned {
            first: run.first,
            nid,
            count: u16::try_from(run.count).expect("a run lies in one granule"),
            granule,
            slot,
        }
    }

    /// The first slot, and the blocks.
    pub(crate) fn parts(self) -> (SlotRef, Run) {
        let Owned {
            first,
            nid,
            count,
            granule,
            slot,
        } = self;
        let count = u32::from(count);
        (SlotRef { nid, granule, slot }, Run { first, count })
    }
}

const _: () = assert!(size_of::<Effect>() == 24, "as without clones");

impl Space {
    /// Takes in what valid handles did. Freed blocks become available to the current core. What
    /// contradicts the map is left out and noted for [`Space::check`].
    pub(crate) fn settle(&self, effects: impl IntoIterator<Item = Effect>) {
        let now = now();
        let mut freed = 0;
        for effect in effects {
            let settled = match effect {
                Effect::Live(run) => Ok(self.settle_live(run, now)),
                Effect::Free(run) => {
                    self.freeing.add(-i64::from(run.count));
                    self.settle_free(run, None, now)
                }
                Effect::FreeOf(owned) => {
                    let (owner, run) = owned.parts();
                    self.freeing.add(-i64::from(run.count));
                    self.settle_free(run, Some(owner), now)
                }
                Effect::Share(owned) => {
                    let (owner, run) = owned.parts();
                    self.settle_share(owner, run);
                    continue;
                }
                Effect::NidFree { .. } => continue,
            };
            match settled {
                Ok(free) => freed += free,
                Err(wrong) => drop(self.wrong.set(wrong)),
            }
        }
        self.available.give(current_core(), freed);
    }

    /// An operation has freed these blocks: they will come with its effects.
    pub(crate) fn will_free(&self, run: Run) {
        self.freeing.add(i64::from(run.count));
    }

    /// These blocks were placed; returns how many of them became free immediately, because a valid
    /// handle had freed them already.
    fn settle_live(&self, run: Run, now: u64) -> u64 {
        let mut freed = 0;
        for Piece {
            segment,
            first,
            count,
        } in self.pieces(run)
        {
            let free = self
                .segments
                .with(segment, |state| state.settle_live(first, count, now));
            freed += u64::from(free);
            self.live.add(i64::from(count) - i64::from(free));
        }
        freed
    }

    /// These blocks were freed, by the slots from `owner` on if others may share them; returns how
    /// many of them are free now.
    fn settle_free(
        &self,
        run: Run,
        owner: Option<SlotRef>,
        now: u64,
    ) -> std::result::Result<u64, (BlockNo, String)> {
        let pieces = self.checked_pieces(run);
        let pieces = pieces.map_err(|error| (run.first, error.to_string()))?;
        let (mut freed, mut done) = (0, 0);
        for piece in pieces {
            let Piece {
                segment,
                first,
                count,
            } = piece;
            let free = match owner {
                None => self
                    .segments
                    .with(segment, |state| state.settle_free(first, count, now)),
                Some(owner) => self.settle_piece_of(behind(owner, done), piece, now),
            };
            done += count;
            match free {
                Ok(now) => {
                    freed += u64::from(now.free);
                    self.live.add(-i64::from(now.dead));
                    if now.free < now.dead {
                        self.pinned_only.add(i64::from(now.dead - now.free));
                    }
                }
                Err(wrong) => {
                    // What this run freed before stays free: tell the counts.
                    self.available.give(current_core(), freed);
                    return Err(self.describe(segment, wrong));
                }
            }
        }
        Ok(freed)
    }

    /// Whether everything settled so far agreed with the map.
    ///
    /// # Errors
    /// `Corrupt` for the first contradiction: the SIT, or a slot, on the medium is wrong, and it is
    /// unknown which blocks may be given out. The volume has to stop.
    pub(crate) fn check(&self) -> Result<()> {
        match self.wrong.get() {
            None => Ok(()),
            Some((at, what)) => Err(contradiction(*at, what.clone())),
        }
    }

    /// The block of a mismatch, and what is wrong with it.
    pub(super) fn describe(&self, segment: SegNo, wrong: Mismatch) -> (BlockNo, String) {
        let (index, what) = (wrong.index, wrong.what);
        let what = format!(
            "space map (SIT), block {index} of segment {}: {what}",
            segment.0
        );
        (self.block(segment, index), what)
    }

    /// The NAT on the medium names `new` instead of `old` (either may be `NONE`: first image, freed
    /// node). `old` stays allocated until [`Space::images_released`].
    ///
    /// # Errors
    /// `Corrupt` when no image can have been at `old`.
    pub(crate) fn image_moved(&self, old: BlockNo, new: BlockNo) -> Result<()> {
        let now = now();
        if !new.is_none() {
            let (segment, index) = self.locate(new);
            self.segments
                .with(segment, |state| state.image_live(index, now));
            self.live.add(1);
        }
        if !old.is_none() {
            let Some((segment, index)) = self.layout.locate(old) else {
                let what = "NAT entry: image outside of the main area".to_owned();
                return Err(contradiction(old, what));
            };
            let dead = self
                .segments
                .with(segment, |state| state.retire(index, now, IMAGE_DENIED));
            let is_pinned = dead.map_err(|wrong| {
                let (at, what) = self.describe(segment, wrong);
                contradiction(at, what)
            })?;
            self.live.add(-1);
            if is_pinned {
                self.pinned_only.add(1);
            } else {
                self.images.lock().push(old);
            }
        }
        Ok(())
    }

    /// Nothing has been written yet, and an image is to be replaced: the map must have it as live.
    ///
    /// # Errors
    /// `Corrupt` when no image can be there.
    pub(crate) fn expect_image(&self, block: BlockNo) -> Result<()> {
        if self.is_live(block) {
            return Ok(());
        }
        let Some((segment, index)) = self.layout.locate(block) else {
            let what = "NAT entry: image outside of the main area".to_owned();
            return Err(contradiction(block, what));
        };
        let what = IMAGE_DENIED;
        let (at, what) = self.describe(segment, Mismatch { index, what });
        Err(contradiction(at, what))
    }

    /// The checkpoint that moved the images is complete: the old blocks are free.
    pub(crate) fn images_released(&self) {
        let released = std::mem::take(&mut *self.images.lock());
        for &block in &released {
            self.release(Run {
                first: block,
                count: 1,
            });
        }
        self.available
            .give(current_core(), crate::units::to_u64(released.len()));
    }
}

/// The map and what points to a block disagree: one of them is corrupt.
fn contradiction(at: BlockNo, what: String) -> Error {
    Error::Corrupt {
        what,
        at: at.0,
        want: 1,
        got: 0,
    }
}
