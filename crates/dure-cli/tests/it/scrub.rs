//! `dure scrub` of a mounted volume.

#![expect(clippy::unwrap_used, reason = "tests panic")]

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use crate::program::{Mounted, can_mount, dure, errors, printed, program, refused, text, volume};

const PAGE: usize = 4096;

/// A page that no other is like.
fn page(number: u64) -> Vec<u8> {
    let word = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    word.iter().copied().cycle().take(PAGE).collect()
}

/// A volume with `directory/file`, of so many pages; not mounted.
fn filled(folder: &Path, pages: u64) -> PathBuf {
    let image = volume(folder);
    let mount = Mounted::new(&image, "m", "");
    fs::create_dir(mount.path("directory")).unwrap();
    let bytes: Vec<u8> = (0..pages).flat_map(page).collect();
    fs::write(mount.path("directory/file"), bytes).unwrap();
    mount.end();
    image
}

/// Inverts a bit of a page of the file, in the image.
fn flip(image: &Path, number: u64) {
    let bytes = fs::read(image).unwrap();
    let wanted = page(number);
    let mut blocks = bytes.chunks_exact(PAGE);
    let block = blocks.position(|block| block == wanted).unwrap();
    let image = File::options().write(true).open(image).unwrap();
    let at = u64::try_from(block * PAGE + 100).unwrap();
    image.write_at(&[wanted[100] ^ 1], at).unwrap();
}

fn status(volume: &str) -> Value {
    serde_json::from_slice(&dure(&["scrub", "status", "--json", volume]).stdout).unwrap()
}

#[test]
fn a_flipped_bit_is_named_by_path() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = filled(folder.path(), 500);
    let metrics = folder.path().join("metrics");
    let options = format!("metrics={}", text(&metrics));
    let mount = Mounted::new(&image, "m", &options);
    let m = text(&mount.0).to_owned();
    assert!(printed(&["scrub", "status", &m]).contains("no scrub yet"));
    let said = printed(&["scrub", "start", "--wait", &m]);
    assert!(
        said.contains("complete") && said.contains("0 damaged"),
        "{said}"
    );
    flip(&image, 321);
    let bad = dure(&["scrub", "start", "--wait", text(&image)]);
    let said = String::from_utf8_lossy(&bad.stdout).into_owned();
    assert_eq!(bad.status.code(), Some(4), "{said}{}", errors(&bad));
    let at = 321 * PAGE;
    let line = format!("/directory/file, offset {at}:");
    assert!(said.contains(&line), "{said}");
    let status = status(&m);
    assert_eq!(status["bad"][0]["paths"][0], "/directory/file");
    assert_eq!(status["state"], "complete");
    assert_eq!(status["bad_blocks"], 1);
    let info = printed(&["info", &m]);
    assert!(info.contains("scrub: block"), "the log has it: {info}");
    let top: Value = serde_json::from_str(&printed(&["top", "--once", "--json", &m])).unwrap();
    assert_eq!(top["scrub"]["bad_blocks"], 1);
    // Written anew, it is in order.
    fs::write(mount.path("directory/file"), "new").unwrap();
    let said = printed(&["scrub", "start", "--wait", &m]);
    assert!(said.contains("0 damaged"), "{said}");
    mount.end();
}

#[test]
fn what_is_behind_a_damaged_page_is_not_read_as_zeroes() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = filled(folder.path(), 500);
    flip(&image, 321);
    let mount = Mounted::new(&image, "m", "");
    let file = File::open(mount.path("directory/file")).unwrap();
    let mut bytes = vec![0; PAGE];
    for number in 0..500 {
        let read = file.read_exact_at(&mut bytes, number * 4096);
        match number {
            321 => assert_eq!(read.unwrap_err().raw_os_error(), Some(5)),
            _ => assert!(read.is_ok() && bytes == page(number), "page {number}"),
        }
    }
    assert!(fs::read(mount.path("directory/file")).is_err());
    drop(file);
    mount.end();
}

#[test]
fn a_page_in_memory_mends_its_block() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = volume(folder.path());
    let mount = Mounted::new(&image, "m", "");
    // Pages that were written stay in memory.
    let bytes: Vec<u8> = (0..500).flat_map(page).collect();
    fs::write(mount.path("file"), &bytes).unwrap();
    File::open(mount.path("file")).unwrap().sync_all().unwrap();
    flip(&image, 321);
    let m = text(&mount.0).to_owned();
    let mended = dure(&["scrub", "start", "--wait", &m]);
    let said = String::from_utf8_lossy(&mended.stdout).into_owned();
    assert_eq!(mended.status.code(), Some(1), "{said}");
    assert!(
        said.contains("/file, offset") && said.contains("; mended"),
        "{said}"
    );
    mount.end();
    printed(&["check", "--data", text(&image)]);
    let mount = Mounted::new(&image, "m", "");
    assert!(fs::read(mount.path("file")).unwrap() == bytes);
    mount.end();
}

#[test]
fn a_pause_and_a_remount_keep_the_place() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = filled(folder.path(), 4000);
    let mount = Mounted::new(&image, "m", "");
    let m = text(&mount.0).to_owned();
    printed(&["scrub", "start", "--rate", "5", &m]);
    let reached = (0..500).find_map(|_| {
        dure_sync::thread::sleep(Duration::from_millis(10));
        let now = status(&m);
        let done = now["blocks_done"].as_u64().unwrap();
        (done > 500).then_some(now)
    });
    assert_eq!(reached.unwrap()["state"], "running");
    assert!(printed(&["scrub", "pause", &m]).contains("paused"));
    let paused = status(&m);
    assert!(
        paused["cursor"].as_str().unwrap().starts_with("main:"),
        "{paused}"
    );
    mount.end();
    let mount = Mounted::new(&image, "m", "");
    assert_eq!(status(&m), paused);
    // One that runs goes on at the next mount by itself.
    printed(&["scrub", "start", "--rate", "1", &m]);
    mount.end();
    let mount = Mounted::new(&image, "m", "");
    assert_eq!(status(&m)["state"], "running");
    let said = printed(&["scrub", "start", "--wait", &m]);
    assert!(
        said.contains("complete") && said.contains("0 damaged"),
        "{said}"
    );
    let whole = status(&m);
    assert_eq!(whole["started"], paused["started"]);
    assert!(whole["compared"].as_u64().unwrap() >= 4000, "{whole}");
    mount.end();
}

#[test]
fn a_volume_that_is_not_mounted_is_refused_with_advice() {
    let folder = tempfile::tempdir().unwrap();
    let image = volume(folder.path());
    let why = refused(&["scrub", "start", text(&image)]);
    assert!(why.contains("dure check --data"), "{why}");
    let usage = program()
        .args(["scrub", "start", "--rate", "0", "x"])
        .output();
    assert_eq!(usage.unwrap().status.code(), Some(16));
}

#[test]
fn a_volume_grows_while_it_is_scrubbed() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = filled(folder.path(), 2000);
    let mount = Mounted::new(&image, "m", "");
    let m = text(&mount.0).to_owned();
    printed(&["scrub", "start", "--rate", "1", &m]);
    printed(&["resize", &m, "128M"]);
    assert_eq!(status(&m)["state"], "running");
    let said = printed(&["scrub", "start", "--wait", &m]);
    assert!(said.contains("0 damaged"), "{said}");
    mount.end();
}

#[test]
fn a_state_directory_in_the_mount_hangs_nothing() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = filled(folder.path(), 10);
    let directory = folder.path().join("m");
    for _ in 0..2 {
        let mut mount = program();
        mount.env("STATE_DIRECTORY", directory.join("state"));
        mount.args(["mount", text(&image), text(&directory)]);
        assert!(mount.status().unwrap().success());
        let mount = Mounted(directory.clone());
        printed(&["scrub", "start", "--wait", text(&mount.0)]);
        assert!(printed(&["scrub", "pause", text(&mount.0)]).contains("complete"));
        assert_eq!(fs::read_dir(mount.path("state")).unwrap().count(), 1);
        mount.end();
    }
}
