//! Which slots name the shared blocks of one segment.
//!
//! **Problem.** Operations share a block and let go of it in an order; they become valid, and settle,
//! in another. A block must not be free while a slot names it, and what a checkpoint writes must be
//! the slots of valid operations only.
//!
//! **Structure.** Two views, as of a segment's bitmaps. `extra` counts the references of a block
//! beyond the first: an operation that shares it counts when it *joins*, one that lets go when it is
//! *valid*. `lines` are the slots as valid operations have them. Of a block with one reference
//! neither says anything: its owner is in the summary. `pending` are slots whose sharing has joined
//! and is not settled, and those of which a later life has settled before an earlier one.
//!
//! # Invariants
//! A slot can be shared only while it names the block, so `extra` cannot fall to zero before the last
//! slot but one has let go for good. While `extra` is above zero, references are lines plus
//! `pending`. What settles in any order gives the same lines.
//!
//! | | core 0 | core 1 | extra | lines |
//! |---|---|---|---|---|
//! | 1 | a clone shares A's block with B, joins | | 1 | A |
//! | 2 | | A is overwritten, joins; a commit makes both valid | 1 | A |
//! | 3 | | the overwrite settles: the block stays live | 0 | |
//! | 4 | the clone settles: B is the owner, for the summary | | 0 | |
//!
//! **On a crash** all of it is gone, but for the lines that a checkpoint has written.

use std::collections::BTreeMap;

use crate::format::shared::{RUNS, SharedRun};
use crate::units::{BlockNo, Nid, SlotRef};

/// Slots of a granule, at most.
const SLOTS: u8 = 64;

/// Slots of one granule that name blocks at the same distance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Line {
    /// The block of slot 0, counted from the segment's first: before it, if negative.
    base: i32,
    nid: Nid,
    granule: u8,
}

impl Line {
    /// The block in a slot, counted from the segment's first.
    fn index(self, slot: u32) -> usize {
        usize::try_from(i64::from(self.base) + i64::from(slot)).expect("blocks of the segment")
    }
}

/// The numbers of the bits that are set, ascending.
fn ones(mut bits: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let next = bits.trailing_zeros();
        bits &= bits.wrapping_sub(1);
        (next < u64::BITS).then_some(next)
    })
}

/// A block of the segment, and a slot that names it.
type Pair = (u32, SlotRef);

/// What has not settled of a pair.
#[derive(Debug, Default)]
struct Pending {
    /// Operations that shared it and have joined.
    shares: i32,
    /// Settled: times shared, less times let go, beyond what its line says.
    ahead: i32,
}

/// What becomes of a block of which a slot lets go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::space) enum Let {
    /// It was the only one.
    Last,
    /// Others name it; this one of them, if one is known, is its owner for the summary.
    Kept(Option<SlotRef>),
}

/// See the module.
#[derive(Debug)]
pub(in crate::space) struct Owners {
    extra: Box<[u32]>,
    /// Blocks with more than one reference.
    shared: u32,
    /// Bit i: slot i.
    lines: BTreeMap<Line, u64>,
    pending: BTreeMap<Pair, Pending>,
    /// The lines differ from what the medium has.
    pub(in crate::space) dirty: bool,
}

fn line_of((index, owner): Pair) -> (Line, u64) {
    assert!(owner.slot < SLOTS, "slot {} of a granule", owner.slot);
    let base = i32::try_from(index).expect("a segment has at most 512 blocks");
    let line = Line {
        base: base - i32::from(owner.slot),
        nid: owner.nid,
        granule: owner.granule,
    };
    (line, 1 << owner.slot)
}

impl Owners {
    /// Of a segment of so many blocks in which none is shared.
    pub(in crate::space) fn new(segment_blocks: u32) -> Owners {
        Owners {
            extra: (0..segment_blocks).map(|_| 0).collect(),
            shared: 0,
            lines: BTreeMap::new(),
            pending: BTreeMap::new(),
            dirty: false,
        }
    }

    /// Whether several slots name the block.
    pub(in crate::space) fn is_shared(&self, index: u32) -> bool {
        self.extra[index as usize] > 0
    }

    /// How many blocks several slots name.
    pub(in crate::space) fn shared(&self) -> u32 {
        self.shared
    }

    /// References beyond the first of all blocks.
    pub(in crate::space) fn extra(&self) -> u64 {
        self.extra.iter().map(|extra| u64::from(*extra)).sum()
    }

    /// Blocks that a chain of all lines takes.
    pub(in crate::space) fn chain_blocks(&self) -> u64 {
        crate::units::to_u64(self.lines.len().div_ceil(RUNS))
    }

    /// An operation joins that lets slot `target` name the block, too, as `source` does.
    pub(in crate::space) fn share(&mut self, index: u32, source: SlotRef, target: SlotRef) {
        if self.extra[index as usize] == 0 {
            let waits = self.pending.get(&(index, source));
            // One whose own sharing has not settled gets its line then.
            if waits.is_none_or(|waits| waits.shares + waits.ahead < 1) {
                self.settle((index, source), 1);
            }
            self.shared += 1;
        }
        self.extra[index as usize] += 1;
        self.pending.entry((index, target)).or_default().shares += 1;
        // Its line takes room in the chain from now on.
        self.lines.entry(line_of((index, target)).0).or_insert(0);
    }

    /// That operation is valid. Returns the slot if it is the owner for the summary.
    pub(in crate::space) fn settle_share(
        &mut self,
        index: u32,
        target: SlotRef,
    ) -> Option<SlotRef> {
        let pair = (index, target);
        let waits = self.pending.get_mut(&pair);
        let waits = waits.expect("what settles has joined");
        waits.shares -= 1;
        if self.extra[index as usize] > 0 {
            let before = self.owner(index);
            self.settle(pair, 1);
            return self.owner(index).filter(|_| before.is_none());
        }
        let gone = waits.ahead < 0;
        if gone {
            waits.ahead += 1;
        }
        self.forget_settled(pair);
        (!gone).then_some(target)
    }

    /// A valid operation has taken the block out of the slot.
    pub(in crate::space) fn free(&mut self, index: u32, owner: SlotRef) -> Let {
        if self.extra[index as usize] == 0 {
            if let Some(waits) = self.pending.get_mut(&(index, owner))
                && waits.shares + waits.ahead >= 1
            {
                waits.ahead -= 1;
            }
            return Let::Last;
        }
        self.settle((index, owner), -1);
        self.extra[index as usize] -= 1;
        let next = self.owner(index);
        if self.extra[index as usize] == 0 {
            self.shared -= 1;
            if let Some(next) = next {
                self.set(index, next, false);
            }
        }
        Let::Kept(next)
    }

    /// The pair has come (1) or gone (-1) by a valid operation.
    fn settle(&mut self, pair: Pair, change: i32) {
        let (line, bit) = line_of(pair);
        let set = self.lines.get(&line).is_some_and(|slots| slots & bit != 0);
        let waits = self.pending.entry(pair).or_default();
        let total = i32::from(set) + waits.ahead + change;
        let is = total >= 1;
        waits.ahead = total - i32::from(is);
        self.forget_settled(pair);
        if is != set {
            self.set(pair.0, pair.1, is);
        }
    }

    fn forget_settled(&mut self, pair: Pair) {
        let waits = self.pending.get(&pair);
        if waits.is_some_and(|waits| waits.shares == 0 && waits.ahead == 0) {
            self.pending.remove(&pair);
        }
    }

    fn set(&mut self, index: u32, owner: SlotRef, names: bool) {
        let (line, bit) = line_of((index, owner));
        let slots = self.lines.entry(line).or_insert(0);
        *slots = if names { *slots | bit } else { *slots & !bit };
        self.dirty = true;
    }

    /// The slots that name the block, as valid operations have it; none if it has one owner.
    pub(in crate::space) fn owners(&self, index: u32) -> impl DoubleEndedIterator<Item = SlotRef> {
        let (base, nid, granule) = (i32::try_from(index).unwrap_or(i32::MAX), Nid(0), 0);
        let from = Line {
            base: base - i32::from(SLOTS) + 1,
            nid,
            granule,
        };
        let to = Line {
            base: base + 1,
            nid,
            granule,
        };
        self.lines.range(from..to).filter_map(move |(line, slots)| {
            let slot = u8::try_from(base - line.base).expect("lines of this range have the block");
            (slots >> slot & 1 == 1).then_some(SlotRef {
                nid: line.nid,
                granule: line.granule,
                slot,
            })
        })
    }

    /// One of them. Of small files these are the last: their lines begin at the block.
    fn owner(&self, index: u32) -> Option<SlotRef> {
        self.owners(index).next_back()
    }

    /// Mount: these slots name the block, and no others.
    pub(in crate::space) fn mend(&mut self, index: u32, owners: &[SlotRef]) {
        let before: Vec<SlotRef> = self.owners(index).collect();
        for owner in before {
            self.set(index, owner, false);
        }
        let was = self.is_shared(index);
        let extra = u32::try_from(owners.len())
            .expect("slots of a volume")
            .saturating_sub(1);
        self.extra[index as usize] = extra;
        self.shared = self.shared + u32::from(extra > 0) - u32::from(was);
        if extra > 0 {
            for owner in owners {
                self.set(index, *owner, true);
            }
        }
    }

    /// Mount: what a run of the medium says; false if it says something twice.
    pub(in crate::space) fn load(&mut self, first: u32, owner: SlotRef, blocks: u64) -> bool {
        let (line, _) = line_of((first, owner));
        let slots = self.lines.entry(line).or_insert(0);
        let new = blocks << owner.slot;
        let once = *slots & new == 0;
        *slots |= new;
        once
    }

    /// Mount: all runs are loaded. Counts references; returns a block with a single one, if there
    /// is such a one.
    pub(in crate::space) fn count(&mut self) -> Option<u32> {
        let counts = self.counts();
        let mut single = None;
        for (index, (extra, count)) in (0..).zip(self.extra.iter_mut().zip(counts)) {
            *extra = count.saturating_sub(1);
            self.shared += u32::from(count > 1);
            if count == 1 {
                single = single.or(Some(index));
            }
        }
        single
    }

    /// Slots that name each block, as valid operations have it.
    fn counts(&self) -> Vec<u32> {
        let mut counts = vec![0; self.extra.len()];
        for (line, slots) in &self.lines {
            for slot in ones(*slots) {
                counts[line.index(slot)] += 1;
            }
        }
        counts
    }

    /// The lines that a checkpoint writes, of a segment that begins at `start`: of each block that
    /// several slots name by valid operations, all of them. What is written counts as clean.
    pub(in crate::space) fn runs(&mut self, start: BlockNo) -> Vec<SharedRun> {
        self.dirty = false;
        if self.pending.is_empty() {
            self.lines.retain(|_, slots| *slots != 0);
        }
        let counts = self.counts();
        let mut runs = Vec::new();
        for (line, slots) in &self.lines {
            let shared = |slot: &u32| counts[line.index(*slot)] > 1;
            let blocks = ones(*slots).filter(shared);
            let blocks = blocks.fold(0_u64, |all, slot| all | 1 << slot);
            if blocks == 0 {
                continue;
            }
            let slot = u8::try_from(blocks.trailing_zeros()).expect("below 64");
            let owner = SlotRef {
                nid: line.nid,
                granule: line.granule,
                slot,
            };
            let index = u64::try_from(line.base + i32::from(slot)).expect("of the segment");
            runs.push(SharedRun::new(
                BlockNo(start.0 + index),
                owner,
                blocks >> slot,
            ));
        }
        runs
    }
}

#[cfg(test)]
mod tests;
