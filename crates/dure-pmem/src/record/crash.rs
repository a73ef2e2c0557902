//! The states that a crash may leave.

use std::collections::BTreeMap;

use dure_sync::random::Seeded;

use super::{Act, Event, LostFences, Stored, Way};
use crate::LINE_BYTES;

/// How many states to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Selection {
    /// Up to this many open stores of words all their subsets are made; at most 16.
    pub exhaustive_max: usize,
    /// States drawn at random where there are more.
    pub random: usize,
    /// What they depend on.
    pub seed: u64,
}

impl Default for Selection {
    fn default() -> Selection {
        Selection {
            exhaustive_max: 8,
            random: 8,
            seed: 0,
        }
    }
}

/// The memory after a power cut: what is certain, and what is open.
#[derive(Debug)]
pub struct Crash {
    durable: Vec<u8>,
    /// The open stores of each line, in their order.
    open: BTreeMap<usize, Vec<Stored>>,
}

/// A store that is not durable yet.
struct Pending {
    stored: Stored,
    /// The thread of a non-temporal store, or that which wrote the line back.
    waits_for: Option<u64>,
}

impl Crash {
    pub(super) fn of(content: &[u8], events: &[Event], lost: LostFences) -> Crash {
        let mut durable = content.to_vec();
        let mut pending: BTreeMap<usize, Vec<Pending>> = BTreeMap::new();
        for Event { thread, act } in events {
            match act {
                Act::Store(words) => {
                    for stored in words {
                        let line = pending.entry(stored.at / LINE_BYTES).or_default();
                        line.push(Pending {
                            stored: stored.clone(),
                            waits_for: (stored.way == Way::Streamed).then_some(*thread),
                        });
                    }
                }
                Act::WriteBack(lines) => {
                    for (_, line) in pending.range_mut(lines.clone()) {
                        let cached = line.iter_mut().filter(|one| one.stored.way == Way::Cached);
                        cached.for_each(|one| one.waits_for = one.waits_for.or(Some(*thread)));
                    }
                }
                Act::Fence if lost == LostFences::All => {}
                Act::Fence => pending.retain(|_, line| {
                    settle(line, *thread, &mut durable);
                    !line.is_empty()
                }),
            }
        }
        let stores = |line: Vec<Pending>| line.into_iter().map(|one| one.stored).collect();
        let open = pending
            .into_iter()
            .map(|(number, line)| (number, stores(line)));
        Crash {
            durable,
            open: open.collect(),
        }
    }

    /// Number of stores of words that may be there or not.
    #[must_use]
    pub fn open(&self) -> usize {
        self.open.values().map(Vec::len).sum()
    }

    /// Memories that the crash may have left: with none and all of the open stores, and either all
    /// other possible ones, or some drawn at random: all lines but one, only one line, or any.
    ///
    /// # Panics
    /// If more than 2^16 subsets are asked for.
    pub fn states(&self, selection: &Selection) -> impl Iterator<Item = Vec<u8>> {
        assert!(selection.exhaustive_max <= 16, "at most 2^16 subsets");
        let count = self.open();
        let mut kept: Vec<Vec<bool>> = Vec::new();
        if count <= selection.exhaustive_max {
            let subsets = (0..1_usize << count).rev();
            kept.extend(subsets.map(|bits| (0..count).map(|one| bits >> one & 1 == 1).collect()));
        } else {
            kept.extend([vec![false; count], vec![true; count]]);
            let mut random = Seeded::new(selection.seed);
            kept.extend((0..selection.random).map(|number| self.draw(number, &mut random)));
        }
        kept.retain(|kept| self.is_possible(kept));
        kept.into_iter().map(|kept| self.state(&kept))
    }

    /// Draws which stores are kept: of some lines all, of some none, of some a part.
    fn draw(&self, number: usize, random: &mut Seeded) -> Vec<bool> {
        let lines = self.open.len();
        // All but one line; one line only; any.
        let chosen = random.index(lines);
        let mut kept = Vec::new();
        for (index, line) in self.open.values().enumerate() {
            let most = match number % 4 {
                0 if index == chosen => 0,
                1 if index != chosen => 0,
                2 => random.index(2) * line.len(),
                3 => random.index(line.len() + 1),
                _ => line.len(),
            };
            let mut left = most;
            for stored in line {
                let keeps = match stored.way {
                    Way::Cached => left > 0,
                    Way::Streamed if most == 0 || most == line.len() => most > 0,
                    Way::Streamed => random.index(2) == 1,
                };
                left = left.saturating_sub(1);
                kept.push(keeps);
            }
        }
        kept
    }

    /// Whether of the ordinary stores to each line the first so many are kept.
    fn is_possible(&self, kept: &[bool]) -> bool {
        let mut kept = kept.iter();
        self.open.values().all(|line| {
            let mut ended = false;
            // All of the line are taken, whatever they show.
            let bad = line.iter().zip(kept.by_ref()).filter(|(stored, kept)| {
                let cached = stored.way == Way::Cached;
                ended |= cached && !**kept;
                cached && **kept && ended
            });
            bad.count() == 0
        })
    }

    fn state(&self, kept: &[bool]) -> Vec<u8> {
        let mut memory = self.durable.clone();
        let stores = self.open.values().flatten();
        for (stored, _) in stores.zip(kept).filter(|(_, kept)| **kept) {
            put(&mut memory, stored);
        }
        memory
    }
}

/// Makes durable what `thread` has waited for, and in the same line all ordinary stores before it.
fn settle(line: &mut Vec<Pending>, thread: u64, durable: &mut [u8]) {
    let covered = |one: &Pending| one.waits_for == Some(thread);
    let last = line
        .iter()
        .rposition(|one| one.stored.way == Way::Cached && covered(one));
    let mut index = 0;
    line.retain(|one| {
        let before = one.stored.way == Way::Cached && last.is_some_and(|last| index <= last);
        index += 1;
        let settled = before || covered(one);
        if settled {
            put(durable, &one.stored);
        }
        !settled
    });
}

fn put(memory: &mut [u8], stored: &Stored) {
    memory[stored.at..stored.at + stored.bytes.len()].copy_from_slice(&stored.bytes);
}
