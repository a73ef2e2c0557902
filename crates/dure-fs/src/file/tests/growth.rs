//! Pages and a size that come to a file that tasks share, by one task: what is seen of them before
//! and after somebody has the inode alone.

use super::{World, check, content, file, fsck};
use crate::inode::InodeRef;
use crate::volume::{FileSystem, RangeRule};
use crate::{Error, ReadMode, SeekTarget, SetAttributes, Stamp, SyncScope};

const PAGE: u64 = 4096;

fn world(blocks: u64) -> World {
    let mut world = World::new(blocks, 8 << 20);
    world.options.volume_rules.ranges = RangeRule::AtOnce;
    world
}

/// A file of three pages that has a range lock.
fn shared(fs: &FileSystem) -> InodeRef {
    let inode = file(fs);
    fs.write(&inode, 0, &[1; 3 * 4096], Stamp::Set).unwrap();
    assert!(inode.inode().ranges().are_locked() && !waits(&inode));
    inode
}

/// Whether a size waits.
fn waits(inode: &InodeRef) -> bool {
    inode.inode().state().growth_waits()
}

fn settled(inode: &InodeRef) -> u64 {
    inode.inode().state().read().file().size()
}

/// After an fsync and a crash the file has this content, and the volume is sound.
fn assert_synced(world: &World, fs: FileSystem, inode: InodeRef, expected: &[u8]) {
    fs.fsync(&inode, SyncScope::All).unwrap();
    drop(inode);
    drop(fs);
    let fs = world.mount();
    assert_eq!(content(&fs, &file(&fs)), expected, "after a crash");
    fs.close().unwrap();
    drop(fs);
    fsck(world.device(), "a file that tasks share, synced");
}

#[test]
fn an_append_is_seen_at_once_and_settles_later() {
    let world = world(16384);
    let fs = world.mount();
    let inode = shared(&fs);
    let mut expected = vec![1; 3 * 4096];
    for (n, more) in [(2, 10), (3, 4096), (4, 20_000), (5, 1)] {
        let bytes = vec![n; more];
        let at = u64::try_from(expected.len()).unwrap();
        assert_eq!(fs.append(&inode, &bytes).unwrap(), (at, more));
        expected.extend(bytes);
        assert!(waits(&inode) && settled(&inode) == 3 * PAGE);
        assert_eq!(content(&fs, &inode), expected);
        let size = u64::try_from(expected.len()).unwrap();
        assert_eq!(fs.attributes(&inode).unwrap().size, size);
        let seek = |target| fs.seek(&inode, 2 * PAGE, target).unwrap();
        assert_eq!(seek(SeekTarget::Data), Some(2 * PAGE));
        assert_eq!(seek(SeekTarget::Hole), Some(size));
    }
    let blocks = fs.0.files.pages.pages_used();
    fs.fsync(&inode, SyncScope::All).unwrap();
    assert!(!waits(&inode), "write-back has the inode alone");
    assert_eq!(settled(&inode), u64::try_from(expected.len()).unwrap());
    assert_eq!(
        fs.0.files.pages.pages_used(),
        blocks,
        "each has its credit once"
    );
    assert_eq!(content(&fs, &inode), expected);
    check(&fs, &inode);
    fs.close().unwrap();
    drop(inode);
    drop(fs);
    let fs = world.mount();
    assert_eq!(content(&fs, &file(&fs)), expected);
    fs.close().unwrap();
    drop(fs);
    fsck(world.device(), "appended concurrently");
}

#[test]
fn pages_beside_the_state_are_counted() {
    let fs = world(16384).mount();
    let inode = shared(&fs);
    let blocks = |want: u64| {
        for _ in 0..3 {
            assert_eq!(fs.attributes(&inode).unwrap().blocks, want * 8);
        }
    };
    blocks(3);
    fs.append(&inode, &[2; 2 * 4096]).unwrap();
    blocks(5);
    fs.write(&inode, 100 * PAGE, &[3; 4096], Stamp::Keep)
        .unwrap();
    blocks(6);
    // A hole: neither size nor times change.
    fs.write(&inode, 50 * PAGE, &[3; 4096], Stamp::Keep)
        .unwrap();
    blocks(7);
    assert!(waits(&inode));
    fs.fsync(&inode, SyncScope::All).unwrap();
    blocks(7);
}

#[test]
fn what_waits_is_overwritten_and_read_in_place() {
    let fs = world(16384).mount();
    let inode = shared(&fs);
    let mut expected = vec![1; 3 * 4096];
    fs.append(&inode, &[2; 3 * 4096]).unwrap();
    expected.resize(6 * 4096, 2);
    // In what waits; from the state into it; from there past the end.
    for (n, at, len) in [(3, 17_000, 100), (4, 10_000, 9_000), (5, 24_000, 8_000)] {
        let bytes = vec![n; len];
        let done = fs.write(&inode, u64::try_from(at).unwrap(), &bytes, Stamp::Set);
        assert_eq!(done.unwrap(), len);
        expected.resize(expected.len().max(at + len), 0);
        expected[at..at + len].fill(n);
        assert!(waits(&inode) && settled(&inode) == 3 * PAGE);
        assert_eq!(content(&fs, &inode), expected);
    }
    let mut bytes = [0; 300];
    let done = fs.read(&inode, 16_950, &mut bytes, ReadMode::Bypass);
    assert_eq!(done.unwrap(), 300);
    assert_eq!(bytes, expected[16_950..17_250]);
    drop(inode.inode().state().write());
    assert!(!waits(&inode));
    assert_eq!(content(&fs, &inode), expected);
    check(&fs, &inode);
}

#[test]
fn clean_pages_are_overwritten_under_the_shared_lock() {
    let world = world(16384);
    let fs = world.mount();
    let inode = shared(&fs);
    let mut expected = vec![1; 3 * 4096];
    fs.fsync(&inode, SyncScope::All).unwrap();
    assert!(inode.inode().state().read().file().pages.is_clean());
    // A holder of the exclusive lock would move the new size into the state.
    fs.append(&inode, &[2; 4096]).unwrap();
    expected.resize(4 * 4096, 2);
    let dirty = || inode.inode().state().read().file().pages.dirty();
    for (n, at, len, dirty_after) in [
        (3, 100, 50, 2),
        (4, 300, 50, 2),
        // From a clean page into the new one, and behind the end.
        (5, 11_000, 8_000, 4),
    ] {
        let bytes = vec![n; len];
        let done = fs.write(&inode, u64::try_from(at).unwrap(), &bytes, Stamp::Set);
        assert_eq!(done.unwrap(), len);
        expected.resize(expected.len().max(at + len), 0);
        expected[at..at + len].fill(n);
        assert!(waits(&inode), "the inode was taken exclusively");
        assert_eq!(dirty(), dirty_after);
        assert_eq!(content(&fs, &inode), expected);
    }
    check(&fs, &inode);
    assert_synced(&world, fs, inode, &expected);
}

#[test]
fn pages_are_read_and_overwritten_under_the_shared_lock() {
    let world = world(16384);
    let fs = world.mount();
    let inode = shared(&fs);
    fs.fsync(&inode, SyncScope::All).unwrap();
    fs.0.files.settle_file(inode.inode());
    assert_eq!(inode.inode().state().read().file().pages.present(), 0);
    // The first one lists the inode, the second one waits.
    fs.append(&inode, &[2; 4096]).unwrap();
    fs.append(&inode, &[2; 4096]).unwrap();
    assert!(waits(&inode));
    let mut expected = vec![1; 3 * 4096];
    expected.resize(5 * 4096, 2);
    let loaded = fs.0.files.pages.counters.loaded.sum();
    for _ in 0..2 {
        assert_eq!(content(&fs, &inode), expected);
        assert!(waits(&inode), "the inode was taken exclusively");
    }
    assert_eq!(fs.0.files.pages.counters.loaded.sum(), loaded + 3, "kept");
    assert!(inode.inode().state().read().file().pages.contains(0));
    // The first two pages of these three are clean.
    fs.write(&inode, 4000, &[3; 5000], Stamp::Set).unwrap();
    expected[4000..9000].fill(3);
    assert!(waits(&inode), "the inode was taken exclusively");
    assert_eq!(content(&fs, &inode), expected);
    check(&fs, &inode);
    assert_synced(&world, fs, inode, &expected);
}

#[test]
fn holes_are_filled_beside_others() {
    let fs = world(16384).mount();
    let inode = shared(&fs);
    let far = (1 << 30) + 700;
    fs.write(&inode, far, &[2; 1000], Stamp::Set).unwrap();
    fs.write(&inode, 200 * PAGE + 5, &[3; 10], Stamp::Set)
        .unwrap();
    // The first pages so far off need a place, which is made with the inode held exclusively.
    let size = far + 1000;
    assert!(!waits(&inode) && settled(&inode) == size);
    fs.write(&inode, far + 3 * PAGE, &[7; 100], Stamp::Set)
        .unwrap();
    assert!(waits(&inode) && settled(&inode) == size);
    let mut seen = vec![9; 3 * 4096];
    let done = fs.read(&inode, 199 * PAGE, &mut seen, ReadMode::Cached);
    assert_eq!(done.unwrap(), seen.len());
    let mut expected = vec![0; 3 * 4096];
    expected[4101..4111].fill(3);
    assert_eq!(seen, expected);
    let seek = |offset, target| fs.seek(&inode, offset, target).unwrap();
    assert_eq!(seek(0, SeekTarget::Hole), Some(3 * PAGE));
    assert_eq!(seek(3 * PAGE, SeekTarget::Data), Some(200 * PAGE));
    assert_eq!(seek(200 * PAGE, SeekTarget::Hole), Some(201 * PAGE));
    assert_eq!(seek(201 * PAGE, SeekTarget::Data), Some(far - 700));
    fs.sync().unwrap();
    assert!(!waits(&inode));
    // A page that is on the device only: the rest of it is read.
    fs.0.files.pages.evict(fs.0.store.partition(), 1000);
    let cached = inode.inode().state().read().file().pages.present();
    assert_eq!(cached, 0);
    fs.write(&inode, 200 * PAGE + 7, &[4; 2], Stamp::Set)
        .unwrap();
    expected[4103..4105].fill(4);
    fs.write(&inode, 199 * PAGE, &[5; 1], Stamp::Set).unwrap();
    fs.write(&inode, 200 * PAGE + 20, &[6; 1], Stamp::Set)
        .unwrap();
    (expected[0], expected[4116]) = (5, 6);
    let done = fs.read(&inode, 199 * PAGE, &mut seen, ReadMode::Cached);
    assert_eq!(done.unwrap(), seen.len());
    assert_eq!(seen, expected);
    check(&fs, &inode);
}

#[test]
fn a_shorter_file_has_nothing_of_what_waited() {
    let fs = world(16384).mount();
    let inode = shared(&fs);
    let resize = |size| {
        let set = SetAttributes {
            size: Some(size),
            ..SetAttributes::default()
        };
        fs.change_attributes(&inode, &set).unwrap();
    };
    let used = fs.0.files.pages.pages_used();
    fs.append(&inode, &[2; 40_000]).unwrap();
    assert!(waits(&inode));
    resize(3 * PAGE + 7);
    assert!(!waits(&inode));
    resize(5 * PAGE);
    let mut expected = vec![1; 3 * 4096];
    expected.extend([2; 7]);
    expected.resize(5 * 4096, 0);
    assert_eq!(content(&fs, &inode), expected);
    assert_eq!(fs.0.files.pages.pages_used(), used + 1);
    resize(7 * PAGE + 3);
    assert!(waits(&inode), "a longer one keeps nobody out");
    expected.resize(7 * 4096 + 3, 0);
    assert_eq!(content(&fs, &inode), expected);
    resize(5 * PAGE);
    expected.truncate(5 * 4096);
    assert!(!waits(&inode));
    // To the size that it has, and to the settled one.
    for size in [5 * PAGE + 10, 5 * PAGE] {
        fs.append(&inode, &[3; 10]).unwrap();
        expected.extend([3; 10]);
        assert!(waits(&inode) && settled(&inode) == 5 * PAGE);
        resize(size);
        expected.truncate(usize::try_from(size).unwrap());
        assert_eq!(content(&fs, &inode), expected);
        resize(5 * PAGE);
        expected.truncate(5 * 4096);
    }
    check(&fs, &inode);
}

#[test]
fn a_file_that_is_removed_takes_along_what_waits() {
    let fs = world(16384).mount();
    let inode = shared(&fs);
    let before = fs.statistics().blocks_available;
    fs.append(&inode, &[2; 40_000]).unwrap();
    assert!(waits(&inode) && fs.statistics().blocks_available < before);
    fs.unlink(&fs.root().unwrap(), b"file 0").unwrap();
    drop(inode);
    assert_eq!(fs.0.files.pages.pages_used(), 0);
    assert!(fs.statistics().blocks_available >= before);
}

#[test]
fn an_append_that_finds_no_room_leaves_nothing() {
    let fs = world(2048).mount();
    let inode = shared(&fs);
    let mut expected = vec![1; 3 * 4096];
    let refused = loop {
        match fs.append(&inode, &[2; 10 * 4096]) {
            Ok((at, done)) => {
                assert_eq!((at, done), (u64::try_from(expected.len()).unwrap(), 40_960));
                expected.resize(expected.len() + done, 2);
            }
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, Error::NoSpace { .. }), "{refused}");
    assert_eq!(content(&fs, &inode), expected);
    let size = u64::try_from(expected.len()).unwrap();
    assert_eq!(fs.size(&inode).unwrap(), size);
    fs.fsync(&inode, SyncScope::All).unwrap();
    assert_eq!(content(&fs, &inode), expected);
    check(&fs, &inode);
}
