//! `dure snapshot`, of a volume that is mounted and of one that is not.

use std::fs;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};

use crate::program::{Mounted, can_mount, dure, errors, printed, refused, text, told, volume};

#[test]
fn a_volume_that_is_not_mounted_has_snapshots() {
    let folder = tempfile::tempdir().unwrap();
    let image = volume(folder.path());
    let v = text(&image);
    let file = folder.path().join("file");
    for (content, name) in [("one", "first"), ("two", "second")] {
        fs::write(&file, content).unwrap();
        printed(&["put", "-q", v, text(&file), "/file"]);
        printed(&["snapshot", "create", v, name]);
    }
    let listed = printed(&["snapshot", "list", v]);
    let names: Vec<&str> = listed
        .lines()
        .filter_map(|line| line.split_whitespace().last())
        .collect();
    assert_eq!(names, ["first", "second"], "{listed}");
    let json: serde_json::Value =
        serde_json::from_str(&printed(&["snapshot", "list", "--json", v])).unwrap();
    assert_eq!(json[1]["name"], "second");
    assert!(refused(&["snapshot", "create", v, "first"]).contains("called first already"));
    assert!(refused(&["snapshot", "delete", v, "third"]).contains("no snapshot called third"));
    printed(&["check", "--data", v]);
    printed(&["snapshot", "rename", v, "first", "oldest"]);
    if can_mount() {
        let mount = Mounted::new(&image, "m", "snapshot=oldest");
        assert_eq!(fs::read_to_string(mount.path("file")).unwrap(), "one");
        let error = fs::write(mount.path("new"), "no").unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
        mount.end();
    }
    let restored = printed(&["snapshot", "restore", v, "oldest"]);
    assert!(restored.contains("before-oldest"), "{restored}");
    assert_eq!(printed(&["cat", v, "/file"]), "one");
    printed(&["snapshot", "restore", v, "before-oldest"]);
    let befores = ["before-oldest", "before-before-oldest"];
    let all = [
        "snapshot", "delete", v, "oldest", "second", befores[0], befores[1],
    ];
    printed(&all);
    assert_eq!(printed(&["snapshot", "list", v]), "");
    assert_eq!(printed(&["cat", v, "/file"]), "two");
    printed(&["check", "--data", v]);
}

#[test]
fn a_mounted_volume_shows_its_snapshots_elsewhere() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = volume(folder.path());
    let mount = Mounted::new(&image, "m", "");
    let (m, v) = (text(&mount.0).to_owned(), text(&image).to_owned());
    let then = folder.path().join("then");
    fs::create_dir(&then).unwrap();
    // Written, not synced: it was acknowledged.
    fs::write(mount.path("file"), "then").unwrap();
    printed(&["snapshot", "create", &m, "monday"]);
    fs::write(mount.path("file"), "now").unwrap();
    fs::write(mount.path("new"), "new").unwrap();
    printed(&["snapshot", "mount", &v, "monday", text(&then)]);
    assert_eq!(fs::read_to_string(then.join("file")).unwrap(), "then");
    assert!(!then.join("new").exists());
    assert_eq!(fs::read_to_string(mount.path("file")).unwrap(), "now");
    let busy = refused(&["snapshot", "delete", &m, "monday"]);
    assert!(busy.contains("is mounted"), "{busy}");
    let busy = refused(&["resize", &m, "128M"]);
    assert!(busy.contains("its snapshots are mounted"), "{busy}");
    printed(&["umount", text(&then)]);
    printed(&["snapshot", "delete", &m, "monday"]);
    // One that is left goes with the mount of the volume.
    printed(&["snapshot", "create", &v, "last"]);
    printed(&["snapshot", "mount", &m, "last", text(&then)]);
    assert_eq!(fs::read_to_string(then.join("new")).unwrap(), "new");
    mount.end();
    assert_eq!(fs::read_dir(&then).unwrap().count(), 0);
    printed(&["check", "--data", &v]);
}

#[test]
fn a_mount_shows_snapshots_below_a_hidden_directory() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = volume(folder.path());
    let mount = Mounted::new(&image, "m", "");
    let m = text(&mount.0).to_owned();
    let hidden = mount.path(".snapshots");
    assert!(!hidden.exists(), "there is no snapshot");
    fs::write(mount.path("file"), "then").unwrap();
    printed(&["snapshot", "create", &m, "monday"]);
    fs::write(mount.path("file"), "now").unwrap();
    let names = |directory: &std::path::Path| {
        let all = fs::read_dir(directory).unwrap();
        let mut names: Vec<_> = all.map(|one| one.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names(&mount.0), ["file"], "it is hidden");
    assert_eq!(names(&hidden), ["monday"]);
    let then = hidden.join("monday");
    assert_eq!(fs::read_to_string(then.join("file")).unwrap(), "then");
    let refused_write = fs::write(then.join("file"), "no").unwrap_err();
    assert_eq!(refused_write.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    fs::create_dir(hidden.join("new")).unwrap_err();
    fs::rename(mount.path("file"), hidden.join("file")).unwrap_err();
    fs::copy(then.join("file"), mount.path("again")).unwrap();
    assert_eq!(fs::read_to_string(mount.path("again")).unwrap(), "then");
    assert!(!hidden.join("tuesday").exists(), "not yet");
    printed(&["snapshot", "create", &m, "tuesday"]);
    assert!(hidden.join("tuesday").exists(), "the kernel looks again");
    assert_eq!(names(&hidden), ["monday", "tuesday"]);
    printed(&["snapshot", "rename", &m, "monday", "sunday"]);
    assert_eq!(names(&hidden), ["sunday", "tuesday"]);
    assert!(!then.exists());
    let place = fs::read_link(hidden.join("sunday")).unwrap();
    let open = fs::File::open(place.join("file")).unwrap();
    let busy = refused(&["snapshot", "delete", &m, "sunday"]);
    assert!(busy.contains("is mounted"), "{busy}");
    drop(open);
    // A growth ends what is not in use, and the link leads to it again.
    printed(&["resize", &m, "128M"]);
    assert!(!place.exists());
    assert_eq!(
        fs::read_to_string(hidden.join("sunday/file")).unwrap(),
        "then"
    );
    printed(&["snapshot", "delete", &m, "sunday"]);
    assert!(!place.exists());
    assert_eq!(names(&hidden), ["tuesday"]);
    let left = fs::read_link(hidden.join("tuesday")).unwrap();
    mount.end();
    assert!(!left.exists(), "{}", left.display());
    printed(&["check", "--data", text(&image)]);
}

#[test]
fn a_server_that_was_killed_leaves_no_snapshot_mounted() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = volume(folder.path());
    let mount = Mounted::new(&image, "m", "");
    printed(&["snapshot", "create", text(&mount.0), "monday"]);
    let place = fs::read_link(mount.path(".snapshots/monday")).unwrap();
    assert!(place.is_dir());
    // The directory's name has the number of the process.
    let server = place.parent().unwrap().file_name().unwrap();
    let process = server.to_str().unwrap().split('.').nth(1).unwrap();
    let process = Pid::from_raw(process.parse().unwrap()).unwrap();
    kill_process(process, Signal::KILL).unwrap();
    // Killed and perhaps not yet waited for: then its number is still taken.
    let status = format!("/proc/{}/stat", process.as_raw_pid());
    while fs::read_to_string(&status).is_ok_and(|stat| !stat.contains(") Z ")) {
        dure_sync::thread::sleep(std::time::Duration::from_millis(1));
    }
    drop(mount);
    let again = Mounted::new(&image, "m", "");
    assert!(!place.exists());
    assert!(again.path(".snapshots/monday").is_dir());
    again.end();
}

#[test]
fn what_differs_is_shown_mounted_or_not() {
    let folder = tempfile::tempdir().unwrap();
    let image = volume(folder.path());
    let v = text(&image);
    let file = folder.path().join("file");
    fs::write(&file, "one").unwrap();
    printed(&["put", "-q", v, text(&file), "/kept"]);
    printed(&["put", "-q", v, text(&file), "/gone"]);
    printed(&["snapshot", "create", v, "first"]);
    printed(&["rm", v, "/gone"]);
    printed(&["put", "-q", v, text(&file), "/new"]);
    printed(&["snapshot", "create", v, "second"]);
    let lines = |arguments: &[&str]| -> Vec<String> {
        let all = [&["snapshot", "diff"], arguments].concat();
        let mut lines: Vec<String> = printed(&all).lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let expected = ["+ /new", "- /gone", "M /"];
    assert_eq!(lines(&[v, "first", "second"]), expected);
    assert_eq!(lines(&[v, "first"]), expected);
    assert_eq!(lines(&[v, "second"]), [""; 0]);
    let error = refused(&["snapshot", "diff", v, "second", "first"]);
    assert!(error.contains("older than second"), "{error}");
    if !can_mount() {
        return;
    }
    let mount = Mounted::new(&image, "m", "");
    fs::rename(mount.path("new"), mount.path("newer")).unwrap();
    let found = lines(&[text(&mount.0), "second"]);
    assert_eq!(found, ["M /", "R /new -> /newer"]);
    let json = lines(&["--json", v, "second"]);
    let row: serde_json::Value = serde_json::from_str(&json[1]).unwrap();
    assert_eq!(
        (row["change"].as_str(), row["from"].as_str()),
        (Some("renamed"), Some("/new"))
    );
    mount.end();
}

#[test]
fn none_is_deleted_if_one_of_them_is_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let image = volume(folder.path());
    let expect = |v: &str| {
        for name in ["one", "two"] {
            printed(&["snapshot", "create", v, name]);
        }
        let why = refused(&["snapshot", "delete", v, "one", "none", "two"]);
        told(
            why.trim(),
            &["nothing was deleted", "no snapshot called none"],
        );
        assert_eq!(printed(&["snapshot", "list", v]).lines().count(), 2);
        printed(&["snapshot", "delete", v, "one", "two"]);
    };
    expect(text(&image));
    if can_mount() {
        let mount = Mounted::new(&image, "m", "");
        expect(text(&mount.0));
        mount.end();
    }
}

#[test]
fn a_program_that_filled_the_volume_fails_no_command() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("large.img");
    printed(&["mkfs", "--size", "256M", text(&image)]);
    let mount = Mounted::new(&image, "m", "writeback");
    let m = text(&mount.0).to_owned();
    // What the kernel has collected does not fit: it tells syncfs(2) later.
    let full = Command::new("dd")
        .args(["if=/dev/zero", "bs=1M", "count=400"])
        .arg(format!("of={m}/big"))
        .output();
    assert!(!full.unwrap().status.success());
    fs::remove_file(mount.path("big")).unwrap();
    // One that only reads does not ask.
    let listed = dure(&["snapshot", "list", &m]);
    assert!(listed.status.success(), "{}", errors(&listed));
    assert_eq!(errors(&listed), "");
    let created = dure(&["snapshot", "create", &m, "x"]);
    let warning = errors(&created);
    assert!(created.status.success(), "{warning}");
    let told_all = ["could not be written back", "No space left"];
    told(warning.trim(), &told_all);
    let created = dure(&["snapshot", "create", &m, "y"]);
    assert_eq!(errors(&created), "");
    mount.end();
}
