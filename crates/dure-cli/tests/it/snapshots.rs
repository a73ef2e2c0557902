//! `dure snapshot`, of a volume that is mounted and of one that is not.

use std::fs;

use crate::program::{Mounted, can_mount, printed, refused, text, volume};

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
    printed(&["snapshot", "delete", v, "oldest", "second"]);
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
