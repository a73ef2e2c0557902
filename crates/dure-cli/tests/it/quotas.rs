//! `dure quota`, of a volume that is not mounted and of one that is.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, chown};

use crate::program::{Mounted, can_mount, printed, refused, text, volume};

#[test]
fn a_volume_that_is_not_mounted_has_quotas() {
    let folder = tempfile::tempdir().unwrap();
    let image = volume(folder.path());
    let v = text(&image);
    assert!(refused(&["quota", "list", v]).contains("dure quota enable"));
    printed(&["quota", "enable", v]);
    printed(&["quota", "enable", v]);
    printed(&[
        "quota", "set", v, "--user", "7", "--soft", "1M", "--hard", "2M",
    ]);
    printed(&[
        "quota",
        "set",
        v,
        "--user",
        "7",
        "--hard-inodes",
        "50",
        "--grace",
        "24",
    ]);
    let wrong = refused(&["quota", "set", v, "--user", "7", "--soft", "3M"]);
    assert!(wrong.contains("at most the hard one"), "{wrong}");
    let rows = printed(&["quota", "list", "--json", v]);
    let rows: serde_json::Value = serde_json::from_str(&rows).unwrap();
    let all = rows.as_array().unwrap();
    let of = |id: u32| {
        all.iter()
            .find(|row| row["id"] == id && row["kind"] == "user")
    };
    let row = of(7).unwrap_or_else(|| panic!("no limits of user 7: {rows:#}"));
    for (field, value) in [
        ("bytes", 0),
        ("soft", 1 << 20),
        ("hard", 2 << 20),
        ("soft_inodes", 0),
        ("hard_inodes", 50),
        ("grace", 24 * 3600),
        ("since", 0),
    ] {
        assert_eq!(row[field], value, "{field}: {rows:#}");
    }
    // The root directory is an inode of whoever made the volume.
    let owner = of(fs::metadata(&image).unwrap().uid()).expect("the root directory's owner");
    assert_eq!(owner["inodes"], 1, "{rows:#}");
    let listed = printed(&["quota", "list", v]);
    assert!(
        listed.lines().any(|line| line.starts_with("user 7")),
        "{listed}"
    );
    printed(&["check", v]);
    printed(&["quota", "disable", v]);
    refused(&["quota", "list", v]);
    printed(&["check", v]);
}

/// What the kernel has collected it drops where a quota is used up: quotas do not begin under it.
#[test]
fn quotas_do_not_begin_while_the_kernel_collects_writes() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = volume(folder.path());
    let mount = Mounted::new(&image, "m", "writeback");
    let m = mount.path("").display().to_string();
    let why = refused(&["quota", "enable", &m]);
    assert!(why.contains("-o writethrough"), "{why}");
    assert!(refused(&["quota", "list", &m]).contains("quotas are off"));
    mount.end();
    printed(&["quota", "enable", text(&image)]);
}

#[test]
fn a_mounted_volume_says_at_write_that_a_quota_is_used_up() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = volume(folder.path());
    let mount = Mounted::new(&image, "m", "writethrough");
    let m = mount.path("").display().to_string();
    let open = File::create(mount.path("kept open")).unwrap();
    printed(&["quota", "enable", &m]);
    printed(&["quota", "set", &m, "--user", "7", "--hard", "40K"]);
    let mut file = File::create(mount.path("file")).unwrap();
    chown(mount.path("file"), Some(7), None).unwrap();
    file.write_all(&[1; 40 << 10]).unwrap();
    file.sync_all().unwrap();
    let full = file.write_all(&[1; 4096]).and_then(|()| file.sync_all());
    assert_eq!(full.unwrap_err().kind(), ErrorKind::QuotaExceeded);
    // What was open stays open, and a deletion makes room.
    (&open).write_all(b"still").unwrap();
    fs::remove_file(mount.path("file")).unwrap();
    drop(file);
    let mut file = File::create(mount.path("again")).unwrap();
    chown(mount.path("again"), Some(7), None).unwrap();
    file.write_all(&[1; 40 << 10]).unwrap();
    file.sync_all().unwrap();
    assert_eq!(file.metadata().unwrap().blocks(), 80);
    let rows = printed(&["quota", "list", "--json", &m]);
    let rows: serde_json::Value = serde_json::from_str(&rows).unwrap();
    let row = rows.as_array().unwrap().iter();
    let row = row
        .clone()
        .find(|row| row["id"] == 7 && row["kind"] == "user");
    assert_eq!(row.unwrap()["bytes"], 40 << 10);
    drop((file, open));
    mount.end();
    printed(&["check", text(&image)]);
}

#[test]
fn a_directory_of_a_volume_becomes_a_project() {
    let folder = tempfile::tempdir().unwrap();
    let image = volume(folder.path());
    let v = text(&image);
    printed(&["mkdir", "-p", v, "/home/a/b"]);
    assert_eq!(printed(&["quota", "project", v, "/home/a"]).trim(), "none");
    assert_eq!(
        printed(&["quota", "project", v, "home//a/", "5"]).trim(),
        "2 inodes"
    );
    assert_eq!(printed(&["quota", "project", v, "/home/a/b"]).trim(), "5");
    let again = printed(&["quota", "project", v, "/home/a", "5"]);
    assert_eq!(again.trim(), "0 inodes", "they have it");
    assert_eq!(printed(&["quota", "project", v, "/home"]).trim(), "none");
    assert!(refused(&["quota", "project", v, "/home/c", "5"]).contains("no such directory"));
    printed(&["quota", "enable", v]);
    printed(&["quota", "set", v, "--project", "5", "--hard-inodes", "3"]);
    printed(&["mkdir", v, "/home/a/c"]);
    assert!(refused(&["mkdir", v, "/home/a/d"]).contains("quota"));
    let rows = printed(&["quota", "list", "--json", v]);
    let rows: serde_json::Value = serde_json::from_str(&rows).unwrap();
    let mut all = rows.as_array().unwrap().iter();
    let row = all.find(|row| row["kind"] == "project").unwrap();
    assert_eq!((&row["id"], &row["inodes"]), (&5.into(), &3.into()));
    printed(&["check", v]);
}

/// df(1) of a directory of a project shows its limit; mv(1) to another one is told to copy.
#[test]
fn a_mounted_volume_has_projects() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = volume(folder.path());
    printed(&["quota", "enable", text(&image)]);
    let mount = Mounted::new(&image, "m", "writethrough");
    let m = mount.path("").display().to_string();
    fs::create_dir_all(mount.path("a/below")).unwrap();
    fs::write(mount.path("a/below/file"), [1; 40 << 10]).unwrap();
    // More than one step of progress.
    for n in 0..2100 {
        File::create(mount.path(&format!("a/{n}"))).unwrap();
    }
    let given = printed(&["quota", "project", &m, "/a", "5"]);
    assert_eq!(given.trim(), "2103 inodes");
    assert_eq!(printed(&["quota", "project", &m, "/a/below/"]).trim(), "5");
    printed(&["quota", "set", &m, "--project", "5", "--hard", "1M"]);
    let room = |name: &str| {
        let room = rustix::fs::statvfs(mount.path(name)).unwrap();
        (room.f_blocks * room.f_frsize, room.f_bavail * room.f_frsize)
    };
    let left = (1 << 20, (1 << 20) - (40 << 10));
    assert_eq!((room("a"), room("a/below/file")), (left, left));
    assert!(room("").0 > 1 << 20, "the volume");
    let full = fs::write(mount.path("a/large"), vec![1; 2 << 20]);
    assert_eq!(full.unwrap_err().kind(), ErrorKind::QuotaExceeded);
    fs::remove_file(mount.path("a/large")).unwrap();
    let moved = fs::rename(mount.path("a/below/file"), mount.path("file"));
    assert_eq!(moved.unwrap_err().kind(), ErrorKind::CrossesDevices);
    mount.end();
    printed(&["check", text(&image)]);
}

/// The page says which call tells what.
#[test]
fn a_mount_that_collects_writes_tells_a_used_up_quota_at_fsync_or_close() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = volume(folder.path());
    let v = text(&image);
    printed(&["quota", "enable", v]);
    printed(&["quota", "set", v, "--user", "7", "--hard", "1M"]);
    for (options, write, close, fsync) in [
        (
            "writeback",
            None,
            Some("closing output file"),
            Some("fsync failed"),
        ),
        ("writethrough", Some("error writing"), None, None),
    ] {
        let mount = Mounted::new(&image, "m", options);
        let path = mount.path("file");
        File::create(&path).unwrap();
        chown(&path, Some(7), Some(7)).unwrap();
        for (option, late, why) in [
            ("conv=notrunc", close, "Input/output error"),
            ("conv=fsync,notrunc", fsync, "Disk quota exceeded"),
        ] {
            let mut dd = std::process::Command::new("dd");
            let of = format!("of={}", text(&path));
            dd.args(["if=/dev/zero", &of, "bs=1M", "count=3", option]);
            let said = dd.env("LC_ALL", "C").output().unwrap().stderr;
            let said = String::from_utf8_lossy(&said).into_owned();
            let (what, why) = match write {
                Some(write) => (write, "Disk quota exceeded"),
                None => (late.unwrap(), why),
            };
            assert!(
                said.contains(what) && said.contains(why),
                "{options}: {said}"
            );
        }
        fs::remove_file(&path).unwrap();
        mount.end();
    }
}
