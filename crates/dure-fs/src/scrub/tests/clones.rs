//! Blocks that clones share are read once, and concern each of them.

use super::*;

/// Clones `directory/file` to names in the root.
fn clone_to(fs: &FileSystem, names: &[&str]) -> Vec<InodeRef> {
    let root = fs.root().unwrap();
    let new = NewInode {
        mode: 0o100_644,
        ..NewInode::default()
    };
    let clone = |name: &&str| {
        let clone = fs.create(&root, name.as_bytes(), &new).unwrap();
        let len = PAGES * BLOCK_BYTES_U64;
        let done = fs.clone_range((&file(fs), 0), (&clone, 0), len);
        assert_eq!(done.unwrap(), len);
        clone
    };
    let clones = names.iter().map(clone).collect();
    fs.sync().unwrap();
    fs.checkpoint_now().unwrap();
    clones
}

fn paths(all: &[BadBlock]) -> BTreeSet<String> {
    let of = |bad: &BadBlock| String::from_utf8(bad.paths.concat()).unwrap();
    all.iter().map(of).collect()
}

/// Regression: of a destroyed block that clones share one file was named, and mended from memory; the
/// others were lost with the content at hand.
#[test]
fn each_clone_is_named_and_mended_from_what_one_has_in_memory() {
    let (device, fs) = filled_and_mounted();
    drop(clone_to(&fs, &["clone", "other"]));
    fs.close().unwrap();
    drop(fs);
    let fs = open(&device);
    let mut page = [0; BLOCK_BYTES];
    let (root, at) = (fs.root().unwrap(), 300 * BLOCK_BYTES_U64);
    let other = fs.lookup(&root, b"other").unwrap().unwrap();
    fs.read(&other, at, &mut page, ReadMode::Cached).unwrap();
    flip(&fs, block_of(&fs, 300));
    let (found, _) = scrub(&fs);
    assert!(found.iter().all(|bad| bad.mended), "{found:?}");
    let all = ["clone", "other", "directory/file"].map(str::to_owned);
    assert_eq!(paths(&found), BTreeSet::from(all));
    assert_eq!(scrub(&fs).0, []);
    let clone = fs.lookup(&root, b"clone").unwrap().unwrap();
    for inode in [&clone, &file(&fs)] {
        let mut again = [0; BLOCK_BYTES];
        fs.read(inode, at, &mut again, ReadMode::Bypass).unwrap();
        assert_eq!(again, page);
    }
}

/// Regression: a block whose owner in the summary had let go of it was not read.
#[test]
fn what_only_clones_have_is_read() {
    let (device, fs) = filled_and_mounted();
    drop(clone_to(&fs, &["clone", "other"]));
    let block = block_of(&fs, 300);
    write(&fs, &file(&fs), 300..301, 2);
    fs.sync().unwrap();
    fs.close().unwrap();
    drop(fs);
    let fs = open(&device);
    flip(&fs, block);
    let (found, _) = scrub(&fs);
    assert!(found.iter().all(|bad| !bad.mended), "{found:?}");
    let both = ["clone", "other"].map(str::to_owned);
    assert_eq!(paths(&found), BTreeSet::from(both));
}
