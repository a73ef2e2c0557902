//! Which reads a namespace operation must mark: every chain of operations, every crash.
//!
//! **Problem.** A rename decides on directories it does not write. If it marks only what it writes,
//! a crash may keep it and lose what it relied on. **Structure.** Every sequence of three
//! operations on small trees, each operation a transaction of its own; every subset of them that is
//! closed under marks is a state that recovery may arrive at, and must be a sound tree.
//!
//! **Cases.** The letters are those of the journal model (C1 to C9). What must fail is a canary.

mod change;
mod rules;
mod tree;

use std::collections::{BTreeMap, BTreeSet};

use change::{Change, Operation};
use rules::{NidReuse, ParentState, Rules};
use tree::{Key, State, Tree, Value, unsound, write};

const DEPTH: usize = 3;

/// A transaction: what it writes and which earlier ones it marks, as a bit set.
type Transaction = (BTreeMap<Key, Option<Value>>, u32);

struct Search<'a> {
    rules: &'a Rules,
    base: Tree,
    states: u64,
    violation: Option<String>,
}

impl Search<'_> {
    /// Every subset that holds the last transaction and is closed under marks.
    fn crash(&mut self, transactions: &[Transaction], story: &[Operation]) {
        let all = 1_u32 << transactions.len();
        for survivors in all / 2..all {
            let chosen = |index: &usize| survivors >> index & 1 == 1;
            let indices = || (0..transactions.len()).filter(chosen);
            if indices().any(|index| transactions[index].1 & !survivors != 0) {
                continue;
            }
            self.states += 1;
            let mut tree = self.base.clone();
            indices().for_each(|index| write(&mut tree, &transactions[index].0));
            if let Some(what) = unsound(&tree) {
                self.violation = Some(format!("{what} after {story:?}, survivors {survivors:b}"));
                return;
            }
        }
    }

    fn explore(
        &mut self,
        state: &State,
        transactions: &[Transaction],
        last_writers: &BTreeMap<Key, usize>,
        story: &[Operation],
    ) {
        if !transactions.is_empty() {
            self.crash(transactions, story);
        }
        if self.violation.is_some() || transactions.len() == DEPTH {
            return;
        }
        for operation in state.operations() {
            let rules = self.rules;
            let mut change = Change {
                state,
                rules,
                writes: BTreeMap::new(),
                reads: BTreeSet::new(),
            };
            if change.apply(operation).is_none() {
                continue;
            }
            let read = change.reads.iter().filter_map(|read| rules.marks(*read));
            let marked = change.writes.keys().copied().chain(read);
            let marks = marked
                .filter_map(|key| last_writers.get(&key))
                .fold(0, |set, tx| set | 1 << tx);
            let mut after = state.clone();
            let mut writers = last_writers.clone();
            for (key, value) in &change.writes {
                writers.insert(*key, transactions.len());
                if let (Key::Inode(inode), None) = (key, value) {
                    if rules.reuse == NidReuse::AtOnce {
                        after.free.insert(0, *inode);
                    }
                    if !rules.last_writer_kept {
                        writers.remove(key);
                    }
                } else if let Key::Inode(inode) = key {
                    after.free.retain(|free| free != inode);
                }
            }
            write(&mut after.tree, &change.writes);
            let next: Vec<_> = transactions
                .iter()
                .cloned()
                .chain([(change.writes, marks)])
                .collect();
            let story: Vec<_> = story.iter().copied().chain([operation]).collect();
            self.explore(&after, &next, &writers, &story);
            if self.violation.is_some() {
                return;
            }
        }
    }
}

/// The trees that sequences start with: nothing; /a/b; /a/b/a/b; /a, /b and a file /a/a.
fn starts() -> [Vec<Operation>; 4] {
    use Operation::{Create, Mkdir};
    [
        vec![],
        vec![Mkdir(0, 0), Mkdir(1, 1)],
        vec![Mkdir(0, 0), Mkdir(1, 1), Mkdir(2, 0), Mkdir(3, 1)],
        vec![Mkdir(0, 0), Mkdir(0, 1), Create(1, 0)],
    ]
}

fn violation(rules: Rules) -> Option<String> {
    let mut states = 0;
    for start in starts() {
        let mut state = State::start();
        for operation in start {
            let mut change = Change {
                state: &state,
                rules: &rules,
                writes: BTreeMap::new(),
                reads: BTreeSet::new(),
            };
            change.apply(operation).expect("the start is possible");
            let writes = change.writes;
            write(&mut state.tree, &writes);
            state
                .free
                .retain(|inode| !writes.contains_key(&Key::Inode(*inode)));
        }
        let base = state.tree.clone();
        let mut search = Search {
            rules: &rules,
            base,
            states: 0,
            violation: None,
        };
        search.explore(&state, &[], &BTreeMap::new(), &[]);
        states += search.states;
        if search.violation.is_some() {
            return search.violation;
        }
    }
    println!("{states} recoverable states");
    assert!(states > 10_000, "the search covers something");
    None
}

/// C1: only what is written is marked, and the parent's inode is.
const C1: Rules = Rules {
    parent: ParentState::Inode,
    mark_parent: false,
    mark_ancestors: false,
    mark_empty: false,
    last_writer_kept: true,
    reuse: NidReuse::AtOnce,
    rename_writes_inode: true,
};
const C2: Rules = Rules {
    parent: ParentState::Buckets,
    ..C1
};
const C3: Rules = Rules {
    mark_parent: true,
    ..C2
};
const C4: Rules = Rules {
    mark_ancestors: true,
    ..C3
};
/// C5: dure's rules.
const C5: Rules = Rules {
    mark_empty: true,
    ..C4
};

macro_rules! cases {
    ($($(#[$doc:meta])* $name:ident: $rules:expr, $fails:literal;)*) => {$(
        $(#[$doc])*
        #[test]
        fn $name() {
            let found = violation($rules);
            if let Some(violation) = &found {
                println!("{violation}");
            }
            assert_eq!(found.is_some(), $fails);
        }
    )*};
}

cases! {
    /// ScaleFS's trap: /a/b/a/b; mkdir /b; mv /a/b/a /b/a; mv /a /b/a/b/a; the second is lost.
    c1_write_marks_only_loses_a_directory: C1, true;
    c2_parent_state_in_buckets: C2, true;
    c3_and_the_parent_marked: C3, true;
    c4_and_the_ancestors_marked: C4, true;
    c5_and_emptiness_marked_holds: C5, false;
    c5b_without_the_ancestors: Rules { mark_ancestors: false, ..C5 }, true;
    c6_parent_written_ancestors_marked_holds: Rules { mark_ancestors: true, ..C1 }, false;
    c6b_and_emptiness_holds: Rules { mark_ancestors: true, mark_empty: true, ..C1 }, false;
    c7_last_writer_dropped_with_the_node: Rules { last_writer_kept: false, ..C5 }, true;
    c8_nid_reused_only_when_valid_holds: Rules {
        last_writer_kept: false, reuse: NidReuse::WhenValid, ..C5
    }, false;
    c9_rename_without_the_moved_inode: Rules { rename_writes_inode: false, ..C1 }, true;
}
