//! Large directories, and readdir while they change.

use std::collections::BTreeSet;

use dure_store::units::to_u64;

use super::*;
use crate::EntryBatch;

/// Reads in portions of `portion` entries, calling `between` in between.
fn read_in_portions(
    fs: &FileSystem,
    dir: &InodeRef,
    portion: usize,
    mut between: impl FnMut(u64),
) -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    let mut cookie = 0;
    for round in 0.. {
        let mut taken = 0;
        fs.read_directory(dir, cookie, &mut |entry| {
            if taken == portion {
                return ControlFlow::Break(());
            }
            assert!(entry.cookie > 2 && entry.cookie > cookie);
            taken += 1;
            cookie = entry.cookie;
            names.push(entry.name.to_vec());
            ControlFlow::Continue(())
        })
        .unwrap();
        if taken < portion {
            break;
        }
        between(round);
    }
    names
}

#[test]
fn a_large_directory_grows_and_shrinks() {
    let (disk, fs) = fresh();
    let dir = fs.mkdir(&fs.root().unwrap(), b"d", &directory()).unwrap();
    let nodes = fs.0.store.nodes.in_memory().len();
    let count = 3000;
    for n in 0..count {
        fs.create(&dir, format!("name-{n}").as_bytes(), &file())
            .unwrap();
    }
    assert_eq!(list(&fs, &dir).len(), count);
    assert!(
        fs.0.store.nodes.in_memory().len() > nodes + count / 100,
        "the trie has grown"
    );
    drop(dir);
    let fs = disk.remount(fs);
    let dir = get(&fs, &fs.root().unwrap(), "d");
    for n in 0..count {
        assert!(
            fs.lookup(&dir, format!("name-{n}").as_bytes())
                .unwrap()
                .is_some()
        );
    }
    assert!(fs.lookup(&dir, b"name-x").unwrap().is_none());
    for n in 0..count {
        fs.unlink(&dir, format!("name-{n}").as_bytes()).unwrap();
    }
    assert!(list(&fs, &dir).is_empty());
    let root = fs.root().unwrap();
    drop(dir);
    fs.rmdir(&root, b"d").unwrap();
    drop(root);
    drop(disk.remount(fs));
}

#[test]
fn long_names_split_at_once() {
    let (disk, fs) = fresh();
    let root = fs.root().unwrap();
    let name = |n: usize| format!("{n:0>255}");
    for n in 0..200 {
        fs.create(&root, name(n).as_bytes(), &file()).unwrap();
    }
    assert_eq!(list(&fs, &root).len(), 200);
    for n in 0..200 {
        fs.unlink(&root, name(n).as_bytes()).unwrap();
    }
    drop(root);
    drop(disk.remount(fs));
}

#[test]
fn readdir_shows_what_stays_exactly_once() {
    let (_disk, fs) = fresh();
    let root = fs.root().unwrap();
    let stays: BTreeSet<Vec<u8>> = (0..400)
        .map(|n| format!("stays-{n}").into_bytes())
        .collect();
    for name in &stays {
        fs.create(&root, name, &file()).unwrap();
    }
    for n in 0..200 {
        fs.create(&root, format!("goes-{n}").as_bytes(), &file())
            .unwrap();
    }
    for portion in [1, 7, 100] {
        let names = read_in_portions(&fs, &root, portion, |round| {
            let n = round % 200;
            let (old, new) = (format!("goes-{n}"), format!("comes-{portion}-{round}"));
            if fs.unlink(&root, old.as_bytes()).is_err() {
                fs.create(&root, old.as_bytes(), &file()).unwrap();
            }
            fs.create(&root, new.as_bytes(), &file()).unwrap();
        });
        let seen: Vec<&Vec<u8>> = names.iter().filter(|name| stays.contains(*name)).collect();
        assert_eq!(seen.len(), stays.len(), "portion {portion}");
        let all: BTreeSet<&Vec<u8>> = names.iter().collect();
        assert_eq!(all.len(), names.len(), "nothing twice, portion {portion}");
    }
}

/// Reads in batches, calling `between` in between.
fn read_in_batches(
    fs: &FileSystem,
    dir: &InodeRef,
    mut between: impl FnMut(usize),
) -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    let mut batch = EntryBatch::default();
    let mut place = Some(0);
    for round in 0.. {
        let Some(from) = place else {
            return names;
        };
        place = fs.read_entries(dir, from, &mut batch).unwrap();
        assert!(place.is_none_or(|place| place > from), "it comes to an end");
        for number in 0..batch.len() {
            let (ino, kind, name) = batch.get(number).unwrap();
            assert!(ino.0 > 0 && kind == FileKind::File);
            names.push(name.to_vec());
        }
        assert!(batch.get(batch.len()).is_none());
        between(round);
    }
    unreachable!("rounds go on until the end");
}

#[test]
fn batches_show_what_stays_exactly_once_while_buckets_split() {
    let (_disk, fs) = fresh();
    let root = fs.root().unwrap();
    let stays: BTreeSet<Vec<u8>> = (0..300)
        .map(|n| format!("stays-{n}").into_bytes())
        .collect();
    for name in &stays {
        fs.create(&root, name, &file()).unwrap();
    }
    let goes = || (0..2000).map(|n| format!("goes-{n}").into_bytes());
    let mut large = false;
    for pass in 0..8 {
        let names = read_in_batches(&fs, &root, |round| {
            // Passes change it at different places.
            if round % 3 != pass % 3 {
                return;
            }
            for name in goes() {
                if large {
                    fs.unlink(&root, &name).unwrap();
                } else {
                    fs.create(&root, &name, &file()).unwrap();
                }
            }
            large = !large;
        });
        let seen = names.iter().filter(|name| stays.contains(*name)).count();
        assert_eq!(seen, stays.len(), "pass {pass}");
        let all: BTreeSet<&Vec<u8>> = names.iter().collect();
        assert_eq!(all.len(), names.len(), "nothing twice, pass {pass}");
    }
    let mut names = read_in_batches(&fs, &root, |_| ());
    names.sort();
    let mut listed = list(&fs, &root);
    listed.sort();
    assert_eq!(names, listed);
}

#[test]
fn a_removed_directory_is_empty() {
    let (_disk, fs) = fresh();
    let root = fs.root().unwrap();
    let dir = fs.mkdir(&root, b"d", &directory()).unwrap();
    fs.create(&dir, b"a", &file()).unwrap();
    fs.unlink(&dir, b"a").unwrap();
    fs.rmdir(&root, b"d").unwrap();
    assert!(list(&fs, &dir).is_empty());
    assert_eq!(errno(fs.lookup(&dir, b"a")), libc::ENOENT);
    assert_eq!(errno(fs.create(&dir, b"a", &file())), libc::ENOENT);
    assert_eq!(stat(&fs, &dir).nlink, 0);
}

#[test]
fn the_inode_cache_is_bounded() {
    let disk = Disk::new(1 << 15);
    let options = MountOptions {
        cache_bytes: 1 << 20,
        ..options()
    };
    let fs = FileSystem::open(disk.device.clone(), options).unwrap();
    let root = fs.root().unwrap();
    let kept = fs.create(&root, b"kept", &file()).unwrap();
    for n in 0..4000 {
        fs.create(&root, format!("{n}").as_bytes(), &file())
            .unwrap();
        if n % 100 == 0 {
            fs.sync().unwrap();
        }
    }
    assert!(
        fs.0.inodes.cache.len() < 1000,
        "{} inodes in memory",
        fs.0.inodes.cache.len()
    );
    assert!(get(&fs, &root, "kept").inode().ino == kept.ino());
    assert!(
        Arc::ptr_eq(get(&fs, &root, "kept").inode(), kept.inode()),
        "a pinned one stays"
    );
    assert_eq!(list(&fs, &root).len(), 4001);
    for n in 0..4000 {
        fs.unlink(&root, format!("{n}").as_bytes()).unwrap();
    }
    drop((kept, root));
    fs.close().unwrap();
    disk.check();
}

/// A full bucket of 20 such names splits in eight, so 2 to 20 are in a bucket, and a million need
/// one level more than a hundred thousand.
#[test]
#[ignore = "a minute in debug: cargo test --release -p dure-fs --lib -- --ignored a_hundred_thousand"]
fn a_hundred_thousand_names() {
    let disk = Disk::new(1 << 17);
    let fs = disk.mount();
    let root = fs.root().unwrap();
    let count = 100_000;
    for n in 0..count {
        fs.create(&root, format!("file{n}").as_bytes(), &file())
            .unwrap();
    }
    let mut buckets = 0;
    let mut levels = 0;
    let state = root.inode().state().read();
    let first = state.first_bucket_node(&fs.0.store).unwrap().unwrap();
    drop(state);
    fs.0.directories
        .walk_buckets(&first, &mut |_| buckets += 8)
        .unwrap();
    let mut node = first;
    while let Some(child) = (0..8)
        .map(|index| {
            crate::directory::bucket::header(node.read(index).payload())
                .child
                .get()
        })
        .find(|child| *child != 0)
    {
        levels += 1;
        let role = node.role();
        node =
            fs.0.store
                .node(dure_store::units::Nid(child), role)
                .unwrap();
    }
    let per_bucket = count / buckets;
    assert!(
        (2..=20).contains(&per_bucket),
        "{per_bucket} names in a bucket"
    );
    assert!(
        levels <= 6,
        "{levels} levels; a million names need one more"
    );
    assert_eq!(to_u64(list(&fs, &root).len()), count);
    drop(root);
    let fs = disk.remount(fs);
    assert_eq!(to_u64(list(&fs, &fs.root().unwrap()).len()), count);
}
