//! Cores in the order of their clocks.
//!
//! **Problem.** At each switch the core with the smallest clock is wanted, millions of times a
//! second. **Structure.** A 4-ary heap of (clock, core), with the place of each core, so that a
//! clock can be changed in place; [`CoreHeap::replace_top`] makes a switch one sift.
//! **Invariants.** A core is in the heap at most once; equal clocks are ordered by core number, so
//! the order is total. **Crash.** Nothing is kept.

/// Time, then core.
pub(crate) type Key = (u64, usize);

const ARITY: usize = 4;
const ABSENT: usize = usize::MAX;

/// The waiting cores.
#[derive(Debug)]
pub(crate) struct CoreHeap {
    slots: Vec<Key>,
    /// For each core its index in `slots`, or ABSENT.
    place: Vec<usize>,
}

impl CoreHeap {
    pub(crate) fn new(cores: usize) -> Self {
        Self {
            slots: Vec::with_capacity(cores),
            place: vec![ABSENT; cores],
        }
    }

    #[inline]
    pub(crate) fn peek(&self) -> Option<Key> {
        self.slots.first().copied()
    }

    /// Inserts a core, or changes its clock.
    pub(crate) fn set(&mut self, core: usize, clock: u64) {
        let index = self.place[core];
        if index == ABSENT {
            self.slots.push((clock, core));
            self.rise(self.slots.len() - 1);
        } else {
            self.slots[index].0 = clock;
            self.rise(index);
            self.sink(self.place[core]);
        }
    }

    pub(crate) fn pop(&mut self) -> Option<Key> {
        let top = self.peek()?;
        self.place[top.1] = ABSENT;
        let last = self.slots.pop().expect("a heap with a top has slots");
        if !self.slots.is_empty() {
            self.put(0, last);
            self.sink(0);
        }
        Some(top)
    }

    /// Inserts a core that is absent and removes the top, in one step.
    pub(crate) fn replace_top(&mut self, key: Key) -> Key {
        debug_assert_eq!(
            self.place[key.1], ABSENT,
            "a core is in the heap at most once"
        );
        let top = self.slots[0];
        self.place[top.1] = ABSENT;
        self.put(0, key);
        self.sink(0);
        top
    }

    #[inline]
    fn put(&mut self, index: usize, key: Key) {
        self.slots[index] = key;
        self.place[key.1] = index;
    }

    fn rise(&mut self, mut index: usize) {
        let key = self.slots[index];
        while index > 0 {
            let parent = (index - 1) / ARITY;
            if self.slots[parent] <= key {
                break;
            }
            self.put(index, self.slots[parent]);
            index = parent;
        }
        self.put(index, key);
    }

    fn sink(&mut self, mut index: usize) {
        let key = self.slots[index];
        loop {
            let first = index * ARITY + 1;
            let end = (first + ARITY).min(self.slots.len());
            let Some(least) = (first..end).min_by_key(|child| self.slots[*child]) else {
                break;
            };
            if self.slots[least] >= key {
                break;
            }
            self.put(index, self.slots[least]);
            index = least;
        }
        self.put(index, key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn pops_in_the_order_of_a_sorted_list() {
        let mut rng = Rng::new(1);
        let mut heap = CoreHeap::new(128);
        let mut model: Vec<Key> = Vec::new();
        for _ in 0..20_000 {
            let core = rng.index(128);
            let clock = rng.below(50);
            let known = model.iter().position(|key| key.1 == core);
            match (rng.below(4), known) {
                (0, _) => {
                    model.sort_unstable();
                    let want = (!model.is_empty()).then(|| model.remove(0));
                    assert_eq!(heap.pop(), want);
                }
                (1, None) if !model.is_empty() => {
                    model.sort_unstable();
                    let want = std::mem::replace(&mut model[0], (clock, core));
                    assert_eq!(heap.replace_top((clock, core)), want);
                }
                (_, Some(index)) => {
                    model[index].0 = clock;
                    heap.set(core, clock);
                }
                (_, None) => {
                    model.push((clock, core));
                    heap.set(core, clock);
                }
            }
            assert_eq!(heap.peek(), model.iter().min().copied());
        }
    }
}
