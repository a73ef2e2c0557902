//! `dure upgrade`, and volumes of a later dure.

#![expect(clippy::unwrap_used, reason = "tests panic")]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use dure_fs::format::superblock::SuperBlock;

use crate::program::{Mounted, can_mount, printed, refused, text, told, volume};

/// Changes both superblocks of the volume.
fn change(volume: &Path, change: impl Fn(&mut SuperBlock)) {
    let file = File::options().read(true).write(true).open(volume).unwrap();
    let last = file.metadata().unwrap().len() / 4096 - 1;
    for at in [0, last] {
        let mut block = [0; 4096];
        file.read_exact_at(&mut block, at * 4096).unwrap();
        let mut superblock = SuperBlock::open(&block, at).unwrap();
        change(&mut superblock);
        file.write_all_at(&superblock.seal(at), at * 4096).unwrap();
    }
}

#[test]
fn features_are_listed_and_turned_on() {
    let folder = tempfile::tempdir().unwrap();
    let volume = volume(folder.path());
    let list = || printed(&["upgrade", "--list", text(&volume)]);
    let before = list();
    for line in [
        "media        off; only mkfs gives it\n",
        "clones       off; its first use turns it on, or `dure upgrade`\n",
        "encryption   needs a later dure\n",
    ] {
        assert!(before.contains(line), "{before}");
    }
    assert!(printed(&["info", text(&volume)]).contains("features             none\n"));
    let feature = |name| refused(&["upgrade", text(&volume), "--feature", name]);
    let compression = "the feature compression needs a later dure";
    told(&feature("compression"), &[compression]);
    told(&feature("media"), &["only mkfs gives a volume"]);
    told(&feature("speed"), &["no feature speed", "media, stamps"]);
    assert_eq!(list(), before, "nothing was turned on");
    let turned = printed(&["upgrade", text(&volume), "--feature", "clones"]);
    assert!(turned.contains("turned on: clones;"), "{turned}");
    assert!(list().contains("clones       on\n"));
    assert!(printed(&["info", text(&volume)]).contains("features             clones\n"));
    let turned = printed(&["upgrade", text(&volume)]);
    assert!(turned.contains("turned on: projects;"), "{turned}");
    assert!(printed(&["upgrade", text(&volume)]).ends_with(": nothing to do\n"));
    printed(&["check", text(&volume)]);
}

#[test]
fn a_mounted_volume_is_not_upgraded() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let volume = volume(folder.path());
    let mounted = Mounted::new(&volume, "m", "");
    told(&refused(&["upgrade", text(&volume)]), &["it is mounted on"]);
    mounted.end();
}

#[test]
fn a_volume_of_a_later_dure_is_refused_or_only_read() {
    let folder = tempfile::tempdir().unwrap();
    let volume = volume(folder.path());
    let v = text(&volume);
    let undo = folder.path().join("undo");
    let file = File::options().write(true).open(&volume).unwrap();
    file.write_all_at(&[0x5a; 4096], 0).unwrap();
    let grow = refused(&["resize", v, "128M"]);
    told(&grow, &["first superblock is damaged", "check --repair"]);
    assert_eq!(file.metadata().unwrap().len(), 64 << 20);
    refused(&["check", "--repair", "--undo", text(&undo), v]);
    change(&volume, |superblock| superblock.ro_compat.set(1 << 9));
    let later = ["needs a later dure: 0x200", "`dure mount -o ro`"];
    for command in [
        vec!["undo", text(&undo), v],
        vec!["mkdir", v, "/d"],
        vec!["check", "--repair", v],
        vec!["resize", v, "128M"],
        vec!["trim", v],
        vec!["upgrade", v],
    ] {
        told(&refused(&command), &later);
    }
    printed(&["ls", v, "/"]);
    let list = printed(&["upgrade", "--list", v]);
    let line = "0x200        on; this dure may only read the volume\n";
    assert!(list.ends_with(line), "{list}");
    change(&volume, |superblock| superblock.incompat.set(16));
    let refuse = || {
        for command in [
            vec!["ls", v, "/"],
            vec!["check", v],
            vec!["info", v],
            vec!["dump", v, "superblock"],
            vec!["mkfs", v],
        ] {
            told(&refused(&command), &["needs a later dure: compression"]);
        }
    };
    refuse();
    // The last superblock says it, too.
    file.write_all_at(&[0; 4096], 0).unwrap();
    refuse();
}
