//! `dure send` and `dure receive`: a backup and a restore, of mounted volumes and others, with a kill in
//! between.

#![expect(clippy::unwrap_used, reason = "tests panic")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use crate::program::{
    Mounted, can_mount, dure, errors, printed, program, refused, text, told, volume,
};

fn image(folder: &Path, name: &str) -> PathBuf {
    let image = folder.join(name);
    printed(&["mkfs", "--size", "64M", text(&image)]);
    image
}

/// Sends to a file.
fn sent(arguments: &[&str], to: &Path) -> Output {
    let mut send = program();
    send.arg("send").args(arguments);
    send.stdout(File::create(to).unwrap());
    send.stderr(Stdio::piped()).output().unwrap()
}

fn send(arguments: &[&str], to: &Path) {
    let output = sent(arguments, to);
    assert!(output.status.success(), "{}", errors(&output));
}

/// Receives from a file.
fn received(arguments: &[&str], from: &Path) -> Output {
    let mut receive = program();
    receive.arg("receive").args(arguments);
    receive.stdin(File::open(from).unwrap()).output().unwrap()
}

fn receive(arguments: &[&str], from: &Path) -> String {
    let output = received(arguments, from);
    assert!(output.status.success(), "{}", errors(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// A tree of the host: a large file, many small ones, links.
fn make_tree(at: &Path) {
    fs::create_dir_all(at.join("many")).unwrap();
    let large: Vec<u8> = (0..3_000_000_u32).flat_map(u32::to_le_bytes).collect();
    fs::write(at.join("large"), large).unwrap();
    for n in 0..200 {
        fs::write(at.join(format!("many/file{n}")), vec![b'a'; n * 40]).unwrap();
    }
    fs::hard_link(at.join("large"), at.join("many/same")).unwrap();
    std::os::unix::fs::symlink("../large", at.join("many/link")).unwrap();
}

/// What a tree holds, by path.
fn tree(at: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut left = vec![at.to_owned()];
    while let Some(path) = left.pop() {
        let data = fs::symlink_metadata(&path).unwrap();
        let held = if data.is_dir() {
            left.extend(
                fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
            String::new()
        } else if data.is_symlink() {
            format!("{:?}", fs::read_link(&path).unwrap())
        } else {
            let bytes = fs::read(&path).unwrap();
            format!("{} {:x}", data.nlink(), dure_block::crc32c::crc32c(&bytes))
        };
        let time = (data.mtime(), data.mtime_nsec());
        let shown = format!("{:o} {} {time:?} {held}", data.mode(), data.uid());
        found.insert(path.strip_prefix(at).unwrap().to_owned(), shown);
    }
    found
}

/// The tree of a volume that is not mounted, copied out.
fn tree_of(image: &Path, folder: &Path, name: &str) -> BTreeMap<PathBuf, String> {
    let out = folder.join(name);
    printed(&["get", "-q", text(image), "/tree", text(&out)]);
    tree(&out)
}

#[test]
fn a_backup_that_was_killed_is_ended_and_restored() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    make_tree(&at("tree"));
    let (v, backup) = (volume(folder.path()), image(folder.path(), "backup.img"));
    printed(&["put", "-q", text(&v), text(&at("tree")), "/tree"]);
    printed(&["snapshot", "create", text(&v), "monday"]);
    send(&[text(&v), "monday"], &at("monday"));

    // What the pipe took last is still in it when the receiver dies.
    let stream = fs::read(at("monday")).unwrap();
    let mut receiver = program();
    receiver.args(["receive", text(&backup)]);
    let mut receiver = receiver.stdin(Stdio::piped()).spawn().unwrap();
    let mut input = receiver.stdin.take().unwrap();
    input.write_all(&stream[..stream.len() / 2]).unwrap();
    receiver.kill().unwrap();
    receiver.wait().unwrap();
    assert_eq!(printed(&["snapshot", "list", text(&backup)]), "");
    let half = ["snapshot monday is half received", "receive it again first"];
    told(refused(&["mkdir", text(&backup), "/x"]).trim(), &half);
    told(
        refused(&["snapshot", "create", text(&backup), "x"]).trim(),
        &half,
    );
    if can_mount() {
        fs::create_dir(at("m")).unwrap();
        let mount = refused(&["mount", text(&backup), text(&at("m"))]);
        assert!(mount.contains(half[0]), "{mount}");
        Mounted::new(&backup, "m", "ro").end();
    }

    let told = receive(&[text(&backup)], &at("monday"));
    assert!(told.starts_with("monday: "), "{told}");
    let expected = tree_of(&v, folder.path(), "expected");
    assert_eq!(tree_of(&backup, folder.path(), "copied"), expected);
    printed(&["check", "--data", text(&backup)]);

    // An increment, then both at once into a new volume.
    printed(&["rm", text(&v), "/tree/many/file7"]);
    printed(&[
        "put",
        "-q",
        text(&v),
        text(&at("tree/large")),
        "/tree/again",
    ]);
    printed(&["snapshot", "create", text(&v), "tuesday"]);
    send(&[text(&v), "tuesday", "--from", "monday"], &at("tuesday"));
    receive(&[text(&backup)], &at("tuesday"));
    let expected = tree_of(&v, folder.path(), "expected2");
    assert_eq!(tree_of(&backup, folder.path(), "copied2"), expected);
    let both = [
        fs::read(at("monday")).unwrap(),
        fs::read(at("tuesday")).unwrap(),
    ]
    .concat();
    fs::write(at("both"), both).unwrap();
    let checked = receive(&["--check"], &at("both"));
    assert!(checked.contains("tuesday from monday: "), "{checked}");
    let restored = image(folder.path(), "restored.img");
    let told = receive(&[text(&restored)], &at("both"));
    assert_eq!(told.lines().count(), 2, "{told}");
    assert_eq!(tree_of(&restored, folder.path(), "copied3"), expected);
}

#[test]
fn a_mounted_volume_is_sent_by_its_server() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let v = volume(folder.path());
    let mount = Mounted::new(&v, "m", "");
    make_tree(&mount.path("tree"));
    let m = text(&mount.0).to_owned();
    printed(&["snapshot", "create", &m, "monday"]);
    let then = tree(&mount.0);
    fs::remove_dir_all(mount.path("tree/many")).unwrap();
    send(&[&m, "monday"], &at("monday"));
    printed(&["snapshot", "create", &m, "tuesday"]);
    send(&[text(&v), "tuesday", "--from", "monday"], &at("tuesday"));
    let now = tree(&mount.0);
    let output = sent(&[&m, "wednesday"], &at("none"));
    assert_eq!(output.status.code(), Some(1));
    told(errors(&output).trim(), &["no snapshot called wednesday"]);
    let output = received(&[&m], &at("tuesday"));
    told(errors(&output).trim(), &["is mounted", "dure umount"]);

    let copy = image(folder.path(), "copy.img");
    let copied = |options: &str| {
        let mount = Mounted::new(&copy, "c", options);
        let found = tree(&mount.0);
        mount.end();
        found
    };
    receive(&[text(&copy)], &at("monday"));
    assert_eq!(copied("ro"), then);
    receive(&[text(&copy)], &at("tuesday"));
    assert_eq!(copied("ro"), now);
    assert_eq!(copied("snapshot=monday"), then);
    mount.end();
    // Without its server, the same stream.
    send(&[text(&v), "monday"], &at("again"));
    assert_eq!(
        fs::read(at("again")).unwrap(),
        fs::read(at("monday")).unwrap()
    );
}

#[test]
fn errors_say_what_is_wrong_and_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let v = volume(folder.path());
    let v = text(&v);
    printed(&["snapshot", "create", v, "one"]);
    fs::write(at("file"), "changed").unwrap();
    printed(&["put", "-q", v, text(&at("file")), "/file"]);
    printed(&["snapshot", "create", v, "two"]);
    send(&[v, "two", "--from", "one"], &at("stream"));
    let copy = image(folder.path(), "copy.img");
    let refused_from = |from: &str| {
        errors(&received(&[text(&copy)], &at(from)))
            .trim()
            .to_owned()
    };
    let needs = [
        "relative to snapshot one (number 1) of volume",
        "receive that first",
    ];
    told(&refused_from("stream"), &needs);
    told(&refused_from("file"), &["no stream of `dure send`"]);
    let stream = fs::read(at("stream")).unwrap();
    fs::write(at("cut"), &stream[..stream.len() - 1]).unwrap();
    let output = received(&["--check"], &at("cut"));
    told(errors(&output).trim(), &["ends early", "at byte", "again"]);
    told(
        refused(&["send", v, "one", "--from", "two"]).trim(),
        &["older"],
    );

    // A reader that goes away.
    make_tree(&at("tree"));
    printed(&["put", "-q", v, text(&at("tree")), "/tree"]);
    printed(&["snapshot", "create", v, "three"]);
    let mut sender = program();
    sender.args(["send", v, "three"]);
    let mut sender = sender.stdout(Stdio::piped()).spawn().unwrap();
    drop(sender.stdout.take());
    assert_eq!(sender.wait().unwrap().code(), Some(141));
    assert!(dure(&["check", v]).status.success());
}
