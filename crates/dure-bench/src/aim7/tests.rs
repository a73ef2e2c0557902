//! Every mix, and its arithmetic.

use super::mix::Test;
use super::{Machine, Mix};
use crate::measure::WorkerKind;
use crate::tests::works;

#[test]
fn mixes_do_what_they_claim() {
    for no_sync in [false, true] {
        let machine = Machine {
            users: None,
            file_kib: Some(16),
            no_sync,
            kind: WorkerKind::Threads,
        };
        works(&machine, "aim7", &Mix::ALL);
    }
}

#[test]
fn mixes_have_the_hits_of_the_original() {
    let sum = |mix: Mix| mix.hits().iter().map(|(_, hits)| hits).sum::<u32>();
    assert_eq!(sum(Mix::Fserver), 595 - 340);
    assert_eq!(sum(Mix::Dbase), 550 - 410);
    assert_eq!(sum(Mix::Shared), 780 - 600);
    let jobs = Mix::Dbase.jobs();
    let updates = jobs.iter().filter(|test| **test == Test::SyncUpdate);
    assert_eq!(updates.count(), 21);
    assert_eq!(Mix::Fserver.kib_per_user(2), 20 << 10);
}
