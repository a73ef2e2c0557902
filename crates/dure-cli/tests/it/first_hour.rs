//! What a user met in the first hour: refusals that name what is wrong and the next step.

#![expect(clippy::unwrap_used, reason = "tests panic")]

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::program::{
    Mounted, can_mount, dure, errors, printed, program, refused, text, told, volume,
};

/// A mount whose server is a child, to be killed.
fn served(image: &Path, place: &Path, state: &Path) -> Child {
    fs::create_dir_all(place).unwrap();
    let mut server = Command::new(env!("CARGO_BIN_EXE_dure"));
    server.args(["mount", text(image), text(place), "--foreground"]);
    server.env("STATE_DIRECTORY", state).stdout(Stdio::null());
    let server = server.spawn().unwrap();
    let serves = || dure(&["top", "--once", text(place)]).status.success();
    for _ in 0..1000 {
        if serves() {
            break;
        }
        dure_sync::thread::sleep(Duration::from_millis(5));
    }
    server
}

fn killed(mut server: Child) {
    server.kill().unwrap();
    server.wait().unwrap();
}

#[test]
fn another_file_system_is_not_unmounted() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let place = text(folder.path());
    let mount = Command::new("mount")
        .args(["-t", "tmpfs", "none", place])
        .status();
    assert!(mount.unwrap().success());
    let refusals = [
        refused(&["umount", place]),
        refused(&["umount", "--lazy", place]),
    ];
    let ended = Command::new("umount").arg(place).status();
    assert!(ended.unwrap().success(), "it is mounted no more");
    for why in refusals {
        told(
            &why,
            &["is a mount of tmpfs (none), not of dure", "`umount"],
        );
    }
}

/// Some read the volume below a mount that was there still.
#[test]
fn all_commands_name_a_server_that_is_gone() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = volume(folder.path());
    let place = folder.path().join("m");
    killed(served(&image, &place, folder.path()));
    let m = text(&place);
    let clears = format!("`dure umount {m}` clears it");
    for command in [
        &["info", m][..],
        &["info", "--journal", m],
        &["top", "--once", m],
        &["quota", "list", m],
        &["quota", "enable", m],
        &["snapshot", "list", m],
        &["snapshot", "create", m, "one"],
        &["snapshot", "delete", m, "one"],
        &["snapshot", "diff", m, "one"],
        &["send", m, "one"],
        &["scrub", "start", m],
        &["scrub", "status", m],
        &["resize", m, "80M"],
        &["quota", "project", m, "/"],
    ] {
        told(
            &refused(command),
            &["the server of a mount", "is gone", &clears],
        );
    }
    printed(&["umount", m]);
    printed(&["info", text(&image)]);
}

#[test]
fn a_scrub_that_just_began_goes_on_after_a_kill() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = volume(folder.path());
    let file = folder.path().join("file");
    fs::write(&file, vec![7; 8 << 20]).unwrap();
    printed(&["put", "-q", text(&image), text(&file), "/file"]);
    let (place, state) = (folder.path().join("m"), folder.path().join("state"));
    let server = served(&image, &place, &state);
    printed(&["scrub", "start", "--rate", "1", text(&place)]);
    killed(server);
    printed(&["umount", text(&place)]);
    let server = served(&image, &place, &state);
    let said = dure(&["scrub", "status", text(&place)]).stdout;
    printed(&["umount", text(&place)]);
    drop(server.wait_with_output());
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(said.contains("running"), "{said}");
}

#[test]
fn a_scrub_names_a_lost_superblock_and_the_next_step() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = volume(folder.path());
    let mount = Mounted::new(&image, "m", "");
    let opened = File::options().write(true).open(&image).unwrap();
    opened.write_all_at(&[0; 4096], 0).unwrap();
    let scrub = dure(&["scrub", "start", "--wait", text(&mount.0)]);
    let said = String::from_utf8_lossy(&scrub.stdout).into_owned();
    assert_eq!(scrub.status.code(), Some(4), "{said}");
    let line =
        "block 0: superblock at block 0 is bad, the other copy counts: there is no superblock";
    assert!(said.contains(line), "{said}");
    assert!(said.contains("`dure check --repair`"), "{said}");
    mount.end();
}

/// What takes the room, of a volume with a snapshot and a clone.
fn room(volume: &str) -> Vec<Value> {
    let info: Value = serde_json::from_str(&printed(&["info", "--json", volume])).unwrap();
    let keys = [
        "blocks_used",
        "blocks_in_logs",
        "blocks_of_snapshots",
        "blocks_spared_by_clones",
        "blocks_free",
        "snapshots",
    ];
    keys.iter().map(|key| info[key].clone()).collect()
}

#[test]
fn a_mounted_volume_shows_what_snapshots_and_clones_take() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = volume(folder.path());
    let v = text(&image);
    let file = folder.path().join("file");
    fs::write(&file, vec![7; 4 << 20]).unwrap();
    for path in ["/deleted", "/kept"] {
        printed(&["put", "-q", v, text(&file), path]);
    }
    printed(&["snapshot", "create", v, "one"]);
    printed(&["rm", v, "/deleted"]);
    printed(&["clone", "-q", v, "/kept", "/clone"]);
    let before = room(v);
    assert!(before[2].as_u64() >= Some(1024), "{before:?}");
    assert_eq!(before[3], 1024, "{before:?}");
    let mount = Mounted::new(&image, "m", "ro");
    let mounted = room(text(&mount.0));
    mount.end();
    assert_eq!(mounted, before);
}

#[test]
fn an_undo_file_that_is_there_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let image = volume(folder.path());
    let path = |name: &str| folder.path().join(name);
    fs::write(path("old"), "old").unwrap();
    std::os::unix::fs::symlink(&image, path("link")).unwrap();
    let before = fs::read(&image).unwrap();
    for (name, what) in [
        ("v.img", "it is the volume itself; name a new one"),
        ("link", "it is the volume itself; name a new one"),
        ("old", "it is there already; name a new one"),
    ] {
        let file = path(name);
        let why = refused(&["check", "--repair", "--undo", text(&file), text(&image)]);
        told(&why, &[name, "cannot make the undo file", what]);
    }
    assert_eq!(fs::read(path("old")).unwrap(), b"old");
    assert!(
        fs::read(&image).unwrap() == before,
        "the volume has changed"
    );
}

#[test]
fn a_snapshot_that_was_received_before_keeps_its_name_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let image = volume(folder.path());
    let backup = folder.path().join("backup.img");
    printed(&["mkfs", "--size", "64M", text(&backup)]);
    printed(&["snapshot", "create", text(&image), "one"]);
    let stream = folder.path().join("stream");
    let mut send = program();
    send.args(["send", text(&image), "one"]);
    let sent = send.stdout(File::create(&stream).unwrap()).status();
    assert!(sent.unwrap().success());
    let receive = |name: &str| {
        let mut receive = program();
        receive.args(["receive", text(&backup), "--snapshot", name]);
        let output = receive
            .stdin(File::open(&stream).unwrap())
            .output()
            .unwrap();
        assert!(output.status.success());
        errors(&output)
    };
    assert_eq!(receive("first"), "");
    assert_eq!(receive("first"), "");
    let renames = format!("`dure snapshot rename {} first second`", text(&backup));
    told(&receive("second"), &["stays first", &renames]);
}

#[test]
fn quotas_of_a_read_only_mount_say_so() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = volume(folder.path());
    let mount = Mounted::new(&image, "m", "ro");
    let m = text(&mount.0).to_owned();
    let step = format!("`dure umount {m}`");
    for command in [
        &["quota", "enable", &m][..],
        &["quota", "disable", &m],
        &["quota", "set", &m, "--user", "7", "--hard", "1M"],
    ] {
        told(&refused(command), &["mounted read-only", &step]);
    }
    mount.end();
}

/// mount(8) takes 2 for an error of the system.
#[test]
fn the_helper_of_mount_exits_with_1_for_wrong_arguments() {
    let folder = tempfile::tempdir().unwrap();
    let image = volume(folder.path());
    let place = folder.path().join("m");
    fs::create_dir(&place).unwrap();
    for name in ["mount.dure", "mount.fuse.dure"] {
        let helper = folder.path().join(name);
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_dure"), &helper).unwrap();
        for arguments in [
            &[text(&image), text(&place), "-o", "bogus"][..],
            &[text(&image), text(&place), "--bogus"],
            &[text(&image)],
        ] {
            let helped = Command::new(&helper).args(arguments).output().unwrap();
            assert_eq!(helped.status.code(), Some(1), "{}", errors(&helped));
        }
    }
    let mount = dure(&["mount", text(&image), text(&place), "-o", "bogus"]);
    assert_eq!(mount.status.code(), Some(2));
}

#[test]
fn of_snapshots_that_cannot_all_be_deleted_none_is() {
    let folder = tempfile::tempdir().unwrap();
    let image = volume(folder.path());
    let v = text(&image);
    for name in ["a", "b", "c"] {
        printed(&["snapshot", "create", v, name]);
    }
    let all = printed(&["snapshot", "list", v]);
    let why = refused(&["snapshot", "delete", v, "a", "b", "a"]);
    told(&why, &["a is named twice", "nothing was deleted"]);
    assert_eq!(printed(&["snapshot", "list", v]), all);
    if !can_mount() {
        return;
    }
    let mount = Mounted::new(&image, "m", "");
    let place = folder.path().join("shown");
    fs::create_dir(&place).unwrap();
    printed(&["snapshot", "mount", text(&mount.0), "b", text(&place)]);
    let why = refused(&["snapshot", "delete", text(&mount.0), "a", "b", "c"]);
    told(&why, &["b", "mounted"]);
    assert_eq!(printed(&["snapshot", "list", text(&mount.0)]), all);
    printed(&["umount", text(&place)]);
    mount.end();
}
