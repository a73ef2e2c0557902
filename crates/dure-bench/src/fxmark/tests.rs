//! Every workload.

use super::data::{Act, MOSTLY_READS, MOSTLY_WRITES, share_of};
use super::seat::Seat;
use super::{Suite, Workload, make};
use crate::measure::{Bench, Point, Worker, WorkerKind, measure_into};
use crate::micro::content;
use crate::target::{How, Io, Target};
use crate::tests::{plan, targets, works};
use dure_block::BlockBuf;

fn suite() -> Suite {
    Suite {
        fill: 300,
        fill_ns: 5_000_000,
        branches: 4,
        kind: WorkerKind::Threads,
        io: Io::Buffered,
    }
}

#[test]
fn data_workloads_do_what_they_claim() {
    let data: Vec<_> = Workload::ALL.into_iter().filter(|w| w.is_data()).collect();
    assert_eq!(data.len(), 13);
    works(&suite(), "fxmark", &data);
}

#[test]
fn lookups_do_what_they_claim() {
    let lookups = [
        Workload::Mrpl,
        Workload::Mrpm,
        Workload::Mrph,
        Workload::MrpmBg,
    ];
    works(&suite(), "fxmark", &lookups);
}

#[test]
fn directory_workloads_do_what_they_claim() {
    let others: Vec<_> = Workload::ALL
        .into_iter()
        .filter(|w| !w.is_data() && !w.name().starts_with("MRP"))
        .collect();
    assert_eq!(others.len(), 10);
    works(&suite(), "fxmark", &others);
}

fn seat(number: usize, count: usize) -> Seat {
    Seat {
        number,
        count,
        fill: 40,
        fill_ns: 3_600_000_000_000,
        branches: 4,
        region: super::data::REGION,
        io: Io::Buffered,
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

#[test]
fn the_one_in_the_background_changes_what_others_read_and_is_not_counted() {
    let (_directory, targets) = targets();
    for target in &targets[..2] {
        let tree = target.tree().unwrap().unwrap();
        let mut reader = make(&tree, Workload::DrbhBg, seat(0, 1)).unwrap();
        let mut writer = make(&tree, Workload::DrbhBg, seat(1, 1)).unwrap();
        works_of(&mut *writer, 1);
        works_of(&mut *reader, 1);
        let mut found = vec![0; 4096];
        let file = tree.open(&tree.path("n_shblk_rd.dat"), How::Read).unwrap();
        file.read_at(&mut found, 0).unwrap();
        assert_eq!(found, content(2), "the second worker's content");

        let crew = suite().crew(target, Workload::DrbhBg, 2).unwrap().unwrap();
        assert_eq!(crew.size(), 2, "of three");
        crew.end().unwrap_err();
    }
}

#[test]
fn direct_calls_need_whole_blocks_and_a_volume_has_none() {
    let directory = tempfile::tempdir_in(".").unwrap();
    let target = Target::open(&format!("dir:{}", directory.path().display())).unwrap();
    let tree = target.tree().unwrap().unwrap();
    let open = |how| tree.open_for(&tree.path("file"), how, Io::Direct);
    // A file system without direct I/O (overlay on tmpfs) refuses at the opening.
    if let Ok(file) = open(How::Create) {
        let aligned = BlockBuf::from_slice(&content(0));
        file.write_at(aligned.as_slice(), 0).unwrap();
        assert!(file.write_at(&content(0)[..100], 0).is_err(), "not direct");
        let direct = Suite {
            io: Io::Direct,
            ..suite()
        };
        let data = Workload::ALL.into_iter().filter(|w| w.is_data());
        for workload in data {
            let crew = direct.crew(&target, workload, 1).unwrap().unwrap();
            let mut point = Point::new("direct", 1, ("", ""), (1, crew.kind())).unwrap();
            let mut crew = crew;
            measure_into(&mut point, &target, &mut crew, &plan(&[1])).unwrap();
            crew.end().unwrap();
        }
    }
    target.close().unwrap();

    let (_directory, targets) = targets();
    let tree = targets[0].tree().unwrap().unwrap();
    let refused = tree.open_for(&tree.path("file"), How::Create, Io::Direct);
    assert!(format!("{:#}", refused.unwrap_err()).contains("no direct I/O"));
}
