//! A small directory on a volume in memory and on a directory, by one worker and by two.

use clap::Parser;

use super::*;
use crate::tests::targets;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    directory: Directory,
}

fn args(words: &[&str]) -> Directory {
    Line::try_parse_from([&["directory"], words].concat())
        .unwrap()
        .directory
}

#[test]
fn every_tenth_of_every_task_is_measured_and_nothing_stays() {
    let (directory, mut targets) = targets();
    targets.truncate(2);
    let args = args(&[
        "--entries",
        "2000",
        "--lookups",
        "50",
        "--repeat",
        "2",
        "--cores",
        "1,2",
    ]);
    let tasks = measure(&args, &targets).unwrap();
    assert_eq!(tasks.len(), 2 * 2 * Task::ALL.len());
    for (task, tenths) in &tasks {
        for (number, point) in (1..).zip(tenths) {
            assert_eq!(point.workload, format!("{} {number}/10", task.name()));
            let workers = u64::try_from(point.cores).unwrap();
            let want = match task {
                Task::Create | Task::Unlink => 200,
                Task::Lookup | Task::Miss => 50 * workers,
                Task::Read => 200 * number * workers,
            };
            assert!(point.runs.iter().all(|run| run.works == want), "{point:?}");
            assert_eq!(point.runs.len(), 2);
        }
    }
    for row in tasks.iter().map(|task| row(args.entries, task)) {
        let (min, max) = (row.min, row.max);
        assert!(
            min > 0.0 && (min..=max).contains(&row.last_to_first),
            "{row:?}"
        );
    }
    for target in targets {
        target.close().unwrap();
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn a_volume_that_is_too_small_is_found_out() {
    use dure_block::{ram::RamDevice, share};
    let device = share(RamDevice::new("small", 16 << 8));
    dure_fs::FileSystem::format(device.clone(), &dure_fs::FormatOptions::default()).unwrap();
    let targets = [Target::volume("small", "", device).unwrap()];
    let args = args(&["--entries", "200000", "--repeat", "1"]);
    let error = format!("{:#}", measure(&args, &targets).unwrap_err());
    assert!(
        error.contains("small: ") && error.contains("open"),
        "{error}"
    );
}

#[test]
fn what_has_no_directories_is_refused() {
    let targets = [Target::open("copy").unwrap()];
    let error = measure(&args(&[]), &targets).unwrap_err().to_string();
    assert!(error.contains("copy: "), "{error}");
    assert!(Line::try_parse_from(["directory", "--entries", "1"]).is_err());
}
