//! Every workload.

use super::{Suite, Workload};
use crate::measure::WorkerKind;
use crate::tests::works;

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
