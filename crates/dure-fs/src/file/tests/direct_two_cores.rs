//! What survives of the overwrites of one file by two cores, without a page cache: each core has a
//! log that only it commits, so a crash can leave what one of them did.

use dure_store::Durability;
use dure_sync::atomic::{AtomicUsize, Ordering};
use dure_sync::{Arc, clock};

use super::direct_shared::{PAGE, PAGES, at, filled, first_byte, shared_world, write};
use super::{World, content, nth_file};
use crate::inode::InodeRef;
use crate::volume::FileSystem;
use crate::{RenameMode, SetAttributes, Stamp, SyncScope, XattrMode};

/// A volume on two cores.
struct Pair {
    world: World,
    core: Arc<AtomicUsize>,
    fs: FileSystem,
}

impl Pair {
    /// With a file of core 0 that both share, and that is durable.
    fn new() -> (Pair, InodeRef) {
        let mut world = shared_world();
        world.options.durability = Some(Durability::Posix);
        let core = Arc::new(AtomicUsize::new(0));
        world.options.core = Some(Arc::clone(&core));
        let fs = world.mount();
        let inode = filled(&fs, PAGES);
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
