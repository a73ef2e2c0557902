//! What strangers hand to the program: volumes in use, names, sockets, readers that go away.

use std::fs;
use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::program::{
    Loop, Mounted, as_user, can_mount, dure, errors, printed, program, refused, text, volume,
};

/// mkfs gave a mounted image another size before it found it in use, and the volume was gone.
#[test]
fn mkfs_changes_nothing_of_a_volume_in_use() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let volume = volume(folder.path());
    let mounted = Mounted::new(&volume, "m", "");
    fs::write(mounted.path("kept"), b"kept").unwrap();
    for size in ["8M", "128M"] {
        let why = refused(&["mkfs", "--size", size, "--force", text(&volume)]);
        assert!(why.contains("in use by process"), "{why}");
        assert_eq!(fs::metadata(&volume).unwrap().len(), 64 << 20, "{size}");
    }
    mounted.end();
    assert_eq!(printed(&["cat", text(&volume), "/kept"]), "kept");
    // Nor of one that could not be made.
    let why = refused(&["mkfs", "--size", "64K", "--force", text(&volume)]);
    assert!(why.contains("needs"), "{why}");
    assert_eq!(printed(&["cat", text(&volume), "/kept"]), "kept");
}

/// A loop device over a mounted image was mounted a second time.
#[test]
fn a_loop_device_over_a_mounted_image_is_in_use() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let volume = volume(folder.path());
    let Some(looped) = Loop::new(&volume) else {
        return;
    };
    let device = text(&looped.0);
    let second = folder.path().join("second");
    fs::create_dir(&second).unwrap();
    let (by_device, by_image) = (
        ["mount", device, text(&second)],
        ["mount", text(&volume), text(&second)],
    );
    let mounted = Mounted::new(&volume, "m", "");
    let first = dure(&by_device);
    mounted.end();
    let directory = folder.path().join("n");
    fs::create_dir(&directory).unwrap();
    printed(&["mount", device, text(&directory)]);
    let other = dure(&by_image);
    let checked = dure(&["check", "--repair", text(&volume)]);
    printed(&["umount", text(&directory)]);
    drop(looped);
    for output in [first, other, checked] {
        let why = errors(&output);
        assert!(!output.status.success() && why.contains("in use"), "{why}");
        // It is mounted, so there is nothing to wait for.
        assert!(!why.contains("waiting for it"), "{why}");
        assert!(why.contains("it is mounted on"), "{why}");
    }
    assert!(printed(&["check", text(&volume)]).contains("clean"));
}

#[test]
fn a_volume_is_not_hidden_by_its_own_mount() {
    let folder = tempfile::tempdir().unwrap();
    let volume = volume(folder.path());
    let link = folder.path().join("link");
    symlink(folder.path(), &link).unwrap();
    for directory in [folder.path(), &link] {
        let why = refused(&["mount", text(&volume), text(directory)]);
        assert!(why.contains("hidden by its own mount"), "{why}");
    }
}

/// After umount(8) the server still held the volume, and the next mount failed.
#[test]
fn a_mount_waits_for_the_server_of_the_last_one() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let volume = volume(folder.path());
    for round in 0..6 {
        let mounted = Mounted::new(&volume, "m", "");
        for n in 0..200 {
            fs::write(mounted.path(&format!("f{round}-{n}")), b"x").unwrap();
        }
        rustix::mount::unmount(&mounted.0, rustix::mount::UnmountFlags::empty()).unwrap();
    }
    let names = printed(&["ls", text(&volume)]);
    assert_eq!(names.lines().count(), 6 * 200);
    // While it is mounted there is nothing to wait for.
    let _mounted = Mounted::new(&volume, "m", "");
    let start = std::fs::metadata(&volume).unwrap();
    let why = refused(&["ls", text(&volume)]);
    assert!(
        why.contains("in use by process") && why.contains("mount"),
        "{why}"
    );
    assert!(start.is_file());
}

#[test]
fn umount_tells_how_the_volume_was_closed() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let volume = volume(folder.path());
    for _ in 0..5 {
        let mounted = Mounted::new(&volume, "m", "");
        fs::write(mounted.path("f"), vec![7; 1 << 20]).unwrap();
        mounted.end();
        // Nobody waits and nobody fails: the server has ended.
        let clean = printed(&["info", "--journal", "--json", text(&volume)]);
        assert!(clean.contains("\"clean\": true"), "{clean}");
    }
    // A volume that somebody destroyed under its server cannot be closed.
    let mounted = Mounted::new(&volume, "m", "commit=3600");
    fs::write(mounted.path("g"), b"g").unwrap();
    let image = fs::OpenOptions::new().write(true).open(&volume).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&image, &[0xee; 16384], 8192).unwrap();
    let why = refused(&["umount", text(&mounted.0)]);
    assert!(why.contains("not closed"), "{why}");
}

#[test]
fn the_root_of_a_volume_is_not_removed_by_a_slip() {
    let folder = tempfile::tempdir().unwrap();
    let volume = volume(folder.path());
    let volume = text(&volume);
    printed(&["mkdir", "-p", volume, "/a/b"]);
    for root in ["/", "/.", "//", "/a/.."] {
        let why = refused(&["rm", "-r", volume, root]);
        assert!(why.contains("--no-preserve-root"), "{why}");
        assert_eq!(printed(&["ls", volume]), "a\n", "{root}");
    }
    let _ = dure(&["rm", "-r", "--no-preserve-root", volume, "/"]);
    assert_eq!(printed(&["ls", volume]), "");
}

/// `| head -1`: the reader goes away.
#[test]
fn a_reader_that_goes_away_ends_every_command_quietly() {
    let folder = tempfile::tempdir().unwrap();
    let volume = volume(folder.path());
    let volume = text(&volume);
    let host = folder.path().join("tree");
    fs::create_dir(&host).unwrap();
    for n in 0..50 {
        fs::write(host.join(format!("f{n}")), vec![b'x'; 1 << 18]).unwrap();
    }
    printed(&["put", "-q", volume, text(&host), "/"]);
    let new = folder.path().join("new.img");
    let copy = folder.path().join("copy");
    let commands: [&[&str]; 10] = [
        &["ls", "-lR", volume],
        &["cat", volume, "/tree/f0", "/tree/f1"],
        &["info", volume],
        &["info", "--journal", volume],
        &["check", volume],
        &["check", "--json", volume],
        &["dump", volume, "journals"],
        &["get", volume, "/tree", text(&copy)],
        &["mkfs", "--size", "64M", text(&new)],
        &[
            "bench",
            "micro",
            "--milliseconds",
            "20",
            "--repeat",
            "1",
            "--warm-up",
            "2",
            "--cores",
            "1",
        ],
    ];
    for arguments in commands {
        let mut child = program();
        child.args(arguments).current_dir(folder.path());
        let child = child.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = child.spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let why = errors(&output);
        assert!(!why.contains("panicked"), "{arguments:?}: {why}");
        assert_eq!(output.status.code(), Some(141), "{arguments:?}: {why}");
    }
    assert!(printed(&["check", volume]).contains("clean"));
    // Nor does anybody have to read what goes wrong.
    let mut child = program();
    child.args(["ls", "/no/such/volume"]).stderr(Stdio::piped());
    let mut child = child.spawn().unwrap();
    drop(child.stderr.take());
    assert_eq!(child.wait().unwrap().code(), Some(1));
}

/// The address of a volume's server could be taken first, and the answer had no end.
#[test]
fn a_stranger_who_answers_for_a_volume_is_not_read() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: needs another user");
    }
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let volume = volume(folder.path());
    let found = fs::metadata(&volume).unwrap();
    let name = format!("dure/file/{}/{}", found.dev(), found.ino());
    // The same user: it is believed, and read up to a bound.
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let listener = UnixListener::bind_addr(&address).unwrap();
    let endless = std::process::Command::new(env!("CARGO_BIN_EXE_dure"))
        .args(["top", "--once", text(&volume)])
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    stream
        .set_write_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let junk = vec![b'x'; 1 << 20];
    let sent = (0..1000)
        .take_while(|_| stream.write_all(&junk).is_ok())
        .count();
    let output = endless.wait_with_output().unwrap();
    assert!(
        errors(&output).contains("without end"),
        "{}",
        errors(&output)
    );
    assert!(sent < 200, "it read {sent} MiB");
    drop((stream, listener));
    // Another user, as `nobody` would.
    let program = format!(
        "import socket,os,sys\nos.setgid(65534); os.setuid(65534)\ns=socket.socket(socket.AF_UNIX)\n\
         s.bind('\\0{name}'); s.listen(); print('ready', flush=True)\nc,_=s.accept()\n\
         try:\n  while True: c.sendall(b'x'*65536)\nexcept OSError: pass\n"
    );
    let mut python = Command::new("python3");
    let python = python.args(["-c", &program]).stdout(Stdio::piped()).spawn();
    let Ok(mut stranger) = python else {
        return eprintln!("skipped in part: no python3 to be another user with");
    };
    let mut ready = [0; 6];
    stranger
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut ready)
        .unwrap();
    let why = refused(&["top", "--once", text(&volume)]);
    assert!(why.contains("a process of user 65534 answers"), "{why}");
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}

/// The README's first commands failed for an ordinary user: the root directory was root's.
#[test]
fn whoever_makes_a_volume_may_use_it() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: needs another user");
    }
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let owner = |volume: &str| {
        let folder = tempfile::tempdir().unwrap();
        let copy = folder.path().join("copy");
        printed(&["get", "-q", volume, "/", text(&copy)]);
        let root = fs::metadata(copy).unwrap();
        (root.uid(), root.gid())
    };
    let (users, roots, given) = ("u.img", "r.img", "g.img");
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let made = as_user(1234, &["mkfs", "--size", "64M", &at(users)]);
    assert!(made.status.success(), "{}", errors(&made));
    assert_eq!(owner(&at(users)), (1234, 1234));
    printed(&["mkfs", "--size", "64M", &at(roots)]);
    assert_eq!(owner(&at(roots)), (0, 0));
    printed(&["mkfs", "--size", "64M", "--owner", "5:6", &at(given)]);
    assert_eq!(owner(&at(given)), (5, 6));
    refused(&["mkfs", "--force", "--owner", "me", &at(given)]);

    // What a user copies from an image does not run as him for others.
    let tree = folder.path().join("program");
    fs::write(&tree, b"#!/bin/sh\n").unwrap();
    fs::set_permissions(&tree, fs::Permissions::from_mode(0o6755)).unwrap();
    printed(&["put", "-q", &at(users), text(&tree), "/program"]);
    let copied = as_user(1234, &["get", "-q", &at(users), "/program", &at("copy")]);
    assert!(copied.status.success(), "{}", errors(&copied));
    let copy = fs::metadata(at("copy")).unwrap();
    assert_eq!((copy.uid(), copy.mode() & 0o7777), (1234, 0o755));
}
