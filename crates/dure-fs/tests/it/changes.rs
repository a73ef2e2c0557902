//! What differs between a snapshot and the present: enough to make one's tree of the other's.

use std::collections::{BTreeMap, BTreeSet};

use dure_fs::{Change, FileSystem, NewInode, RenameMode, Stamp};
use dure_sync::random::Seeded;

use crate::snapshots::{Content, content, made};
use crate::workload::step;

fn changes(fs: &FileSystem, snapshot: &str) -> BTreeSet<Change> {
    let mut found = BTreeSet::new();
    fs.changes(snapshot, None, &mut |change| {
        assert!(found.insert(change.clone()), "{change:?} twice");
    })
    .expect("a comparison");
    found
}

/// Content by path as changes have it, without a slash in front.
fn paths(content: &Content) -> BTreeMap<Vec<u8>, String> {
    let path = |(path, shown): (&Vec<u8>, &String)| (path[1..].to_vec(), shown.clone());
    content.iter().map(path).collect()
}

/// The path in the older state of what is at `path` now.
fn origin(path: &[u8], renamed: &BTreeMap<Vec<u8>, Vec<u8>>) -> Vec<u8> {
    let ends = (0..=path.len()).rev();
    let mut whole = ends.filter(|at| *at == path.len() || path[*at] == b'/');
    let found = whole.find_map(|at| {
        let old = renamed.get(&path[..at])?;
        Some([old, &path[at..]].concat())
    });
    found.unwrap_or_else(|| path.to_vec())
}

/// The changes lead from the one tree to the other, and each is one.
fn expect(before: &Content, after: &Content, found: &BTreeSet<Change>) {
    let (before, after) = (paths(before), paths(after));
    let (mut added, mut removed) = (BTreeSet::new(), BTreeSet::new());
    let (mut modified, mut renamed) = (BTreeSet::new(), BTreeMap::new());
    for change in found.iter().cloned() {
        match change {
            Change::Added(path) => drop(added.insert(path)),
            Change::Removed(path) => drop(removed.insert(path)),
            Change::Modified(path) => drop(modified.insert(path)),
            Change::Renamed(from, to) => drop(renamed.insert(to, from)),
        }
    }
    for path in &added {
        assert!(after.contains_key(path), "added {path:?}");
    }
    for path in &removed {
        assert!(before.contains_key(path), "removed {path:?}");
    }
    let mut used: BTreeSet<Vec<u8>> = removed.clone();
    for (path, shown) in &after {
        if added.contains(path) {
            continue;
        }
        let from = origin(path, &renamed);
        let was = before.get(&from);
        let was = was.unwrap_or_else(|| panic!("{path:?} comes from {from:?}: {found:?}"));
        let is_directory = shown.starts_with('4');
        if was != shown && !is_directory {
            assert!(modified.contains(path), "{path:?}: {was}, then {shown}");
        }
        used.insert(from);
    }
    for path in &removed {
        let is_there = after.contains_key(path) && !added.contains(path);
        let is_same = is_there && origin(path, &renamed) == *path;
        assert!(!is_same, "{path:?} is there: {found:?}");
    }
    for path in before.keys() {
        assert!(used.contains(path), "{path:?} is gone: {found:?}");
    }
}

#[test]
fn changes_lead_from_a_snapshot_to_the_present() {
    for seed in 0..12 {
        let mut random = Seeded::new(seed);
        let (_ram, fs) = made(4096);
        for round in 0..6 {
            for _ in 0..200 {
                drop(step(&fs, &mut random));
            }
            let name = format!("s{round}");
            fs.create_snapshot(&name).unwrap();
            let then = content(&fs);
            assert_eq!(changes(&fs, &name), BTreeSet::new());
            for _ in 0..random.below(120) {
                drop(step(&fs, &mut random));
            }
            expect(&then, &content(&fs), &changes(&fs, &name));
        }
    }
}

#[test]
fn a_renamed_directory_is_one_change() {
    let (_ram, fs) = made(4096);
    let (file, directory) = (
        NewInode {
            mode: 0o100_644,
            ..NewInode::default()
        },
        NewInode {
            mode: 0o755,
            ..NewInode::default()
        },
    );
    let root = fs.root().unwrap();
    let old = fs.mkdir(&root, b"old", &directory).unwrap();
    let kept = fs.create(&old, b"kept", &file).unwrap();
    fs.create(&old, b"gone", &file).unwrap();
    fs.write(&kept, 0, b"one", Stamp::Set).unwrap();
    fs.create(&root, b"saved", &file).unwrap();
    fs.create_snapshot("s").unwrap();
    let place = fs.mkdir(&root, b"place", &directory).unwrap();
    fs.rename(&root, b"old", &place, b"new", RenameMode::Replace)
        .unwrap();
    fs.unlink(&old, b"gone").unwrap();
    // The same length, perhaps in the same tick of the clock.
    fs.write(&kept, 0, b"two", Stamp::Keep).unwrap();
    fs.create(&root, b"saved.new", &file).unwrap();
    fs.rename(&root, b"saved.new", &root, b"saved", RenameMode::Replace)
        .unwrap();
    let mut found = changes(&fs, "s");
    // Directories, by the time of their last change.
    found.remove(&Change::Modified(b"".to_vec()));
    found.remove(&Change::Modified(b"place/new".to_vec()));
    let expected = [
        Change::Added(b"place".to_vec()),
        Change::Removed(b"old/gone".to_vec()),
        Change::Renamed(b"old".to_vec(), b"place/new".to_vec()),
        Change::Modified(b"place/new/kept".to_vec()),
        Change::Modified(b"saved".to_vec()),
    ];
    assert_eq!(found, BTreeSet::from(expected));
}

#[test]
fn a_new_file_is_not_one_of_a_directory_that_had_its_path() {
    let (_ram, fs) = made(4096);
    let [file, directory] = [0o100_644, 0o755].map(|mode| NewInode {
        mode,
        ..NewInode::default()
    });
    let root = fs.root().unwrap();
    let old = fs.mkdir(&root, b"d", &directory).unwrap();
    let linked = fs.create(&old, b"x", &file).unwrap();
    fs.link(&linked, &root, b"other").unwrap();
    fs.create_snapshot("s").unwrap();
    fs.rename(&root, b"d", &root, b"e", RenameMode::Replace)
        .unwrap();
    fs.unlink(&old, b"x").unwrap();
    let new = fs.mkdir(&root, b"d", &directory).unwrap();
    fs.create(&new, b"x", &file).unwrap();
    let mut found = changes(&fs, "s");
    for path in [&b""[..], b"e", b"other"] {
        found.remove(&Change::Modified(path.to_vec()));
    }
    let expected = [
        Change::Added(b"d".to_vec()),
        Change::Added(b"d/x".to_vec()),
        Change::Removed(b"d/x".to_vec()),
        Change::Renamed(b"d".to_vec(), b"e".to_vec()),
    ];
    assert_eq!(found, BTreeSet::from(expected));
}
