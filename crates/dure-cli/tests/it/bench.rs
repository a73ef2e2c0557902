//! `dure bench` from outside: worker processes, what is measured when nothing is named, and what is
//! left behind. What a workload does is tested beside it; no figure is.

#![expect(clippy::unwrap_used, reason = "tests panic")]

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

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
        "--workload",
        "DRBM_bg",
        "--workload",
        "MRDL_bg",
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
    let (aim7_rows, columns): (Vec<_>, Vec<_>) = rows(place.path(), &aim7)
        .into_iter()
        .partition(|row| row["jobs_per_minute"].is_null());
    assert!(columns.iter().all(|row| row["users"] == 2) && columns.len() == aim7_rows.len());
    let fxmark_rows = rows(place.path(), &fxmark);
    assert_eq!(fxmark_rows.len(), 10);
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
    assert!(text.contains("time vs"), "{text}");
}

#[test]
fn direct_io_of_a_volume_is_refused_by_name() {
    let place = folder();
    let output = bench(
        place.path(),
        &["fxmark", "--directio", "--target", "dure:."],
    );
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(errors.contains("--directio on 'dure:.'"), "{errors}");
    assert!(errors.contains("the library has no direct I/O"), "{errors}");
}

#[test]
fn ctrl_c_removes_what_the_bench_made() {
    let place = folder();
    let volume = place.path().join("volume.img");
    let dure = || Command::new(env!("CARGO_BIN_EXE_dure"));
    let made = dure()
        .args(["mkfs", "--size", "300M"])
        .arg(&volume)
        .status();
    assert!(made.unwrap().success());
    let mut running = dure()
        .args(["bench", "fxmark", "--workload", "DWOL", "--cores", "1"])
        .args(["--seconds", "600", "--target", "dir:.", "--target"])
        .arg(format!("dure:{}", volume.display()))
        .current_dir(place.path())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The second tree is made last; both are measured in turn.
    let works = place.path().join("dure-bench/1/0/n_blk_wrt.dat");
    while !works.exists() {
        assert!(running.try_wait().unwrap().is_none(), "it ended by itself");
        std::hint::spin_loop();
    }
    let pid = running.id().to_string();
    let told = Command::new("kill").args(["-INT", &pid]).status();
    assert!(told.unwrap().success());
    let output = running.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(2), "{errors}");
    assert!(errors.contains("interrupted"), "{errors}");
    assert!(!place.path().join("dure-bench").exists());
    let listed = dure().arg("ls").arg(&volume).output().unwrap();
    assert!(listed.status.success());
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(!listed.contains("dure-bench"), "{listed}");
}

#[test]
fn ctrl_c_removes_what_the_demo_made() {
    let place = folder();
    let mut running = Command::new(env!("CARGO_BIN_EXE_dure"))
        .args(["demo", "--size", "64M"])
        .env("TMPDIR", place.path())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(running.stderr.take().unwrap()).lines();
    let begun = lines.any(|line| line.unwrap().starts_with("copy a real tree"));
    assert!(begun, "it ended by itself");
    let pid = running.id().to_string();
    let told = Command::new("kill").args(["-INT", &pid]).status();
    assert!(told.unwrap().success());
    let rest: Vec<String> = lines.map_while(Result::ok).collect();
    let ended = running.wait().unwrap();
    assert_eq!(ended.signal(), Some(2), "{rest:?}");
    assert!(rest.join(" ").contains("interrupted"), "{rest:?}");
    assert!(is_empty(place.path()), "its folder is left");
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
        "--full",
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
