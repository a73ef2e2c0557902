//! Truncates and holes that the medium need not know of: where it has nothing, only memory changes.

use super::{World, check, content, file, fsck};
use crate::inode::InodeRef;
use crate::{AllocateMode, Stamp, SyncScope};

const B: u64 = 4096;

/// Whether `call` makes no operation on the data of the file.
fn makes_none(inode: &InodeRef, call: impl FnOnce()) -> bool {
    let before = inode.inode().data_writer();
    call();
    inode.inode().data_writer() == before
}

#[test]
fn a_file_that_was_never_written_back_gets_shorter_in_memory() {
    let world = World::new(8192, 8 << 20);
    let fs = world.mount();
    let inode = file(&fs);
    let free = fs.statistics().blocks_free;
    fs.write(&inode, 0, &[7; 600_000], Stamp::Set).unwrap();
    let truncate = |size| makes_none(&inode, || fs.0.files.truncate(&inode, size).unwrap());
    assert!(truncate(10 * B + 5), "within a page");
    let mut want = vec![7; 10 * 4096 + 5];
    assert!(content(&fs, &inode) == want);
    assert!(truncate(400 * B), "longer");
    want.resize(400 * 4096, 0);
    assert!(content(&fs, &inode) == want, "old bytes behind the end");
    assert!(truncate(0));
    let used = free - fs.statistics().blocks_free;
    assert!(used <= 1, "{used} blocks stay reserved");
    fs.write(&inode, 3, b"new", Stamp::Set).unwrap();
    fs.fsync(&inode, SyncScope::All).unwrap();
    check(&fs, &inode);
    drop(inode);
    fs.close().unwrap();
    fsck(world.device(), "shorter in memory");
    let fs = world.mount();
    assert_eq!(content(&fs, &file(&fs)), b"\0\0\0new");
}

#[test]
fn what_is_logged_behind_the_end_goes_with_an_operation() {
    let world = World::new(8192, 8 << 20);
    let fs = world.mount();
    let inode = file(&fs);
    let truncate = |size| makes_none(&inode, || fs.0.files.truncate(&inode, size).unwrap());
    fs.write(&inode, 0, &[7; 20_000], Stamp::Set).unwrap();
    fs.0.files.truncate(&inode, 100 * B).unwrap();
    fs.fsync(&inode, SyncScope::All).unwrap();
    assert!(!truncate(50 * B), "the logged size is greater");
    fs.allocate(&inode, AllocateMode::KeepSize, 80 * B, B)
        .unwrap();
    assert!(truncate(90 * B));
    assert!(!truncate(60 * B), "a block lies behind the end");
    assert!(!truncate(10_000), "bytes of a page");
    assert!(truncate(100 * B));
    fs.fsync(&inode, SyncScope::All).unwrap();
    check(&fs, &inode);
    drop(inode);
    drop(fs);
    let mut want = vec![7; 10_000];
    want.resize(100 * 4096, 0);
    let fs = world.mount();
    assert!(content(&fs, &file(&fs)) == want, "after a crash");
}

#[test]
fn a_hole_in_pages_without_blocks_is_made_in_memory() {
    let world = World::new(8192, 8 << 20);
    let fs = world.mount();
    let inode = file(&fs);
    fs.write(&inode, 0, &[7; 20 * 4096], Stamp::Set).unwrap();
    let punch = |from, len| {
        let punch = || {
            fs.allocate(&inode, AllocateMode::Punch, from, len).unwrap();
        };
        makes_none(&inode, punch)
    };
    let mut want = vec![7; 20 * 4096];
    assert!(punch(4 * B + 9, 6 * B));
    want[4 * 4096 + 9..10 * 4096 + 9].fill(0);
    assert!(content(&fs, &inode) == want);
    let hole = fs.seek(&inode, 0, crate::SeekTarget::Hole).unwrap();
    assert_eq!(hole, Some(5 * B));
    fs.fsync(&inode, SyncScope::All).unwrap();
    assert_eq!(inode.inode().data_head().blocks.get(), 15);
    assert!(punch(5 * B, 5 * B), "it is a hole");
    assert!(!punch(9 * B, 2 * B), "one page has a block");
    want[10 * 4096..11 * 4096].fill(0);
    fs.fsync(&inode, SyncScope::All).unwrap();
    check(&fs, &inode);
    drop(inode);
    drop(fs);
    let fs = world.mount();
    assert!(content(&fs, &file(&fs)) == want, "after a crash");
    fs.close().unwrap();
    fsck(world.device(), "a hole in memory");
}

/// A page that has a block needs no other one: the blocks that stat shows stay as they are.
#[test]
fn overwrites_of_cached_pages_leave_the_number_of_blocks() {
    let world = World::new(8192, 8 << 20);
    let fs = world.mount();
    let inode = file(&fs);
    let blocks = || fs.attributes(&inode).unwrap().blocks / 8;
    let write = |page: u64, pages: usize| {
        let bytes = vec![7; pages * 4096];
        fs.write(&inode, page * B, &bytes, Stamp::Set).unwrap();
    };
    fs.0.files.truncate(&inode, 100 * B).unwrap();
    write(0, 10);
    assert_eq!(blocks(), 10, "new ones wait");
    fs.fsync(&inode, SyncScope::All).unwrap();
    write(3, 1);
    write(7, 1);
    assert_eq!(blocks(), 10);
    write(9, 2);
    assert_eq!(blocks(), 11, "one more");
    fs.allocate(&inode, AllocateMode::Punch, 2 * B, 3 * B)
        .unwrap();
    assert_eq!(blocks(), 8);
    write(3, 1);
    write(3, 1);
    assert_eq!(blocks(), 9, "a page in a hole");
    fs.fsync(&inode, SyncScope::All).unwrap();
    assert_eq!(blocks(), 9);
    check(&fs, &inode);
    drop(inode);
    fs.close().unwrap();
    // Only the map knows of pages that are not in memory: it may be more, never more than pages.
    let fs = world.mount();
    let inode = file(&fs);
    let blocks = || fs.attributes(&inode).unwrap().blocks / 8;
    fs.write(&inode, 0, &[8; 4096], Stamp::Set).unwrap();
    assert_eq!(blocks(), 10);
    fs.fsync(&inode, SyncScope::All).unwrap();
    assert_eq!(blocks(), 9);
}
