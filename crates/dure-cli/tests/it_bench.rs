//! `dure bench` from outside: worker processes, what is measured when nothing is named, and what is
//! left behind. What a workload does is tested beside it; no figure is.

#![expect(clippy::unwrap_used, reason = "tests panic")]

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn bench(place: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dure"))
        .arg("bench")
        .args(arguments)
        .args(["--milliseconds", "20", "--warm-up", "2", "--repeat", "2"])
        .current_dir(place)
        .output()
        .unwrap()
}

fn rows(place: &Path, arguments: &[&str]) -> Vec<Value> {
    let output = bench(place, &[arguments, &["--json"]].concat());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// In memory where there is such a place: a disk may be busy with other tests.
fn folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        return tempfile::tempdir_in(memory).unwrap();
    }
    tempfile::tempdir().unwrap()
}

fn is_empty(place: &Path) -> bool {
    std::fs::read_dir(place).unwrap().next().is_none()
}

#[test]
fn workers_can_be_processes() {
    let place = folder();
    let fxmark = [
        "fxmark",
        "--processes",
        "--target",
        "dir:.",
        "--cores",
        "1,2",
        "--workload",
        "DWOM",
        "--workload",
        "mwul",
        "--workload",
        "MRDM",
        "--fill",
        "100",
    ];
    let aim7 = [
        "aim7",
        "--processes",
        "--target",
        "dir:.",
        "--users",
        "2",
        "--mix",
        "shared",
        "--file-kib",
        "16",
    ];
    let aim7_rows = rows(place.path(), &aim7);
    let fxmark_rows = rows(place.path(), &fxmark);
    assert_eq!(fxmark_rows.len(), 6);
    for row in fxmark_rows.iter().chain(&aim7_rows) {
        assert_eq!(row["workers"], "processes", "{row}");
        assert!(row["ops_per_second"].as_f64().unwrap() > 0.0, "{row}");
    }
    assert!(aim7_rows.iter().all(|row| row["threads"] == 2));
    assert!(is_empty(place.path()));
}

#[test]
fn a_failing_worker_process_fails_the_bench() {
    let output = bench(Path::new("/"), &["worker", "{}", "0"]);
    assert!(!output.status.success(), "no such assignment");
}

#[test]
fn without_targets_a_temporary_volume_and_the_directory_are_compared() {
    let place = folder();
    let drawing = tempfile::NamedTempFile::new().unwrap();
    let svg = drawing.path().to_str().unwrap();
    let arguments = ["fxmark", "--workload", "DWOL", "--cores", "1", "--svg", svg];
    let rows = rows(place.path(), &arguments);
    let here = format!("dir:{}", place.path().display());
    let targets: Vec<_> = rows.iter().map(|row| row["target"].as_str()).collect();
    assert_eq!(targets, [Some("dure (temporary)"), Some(&*here)]);
    assert!(is_empty(place.path()));
    let drawn = std::fs::read_to_string(drawing.path()).unwrap();
    for text in ["<svg", "DWOL", "dure (temporary)", &here] {
        assert!(drawn.contains(text), "{text}");
    }
}

#[test]
fn policies_are_compared_on_temporary_volumes() {
    let place = folder();
    let targets = ["dure:.", "dure:.,journal=single,log-data=0"];
    let rows = rows(
        place.path(),
        &[
            "fxmark",
            "--workload",
            "DWSL",
            "--cores",
            "2",
            "--target",
            targets[0],
            "--target",
            targets[1],
        ],
    );
    let told: Vec<_> = rows
        .iter()
        .map(|row| (row["target"].as_str(), row["policy"].as_str()))
        .collect();
    let want = [
        (Some(targets[0]), Some("")),
        (Some(targets[1]), Some("journal=single,log-data=0")),
    ];
    assert_eq!(told, want);
    assert!(is_empty(place.path()));
}

#[test]
fn the_lines_of_the_original_come_before_the_table() {
    let place = folder();
    let output = bench(
        place.path(),
        &["fxmark", "--workload", "DRBL", "--target", "dir:."],
    );
    let text = String::from_utf8(output.stdout).unwrap();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("## dir:.:DRBL:bufferedio"));
    assert_eq!(lines.next(), Some("# ncpu secs works works/sec"));
    let numbers: Vec<f64> = lines
        .next()
        .unwrap()
        .split(' ')
        .map(|number| number.parse().unwrap())
        .collect();
    let [ncpu, secs, works, rate] = numbers[..] else {
        panic!("{numbers:?}");
    };
    assert!(ncpu == 1.0 && works >= 1.0);
    assert!((works / secs - rate).abs() < rate / 1000.0, "{numbers:?}");
    assert!(text.contains("time vs first"), "{text}");
}

#[test]
fn an_unknown_policy_is_named() {
    let place = folder();
    let target = "dure:v.img,journal=often";
    let output = bench(place.path(), &["fxmark", "--all", "--target", target]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(errors.contains("journal=often"), "{errors}");
}

#[test]
fn a_volume_is_measured_young_and_aged() {
    let place = folder();
    let arguments = [
        "aged",
        "--workload",
        "overwrite-fsync",
        "--fill",
        "3",
        "--churn",
        "2",
        "--cores",
        "1",
    ];
    let rows = rows(place.path(), &arguments);
    let workloads: Vec<_> = rows.iter().map(|row| row["workload"].as_str()).collect();
    let wanted = ["overwrite-fsync young", "overwrite-fsync aged", "aging"];
    assert_eq!(workloads, wanted.map(Some));
    assert!(rows[2]["file_mib"].as_u64().unwrap() > 10, "{}", rows[2]);
    assert!(
        rows[2]["kib_per_extent"].as_f64().unwrap() >= 4.0,
        "{}",
        rows[2]
    );
    assert!(is_empty(place.path()));
}

#[test]
fn what_is_too_large_is_not_filled() {
    let place = folder();
    let output = bench(
        place.path(),
        &["aged", "--target", "dir:.", "--room-max", "1"],
    );
    assert!(!output.status.success());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("--room-max"), "{errors}");
    assert!(is_empty(place.path()));
}

#[test]
fn a_directory_grows_and_shrinks_by_tenths() {
    let place = folder();
    let output = Command::new(env!("CARGO_BIN_EXE_dure"))
        .args([
            "bench",
            "directory",
            "--entries",
            "1000",
            "--lookups",
            "100",
        ])
        .args(["--repeat", "2", "--target", "dure:.", "--json"])
        .current_dir(place.path())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(rows.len(), 5 * 10 + 5);
    assert_eq!(rows[9]["workload"], "create 10/10");
    let ratio = rows[50]["last_to_first"].as_f64().unwrap();
    assert!(
        ratio > 0.0 && rows[50]["workload"] == "create",
        "{}",
        rows[50]
    );
    assert!(is_empty(place.path()));
}
