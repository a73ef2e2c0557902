//! What survives of the overwrites of one file by two cores, without a page cache: each core has a
//! log that only it commits, so a crash can leave what one of them did.

use dure_store::Durability;
use dure_sync::atomic::{AtomicUsize, Ordering};
use dure_sync::{Arc, clock};

use super::direct_shared::{PAGE, PAGES, at, filled, first_byte, write};
use super::shared::with;
use super::{World, content, nth_file};
use crate::inode::InodeRef;
use crate::volume::{FileSystem, RangeRule};
use crate::{RenameMode, SetAttributes, Stamp, SyncScope, XattrMode};

/// A file that tasks share from the first call on, and one of which each call holds all.
const RULES: [RangeRule; 2] = [RangeRule::AtOnce, RangeRule::WhenContended];

/// A volume on two cores.
struct Pair {
    world: World,
    core: Arc<AtomicUsize>,
    fs: FileSystem,
}

impl Pair {
    /// With a file of core 0 that both use, and that is durable.
    fn new(rule: RangeRule) -> (Pair, InodeRef) {
        let mut world = with(World::in_nvm(16384), "range_lock=segment", rule);
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
        write(&self.fs, inode, 3, 2);
        write(&self.fs, inode, 100, 2);
        let shared = inode.inode().ranges().are_locked();
        let marks = inode.inode().overwrite_marks().count();
        assert_eq!(marks, usize::from(shared), "one journal has both");
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

    /// The file again, once all that may leave memory has.
    fn evict(&self, inode: InodeRef) -> InodeRef {
        drop(inode);
        self.fs.0.inodes.cache.evict_all();
        self.fs.0.inodes.cache.evict_all();
        nth_file(&self.fs, 0)
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
    for rule in RULES {
        let (pair, inode) = Pair::new(rule);
        pair.overwrite(&inode);
        pair.commit(0);
        assert_eq!(pages(&pair.crash(inode), b"file 0"), [1, 1]);
    }
}

#[test]
fn an_fsync_finds_the_overwrites_of_other_cores() {
    for rule in RULES {
        let (pair, inode) = Pair::new(rule);
        pair.overwrite(&inode);
        pair.on(0);
        pair.fs.fsync(&inode, SyncScope::Data).unwrap();
        assert_eq!(pages(&pair.crash(inode), b"file 0"), [2, 2]);

        // Also after an eviction.
        let (pair, inode) = Pair::new(rule);
        pair.overwrite(&inode);
        let inode = pair.evict(inode);
        pair.on(0);
        pair.fs.fsync(&inode, SyncScope::Data).unwrap();
        assert_eq!(pages(&pair.crash(inode), b"file 0"), [2, 2]);
    }
}

/// What remembers overwrites that share a file stays until they are valid.
#[test]
fn a_file_with_shared_overwrites_leaves_memory_when_they_are_valid() {
    let (pair, inode) = Pair::new(RangeRule::AtOnce);
    pair.overwrite(&inode);
    let marks = |inode: &InodeRef| inode.inode().overwrite_marks().count();
    let inode = pair.evict(inode);
    assert_eq!(marks(&inode), 1, "it is still there");
    pair.fs.fsync(&inode, SyncScope::Data).unwrap();
    assert_eq!(marks(&pair.evict(inode)), 0, "it was evicted");
}

/// Crash scenario: a file is overwritten and renamed over another, and the name survives without
/// the content.
#[test]
fn a_name_survives_with_the_overwrites_before_it() {
    for (rule, evicted) in RULES
        .into_iter()
        .flat_map(|rule| [(rule, false), (rule, true)])
    {
        let (pair, mut inode) = Pair::new(rule);
        pair.overwrite(&inode);
        if evicted {
            inode = pair.evict(inode);
        }
        pair.on(0);
        let root = pair.fs.root().unwrap();
        let fs = &pair.fs;
        fs.rename(&root, b"file 0", &root, b"new", RenameMode::Replace)
            .unwrap();
        drop(root);
        pair.commit(0);
        assert_eq!(
            pages(&pair.crash(inode), b"new"),
            [2, 2],
            "{rule:?} {evicted}"
        );
    }
}

/// Crash scenario: an append survives, and not the overwrite that had returned before it.
#[test]
fn an_append_survives_with_the_overwrites_before_it() {
    for (rule, evicted) in RULES
        .into_iter()
        .flat_map(|rule| [(rule, false), (rule, true)])
    {
        let (pair, mut inode) = Pair::new(rule);
        pair.on(1);
        // In no granule that the append changes.
        write(&pair.fs, &inode, 30, 2);
        if evicted {
            inode = pair.evict(inode);
        }
        pair.on(0);
        pair.fs.append(&inode, &[3; 10]).unwrap();
        pair.commit(0);
        let fs = pair.crash(inode);
        let inode = nth_file(&fs, 0);
        assert_eq!(content(&fs, &inode).len() % PAGE, 10);
        assert_eq!(first_byte(&fs, &inode, 30), 2, "{rule:?} {evicted}");
    }
}

/// Crash scenario: a file loses its set-id bits and gets new content, which survives with these
/// bits.
#[test]
fn an_overwrite_survives_with_the_attributes_before_it() {
    for rule in RULES {
        let (pair, inode) = Pair::new(rule);
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
    }
}

/// Crash scenario: two overwrites within a tick of the clock; the second survives, and its time,
/// which the first one stored, does not.
#[test]
fn an_overwrite_survives_with_its_time() {
    for rule in RULES {
        let (pair, inode) = Pair::new(rule);
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
    }
}

/// Crash scenario: a file is appended to and overwritten, and is as long as before.
#[test]
fn an_overwrite_survives_with_the_size_before_it() {
    for rule in RULES {
        let (pair, inode) = Pair::new(rule);
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
}
