//! Room: what was accepted is written, also on a full volume; what is refused has changed nothing;
//! what statfs shows can be had.

use dure_store::RecordPolicy;

use super::{World, check, content, file, fsck, nth_file};
use crate::inode::InodeRef;
use crate::volume::{DataMode, FileSystem, MountOptions};
use crate::{AllocPolicy, AllocateMode, Error, SetAttributes, Stamp, SyncScope};
use dure_sync::random::Seeded;

const PAGE: u64 = 4096;

/// Every policy that decides where a page goes.
fn policies() -> Vec<(&'static str, MountOptions)> {
    let options = |change: fn(&mut MountOptions)| {
        let mut options = MountOptions::default();
        change(&mut options);
        options
    };
    vec![
        ("the default", options(|_| {})),
        ("data to its blocks", options(|o| o.log_data_pages = 0)),
        ("data=journal", options(|o| o.data = DataMode::Journal)),
        ("data=writeback", options(|o| o.data = DataMode::Writeback)),
        ("alloc=global", options(|o| o.alloc = AllocPolicy::Global)),
        (
            "journal=zjournal",
            options(|o| o.records = RecordPolicy::Image),
        ),
    ]
}

fn world(blocks: u64, options: &MountOptions) -> World {
    let mut world = World::new(blocks, 4 << 20);
    world.options = MountOptions {
        data: options.data,
        log_data_pages: options.log_data_pages,
        alloc: options.alloc,
        records: options.records,
        ..world.options
    };
    world
}

/// Page `page` of a file after its `life`-th write.
fn page_of(page: u64, life: u64) -> Vec<u8> {
    let mut rng = Seeded::new(page * 1000 + life + 1);
    (0..PAGE / 8)
        .flat_map(|_| rng.below(u64::MAX).to_le_bytes())
        .collect()
}

fn write_page(fs: &FileSystem, inode: &InodeRef, page: u64, life: u64) {
    let written = fs.write(inode, page * PAGE, &page_of(page, life), Stamp::Set);
    assert_eq!(written.unwrap(), 4096, "page {page}, life {life}");
}

/// Regression: a rewrite on a full volume whose blocks a snapshot needs made 500 checkpoints, a minute
/// on a disk, before it was refused, and so did each one after it.
#[test]
fn a_rewrite_that_a_snapshot_leaves_no_room_for_is_refused_soon() {
    let world = world(4096, &MountOptions::default());
    let fs = world.mount();
    let inode = file(&fs);
    let pages = 1500;
    for page in 0..pages {
        write_page(&fs, &inode, page, 1);
    }
    fs.create_snapshot("then").unwrap();
    fill(&fs, &nth_file(&fs, 1));
    let write = |page: u64| fs.write(&inode, page * PAGE, &page_of(page, 2), Stamp::Set);
    let mut refused = Vec::new();
    for page in 0..pages {
        let before = fs.0.store.counters.checkpoints.sum();
        match write(page) {
            Ok(_) => fs.fsync(&inode, SyncScope::All).unwrap(),
            Err(Error::NoSpace { .. }) => {
                refused.push(fs.0.store.counters.checkpoints.sum() - before);
            }
            Err(error) => panic!("{error}"),
        }
        if refused.len() == 10 {
            break;
        }
    }
    assert_eq!(refused.len(), 10, "the volume was never full");
    assert!(refused.iter().all(|rounds| *rounds < 60), "{refused:?}");
    let soon = refused.iter().filter(|rounds| **rounds < 8).count();
    assert!(soon >= 7, "{refused:?}");
    let root = fs.root().unwrap();
    fs.unlink(&root, b"file 1").unwrap();
    fs.delete_snapshot("then").unwrap();
    write(0).unwrap();
    fs.close().unwrap();
    fsck(world.device(), "full");
}

/// Takes all the room there is, page by page at the end.
fn fill(fs: &FileSystem, inode: &InodeRef) -> u64 {
    let mut at = 0;
    for len in [64, 1] {
        let bytes = vec![0xf1; len * 4096];
        loop {
            match fs.write(inode, at, &bytes, Stamp::Set) {
                Ok(done) => at += done as u64,
                Err(Error::NoSpace { .. }) => break,
                Err(error) => panic!("{error}"),
            }
        }
        fs.fsync(inode, SyncScope::All)
            .expect("what was accepted finds room");
    }
    at
}

fn same(fs: &FileSystem, inode: &InodeRef, pages: u64, life: impl Fn(u64) -> u64, what: &str) {
    let bytes = content(fs, inode);
    assert_eq!(bytes.len() as u64, pages * PAGE, "{what}");
    for (page, bytes) in (0..).zip(bytes.chunks_exact(4096)) {
        assert!(bytes == page_of(page, life(page)), "{what}: page {page}");
    }
}

#[test]
fn a_preallocated_range_is_written_on_a_full_volume() {
    for (name, options) in policies() {
        let world = world(4096, &options);
        let fs = world.mount();
        let (inode, other) = (file(&fs), nth_file(&fs, 1));
        fs.allocate(&inode, AllocateMode::Extend, 0, 600 * PAGE)
            .unwrap();
        fill(&fs, &other);
        for page in 0..600 {
            write_page(&fs, &inode, page, 0);
        }
        let synced = fs.fsync(&inode, SyncScope::All);
        assert!(synced.is_ok(), "{name}: {synced:?}");
        same(&fs, &inode, 600, |_| 0, name);
        check(&fs, &inode);
        drop((inode, other, fs));
        let fs = world.mount();
        same(&fs, &file(&fs), 600, |_| 0, name);
        fs.close().unwrap();
        drop(fs);
        fsck(world.device(), name);
    }
}

#[test]
fn pages_that_exist_are_rewritten_on_a_full_volume_again_and_again() {
    for (name, options) in policies() {
        let world = world(4096, &options);
        let fs = world.mount();
        let (inode, other) = (file(&fs), nth_file(&fs, 1));
        for page in 0..700 {
            write_page(&fs, &inode, page, 0);
        }
        fs.fsync(&inode, SyncScope::All).unwrap();
        fill(&fs, &other);
        // A page at a time, and all at once: more than the volume has room for next to the old ones.
        for life in 1..3 {
            for page in 0..700 {
                write_page(&fs, &inode, page, life);
                if life == 1 {
                    let synced = fs.fsync(&inode, SyncScope::All);
                    assert!(synced.is_ok(), "{name}, page {page}: {synced:?}");
                }
            }
        }
        let synced = fs.fsync(&inode, SyncScope::All);
        assert!(synced.is_ok(), "{name}: {synced:?}");
        let before = fs.statistics();
        drop((inode, other, fs));
        let fs = world.mount();
        same(&fs, &file(&fs), 700, |_| 2, name);
        assert!(before.blocks_available < 16, "{name}: it was full");
        fs.close().unwrap();
        drop(fs);
        fsck(world.device(), name);
    }
}

#[test]
fn a_whole_write_of_pages_that_exist_finds_room_on_a_full_volume() {
    let world = World::new(4096, 4 << 20);
    let fs = world.mount();
    let (inode, other) = (file(&fs), nth_file(&fs, 1));
    fs.allocate(&inode, AllocateMode::Extend, 0, 256 * PAGE)
        .unwrap();
    fill(&fs, &other);
    for life in 1..3 {
        let bytes: Vec<u8> = (0..256).flat_map(|page| page_of(page, life)).collect();
        let done = fs.write_whole(&inode, 0, &bytes, Stamp::Set);
        assert_eq!(done.unwrap(), bytes.len());
        fs.fsync(&inode, SyncScope::All).unwrap();
    }
    // One page more has no block.
    let longer = fs.write_whole(&inode, 100 * PAGE, &[1; 157 * 4096], Stamp::Set);
    assert!(matches!(longer, Err(Error::NoSpace { .. })), "{longer:?}");
    same(&fs, &inode, 256, |_| 2, "whole");
}

#[test]
fn attributes_of_a_file_are_set_on_a_full_volume() {
    let world = World::new(4096, 4 << 20);
    let fs = world.mount();
    let (inode, other) = (file(&fs), nth_file(&fs, 1));
    fill(&fs, &other);
    fs.checkpoint_now().unwrap();
    for uid in 1..200 {
        let set = SetAttributes {
            uid: Some(uid),
            ..SetAttributes::default()
        };
        fs.set_attributes(&inode, &set).unwrap();
        fs.fsync(&inode, SyncScope::All).unwrap();
        if uid % 7 == 0 {
            fs.checkpoint_now().unwrap();
        }
    }
    assert_eq!(fs.attributes(&inode).unwrap().uid, 199);
}

#[test]
fn pages_far_apart_bring_their_map_along() {
    // A page in each leaf: as many nodes as pages.
    let world = World::new(4096, 8 << 20);
    let fs = world.mount();
    let (inode, other) = (file(&fs), nth_file(&fs, 1));
    let most = fs.statistics().blocks_available - 900;
    fs.allocate(&other, AllocateMode::Extend, 0, most * PAGE)
        .unwrap();
    let mut pages = 0;
    while fs
        .write(&inode, pages * 320 * PAGE, &[7; 4096], Stamp::Set)
        .is_ok()
    {
        pages += 1;
        assert!(pages < 4096);
    }
    assert!(pages > 300);
    fs.fsync(&inode, SyncScope::All)
        .expect("what was accepted finds room");
    check(&fs, &inode);
    fs.close().unwrap();
    drop((inode, other, fs));
    fsck(world.device(), "sparse");
}

/// The one thing that is not reserved when a write is accepted.
#[test]
fn a_sparse_file_that_uses_up_the_node_ids_says_so_at_fsync() {
    let world = World::new(4096, 8 << 20);
    let fs = world.mount();
    let inode = file(&fs);
    let mut pages = 0;
    while pages < 1500
        && fs
            .write(&inode, pages * 320 * PAGE, &[7; 4096], Stamp::Set)
            .is_ok()
    {
        pages += 1;
    }
    let refused = fs.fsync(&inode, SyncScope::All);
    assert!(
        matches!(refused, Err(Error::NoSpace { what: "node ids" })),
        "{refused:?}"
    );
    assert_eq!(fs.stopped(), None);
    let mut byte = [0];
    let last = (pages - 1) * 320 * PAGE;
    fs.read(&inode, last, &mut byte, crate::ReadMode::Cached)
        .unwrap();
    assert_eq!(byte, [7], "what was not written stays in memory");
    fs.0.files.truncate(&inode, 100 * 320 * PAGE).unwrap();
    fs.fsync(&inode, SyncScope::All).unwrap();
}

#[test]
fn an_allocation_that_finds_no_room_changes_nothing() {
    let world = World::new(4096, 4 << 20);
    let fs = world.mount();
    let inode = file(&fs);
    for page in 0..40 {
        write_page(&fs, &inode, page, 0);
    }
    fs.fsync(&inode, SyncScope::All).unwrap();
    fs.checkpoint_now().unwrap();
    let before = (fs.statistics(), fs.attributes(&inode).unwrap());
    for len in [1 << 40, 64 << 20, (before.0.blocks_available + 100) * PAGE] {
        for mode in [
            AllocateMode::Extend,
            AllocateMode::KeepSize,
            AllocateMode::Zero,
            AllocateMode::ZeroKeepSize,
        ] {
            let refused = fs.allocate(&inode, mode, 1000, len);
            assert!(
                matches!(refused, Err(Error::NoSpace { .. })),
                "{mode:?}: {refused:?}"
            );
        }
    }
    let after = (fs.statistics(), fs.attributes(&inode).unwrap());
    assert_eq!(before.0.blocks_available, after.0.blocks_available);
    assert_eq!(before.1, after.1);
    same(&fs, &inode, 40, |_| 0, "untouched");
}

#[test]
fn a_range_is_zeroed_on_a_full_volume() {
    let world = World::new(4096, 4 << 20);
    let fs = world.mount();
    let (inode, other) = (file(&fs), nth_file(&fs, 1));
    for page in 0..500 {
        write_page(&fs, &inode, page, 0);
    }
    fs.fsync(&inode, SyncScope::All).unwrap();
    fill(&fs, &other);
    fs.allocate(&inode, AllocateMode::Zero, 1000, 498 * PAGE)
        .unwrap();
    fs.fsync(&inode, SyncScope::All).unwrap();
    drop((inode, other, fs));
    let fs = world.mount();
    let bytes = content(&fs, &file(&fs));
    let end = 1000 + 498 * 4096;
    assert!(bytes[1000..end].iter().all(|&byte| byte == 0));
    assert!(bytes[..1000] == page_of(0, 0)[..1000]);
    assert!(bytes[end..499 * 4096] == page_of(498, 0)[end % 4096..]);
    check(&fs, &file(&fs));
}

#[test]
fn what_statfs_shows_can_be_had() {
    for blocks in [2048, 4096, 16384] {
        for way in ["allocated", "written"] {
            let world = World::new(blocks, 4 << 20);
            let fs = world.mount();
            let room = fs.statistics();
            assert!(room.blocks_available < room.blocks_free && room.blocks_free <= room.blocks);
            let inode = file(&fs);
            let available = fs.statistics().blocks_available;
            match way {
                "allocated" => fs
                    .allocate(&inode, AllocateMode::Extend, 0, available * PAGE)
                    .unwrap(),
                _ => (0..available).for_each(|page| write_page(&fs, &inode, page, 0)),
            }
            fs.fsync(&inode, SyncScope::All).unwrap();
            let full = fs.statistics();
            let used = full.blocks - full.blocks_free;
            assert!(used >= available, "{way}: {full:?}");
            // Used, available and a reserve of a few percent are all there is.
            let reserve = full.blocks - used - full.blocks_available;
            assert!(reserve <= full.blocks / 20 + 100, "{way}: {full:?}");
        }
    }
}

#[test]
fn what_was_freed_is_available_at_once() {
    let world = World::new(4096, 4 << 20);
    let fs = world.mount();
    let empty = fs.statistics().blocks_available;
    let inode = file(&fs);
    fill(&fs, &inode);
    assert!(fs.statistics().blocks_available < 16);
    drop(inode);
    fs.unlink(&fs.root().unwrap(), b"file 0").unwrap();
    // No commit since. Images of nodes come back with the next checkpoint only.
    let available = fs.statistics().blocks_available;
    assert!(available + 64 >= empty, "{available} of {empty}");
    let inode = file(&fs);
    fs.allocate(&inode, AllocateMode::Extend, 0, available * PAGE)
        .unwrap();
    fs.fsync(&inode, SyncScope::All).unwrap();
}

#[test]
fn nodes_that_are_freed_give_back_the_blocks_of_their_images() {
    let world = World::new(4096, 8 << 20);
    let fs = world.mount();
    drop(file(&fs));
    let mut before = None;
    for life in 0..5 {
        let inode = file(&fs);
        for page in 0..50 {
            write_page(&fs, &inode, page * 320, life);
        }
        fs.fsync(&inode, SyncScope::All).unwrap();
        fs.0.files.truncate(&inode, 0).unwrap();
        fs.sync().unwrap();
        fs.checkpoint_now().unwrap();
        let free = fs.statistics().blocks_free;
        let before = *before.get_or_insert(free);
        assert!(free + 2 >= before, "life {life}: {free} of {before}");
    }
}

#[test]
fn logs_that_have_grown_go_back_when_the_volume_is_at_rest_or_full() {
    for when in ["at rest", "full", "closed"] {
        let world = World::new(16384, 8 << 20);
        let fs = world.mount();
        let fresh = fs.0.store.space.statistics().segments_log;
        let shown = fs.statistics();
        fs.grow_logs(1000).unwrap();
        assert!(fs.0.store.space.statistics().segments_log > fresh + 4);
        let grown = fs.statistics();
        assert_eq!(
            shown.blocks_available, grown.blocks_available,
            "they can be had back"
        );
        assert_eq!(shown.blocks, grown.blocks);
        let inode = file(&fs);
        match when {
            "at rest" => (0..3).for_each(|_| fs.background_now().unwrap()),
            "full" => {
                let all = fs.statistics().blocks_available;
                fs.allocate(&inode, AllocateMode::Extend, 0, all * PAGE)
                    .unwrap();
            }
            _ => {}
        }
        if when == "closed" {
            fs.close().unwrap();
            drop((inode, fs));
            let fs = world.mount();
            assert_eq!(fs.0.store.space.statistics().segments_log, fresh, "{when}");
        } else {
            assert_eq!(fs.0.store.space.statistics().segments_log, fresh, "{when}");
        }
    }
}

/// What a file must be: its pages that have a block, by the life of their content; none: zeroes.
#[derive(Debug, Default, Clone)]
struct Model {
    pages: std::collections::BTreeMap<u64, Option<u64>>,
    size: u64,
}

impl Model {
    fn compare(&self, fs: &FileSystem, n: u64, what: &str) {
        let bytes = content(fs, &nth_file(fs, n));
        assert_eq!(
            bytes.len() as u64,
            self.size * PAGE,
            "{what}: size of file {n}"
        );
        for (page, bytes) in (0..).zip(bytes.chunks_exact(4096)) {
            let right = match self.pages.get(&page) {
                Some(Some(life)) => bytes == page_of(page, *life),
                _ => bytes.iter().all(|&byte| byte == 0),
            };
            assert!(right, "{what}: page {page} of file {n}");
        }
    }

    /// Writes some pages. What has a block is written; the rest may find no room.
    fn write(&mut self, fs: &FileSystem, n: u64, first: u64, count: u64, life: u64) {
        let bytes: Vec<u8> = (first..first + count)
            .flat_map(|page| page_of(page, life))
            .collect();
        let mapped = (first..first + count).all(|page| self.pages.contains_key(&page));
        let done = match fs.write(&nth_file(fs, n), first * PAGE, &bytes, Stamp::Set) {
            Ok(done) => done as u64,
            Err(Error::NoSpace { .. }) => 0,
            Err(error) => panic!("{error}"),
        };
        assert_eq!(done % PAGE, 0, "whole pages");
        let done = done / PAGE;
        assert!(
            !mapped || done == count,
            "pages {first} + {count} of file {n} have blocks"
        );
        self.pages
            .extend((first..first + done).map(|page| (page, Some(life))));
        if done > 0 {
            self.size = self.size.max(first + done);
        }
    }

    fn allocate(&mut self, fs: &FileSystem, n: u64, mode: AllocateMode, first: u64, count: u64) {
        let before = fs.attributes(&nth_file(fs, n)).unwrap().blocks;
        match fs.allocate(&nth_file(fs, n), mode, first * PAGE, count * PAGE) {
            Ok(()) => {}
            Err(Error::NoSpace { .. }) => {
                assert_ne!(mode, AllocateMode::Punch);
                let after = fs.attributes(&nth_file(fs, n)).unwrap().blocks;
                // Dirty pages of the file may have been written back.
                assert!(after == before || after <= self.pages.len() as u64 * 8);
                return;
            }
            Err(error) => panic!("{error}"),
        }
        for page in first..first + count {
            match mode {
                AllocateMode::Punch => drop(self.pages.remove(&page)),
                AllocateMode::Zero => drop(self.pages.insert(page, None)),
                _ => drop(self.pages.entry(page).or_insert(None)),
            }
        }
        if matches!(mode, AllocateMode::Extend | AllocateMode::Zero) {
            self.size = self.size.max(first + count);
        }
    }

    fn truncate(&mut self, fs: &FileSystem, n: u64, size: u64) {
        fs.0.files.truncate(&nth_file(fs, n), size * PAGE).unwrap();
        if size < self.size || size == 0 {
            self.pages.retain(|&page, _| page < size);
        }
        self.size = size;
    }
}

/// One step of a random run. The volume is nearly full most of the time.
fn step(fs: &FileSystem, rng: &mut Seeded, models: &mut [Model], life: u64) {
    let n = rng.below(models.len() as u64);
    let model = &mut models[usize::try_from(n).unwrap()];
    let spread = if rng.below(8) == 0 { 5000 } else { 900 };
    let first = rng.below(spread);
    match rng.below(20) {
        0..=8 => {
            // Mostly where something is.
            let some = model.pages.range(first..).next();
            let first = some.map_or(first, |(&page, _)| page);
            model.write(fs, n, first, 1 + rng.below(80), life);
        }
        9..=11 => model.write(fs, n, model.size.min(1500), 1 + rng.below(100), life),
        12 | 13 => model.allocate(
            fs,
            n,
            AllocateMode::Extend,
            first.min(1200),
            1 + rng.below(300),
        ),
        14 => model.allocate(
            fs,
            n,
            AllocateMode::Zero,
            first.min(1200),
            1 + rng.below(100),
        ),
        15 => model.allocate(fs, n, AllocateMode::Punch, first, 1 + rng.below(100)),
        16 => model.truncate(fs, n, first.min(model.size)),
        // What it frees is enough to make it again.
        17 if model.pages.len() > 50 && rng.below(3) == 0 => {
            fs.unlink(&fs.root().unwrap(), format!("file {n}").as_bytes())
                .unwrap();
            *model = Model::default();
        }
        _ => {
            let synced = fs.fsync(&nth_file(fs, n), SyncScope::All);
            assert!(synced.is_ok(), "file {n}, life {life}: {synced:?}");
        }
    }
}

fn run(name: &str, options: &MountOptions, seed: u64, steps: u64) {
    const FILES: u64 = 6;
    let world = world(4096, options);
    let mut fs = world.mount();
    let mut rng = Seeded::new(seed);
    let mut models = vec![Model::default(); 6];
    (0..FILES).for_each(|n| drop(nth_file(&fs, n)));
    for life in 0..steps {
        step(&fs, &mut rng, &mut models, life);
        if life % 97 == 96 {
            let synced = fs.sync();
            assert!(
                synced.is_ok(),
                "{name}, seed {seed}, life {life}: {synced:?}"
            );
            // As after a crash.
            drop(fs);
            fs = world.mount();
            for (n, model) in (0..).zip(&models) {
                model.compare(&fs, n, &format!("{name}, seed {seed}, life {life}"));
            }
        }
    }
    fs.close().unwrap();
    drop(fs);
    fsck(world.device(), name);
}

#[test]
fn what_was_accepted_on_a_nearly_full_volume_is_written() {
    for (seed, (name, options)) in (1..).zip(policies()) {
        run(name, &options, seed, 400);
    }
}
