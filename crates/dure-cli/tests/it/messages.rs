//! Errors tell what happened, where, and what to do.

#![expect(clippy::unwrap_used, reason = "tests panic")]

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::program::{Mounted, can_mount, dure, errors, printed, refused, text, told, volume};

#[test]
fn sizes_are_told_in_units() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("v.img");
    let mkfs = |size| refused(&["mkfs", "--size", size, text(&image)]);
    told(
        &mkfs("1M"),
        &["--size 1.0 MiB is too small", "needs 4.0 MiB"],
    );
    told(
        &mkfs("1K"),
        &["--size 1.0 KiB is too small", "needs 4.0 MiB"],
    );
    told(&mkfs("5000T"), &["4.8 PiB is more than a volume can have"]);
    let region = folder.path().join("region");
    let of_region = ["--nvm", text(&region), "--nvm-size", "1K", "--size", "64M"];
    let why = refused(&[&["mkfs", text(&image)], &of_region[..]].concat());
    told(&why, &["has less than 4 KiB", "a region needs"]);
    assert!(!image.exists() && !region.exists());
}

/// A loop device without a file: the last one, which nobody takes while there are others.
fn detached() -> Option<String> {
    let names = (0..256).rev().map(|number| format!("loop{number}"));
    let size = |name: &String| fs::read_to_string(format!("/sys/block/{name}/size"));
    let mut unused = names.filter(|name| size(name).is_ok_and(|sectors| sectors.trim() == "0"));
    let device = unused.next().map(|name| format!("/dev/{name}"));
    device.filter(|device| fs::File::open(device).is_ok())
}

#[test]
fn a_block_device_without_a_size_is_told_as_that() {
    if !can_mount() {
        return;
    }
    let Some(device) = detached() else {
        return eprintln!("skipped: no loop device that is not in use");
    };
    let folder = tempfile::tempdir().unwrap();
    for arguments in [
        &["mkfs", "--force", &device][..],
        &["mount", &device, text(folder.path())],
        &["check", &device],
        &["info", &device],
    ] {
        let why = refused(arguments);
        told(&why, &[&device, "has no size", "attach"]);
    }
}

#[test]
fn a_bad_superblock_is_no_reason_to_make_a_volume_anew() {
    let folder = tempfile::tempdir().unwrap();
    let volume = volume(folder.path());
    let mut bytes = fs::read(&volume).unwrap();
    bytes[..4096].fill(0);
    fs::write(&volume, &bytes).unwrap();
    let output = dure(&["check", text(&volume)]);
    let said = format!(
        "{}{}",
        errors(&output),
        String::from_utf8_lossy(&output.stdout)
    );
    assert!(
        said.contains("superblock at block 0 is bad, the other copy counts"),
        "{said}"
    );
    assert!(!said.contains("mkfs"), "{said}");
    printed(&["ls", text(&volume)]);
    let end = bytes.len() - 4096;
    bytes[end..].fill(0);
    fs::write(&volume, &bytes).unwrap();
    let why = refused(&["ls", text(&volume)]);
    told(
        &why,
        &["neither its first nor its last block is a superblock"],
    );
    assert!(!why.contains("mkfs"), "{why}");
}

#[test]
fn who_uses_a_volume_is_told_with_the_way_to_end_it() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let volume = volume(folder.path());
    let mounted = Mounted::new(&volume, "m", "");
    let end = format!("`dure umount {}` ends that", mounted.0.display());
    for command in [&["ls"][..], &["check"]] {
        let arguments = [command, &[text(&volume)]].concat();
        let why = refused(&arguments);
        told(&why, &["in use by process", "it is mounted on", &end]);
    }
    mounted.end();
}

#[test]
fn a_mount_without_its_server_is_told_from_a_directory() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let volume = volume(folder.path());
    let place = folder.path().join("m");
    fs::create_dir(&place).unwrap();
    let mut server = Command::new(env!("CARGO_BIN_EXE_dure"));
    server.args(["mount", text(&volume), text(&place), "--foreground"]);
    let mut server = server
        .stdout(Stdio::null())
        .process_group(0)
        .spawn()
        .unwrap();
    let is_mounted = || place.join("..").metadata().is_ok() && mounted_on(&place);
    for _ in 0..1000 {
        if is_mounted() {
            break;
        }
        dure_sync::thread::sleep(Duration::from_millis(5));
    }
    server.kill().unwrap();
    server.wait().unwrap();
    let clears = format!("`dure umount {}` clears it", place.display());
    let why = refused(&["mount", text(&volume), text(&place)]);
    told(&why, &["the server of a mount there is gone", &clears]);
    let why = refused(&["ls", text(&place.join("v.img"))]);
    told(&why, &["the server of a mount there is gone"]);
    printed(&["umount", text(&place)]);
    Mounted::new(&volume, "m", "").end();
}

fn mounted_on(place: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    mounts.contains(&format!(" {} ", place.display()))
}

#[test]
fn what_is_no_volume_and_no_mount_is_called_so() {
    let folder = tempfile::tempdir().unwrap();
    let volume = volume(folder.path());
    let note = folder.path().join("note");
    fs::write(&note, "hi").unwrap();
    let output = dure(&["check", text(&note)]);
    assert_eq!(output.status.code(), Some(8));
    told(&errors(&output), &["not a dure volume"]);
    let why = refused(&["resize", text(folder.path()), "1G"]);
    assert_eq!(why.matches(text(folder.path())).count(), 1, "{why}");
    let why = refused(&["mkfs", text(&volume)]);
    told(&why, &["holds a dure volume; give --force"]);
    if can_mount() {
        let why = refused(&["umount", text(folder.path())]);
        told(&why, &["nothing is mounted there"]);
        let mount = Mounted::new(&volume, "m", "");
        let open = fs::File::create(mount.path("f")).unwrap();
        let why = refused(&["umount", text(&mount.0)]);
        told(&why, &["busy", "--lazy"]);
        drop(open);
        mount.end();
    }
}

#[test]
fn what_can_only_be_read_is_mounted_so() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let volume = volume(folder.path());
    // A bind mount of its folder that can only be read.
    let place = folder.path().join("m");
    let read_only = tempfile::tempdir().unwrap();
    fs::create_dir(&place).unwrap();
    let run = |arguments: &[&str]| {
        let done = Command::new("mount").args(arguments).status().unwrap();
        assert!(done.success(), "mount {arguments:?}");
    };
    run(&["--bind", text(folder.path()), text(read_only.path())]);
    run(&["-o", "remount,bind,ro", text(read_only.path())]);
    let seen = read_only.path().join("v.img");
    let why = refused(&["mount", text(&seen), text(&place)]);
    let umounted = Command::new("umount")
        .arg(read_only.path())
        .status()
        .unwrap();
    assert!(umounted.success());
    told(&why, &["can only be read", "`dure mount -o ro` shows it"]);
    assert!(volume.exists());
}

#[test]
fn what_is_not_there_is_told_with_its_volume_and_the_way_on() {
    let folder = tempfile::tempdir().unwrap();
    let volume = volume(folder.path());
    let image = text(&volume);
    told(&refused(&["ls", image, "/no"]), &[image, "/no"]);
    told(&refused(&["cat", image, "/no"]), &[image, "/no"]);
    let why = refused(&["mkdir", image, "/a/b"]);
    told(&why, &[image, "/a/b", "--parents"]);
    printed(&["mkdir", "-p", image, "/a/b"]);
    told(&refused(&["rm", image, "/a"]), &[image, "--recursive"]);
    // Each that fails is told, and the others are removed.
    let why = refused(&["rm", "-r", image, "/no", "/a", "/neither"]);
    assert_eq!(why.lines().count(), 2, "{why}");
    assert!(why.contains("/no:") && why.contains("/neither:"), "{why}");
    assert_eq!(printed(&["ls", image]), "");
    let why = refused(&["dump", image, "inode", "999999999"]);
    told(&why, &[image, "inode 999999999"]);
}

#[test]
fn what_an_option_or_a_size_lacks_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let volume = volume(folder.path());
    let place = text(folder.path());
    let mount = |option| refused(&["mount", text(&volume), place, "-o", option]);
    told(&mount("commit"), &["commit: it needs a value"]);
    told(&mount("cache"), &["cache: it needs a value"]);
    told(&mount("kommit=1"), &["unknown mount option", "--help"]);
    for size in [&[][..], &["64M"]] {
        let why = refused(&[&["resize", text(&volume)], size].concat());
        told(&why, &["64.0 MiB already", "a larger size, as in 2G"]);
    }
    let why = refused(&["mkfs", "--size", "64M", "/dev/null"]);
    told(&why, &["is a character device"]);
}

#[test]
fn where_a_volume_is_mounted_is_no_volume_and_told_so() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let volume = volume(folder.path());
    let mounted = Mounted::new(&volume, "m", "");
    let m = text(&mounted.0);
    let journal = printed(&["info", "--journal", m]);
    assert!(journal.contains("journal"), "{journal}");
    let place = text(folder.path());
    let undo = format!("{place}/undo");
    fs::write(&undo, "").unwrap();
    let lines: [&[&str]; 13] = [
        &["check", m],
        &["upgrade", m],
        &["trim", m],
        &["ls", m],
        &["cat", m, "/f"],
        &["get", m, "/f", place],
        &["put", m, &undo, "/"],
        &["clone", m, "/f", "/g"],
        &["rm", m, "/f"],
        &["mkdir", m, "/d"],
        &["rescue", m, &format!("{place}/out")],
        &["dump", m, "volume"],
        &["undo", &undo, m],
    ];
    let is = format!(
        "{} is mounted on {m}; `dure umount {m}` first",
        text(&volume)
    );
    for line in lines {
        let why = refused(line);
        told(why.trim(), &[&is]);
    }
    mounted.end();
}

#[test]
fn one_of_two_mounts_that_read_ends_by_itself() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let volume = volume(folder.path());
    let first = Mounted::new(&volume, "x1", "ro");
    let second = Mounted::new(&volume, "x2", "ro");
    let output = ended_within(&second.0, Duration::from_secs(20));
    assert_eq!(output, "");
    let second = Mounted::new(&volume, "x2", "ro");
    // The first one's server is the one that answers.
    assert_eq!(ended_within(&first.0, Duration::from_secs(20)), "");
    second.end();
    Mounted::new(&volume, "x3", "").end();
}

/// What an unmount says that ends in time.
fn ended_within(place: &Path, most: Duration) -> String {
    let mut umount = Command::new(env!("CARGO_BIN_EXE_dure"));
    umount.args(["umount", text(place)]).stderr(Stdio::piped());
    let mut umount = umount.spawn().unwrap();
    let start = dure_sync::clock::monotonic_ns();
    while umount.try_wait().unwrap().is_none() {
        let passed = Duration::from_nanos(dure_sync::clock::monotonic_ns() - start);
        if passed > most {
            umount.kill().unwrap();
            break;
        }
        dure_sync::thread::sleep(Duration::from_millis(10));
    }
    errors(&umount.wait_with_output().unwrap())
}

#[test]
fn a_check_names_the_files_whose_content_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let volume = volume(folder.path());
    let v = text(&volume);
    let source = folder.path().join("rotten");
    fs::write(&source, [0xa7; 3 * 4096]).unwrap();
    printed(&["mkdir", v, "/d"]);
    printed(&["put", "-q", v, text(&source), "/d/rotten"]);
    let mut bytes = fs::read(&volume).unwrap();
    let page = bytes.chunks(4096).position(|page| page == [0xa7; 4096]);
    bytes[page.unwrap() * 4096] ^= 1;
    fs::write(&volume, &bytes).unwrap();
    for repair in [false, true] {
        let mut line = vec!["check", "--data", v];
        line.extend(repair.then_some("--repair"));
        let output = dure(&line);
        assert_eq!(output.status.code(), Some(4));
        let said = String::from_utf8(output.stdout.clone()).unwrap();
        let named = |line: &str| line.starts_with("damaged: /d/rotten (file ");
        assert!(said.lines().any(named), "{said}");
        let step = errors(&output);
        told(
            step.trim(),
            &["content", "is lost", "write each file anew", "backup"],
        );
        assert!(!step.contains("--repair"), "{step}");
    }
    let output = dure(&["check", "--data", "--json", v]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["damaged"][0]["paths"][0], "/d/rotten", "{json}");
    assert_eq!(json["damaged"][0]["pages"], 1, "{json}");
}
