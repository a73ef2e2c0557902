//! Several tasks in one file without a page cache.

use std::time::Duration;

use dure_store::OpKind;
use dure_store::format::inode::{INODE_BODY, Time};
use dure_store::format::slot::SLOT_BYTES;
use dure_store::space::OpClass;
use dure_sync::atomic::{AtomicUsize, Ordering};
use dure_sync::clock::{self, Timestamp};
use dure_sync::thread;

use super::random::{End, run_on};
use super::shared::{policies, share_a_file_of, with};
use super::{World, check, content, fsck, nth_file};
use crate::inode::InodeRef;
use crate::volume::{FileSystem, RangeRule};
use crate::{ReadMode, SetAttributes, SetTime, Stamp};

pub(super) const PAGE: usize = 4096;
/// Some in the inode, most in two granules of a leaf.
pub(super) const PAGES: u64 = 120;

#[test]
fn pages_that_tasks_share_lose_no_update() {
    for words in policies() {
        for rule in [RangeRule::WhenContended, RangeRule::AtOnce] {
            let world = with(World::in_nvm(16384), &words, rule);
            share_a_file_of(&world, &format!("{words} {rule:?}"), 1);
        }
    }
    for words in [
        "durability=posix",
        "journal=zjournal",
        "journal=single",
        "node_lock=mutex",
    ] {
        let world = with(World::in_nvm(16384), words, RangeRule::AtOnce);
        share_a_file_of(&world, words, 2);
    }
}

#[test]
fn random_calls_match_and_each_survives_where_overwrites_share_the_file() {
    for seed in 400..404 {
        let words = "range_lock=bitmap";
        let world = with(World::in_nvm(16384), words, RangeRule::AtOnce);
        run_on(&world, seed, (5, 100), End::Calls);
    }
}

/// A volume where overwrites share a file from the first one on.
fn shared_world() -> World {
    with(
        World::in_nvm(16384),
        "range_lock=segment",
        RangeRule::AtOnce,
    )
}

/// The file of number 0, with so many pages of ones.
pub(super) fn filled(fs: &FileSystem, pages: u64) -> InodeRef {
    let inode = nth_file(fs, 0);
    let ones = vec![1; usize::try_from(pages).unwrap() * PAGE];
    fs.write(&inode, 0, &ones, Stamp::Set).unwrap();
    inode
}

/// Such a file on such a volume, mounted.
fn shared_file(pages: u64) -> (World, FileSystem, InodeRef) {
    let world = shared_world();
    let fs = world.mount();
    let inode = filled(&fs, pages);
    (world, fs, inode)
}

pub(super) fn write(fs: &FileSystem, inode: &InodeRef, page: u64, fill: u8) {
    let written = fs.write(inode, page * 4096, &[fill; PAGE], Stamp::Keep);
    assert_eq!(written.unwrap(), PAGE);
}

pub(super) fn first_byte(fs: &FileSystem, inode: &InodeRef, page: u64) -> u8 {
    let mut byte = [0xee];
    fs.read(inode, page * 4096, &mut byte, ReadMode::Cached)
        .unwrap();
    byte[0]
}

/// Whether another thread ends within a while that would do for it many times.
fn ends_with(inode: &InodeRef, call: impl Fn() + Sync) -> bool {
    let ended = AtomicUsize::new(0);
    thread::scope(|scope| {
        let reading = inode.inode().state().read();
        scope.spawn(|| {
            call();
            // Relaxed: the sleeps are long.
            ended.store(1, Ordering::Relaxed);
        });
        let is_over = || {
            thread::sleep(Duration::from_millis(20));
            ended.load(Ordering::Relaxed) == 1
        };
        let over = (0..10).any(|_| is_over());
        drop(reading);
        over
    })
}

/// An overwrite of pages goes on while another task holds the inode shared, of direct slots, of
/// slots of a leaf, of parts of pages; what changes anything else does not.
#[test]
fn overwrites_hold_the_inode_shared() {
    let (world, fs, inode) = shared_file(PAGES);
    assert!(inode.inode().ranges().are_locked());
    for (offset, len) in [(0, PAGE), (30 * 4096, PAGE), (20 * 4096 + 7, 9 * PAGE)] {
        let data = vec![2; len];
        for stamp in [Stamp::Keep, Stamp::Set] {
            let call = || {
                fs.write(&inode, offset, &data, stamp).unwrap();
            };
            assert!(ends_with(&inode, call), "{len} bytes at {offset}");
        }
    }
    for page in [PAGES, PAGES + 2, PAGES + 1] {
        let call = || write(&fs, &inode, page, 3);
        assert!(!ends_with(&inode, call), "page {page} is new");
    }
    check(&fs, &inode);
    let before = content(&fs, &inode);
    drop((inode, fs));
    let fs = world.mount();
    assert!(content(&fs, &nth_file(&fs, 0)) == before);
    fs.close().unwrap();
    drop(fs);
    fsck(world.device(), "after overwrites");
}

/// A block is free once another one is named in its place: a reader holds its range shared, or the
/// inode exclusively.
#[test]
fn a_read_waits_for_an_overwrite_of_its_page() {
    let (_world, fs, inode) = shared_file(64);
    let overwriting = inode.inode().ranges().take(8 * 4096, PAGE).unwrap();
    let read = |offset| {
        let inode = &inode;
        let fs = &fs;
        move || {
            fs.read(inode, offset, &mut [0; 10], ReadMode::Cached)
                .unwrap();
        }
    };
    assert!(ends_with(&inode, read(40 * 4096)), "of another page");
    assert!(!ends_with(&inode, read(8 * 4096 + 4000)), "of its page");
    drop(overwriting);
    assert!(ends_with(&inode, read(8 * 4096 + 4000)));
}

/// An operation that changes two slots keeps what another one has stored in the slot between them
/// since the first has looked at the granule.
#[test]
fn slots_between_those_of_an_operation_are_of_others() {
    let (_world, fs, inode) = shared_file(4);
    let mut op = fs.0.store.op(OpKind::Write, OpClass::Delete, 1).unwrap();
    let held = inode.inode();
    let draft = op.edit_shared(&held.node, held.ino.data_index());
    for slot in [0, 2] {
        let at = INODE_BODY + slot * SLOT_BYTES;
        let same = draft[at..at + SLOT_BYTES].to_vec();
        draft.part(at..at + SLOT_BYTES).copy_from_slice(&same);
    }
    write(&fs, &inode, 1, 2);
    op.finish();
    assert_eq!(
        [0, 1, 2].map(|page| first_byte(&fs, &inode, page)),
        [1, 2, 1]
    );
    check(&fs, &inode);
}

pub(super) fn at(secs: i64) -> Option<Timestamp> {
    Some(Timestamp { secs, nanos: 0 })
}

/// Stat shows the time of an overwrite, also if it had shown, or a task had set, another one; and it
/// is durable when the call returns.
#[test]
fn overwrites_store_their_times() {
    clock::pretend_wall(at(5_000_000_000));
    let (world, fs, inode) = shared_file(PAGES);
    let times = |fs: &FileSystem, inode: &InodeRef| {
        let seen = [(); 3].map(|()| fs.attributes(inode).unwrap());
        assert!(seen[0] == seen[1] && seen[1] == seen[2]);
        (seen[0].mtime.secs.get(), seen[0].ctime.secs.get())
    };
    let mut before = times(&fs, &inode);
    for (n, page) in [3, 100, 101, 4].into_iter().enumerate() {
        if n % 2 == 0 {
            let now = before.0 + 7;
            clock::pretend_wall(at(now));
            before = (now, now);
        }
        fs.write(&inode, page * 4096, &[2; PAGE], Stamp::Set)
            .unwrap();
        assert_eq!(times(&fs, &inode), before);
        check(&fs, &inode);
    }
    let set = SetAttributes {
        mtime: Some(SetTime::At(Time {
            secs: 77.into(),
            nanos: 0.into(),
        })),
        ..SetAttributes::default()
    };
    fs.set_attributes(&inode, &set).unwrap();
    assert_eq!(times(&fs, &inode).0, 77);
    fs.write(&inode, 5 * 4096, &[2; PAGE], Stamp::Set).unwrap();
    assert_eq!(times(&fs, &inode), before);
    write(&fs, &inode, 5, 3);
    assert_eq!(inode.inode().overwrite_marks().count(), 1);
    check(&fs, &inode);
    drop((inode, fs));
    let fs = world.mount();
    assert_eq!(times(&fs, &nth_file(&fs, 0)), before);
    clock::pretend_wall(None);
}

/// A truncate, or a write that fills a hole, comes between the steps of no overwrite: it waits for
/// those under way.
#[test]
fn what_changes_the_map_otherwise_excludes_overwrites() {
    let (_world, fs, inode) = shared_file(4);
    let ended = AtomicUsize::new(0);
    thread::scope(|scope| {
        let overwriting = inode.inode().share_writeback().expect("it is contended");
        assert!(inode.inode().try_lock_writeback().is_none());
        scope.spawn(|| {
            fs.0.files.truncate(&inode, 5000).unwrap();
            ended.store(1, Ordering::Relaxed);
        });
        thread::sleep(Duration::from_millis(40));
        assert_eq!(ended.load(Ordering::Relaxed), 0, "a truncate waits");
        drop(overwriting);
    });
    let held = inode.inode().try_lock_writeback().expect("nobody has it");
    thread::scope(|scope| {
        scope.spawn(|| {
            write(&fs, &inode, 0, 2);
            ended.store(2, Ordering::Relaxed);
        });
        thread::sleep(Duration::from_millis(40));
        assert_eq!(ended.load(Ordering::Relaxed), 1, "an overwrite waits");
        drop(held);
    });
    assert_eq!(content(&fs, &inode)[4095..4097], [2, 1]);
}
