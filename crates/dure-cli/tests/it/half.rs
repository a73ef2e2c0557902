//! A volume that is half restored or half received keeps what can end that.

#![expect(clippy::unwrap_used, reason = "tests panic")]

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use serde_json::Value;

use crate::program::{
    Mounted, can_mount, dure, errors, printed, program, refused, text, told, volume,
};

/// A volume with snapshots `old`, `good` and `late`, of which `good` is half restored.
fn half_restored(folder: &Path) -> String {
    let image = volume(folder);
    let v = text(&image).to_owned();
    let file = folder.join("file");
    for (size, name) in [(10, "old"), (1_000_000, "good"), (2_000_000, "late")] {
        fs::write(&file, vec![b'x'; size]).unwrap();
        printed(&["put", "-q", &v, text(&file), &format!("/{name}")]);
        printed(&["snapshot", "create", &v, name]);
    }
    // As a kill leaves it.
    let volume = dure::Volume::open(&image, dure::MountOptions::default()).unwrap();
    let mut records = 0;
    let mut cut = |_: &dure::stream::Progress| {
        records += 1;
        match records {
            0..2 => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        }
    };
    dure::stream::restore(&volume, "good", &mut cut).unwrap_err();
    volume.close().unwrap();
    v
}

fn info(v: &str) -> Value {
    serde_json::from_str(&printed(&["info", "--json", v])).unwrap()
}

fn names(v: &str) -> Vec<String> {
    let rows: Value = serde_json::from_str(&printed(&["snapshot", "list", "--json", v])).unwrap();
    let name = |row: &Value| row["name"].as_str().unwrap().to_owned();
    rows.as_array().unwrap().iter().map(name).collect()
}

#[test]
fn a_half_restored_volume_keeps_what_ends_it() {
    let folder = tempfile::tempdir().unwrap();
    let v = half_restored(folder.path());
    assert_eq!(info(&v)["half_restored"], "good");
    let shown = printed(&["info", &v]);
    assert!(shown.contains("half restored        good\n"), "{shown}");
    let all = [
        "snapshot",
        "delete",
        &v,
        "old",
        "late",
        "good",
        "before-good",
    ];
    let step = [
        "good is half restored",
        "`dure snapshot restore VOLUME good`",
    ];
    told(refused(&all).trim(), &step);
    assert_eq!(names(&v), ["old", "good", "late", "before-good"]);
    told(
        refused(&["snapshot", "delete", &v, "before-good"]).trim(),
        &step,
    );
    // A new name is told, and works.
    printed(&["snapshot", "rename", &v, "good", "best"]);
    assert_eq!(info(&v)["half_restored"], "best");
    let step = format!("`dure snapshot restore {v} best`");
    let why = refused(&["mkdir", &v, "/x"]);
    told(why.trim(), &["snapshot best is half restored", &step]);
    if can_mount() {
        let mount = Mounted::new(Path::new(&v), "m", "ro");
        assert_eq!(info(text(&mount.0))["half_restored"], "best");
        mount.end();
    }
    // What is not needed makes room.
    printed(&["snapshot", "delete", &v, "old", "late"]);
    printed(&["snapshot", "restore", &v, "best"]);
    assert_eq!(info(&v).get("half_restored"), None);
    assert_eq!(printed(&["ls", &v]).lines().count(), 2);
    printed(&["snapshot", "delete", &v, "best", "before-good"]);
    assert!(names(&v).is_empty());
}

#[test]
fn a_half_received_volume_keeps_what_ends_it() {
    let folder = tempfile::tempdir().unwrap();
    let v = half_restored(folder.path());
    printed(&["snapshot", "restore", &v, "good"]);
    let copy = folder.path().join("copy.img");
    let h = text(&copy);
    printed(&["mkfs", "--size", "64M", h]);
    let send = |arguments: &[&str]| {
        let sent = program().arg("send").args(arguments).output().unwrap();
        assert!(sent.status.success(), "{}", errors(&sent));
        fs::write(folder.path().join("stream"), &sent.stdout).unwrap();
        sent.stdout
    };
    let receive = || {
        let input = fs::File::open(folder.path().join("stream")).unwrap();
        let mut receive = program();
        receive.args(["receive", h]).stdin(input);
        receive.output().unwrap()
    };
    send(&[&v, "old"]);
    assert!(receive().status.success());
    let stream = send(&[&v, "late", "--from", "old"]);
    fs::write(folder.path().join("stream"), &stream[..stream.len() / 2]).unwrap();
    assert!(!receive().status.success());
    assert_eq!(info(h)["half_received"], "late");
    let why = refused(&["snapshot", "delete", h, "old"]);
    let steps = [
        "late is half received",
        "receive it again",
        "restore VOLUME old",
    ];
    told(why.trim(), &steps);
    let why = refused(&["mkdir", h, "/x"]);
    told(why.trim(), &["late is half received", "receive it again"]);
    fs::write(folder.path().join("stream"), &stream).unwrap();
    assert!(receive().status.success());
    assert_eq!(info(h).get("half_received"), None);
    printed(&["snapshot", "delete", h, "old"]);
    assert!(dure(&["check", h]).status.success());
}
