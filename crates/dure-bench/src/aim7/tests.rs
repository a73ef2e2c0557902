//! Every mix, and its arithmetic.

use super::columns;
use super::mix::Test;
use super::{Machine, Mix};
use crate::measure::{Cpu, Point, Share, WorkerKind};
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

#[test]
fn the_columns_are_those_of_the_original() {
    let share = |works, seconds: u64| Share {
        works,
        ns: seconds * 1_000_000_000,
        works_in_all: works,
        cpu: Cpu {
            user_ns: 500_000_000,
            system_ns: 250_000_000,
        },
        latencies: hdrhistogram::Histogram::new(3).unwrap(),
    };
    let jobs = u64::try_from(Mix::Shared.jobs().len()).unwrap();
    let mut point = Point::new("shared", 2, ("target", ""), (2, WorkerKind::Threads)).unwrap();
    // One child takes four seconds for its jobs, the other twelve.
    point.add(&[share(jobs, 4), share(jobs / 2, 6)]).unwrap();
    let rows = columns::rows(std::slice::from_ref(&point));
    let near = |found: f64, want: f64| assert!((found - want).abs() < 0.2, "{found}, not {want}");
    assert_eq!(rows.len(), 1);
    near(rows[0].real_seconds, 6.0);
    near(rows[0].child_seconds_deviation, 4.0);
    near(rows[0].coefficient_of_variation_percent, 50.0);
    near(rows[0].job_timing_index, 50.0);
    let done = f64::from(u32::try_from(jobs + jobs / 2).unwrap());
    near(rows[0].jobs_per_minute, done / 5.0 * 60.0);
    let shown = columns::table(&rows).to_string();
    for head in [
        "users", "real s", "sys s", "user s", "jobs/min", "CoV %", "JTI",
    ] {
        assert!(shown.contains(head), "{head} in {shown}");
    }
}
