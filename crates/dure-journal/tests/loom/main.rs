//! Orderings of the journal's atomics, explored by loom: `cargo xtask loom`.
//!
//! It compiles the source of the protocol as it is; of that of names, it needs a part.
#![cfg(dure_backend = "loom")]
#![expect(clippy::unwrap_used, reason = "a panic is how a model fails")]

#[path = "../../src/ids.rs"]
#[expect(dead_code, reason = "the model needs a part of it")]
mod ids;
#[path = "../../src/records/image/running.rs"]
mod running;

use std::panic::catch_unwind;

use dure_sync::{Arc, Weaken, thread, weaken};

use ids::{JournalId, Mark};
use running::Running;

/// The first handles of journal 0's running transaction, and of the next.
const RUNS: u64 = 1;
const NEXT: u64 = 9;

fn journal(number: u16) -> JournalId {
    JournalId::new(number).unwrap()
}

/// Cores 1 and 2 each change a buffer of the transaction that core 0 closes; core 1 has done so
/// before.
fn closed_while_shared() {
    let running = Arc::new(Running::new(RUNS, 3));
    assert_eq!(running.share(RUNS, journal(1), 3), (true, 0));
    let others = [(1, 4), (2, 5)].map(|(core, number)| {
        let running = Arc::clone(&running);
        thread::spawn("sharer", move || {
            if !running.is(RUNS) {
                return None;
            }
            let (runs, replaced) = running.share(RUNS, journal(core), number);
            Some((Mark::new(journal(core), number), runs, replaced))
        })
    });
    let mut taken = Vec::new();
    running.close(NEXT, &mut taken);
    let shared = others.map(|other| other.join().unwrap());
    let mut left = Vec::new();
    running.marks(&mut left);
    let has = |marks: &[Mark], core, number| marks.contains(&Mark::new(journal(core), number));
    for (mark, runs, replaced) in shared.into_iter().flatten() {
        assert!(!runs || taken.contains(&mark), "{mark} is missed");
        assert!(
            taken.contains(&mark) != left.contains(&mark),
            "{mark} is in one"
        );
        // The one that is replaced, or was taken before.
        if mark.journal() == journal(1) {
            assert_eq!(replaced == 3, !has(&taken, 1, 3), "of core 1, {replaced}");
        }
    }
    assert!(has(&taken, 1, 3) || has(&taken, 1, 4));
}

fn explore() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(closed_while_shared);
}

/// A core that finds the transaction running behind its mark is among the marks that the closing
/// takes. Seen to fail with AcqRel instead of SeqCst in the two fences of [`Running`], as the canary
/// has it, and with the look before the mark.
#[test]
fn loom_a_mark_of_a_running_transaction_is_not_missed() {
    explore();
    weaken(Weaken::SeqCst);
    let outcome = catch_unwind(explore);
    weaken(Weaken::Nothing);
    assert!(outcome.is_err(), "the model passes without SeqCst");
}
