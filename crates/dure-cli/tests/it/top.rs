//! `dure top` and `dure info --journal` from outside: the program itself, on volumes that are
//! mounted and not. What needs a mount is played only where one can be made (root and /dev/fuse).

#![expect(clippy::unwrap_used, reason = "tests panic")]

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn dure(arguments: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_dure");
    Command::new(program).args(arguments).output().unwrap()
}

/// What it prints when all is well.
fn printed(arguments: &[&str]) -> String {
    let output = dure(arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&printed(arguments)).unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn volume(folder: &Path) -> PathBuf {
    let volume = folder.join("v.img");
    printed(&["mkfs", "--size", "64M", "--journals", "4", text(&volume)]);
    volume
}

#[test]
fn the_journals_of_an_unmounted_volume_are_shown() {
    let folder = tempfile::tempdir().unwrap();
    let volume = volume(folder.path());
    let volume = text(&volume);
    let host = folder.path().join("f");
    std::fs::write(&host, "hello").unwrap();
    printed(&["put", "-q", volume, text(&host), "/"]);
    let shown = printed(&["info", "--journal", volume]);
    assert!(shown.contains("clean"), "{shown}");
    assert_eq!(shown.lines().count(), 3 + 4, "{shown}");
    let info = json(&["info", "--journal", "--json", volume]);
    assert_eq!(
        (&info["clean"], &info["recovery"]),
        (&Value::Bool(true), &Value::Null)
    );
    assert_eq!(info["journals"].as_array().unwrap().len(), 4);
    let output = dure(&["top", "--once", volume]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && errors.contains("not mounted"),
        "{errors}"
    );
}

/// A mount that ends with the test.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        drop(dure(&["umount", "--lazy", text(&self.0)]));
    }
}

fn can_mount() -> bool {
    let fuse = File::options().read(true).write(true).open("/dev/fuse");
    fuse.is_ok() && rustix::process::geteuid().is_root()
}

#[test]
fn a_mounted_volume_tells_what_it_does() {
    if !can_mount() {
        eprintln!("skipped: mounting needs root and /dev/fuse");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let volume = volume(folder.path());
    let directory = folder.path().join("m");
    std::fs::create_dir(&directory).unwrap();
    printed(&[
        "mount",
        text(&volume),
        text(&directory),
        "-o",
        "trace=1000,journal=single",
    ]);
    let mounted = Mounted(directory.clone());
    for n in 0..3 {
        let mut file = File::create(directory.join(format!("f{n}"))).unwrap();
        file.write_all(b"hello").unwrap();
        file.sync_all().unwrap();
    }
    let top = json(&["top", "--once", "--json", text(&directory)]);
    let journal = &top["journals"][0];
    assert_eq!(journal["operations"]["create"]["handles"], 3);
    assert_eq!(journal["operations"]["write"]["handles"], 3);
    assert!(journal["commits"].as_u64().unwrap() >= 3, "{journal}");
    assert_eq!(journal["stalls"]["flush"]["count"], journal["flushes"]);
    let same = json(&["info", "--journal", "--json", text(&volume)]);
    assert_eq!(
        same["journals"][0]["handles_joined"],
        journal["handles_joined"]
    );
    let table = printed(&["top", "--interval", "0.05", "--count", "2", text(&volume)]);
    assert_eq!(table.matches("JOURNAL").count(), 2, "{table}");
    // Paths and options, above, and the lines of the log, below, are as long as they are.
    let widest = |table: &str| {
        let texts = ["info:", " journals used; "];
        let is_text = |line: &&str| texts.iter().any(|text| line.contains(text));
        let numbers = table.lines().filter(|line| !is_text(line));
        numbers.map(|line| line.chars().count()).max().unwrap()
    };
    assert_eq!(widest(&table), 100, "{table}");
    let wide = printed(&["top", "--once", "--wide", text(&volume)]);
    assert!(widest(&wide) > 100 && wide.contains("VALID"), "{wide}");
    assert!(
        !table.contains('\x1b'),
        "plain text where there is no terminal"
    );

    let events = printed(&["top", "--trace", "--once", "--json", text(&volume)]);
    let events: Vec<Value> = events
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(events.is_sorted_by_key(|event| event["ns"].as_u64().unwrap()));
    let count = |name: &str| events.iter().filter(|event| event["event"] == name).count();
    assert_eq!(
        events
            .iter()
            .filter(|event| event["operation"] == "create")
            .count(),
        3
    );
    assert!(count("flush-end") >= 3 && count("commit-end") >= 3);

    printed(&["umount", text(&directory)]);
    drop(mounted);
    assert!(!dure(&["top", "--once", text(&volume)]).status.success());
    let info = json(&["info", "--journal", "--json", text(&volume)]);
    assert_eq!(
        (&info["clean"], &info["recovery"]),
        (&Value::Bool(true), &Value::Null)
    );
}
