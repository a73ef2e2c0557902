//! Blocks that several slots name: clones of files share them.
//!
//! **Problem.** A block is free when the last slot lets go of it. Whose slot that is must not depend on
//! the order in which operations settle, a crash must not change it, and a volume without clones must
//! not pay for it.
//!
//! **Structure.** A segment that has shared blocks has [`Owners`], under its lock: the slots that name
//! each. The checkpoint writes those of segments that have changed (`table`), and the volume header
//! names them. A block is in no list before it is shared, and in none when one slot is left: then its
//! owner is in the summary, as of all blocks. Live data is nowhere overwritten in place, so only the
//! end of a block has to know. The cleaner moves nothing of a segment in which something is shared.
//!
//! # Invariants
//! Before an operation that shares blocks joins, the superblock says that there are such
//! ([`Space::may_share`]); and blocks are reserved for the lists ([`Space::claim_shared`]), so that no
//! checkpoint lacks them.
//!
//! **Crash.** The lists are those of a checkpoint; recovery asks each slot that a list or a record of
//! the logs names (`recovery::liveness`). So nothing is counted twice, and it may be repeated.

mod owners;
mod table;

use dure_sync::Mutex;
use dure_sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub(super) use self::owners::{Let, Owners};
use self::table::Lists;
pub use self::table::SharedClaim;
use super::Space;
use super::partition::Piece;
use super::segment::{Freed, Mismatch, SegmentState};
use crate::format::summary::{OWNER_SLOT, SummaryEntry};
use crate::ranks::SHARED;
use crate::units::{BlockNo, Run, SlotRef};
use zerocopy::little_endian::U64;

/// What a volume knows of shared blocks as a whole.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// The superblock says that blocks may be shared. Set once, before the first operation that
    /// shares some joins; Relaxed, as a task that frees such a block has seen that operation.
    on: AtomicBool,
    /// Blocks that all chains take, if written now. Changed under the locks of segments; a statistic
    /// for reservations, hence Relaxed.
    chain_blocks: AtomicU64,
    lists: Mutex<SHARED, Lists>,
}

impl Shared {
    pub(super) fn new(on: bool) -> Shared {
        Shared {
            on: AtomicBool::new(on),
            ..Shared::default()
        }
    }
}

/// Slot `n` behind this one.
pub(super) fn behind(owner: SlotRef, n: u32) -> SlotRef {
    let n = u8::try_from(n).expect("a run lies in one granule");
    let slot = owner.slot.checked_add(n).expect("a granule has few slots");
    SlotRef { slot, ..owner }
}

fn entry_of(owner: SlotRef) -> SummaryEntry {
    SummaryEntry {
        nid: U64::new(owner.nid.0),
        kind: OWNER_SLOT,
        granule: owner.granule,
        slot: owner.slot,
        reserved: 0,
    }
}

impl Space {
    /// Whether slots may share blocks.
    #[inline]
    pub fn may_share(&self) -> bool {
        self.shared.on.load(Ordering::Relaxed)
    }

    /// From now on they may: the superblock says so, durably.
    pub(crate) fn allow_sharing(&self) {
        self.shared.on.store(true, Ordering::Relaxed);
    }

    /// Whether several slots name this block.
    #[must_use]
    pub fn is_shared(&self, block: BlockNo) -> bool {
        if !self.may_share() {
            return false;
        }
        let place = self.layout.locate(block);
        let look = |(segment, index)| self.segments.peek(segment, |state| state.is_shared(index));
        place.and_then(look) == Some(true)
    }

    /// References to blocks beyond the first: blocks that clones spare. Looks at all segments with
    /// shared blocks.
    #[must_use]
    pub fn spared_blocks(&self) -> u64 {
        let extra = |state: &SegmentState| state.shared.as_deref().map_or(0, Owners::extra);
        let of = |segment| self.segments.peek(segment, extra);
        self.segments.with_shared().filter_map(of).sum()
    }

    /// All shared blocks, with the slots that name them.
    pub fn all_shared(&self) -> impl Iterator<Item = (BlockNo, Vec<SlotRef>)> {
        self.segments.with_shared().flat_map(|segment| {
            let of = |state: &SegmentState| {
                let blocks = (0..self.layout.segment_blocks).filter(|n| state.is_shared(*n));
                let owners = |index| state.shared.as_deref().map(|shared| shared.owners(index));
                let owners = |index| owners(index).into_iter().flatten().collect();
                blocks
                    .map(|n| (self.block(segment, n), owners(n)))
                    .collect::<Vec<_>>()
            };
            self.segments.peek(segment, of).unwrap_or_default()
        })
    }

    /// The slots that name a shared block, as valid operations, or the lists of the medium, have it; none
    /// of a block that is not shared.
    #[must_use]
    pub fn owners_of(&self, block: BlockNo) -> Vec<SlotRef> {
        let Some((segment, index)) = self.layout.locate(block) else {
            return Vec::new();
        };
        let owners = |state: &SegmentState| {
            let shared = state.shared.as_deref();
            shared.map_or(Vec::new(), |shared| shared.owners(index).collect())
        };
        self.segments.peek(segment, owners).unwrap_or_default()
    }

    /// Runs `body` for each block of the run, on the owners in its segment, which are made if there
    /// are none; `body` says what the summary is to have.
    fn with_owners(&self, run: Run, body: impl Fn(&mut Owners, u32, u32) -> Option<SlotRef>) {
        let blocks = self.layout.segment_blocks;
        let mut n = 0;
        for piece in self.pieces(run) {
            self.segments.with_sharing(piece.segment, |state| {
                let shared = state
                    .shared
                    .get_or_insert_with(|| Box::new(Owners::new(blocks)));
                let before = shared.chain_blocks();
                let mut owners = Vec::new();
                for index in piece.first..piece.first + piece.count {
                    let owner = body(shared, index, n);
                    owners.extend(owner.map(|owner| (index, owner)));
                    n += 1;
                }
                self.count_chain(before, shared.chain_blocks());
                for (index, owner) in owners {
                    state.set_owner(index, entry_of(owner), blocks);
                }
            });
        }
    }

    fn count_chain(&self, before: u64, after: u64) {
        if before != after {
            let change = after.wrapping_sub(before);
            self.shared
                .chain_blocks
                .fetch_add(change, Ordering::Relaxed);
        }
    }

    /// An operation is about to join that lets the slots from `target` on name these blocks, as those
    /// from `source` on do. Its caller keeps the inodes of both.
    pub(crate) fn share(&self, source: SlotRef, target: SlotRef, run: Run) {
        assert!(self.may_share(), "the superblock says so before");
        self.with_owners(run, |owners, index, n| {
            owners.share(index, behind(source, n), behind(target, n));
            None
        });
    }

    /// That operation is valid.
    pub(super) fn settle_share(&self, target: SlotRef, run: Run) {
        self.with_owners(run, |owners, index, n| {
            owners.settle_share(index, behind(target, n))
        });
    }

    /// A valid handle has taken these blocks of one segment out of the slots from `owner` on.
    pub(super) fn settle_piece_of(
        &self,
        owner: SlotRef,
        piece: Piece,
        now: u64,
    ) -> Result<Freed, Mismatch> {
        let blocks = self.layout.segment_blocks;
        self.segments.with(piece.segment, |state| {
            let mut freed = Freed { dead: 0, free: 0 };
            for n in 0..piece.count {
                let (index, owner) = (piece.first + n, behind(owner, n));
                let let_go = state.shared.as_deref_mut().map_or(Let::Last, |shared| {
                    let before = shared.chain_blocks();
                    let let_go = shared.free(index, owner);
                    self.count_chain(before, shared.chain_blocks());
                    let_go
                });
                match let_go {
                    Let::Last => {
                        let one = state.settle_free(index, 1, now)?;
                        freed.dead += one.dead;
                        freed.free += one.free;
                    }
                    Let::Kept(Some(next)) => state.set_owner(index, entry_of(next), blocks),
                    Let::Kept(None) => {}
                }
            }
            Ok(freed)
        })
    }

    /// Mount and repair: these slots name the block, and no others.
    pub fn mend_owners(&self, block: BlockNo, slots: &[SlotRef]) {
        let (segment, index) = self.locate(block);
        let known = self.segments.peek(segment, |state| state.shared.is_some());
        if slots.len() < 2 && known != Some(true) {
            return;
        }
        let run = Run {
            first: block,
            count: 1,
        };
        self.with_owners(run, |owners, _, _| {
            owners.mend(index, slots);
            None
        });
    }
}
