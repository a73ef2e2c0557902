//! Every workload, on a volume in memory and on a directory, alone and beside another worker.

use std::path::Path;

use dure_block::ram::RamDevice;
use dure_block::share;
use dure_fs::{FileSystem, FormatOptions};

use super::{Suite, Workload};
use crate::measure::{Plan, WorkerKind, run};
use crate::report;
use crate::target::Target;

fn plan(cores: &[usize]) -> Plan {
    Plan {
        cores: cores.to_vec(),
        repeat: 2,
        run_ns: 20_000_000,
        warm_up_ns: 1_000_000,
    }
}

fn suite() -> Suite {
    Suite {
        fill: 300,
        fill_ns: 5_000_000,
        kind: WorkerKind::Threads,
    }
}

fn volume(policy: &str) -> Target {
    let device = share(RamDevice::new("ram", 2048 << 8));
    FileSystem::format(device.clone(), &FormatOptions::default()).unwrap();
    Target::volume("ram", policy, device).unwrap()
}

/// Runs on both kinds of target; every worker checks what it did, and nothing stays behind.
fn works(workloads: &[Workload]) {
    let memory = Path::new("/dev/shm");
    let directory = if memory.is_dir() {
        tempfile::tempdir_in(memory).unwrap()
    } else {
        tempfile::tempdir().unwrap()
    };
    let text = format!("dir:{}", directory.path().display());
    let targets = [
        volume(""),
        Target::open(&text).unwrap(),
        Target::open("copy").unwrap(),
    ];
    let points = run(&suite(), workloads, &targets, &plan(&[1, 2])).unwrap();
    assert_eq!(points.len(), workloads.len() * 2 * targets.len());
    for point in &points {
        let shown = format!("{} {} {}", point.workload, point.target, point.cores);
        assert_eq!(point.runs.len(), 2, "{shown}");
        assert!(point.runs.iter().all(|run| run.works > 0), "{shown}");
        assert_eq!(point.workers, point.cores, "{shown}");
        assert!(!point.latencies.is_empty(), "{shown}");
    }
    let rows: serde_json::Value =
        serde_json::from_str(&report::json("fxmark", &points).unwrap()).unwrap();
    for row in rows.as_array().unwrap() {
        assert_eq!(row["bench"], "fxmark");
        for number in [
            "threads",
            "ops_per_second",
            "min",
            "max",
            "n",
            "p50_ns",
            "p99_ns",
        ] {
            assert!(row[number].as_f64().unwrap() > 0.0, "{number} in {row}");
        }
        for text in ["target", "workload", "policy"] {
            assert!(row[text].is_string(), "{text} in {row}");
        }
    }
    for target in targets {
        target.close().unwrap();
    }
    let left = std::fs::read_dir(directory.path()).unwrap().count();
    assert_eq!(left, 0, "a closed target leaves nothing behind");
}

#[test]
fn data_workloads_do_what_they_claim() {
    let data: Vec<_> = Workload::ALL.into_iter().filter(|w| w.is_data()).collect();
    assert_eq!(data.len(), 10);
    works(&data);
}

#[test]
fn lookups_do_what_they_claim() {
    works(&[Workload::Mrpl, Workload::Mrpm, Workload::Mrph]);
}

#[test]
fn directory_workloads_do_what_they_claim() {
    let others: Vec<_> = Workload::ALL
        .into_iter()
        .filter(|w| !w.is_data() && !w.name().starts_with("MRP"))
        .collect();
    assert_eq!(others.len(), 8);
    works(&others);
}
