//! fsync while other cores go on: the closure is fixed when it starts, so it ends.

use std::cell::RefCell;

use super::{Closure, MarkSource};
use crate::ids::{JournalId, Mark};

/// Cores that change random buckets of one directory, without end.
struct Cores {
    state: RefCell<State>,
    /// Operations that happen between two looks at a journal.
    operations_per_look: usize,
}

struct State {
    /// Marks of each handle, by core.
    handles: Vec<Vec<Vec<Mark>>>,
    last_writer: Vec<Mark>,
    random: u64,
    looks: usize,
}

impl State {
    fn below(&mut self, bound: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        usize::try_from(self.random >> 20).unwrap() % bound
    }

    fn operate(&mut self) {
        let core = self.below(self.handles.len());
        let bucket = self.below(self.last_writer.len());
        let marks = vec![self.last_writer[bucket]];
        self.handles[core].push(marks);
        let number = u64::try_from(self.handles[core].len()).unwrap();
        self.last_writer[bucket] = Mark::new(JournalId::from_index(core), number);
    }
}

impl Cores {
    fn new(cores: usize, buckets: usize, operations_per_look: usize, seed: u64) -> Self {
        let mut state = State {
            handles: vec![Vec::new(); cores],
            last_writer: vec![Mark::NONE; buckets],
            random: seed * 2 + 1,
            looks: 0,
        };
        (0..2000).for_each(|_| state.operate());
        Self {
            state: RefCell::new(state),
            operations_per_look,
        }
    }
}

impl MarkSource for Cores {
    fn is_valid(&self, _: Mark) -> bool {
        false
    }

    fn marks_of(
        &self,
        journal: JournalId,
        above: u64,
        upto: u64,
        sink: &mut dyn FnMut(Mark),
    ) -> u64 {
        let state = &mut *self.state.borrow_mut();
        state.looks += 1;
        // The others do not wait for us.
        (0..self.operations_per_look).for_each(|_| state.operate());
        let index = |number| usize::try_from(number).unwrap();
        let handles = &state.handles[journal.index()][index(above)..index(upto)];
        handles.iter().flatten().copied().for_each(sink);
        upto
    }
}

#[test]
fn the_closure_ends_however_busy_the_cores_are() {
    for (cores, buckets) in [(2, 1), (8, 1), (8, 16), (80, 16), (80, 256)] {
        for seed in 1..5 {
            let busy = Cores::new(cores, buckets, 50, seed);
            let before: Vec<u64> = {
                let state = busy.state.borrow();
                state
                    .handles
                    .iter()
                    .map(|handles| u64::try_from(handles.len()).unwrap())
                    .collect()
            };
            let root = busy.state.borrow().last_writer[0];
            let mut closure = Closure::new(cores);
            closure.require(&busy, root);
            closure.extend(&busy);
            assert!(
                closure.journals().len() <= cores,
                "at most one prefix of each journal"
            );
            for journal in closure.journals() {
                assert!(
                    closure.upto(*journal) <= before[journal.index()],
                    "nothing that joined after the start belongs to it"
                );
            }
            assert!(
                !closure.recheck(&busy),
                "nobody has written a longer prefix"
            );
        }
    }
}

#[test]
fn the_closure_is_closed() {
    let quiet = Cores::new(4, 3, 0, 9);
    let root = quiet.state.borrow().last_writer[1];
    let mut closure = Closure::new(4);
    closure.require(&quiet, root);
    closure.extend(&quiet);
    let state = quiet.state.borrow();
    for journal in closure.journals() {
        let upto = usize::try_from(closure.upto(*journal)).unwrap();
        for mark in state.handles[journal.index()][..upto].iter().flatten() {
            assert!(mark.is_none() || mark.number() <= closure.upto(mark.journal()));
        }
    }
    assert!(closure.upto(root.journal()) >= root.number());
}

#[test]
fn what_is_valid_is_not_needed() {
    struct Valid;
    impl MarkSource for Valid {
        fn is_valid(&self, mark: Mark) -> bool {
            mark.number() <= 10
        }
        fn marks_of(&self, _: JournalId, _: u64, _: u64, _: &mut dyn FnMut(Mark)) -> u64 {
            panic!("nothing is to be looked at")
        }
    }
    let mut closure = Closure::new(1);
    closure.require(&Valid, Mark::NONE);
    closure.require(&Valid, Mark::new(JournalId::from_index(0), 10));
    closure.extend(&Valid);
    assert!(closure.is_empty());
}
