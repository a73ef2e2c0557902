//! Crashes of volumes with two copies of NAT and SIT. Of each state that a crash may leave the check finds
//! both copies the same; then one of them is destroyed altogether, and the mount must bring back a
//! legal tree, and a scrub the copy.
//!
//! `cargo test` runs a sample. All of one operation: `dure sim crash --seq 1 --media copies`.

#![expect(clippy::print_stdout, reason = "the counts are the result")]

use dure_block::crash::Tear;
use dure_block::record::LostFlushes;
use dure_sim::crash::{Base, On, Options, run_all, workload};

use crate::sampling;

/// Of the workloads, the part that a sample holds is one in this many.
const SAMPLE: u64 = 25;

fn bases() -> Vec<Base> {
    let base = |calls: &&'static [_]| Base::on(On::Copies, calls, 2);
    let bases = workload::SETUPS.iter().map(base);
    bases
        .map(|base| base.expect("a volume can be made"))
        .collect()
}

fn options() -> Options {
    Options {
        selection: sampling::selection(Tear::Sectors),
        ..Options::default()
    }
}

#[test]
fn one_operation() {
    let workloads = sampling::one_operation(SAMPLE, 5);
    let outcome = run_all(&bases(), &workloads, &options(), 2);
    println!("{}", outcome.report("copies"));
    assert!(outcome.is_clean());
    assert!(outcome.counts.states > outcome.counts.workloads * 20);
}

/// Canary: no flush reaches the device.
#[test]
fn canary_without_flushes() {
    let mut workloads = workload::one_operation();
    workloads.retain(|workload| workload.to_string().contains("fsync"));
    workloads.truncate(30);
    let options = Options {
        lost_flushes: LostFlushes::All,
        ..options()
    };
    let outcome = run_all(&bases(), &workloads, &options, 2);
    assert!(!outcome.is_clean(), "nobody noticed");
}
