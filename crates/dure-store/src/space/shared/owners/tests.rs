//! Every order in which operations on one block can settle, compared with a set of slots.

use std::collections::BTreeSet;

use dure_sync::random::Seeded;

use super::{Let, Owners};
use crate::units::{BlockNo, Nid, SlotRef};

fn slot(number: u8) -> SlotRef {
    SlotRef {
        nid: Nid(u64::from(number / 4) + 9),
        granule: 1,
        slot: number % 4 + 3,
    }
}

/// What an operation on block 5 did, once it is valid.
#[derive(Debug, Clone, Copy)]
enum Effect {
    Share(SlotRef),
    Free(SlotRef),
}

/// Operations that have joined, in any order.
struct Case {
    owners: Owners,
    /// Slots that name the block, as of operations that have joined.
    joined: BTreeSet<SlotRef>,
    unsettled: Vec<Effect>,
    /// What the summary says.
    summary: SlotRef,
    free: bool,
}

impl Case {
    fn new() -> Case {
        Case {
            owners: Owners::new(32),
            joined: BTreeSet::from([slot(0)]),
            unsettled: Vec::new(),
            summary: slot(0),
            free: false,
        }
    }

    fn join(&mut self, random: &mut Seeded) {
        let names: Vec<SlotRef> = self.joined.iter().copied().collect();
        let Some(source) = names.get(usize::try_from(random.below(4)).unwrap_or(0)) else {
            return;
        };
        let target = slot(u8::try_from(random.below(6)).expect("below 6"));
        if random.below(2) == 0 && !self.joined.contains(&target) {
            self.owners.share(5, *source, target);
            self.joined.insert(target);
            self.unsettled.push(Effect::Share(target));
        } else {
            self.joined.remove(source);
            self.unsettled.push(Effect::Free(*source));
        }
    }

    fn settle(&mut self, random: &mut Seeded) {
        let count = u64::try_from(self.unsettled.len()).expect("few");
        if count == 0 {
            return;
        }
        let at = usize::try_from(random.below(count)).expect("few");
        match self.unsettled.remove(at) {
            Effect::Share(target) => {
                if let Some(owner) = self.owners.settle_share(5, target) {
                    self.summary = owner;
                }
            }
            Effect::Free(owner) => match self.owners.free(5, owner) {
                Let::Last => {
                    assert!(self.joined.is_empty() && !self.free, "free, and named");
                    self.free = true;
                    if random.coin() {
                        self.reuse();
                    }
                }
                Let::Kept(owner) => self.summary = owner.unwrap_or(self.summary),
            },
        }
    }

    /// Another file gets the block; what the last ones did may not have settled.
    fn reuse(&mut self) {
        self.joined.insert(slot(0));
        (self.summary, self.free) = (slot(0), false);
    }

    /// Nothing is on its way.
    fn expect_quiet(&mut self) {
        let named: BTreeSet<SlotRef> = self.owners.owners(5).collect();
        assert_eq!(self.free, self.joined.is_empty());
        assert!(self.owners.pending.is_empty(), "{:?}", self.owners);
        if self.joined.len() > 1 {
            assert_eq!(named, self.joined);
            assert!(named.contains(&self.summary), "{:?}", self.summary);
            let runs = self.owners.runs(BlockNo(100));
            let all: u32 = runs.iter().map(|run| run.blocks.get().count_ones()).sum();
            assert_eq!(usize::try_from(all), Ok(self.joined.len()));
            assert!(runs.iter().all(|run| run.first().0 == 105));
        } else {
            assert_eq!(named, BTreeSet::new(), "one owner is in the summary");
            assert!(self.joined.iter().all(|owner| *owner == self.summary));
            assert!(self.owners.runs(BlockNo(100)).is_empty());
        }
    }
}

#[test]
fn what_settles_in_any_order_gives_the_same_owners() {
    for seed in 0..20_000 {
        let random = &mut Seeded::new(seed);
        let mut case = Case::new();
        for _ in 0..3 {
            for _ in 0..random.below(6) {
                case.join(random);
                if random.below(3) == 0 {
                    case.settle(random);
                }
            }
            while !case.unsettled.is_empty() {
                case.settle(random);
            }
            case.expect_quiet();
            if case.free {
                case.reuse();
            }
        }
    }
}

#[test]
fn a_block_of_a_clone_that_is_not_valid_is_in_no_list() {
    let mut owners = Owners::new(32);
    owners.share(5, slot(0), slot(1));
    assert!(owners.is_shared(5) && owners.runs(BlockNo(100)).is_empty());
    assert_eq!(owners.settle_share(5, slot(1)), None);
    assert_eq!(owners.runs(BlockNo(100)).len(), 2, "two slots of a block");
    // As a mount finds it.
    let mut loaded = Owners::new(32);
    for run in owners.runs(BlockNo(100)) {
        let first = u32::try_from(run.first().0 - 100).expect("of the segment");
        assert!(loaded.load(first, run.owner(), run.blocks.get()));
        assert!(!loaded.load(first, run.owner(), run.blocks.get()), "twice");
    }
    assert_eq!(loaded.count(), None);
    assert!(loaded.is_shared(5));
    assert_eq!(loaded.free(5, slot(0)), Let::Kept(Some(slot(1))));
    assert_eq!(loaded.free(5, slot(1)), Let::Last);
}
