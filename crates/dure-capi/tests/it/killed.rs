//! A program in C that is killed while it syncs: what fsync had returned for is there.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use dure::{MountOptions, Volume};

use crate::tools::{compile, run};

const THREADS: usize = 4;

/// The thread and the number that a line tells of.
fn synced(line: &str) -> (usize, u64) {
    let (thread, number) = line.split_once(' ').unwrap();
    (thread.parse().unwrap(), number.parse().unwrap())
}

/// Kills a program after some lines; whether all that it said to be durable is there.
fn play(program: &Path, words: &[&str], lines: usize) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("v.img");
    let mut killed = Command::new(program);
    let killed = killed.arg(&image).args(words).stdout(Stdio::piped());
    let mut killed = killed.spawn().unwrap();
    let said = BufReader::new(killed.stdout.take().unwrap());
    let mut last = [None; THREADS];
    for (count, line) in said.lines().map_while(Result::ok).enumerate() {
        let (thread, number) = synced(&line);
        last[thread] = Some(number);
        if count == lines {
            killed.kill().unwrap();
        }
    }
    killed.wait().unwrap();
    assert_ne!(last, [None; THREADS], "it has synced nothing");
    let session = Volume::open(&image, MountOptions::default())
        .unwrap()
        .root();
    let mut last = last.into_iter().enumerate();
    last.all(|(thread, last)| {
        let bytes = session.read(format!("/{thread}")).unwrap_or_default();
        let numbers = bytes.chunks_exact(8).zip(0_u64..);
        let good = numbers.filter(|(found, number)| *found == number.to_le_bytes());
        let good = u64::try_from(good.count()).unwrap();
        last.is_none_or(|last| good > last)
    })
}

#[test]
fn what_a_killed_program_has_synced_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile("tests/c/killed.c", folder.path(), &[]) else {
        return;
    };
    for lines in [1, 30, 300] {
        assert!(play(&program, &[], lines), "after {lines} lines");
    }
    let lies = play(&program, &["lies"], 300);
    assert!(!lies, "canary: what was not synced has survived");
}

/// Ends a process that a test started, by its number.
fn kill(number: &str) {
    run(Command::new("kill").args(["-9", number]));
}

/// The child that was forked, and stays, has the descriptors of its parent but those of the mount.
#[test]
fn a_mount_whose_owner_is_killed_says_so_and_loses_nothing_that_was_synced() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile("tests/c/owner.c", folder.path(), &[]) else {
        return;
    };
    let image = folder.path().join("v.img");
    let mut owner = Command::new(program);
    let mut owner = owner.arg(&image).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    let mut lines = BufReader::new(owner.stdout.take().unwrap());
    lines.read_line(&mut said).unwrap();
    if said.starts_with("not run") {
        owner.wait().unwrap();
        return;
    }
    let mount = folder.path().join("v.img.d");
    let read = |name: &str| {
        let path = mount.join(name);
        Command::new("timeout")
            .arg("10")
            .arg("cat")
            .arg(path)
            .output()
            .unwrap()
    };
    assert_eq!(read("ours").stdout, b"sown");
    owner.kill().unwrap();
    owner.wait().unwrap();
    let gone = read("ours");
    kill(said.trim());
    let unmounted = Command::new("umount").arg("-l").arg(&mount).status();
    assert_eq!(gone.status.code(), Some(1), "124: it has waited in vain");
    let error = String::from_utf8_lossy(&gone.stderr);
    assert!(error.contains("not connected"), "{error}");
    assert!(unmounted.unwrap().success());
    let session = Volume::open(&image, MountOptions::default())
        .unwrap()
        .root();
    for name in ["ours", "theirs"] {
        assert_eq!(session.read(name).unwrap(), b"sown", "{name}");
    }
}
