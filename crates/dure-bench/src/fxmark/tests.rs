//! Every workload.

use super::data::{Act, MOSTLY_READS, MOSTLY_WRITES, share_of};
use super::seat::Seat;
use super::{Suite, Workload, make};
use crate::measure::{Worker, WorkerKind};
use crate::tests::{targets, works};

fn suite() -> Suite {
    Suite {
        fill: 300,
        fill_ns: 5_000_000,
        kind: WorkerKind::Threads,
    }
}

#[test]
fn data_workloads_do_what_they_claim() {
    let data: Vec<_> = Workload::ALL.into_iter().filter(|w| w.is_data()).collect();
    assert_eq!(data.len(), 10);
    works(&suite(), "fxmark", &data);
}

#[test]
fn lookups_do_what_they_claim() {
    let lookups = [Workload::Mrpl, Workload::Mrpm, Workload::Mrph];
    works(&suite(), "fxmark", &lookups);
}

#[test]
fn directory_workloads_do_what_they_claim() {
    let others: Vec<_> = Workload::ALL
        .into_iter()
        .filter(|w| !w.is_data() && !w.name().starts_with("MRP"))
        .collect();
    assert_eq!(others.len(), 8);
    works(&suite(), "fxmark", &others);
}

fn seat(number: usize, count: usize) -> Seat {
    Seat {
        number,
        count,
        fill: 40,
        fill_ns: 3_600_000_000_000,
    }
}

/// Works of `most` operations at most.
fn works_of(worker: &mut dyn Worker, most: u64) -> u64 {
    worker.prepare().unwrap();
    let done = (0..most).map_while(|_| worker.operate().unwrap());
    let works = done.sum();
    worker.check().unwrap();
    works
}

#[test]
fn what_is_used_up_is_bounded_and_made_again() {
    let (_directory, targets) = targets();
    for target in &targets[..2] {
        let bounded = [
            (Workload::Dwtl, 40),
            (Workload::Mwul, 40),
            (Workload::Mwum, 40),
            // One of twenty is deleted before.
            (Workload::Mwrm, 38),
        ];
        for (workload, bound) in bounded {
            let tree = target.tree().unwrap().unwrap();
            let mut worker = make(&tree, workload, seat(0, 1)).unwrap();
            assert_eq!(works_of(&mut *worker, 1000), bound, "{workload:?}");
            assert_eq!(works_of(&mut *worker, 10), 10, "{workload:?}, half");
            assert_eq!(works_of(&mut *worker, 1000), bound, "{workload:?}, again");
        }
    }
}

#[test]
fn a_directory_is_read_again_at_its_end() {
    let (_directory, targets) = targets();
    for target in &targets[..2] {
        for workload in [Workload::Mrdl, Workload::Mrdm] {
            let tree = target.tree().unwrap().unwrap();
            let mut worker = make(&tree, workload, seat(0, 1)).unwrap();
            assert_eq!(works_of(&mut *worker, 5), 5 * 40, "{workload:?}: all of it");
        }
    }
}

#[test]
fn mixes_have_their_share_of_writers() {
    for (turns, writers) in [(MOSTLY_WRITES, 75), (MOSTLY_READS, 25)] {
        let of = |number, count| share_of(&turns, seat(number, count)).to_vec();
        let many = (0..100).flat_map(|number| of(number, 100));
        assert_eq!(many.filter(|act| *act == Act::Write).count(), writers);
        assert_eq!(of(0, 2), turns, "two workers do both");
    }
}
