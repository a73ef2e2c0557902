//! Several tasks in one file without a page cache.

use std::time::Duration;

use dure_store::Durability;
use dure_store::OpKind;
use dure_store::format::inode::{INODE_BODY, Time};
use dure_store::format::slot::SLOT_BYTES;
use dure_store::space::OpClass;
use dure_sync::atomic::{AtomicUsize, Ordering};
use dure_sync::clock::{self, Timestamp};
use dure_sync::{Arc, thread};

use super::random::{End, run_on};
use super::shared::{policies, share_a_file_of, with};
use super::{World, check, content, fsck, nth_file};
use crate::inode::InodeRef;
use crate::volume::{FileSystem, RangeRule};
use crate::{ReadMode, RenameMode, SetAttributes, SetTime, Stamp, SyncScope, XattrMode};

const PAGE: usize = 4096;
/// Some in the inode, most in two granules of a leaf.
const PAGES: u64 = 120;

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

fn write(fs: &FileSystem, inode: &InodeRef, page: u64, fill: u8) {
    let written = fs.write(inode, page * 4096, &[fill; PAGE], Stamp::Keep);
    assert_eq!(written.unwrap(), PAGE);
}

fn first_byte(fs: &FileSystem, inode: &InodeRef, page: u64) -> u8 {
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
    let world = with(
        World::in_nvm(16384),
        "range_lock=segment",
        RangeRule::AtOnce,
    );
    let fs = world.mount();
    let inode = nth_file(&fs, 0);
    let all = vec![1; usize::try_from(PAGES).unwrap() * PAGE];
    fs.write(&inode, 0, &all, Stamp::Set).unwrap();
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
    let world = with(
        World::in_nvm(16384),
        "range_lock=segment",
        RangeRule::AtOnce,
    );
    let fs = world.mount();
    let inode = nth_file(&fs, 0);
    fs.write(&inode, 0, &[1; 64 * PAGE], Stamp::Set).unwrap();
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
    let world = with(
        World::in_nvm(16384),
        "range_lock=segment",
        RangeRule::AtOnce,
    );
    let fs = world.mount();
    let inode = nth_file(&fs, 0);
    fs.write(&inode, 0, &[1; 4 * PAGE], Stamp::Set).unwrap();
    let mut op = fs.0.op(OpKind::Write, OpClass::Delete, 1).unwrap();
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

fn at(secs: i64) -> Option<Timestamp> {
    Some(Timestamp { secs, nanos: 0 })
}

/// Stat shows the time of an overwrite, also if it had shown, or a task had set, another one; and it
/// is durable when the call returns.
#[test]
fn overwrites_store_their_times() {
    let world = with(
        World::in_nvm(16384),
        "range_lock=segment",
        RangeRule::AtOnce,
    );
    let fs = world.mount();
    let inode = nth_file(&fs, 0);
    let times = |fs: &FileSystem, inode: &InodeRef| {
        let seen = [(); 3].map(|()| fs.attributes(inode).unwrap());
        assert!(seen[0] == seen[1] && seen[1] == seen[2]);
        (seen[0].mtime.secs.get(), seen[0].ctime.secs.get())
    };
    clock::pretend_wall(at(5_000_000_000));
    let all = vec![1; usize::try_from(PAGES).unwrap() * PAGE];
    fs.write(&inode, 0, &all, Stamp::Set).unwrap();
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
    let world = with(
        World::in_nvm(16384),
        "range_lock=segment",
        RangeRule::AtOnce,
    );
    let fs = world.mount();
    let inode = nth_file(&fs, 0);
    fs.write(&inode, 0, &[1; 4 * PAGE], Stamp::Set).unwrap();
    let ended = AtomicUsize::new(0);
    thread::scope(|scope| {
        let overwriting = inode.inode().share_writeback().expect("it is contended");
        assert!(inode.inode().try_lock_writeback().is_none());
        scope.spawn(|| {
            fs.0.truncate(&inode, 5000).unwrap();
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

/// A volume on two cores, of which each has a log that only it commits.
struct Pair {
    world: World,
    core: Arc<AtomicUsize>,
    fs: FileSystem,
}

impl Pair {
    /// With a file of core 0 that both share, and that is durable.
    fn new() -> (Pair, InodeRef) {
        let mut world = with(
            World::in_nvm(16384),
            "range_lock=segment",
            RangeRule::AtOnce,
        );
        world.options.durability = Some(Durability::Posix);
        let core = Arc::new(AtomicUsize::new(0));
        world.options.core = Some(Arc::clone(&core));
        let fs = world.mount();
        let inode = nth_file(&fs, 0);
        let all = vec![1; usize::try_from(PAGES).unwrap() * PAGE];
        fs.write(&inode, 0, &all, Stamp::Set).unwrap();
        fs.sync().unwrap();
        (Pair { world, core, fs }, inode)
    }

    fn on(&self, core: usize) {
        self.core.store(core, Ordering::Relaxed);
    }

    /// Core 1 overwrites pages of both kinds of slots.
    fn overwrite(&self, inode: &InodeRef) {
        self.on(1);
        let before = inode.inode().overwrite_marks().count();
        write(&self.fs, inode, 3, 2);
        write(&self.fs, inode, 100, 2);
        assert!(before == 0 && inode.inode().overwrite_marks().count() == 1);
    }

    /// Commits what is in the log of this core, and what that depends on.
    fn commit(&self, core: usize) {
        self.on(core);
        let own = nth_file(&self.fs, 10 + u64::try_from(core).unwrap());
        self.fs
            .set_xattr(&own, b"user.a", b"b", XattrMode::Any)
            .unwrap();
        self.fs.fsync(&own, SyncScope::All).unwrap();
    }

    /// The volume after a crash.
    fn crash(self, inode: InodeRef) -> FileSystem {
        std::mem::forget((inode, self.fs));
        self.world.mount()
    }
}

fn pages(fs: &FileSystem, name: &[u8]) -> [u8; 2] {
    let root = fs.root().unwrap();
    let inode = fs.lookup(&root, name).unwrap().expect("the file is there");
    [3, 100].map(|page| first_byte(fs, &inode, page))
}

#[test]
fn an_overwrite_that_nobody_synced_is_lost() {
    let (pair, inode) = Pair::new();
    pair.overwrite(&inode);
    pair.commit(0);
    assert_eq!(pages(&pair.crash(inode), b"file 0"), [1, 1]);
}

#[test]
fn an_fsync_finds_the_overwrites_of_other_cores() {
    let (pair, inode) = Pair::new();
    pair.overwrite(&inode);
    pair.on(0);
    pair.fs.fsync(&inode, SyncScope::Data).unwrap();
    assert_eq!(pages(&pair.crash(inode), b"file 0"), [2, 2]);

    // Also of an inode that has left memory meanwhile.
    let (pair, inode) = Pair::new();
    pair.overwrite(&inode);
    drop(inode);
    pair.on(0);
    pair.fs.0.inodes.evict_all();
    pair.fs.0.inodes.evict_all();
    let inode = nth_file(&pair.fs, 0);
    assert!(!inode.inode().ranges().are_locked(), "it was evicted");
    pair.fs.fsync(&inode, SyncScope::Data).unwrap();
    assert_eq!(pages(&pair.crash(inode), b"file 0"), [2, 2]);
}

/// Crash scenario: a file is overwritten and renamed over another, and the name survives without
/// the content.
#[test]
fn a_name_survives_with_the_overwrites_before_it() {
    let (pair, inode) = Pair::new();
    pair.overwrite(&inode);
    pair.on(0);
    let root = pair.fs.root().unwrap();
    let fs = &pair.fs;
    fs.rename(&root, b"file 0", &root, b"new", RenameMode::Replace)
        .unwrap();
    drop(root);
    pair.commit(0);
    assert_eq!(pages(&pair.crash(inode), b"new"), [2, 2]);
}

/// Crash scenario: an append survives, and not the overwrite that had returned before it.
#[test]
fn an_append_survives_with_the_overwrites_before_it() {
    let (pair, inode) = Pair::new();
    pair.on(1);
    // In no granule that the append changes.
    write(&pair.fs, &inode, 30, 2);
    pair.on(0);
    pair.fs.append(&inode, &[3; 10]).unwrap();
    pair.commit(0);
    let fs = pair.crash(inode);
    let inode = nth_file(&fs, 0);
    assert_eq!(content(&fs, &inode).len() % PAGE, 10);
    assert_eq!(first_byte(&fs, &inode, 30), 2);
}

/// Crash scenarios: a file loses its set-id bits and gets new content, which survives with these
/// bits; a file is appended to and overwritten, and is as long as before.
#[test]
fn an_overwrite_survives_with_the_changes_before_it() {
    let (pair, inode) = Pair::new();
    pair.on(0);
    let mode = SetAttributes {
        mode: Some(0o600),
        ..SetAttributes::default()
    };
    pair.fs.set_attributes(&inode, &mode).unwrap();
    pair.overwrite(&inode);
    pair.commit(1);
    let fs = pair.crash(inode);
    assert_eq!(pages(&fs, b"file 0"), [2, 2]);
    let mode = fs.attributes(&nth_file(&fs, 0)).unwrap().mode;
    assert_eq!(mode & 0o777, 0o600);

    let (pair, inode) = Pair::new();
    clock::pretend_wall(at(5_000_000_000));
    pair.on(0);
    pair.fs.write(&inode, 0, &[3; 10], Stamp::Set).unwrap();
    pair.on(1);
    let page = 100 * 4096;
    pair.fs.write(&inode, page, &[2; PAGE], Stamp::Set).unwrap();
    clock::pretend_wall(None);
    pair.commit(1);
    let fs = pair.crash(inode);
    let inode = nth_file(&fs, 0);
    assert_eq!(first_byte(&fs, &inode, 100), 2);
    let times = fs.attributes(&inode).unwrap();
    assert_eq!(
        times.mtime.secs.get(),
        5_000_000_000,
        "of core 0's operation"
    );

    let (pair, inode) = Pair::new();
    pair.on(0);
    pair.fs.append(&inode, &[3; 10]).unwrap();
    pair.on(1);
    write(&pair.fs, &inode, 30, 2);
    pair.commit(1);
    let fs = pair.crash(inode);
    let inode = nth_file(&fs, 0);
    assert_eq!(first_byte(&fs, &inode, 30), 2);
    assert_eq!(content(&fs, &inode).len() % PAGE, 10);
}
