//! Windows that the device reads ahead, and what happens to their pages meanwhile.

use dure_block::fault::{Fault, FaultDevice, Rule as Flaw, When};
use dure_block::{Lba, Op, OsError, share};
use dure_sync::Arc;
use dure_sync::canary::Rule;

use super::{World, content, fsck, nth_file};
use crate::file::map::MapReader;
use crate::inode::InodeRef;
use crate::volume::FileSystem;
use crate::{Advice, ReadMode, SetAttributes, Stamp};

const PAGE: usize = 4096;
const PAGE_U64: u64 = 4096;
const PAGES: u64 = 512;
const NEW: u8 = 0xbb;

/// A file on a device that is not in memory.
struct Scene {
    world: World,
    device: Arc<FaultDevice>,
    fs: FileSystem,
    inode: InodeRef,
}

/// The bytes of a page.
fn old(page: u64) -> [u8; PAGE] {
    let mut bytes = [7; PAGE];
    bytes[..8].copy_from_slice(&page.to_le_bytes());
    bytes
}

impl Scene {
    fn new(rule: Rule) -> Scene {
        Scene::with_cache(rule, 8 << 20)
    }

    fn with_cache(rule: Rule, cache_bytes: u64) -> Scene {
        let mut world = World::new(8192, cache_bytes);
        world.options.log_data_pages = 0;
        world.options.volume_rules.slots_looked_at_again = rule;
        let device = Arc::new(FaultDevice::new(share(world.ram.clone())));
        let fs = FileSystem::open(share(device.clone()), world.options.clone()).unwrap();
        let inode = nth_file(&fs, 0);
        let scene = Scene {
            world,
            device,
            fs,
            inode,
        };
        scene.fill(&scene.inode);
        scene
    }

    /// Fills a file, which is on the device then and not in memory.
    fn fill(&self, inode: &InodeRef) {
        for page in 0..PAGES {
            let bytes = old(page);
            let stamp = Stamp::Set;
            self.fs
                .write(inode, page * PAGE_U64, &bytes, stamp)
                .unwrap();
        }
        self.fs.sync().unwrap();
        self.fs.0.files.settle_file(inode.inode());
    }

    fn read(&self, inode: &InodeRef, page: u64) -> crate::Result<[u8; PAGE]> {
        let mut bytes = [0xee; PAGE];
        let (offset, mode) = (page * PAGE_U64, ReadMode::Cached);
        assert_eq!(self.fs.read(inode, offset, &mut bytes, mode)?, PAGE);
        Ok(bytes)
    }

    /// Reads pages in order until windows are under way. Returns the first page that was not read
    /// and the first of a window.
    fn ahead(&self, inode: &InodeRef) -> (u64, u64) {
        let before = self.fs.0.files.read_ahead.under_way().0;
        for page in 0..PAGES {
            assert_eq!(self.read(inode, page).unwrap(), old(page));
            let (windows, pages) = self.fs.0.files.read_ahead.under_way();
            if windows > before {
                return (page + 1, (page + 1).next_multiple_of(pages));
            }
        }
        panic!("nothing is read ahead");
    }

    fn lba(&self, page: u64) -> Lba {
        let _state = self.inode.inode().state().read();
        let slot = MapReader::new(&self.fs.0.files, self.inode.inode()).slot(page);
        Lba::new(slot.unwrap().block().0)
    }

    /// Writes a page, which goes to another block and leaves memory.
    fn overwrite(&self, page: u64) {
        let (offset, stamp) = (page * PAGE_U64, Stamp::Set);
        self.fs
            .write(&self.inode, offset, &[NEW; PAGE], stamp)
            .unwrap();
        self.fs.sync().unwrap();
        self.fs.0.files.settle_file(self.inode.inode());
    }

    fn end(self) {
        let Scene {
            world, fs, inode, ..
        } = self;
        drop(inode);
        fs.close().unwrap();
        fsck(share(world.ram), "after");
    }
}

/// Reads 32 pages past the cache, as a mount does for its kernel.
fn read_long(scene: &Scene, page: u64) {
    let mut bytes = vec![0xee; 32 * PAGE];
    let (offset, mode) = (page * PAGE_U64, ReadMode::Bypass);
    let read = scene.fs.read(&scene.inode, offset, &mut bytes, mode);
    assert_eq!(read.unwrap(), bytes.len());
    for (page, bytes) in (page..).zip(bytes.chunks_exact(PAGE)) {
        assert_eq!(bytes, old(page), "page {page}");
    }
}

#[test]
fn long_reads_past_the_cache_in_order_are_read_ahead_and_others_are_not() {
    let scene = Scene::with_cache(Rule::default(), 64 << 20);
    for page in [96, 0, 224, 320, 64, 160] {
        read_long(&scene, page);
    }
    assert_eq!(scene.fs.0.files.read_ahead.under_way().0, 0);
    assert_eq!(scene.fs.0.files.pages.pages_used(), 0, "nothing is kept");
    read_long(&scene, 352);
    let before = scene.fs.0.store.region.counters().blocks_read;
    let (windows, pages) = scene.fs.0.files.read_ahead.under_way();
    assert!(windows > 0, "what follows is under way");
    for page in (384..PAGES).step_by(32) {
        read_long(&scene, page);
    }
    let blocks = scene.fs.0.store.region.counters().blocks_read - before;
    assert!(blocks <= PAGES - 384 + pages, "each block is read once");
    scene.end();
}

#[test]
fn a_file_read_in_order_takes_few_requests_and_is_what_it_was() {
    let scene = Scene::new(Rule::default());
    let before = scene.device.seen().requests();
    for page in 0..PAGES {
        assert_eq!(scene.read(&scene.inode, page).unwrap(), old(page));
    }
    let (_, window) = scene.fs.0.files.read_ahead.under_way();
    let requests = scene.device.seen().requests() - before;
    // Windows, the first one by itself; leaves, the runs that end at them and at those of segments.
    let most = PAGES / window + PAGES / 128 + 4;
    assert!(requests <= most, "{requests} requests, {window} pages each");
    scene.end();
}

#[test]
fn random_reads_begin_no_window() {
    let scene = Scene::new(Rule::default());
    for n in 1..PAGES {
        let page = n * 197 % PAGES;
        assert_eq!(scene.read(&scene.inode, page).unwrap(), old(page));
        if n < 100 {
            assert_eq!(
                scene.fs.0.files.read_ahead.under_way().0,
                0,
                "after {n} reads"
            );
        }
    }
    scene.end();
}

#[test]
fn two_readers_of_one_file_are_both_in_order() {
    let scene = Scene::new(Rule::default());
    let (_, window) = scene.fs.0.files.read_ahead.under_way();
    let half = PAGES / 2;
    for page in 0..half {
        for page in [page, half + page] {
            assert_eq!(scene.read(&scene.inode, page).unwrap(), old(page));
        }
        if page == 4 * window {
            assert!(
                scene.fs.0.files.read_ahead.under_way().0 >= 3,
                "both read ahead"
            );
        }
    }
    scene.end();
}

/// A page of a window is overwritten while that is under way.
fn overwritten(rule: Rule) -> (Scene, u64) {
    let scene = Scene::new(rule);
    let (_, page) = scene.ahead(&scene.inode);
    scene.overwrite(page + 3);
    (scene, page)
}

#[test]
fn a_page_that_was_overwritten_while_it_was_read_ahead_is_the_new_one() {
    let (scene, page) = overwritten(Rule::default());
    for page in page..page + 8 {
        let _from_the_window = scene.read(&scene.inode, page).unwrap();
    }
    let bytes = content(&scene.fs, &scene.inode);
    let at = |page: u64| &bytes[usize::try_from(page).unwrap() * PAGE..][..PAGE];
    for n in page..page + 8 {
        match n == page + 3 {
            true => assert_eq!(at(n), [NEW; PAGE]),
            false => assert_eq!(at(n), old(n)),
        }
    }
    scene.end();
}

#[test]
fn canary_a_window_whose_slots_are_not_looked_at_again_has_an_old_page() {
    let (scene, page) = overwritten(Rule::LEFT_OUT);
    let found = scene
        .read(&scene.inode, page)
        .and(scene.read(&scene.inode, page + 3));
    assert_eq!(found.unwrap(), old(page + 3));
}

#[test]
fn what_was_cut_off_while_it_was_read_ahead_reads_as_zeroes() {
    let scene = Scene::new(Rule::default());
    let (next, page) = scene.ahead(&scene.inode);
    let size = |pages: u64| SetAttributes {
        size: Some(pages * PAGE_U64),
        ..SetAttributes::default()
    };
    let set = |pages| scene.fs.set_attributes(&scene.inode, &size(pages)).unwrap();
    set(next);
    set(PAGES);
    for page in page..page + 8 {
        assert_eq!(scene.read(&scene.inode, page).unwrap(), [0; PAGE]);
    }
    scene.end();
}

#[test]
fn a_block_that_cannot_be_read_fails_its_page_only() {
    let scene = Scene::new(Rule::default());
    let (_, window) = scene.fs.0.files.read_ahead.under_way();
    let bad = scene.lba(4 * window + 3);
    let flaw = Flaw::new(When::From(1), Fault::Error(OsError::EIO)).on(Op::Read);
    scene.device.add(flaw.within(bad..bad.offset(1)));
    for page in 0..PAGES {
        match scene.read(&scene.inode, page) {
            Ok(bytes) => assert_eq!(bytes, old(page)),
            Err(_) => assert_eq!(page, 4 * window + 3),
        }
    }
    scene.device.clear();
    scene.end();
}

#[test]
fn windows_that_nobody_comes_for_make_room_for_others_and_for_pages() {
    let scene = Scene::new(Rule::default());
    let files: Vec<_> = (1..8).map(|n| nth_file(&scene.fs, n)).collect();
    files.iter().for_each(|inode| scene.fill(inode));
    let mut most = 0;
    for inode in &files {
        // Their readers leave when they have windows under way, or found no room for them.
        for page in 0..PAGES / 2 {
            assert_eq!(scene.read(inode, page).unwrap(), old(page));
        }
        most = most.max(scene.fs.0.files.read_ahead.under_way().0);
    }
    assert!(most >= 4, "{most} windows");
    let ino = scene.inode.ino();
    let is_ahead = |page| scene.fs.0.files.read_ahead.find(ino, page).is_some();
    let mut found = false;
    for page in (0..4).flat_map(|_| 0..PAGES) {
        if page == 0 {
            scene.fs.0.files.settle_file(scene.inode.inode());
        }
        assert_eq!(scene.read(&scene.inode, page).unwrap(), old(page));
        found |= is_ahead(page + 1) || is_ahead(page + 32);
    }
    assert!(found, "there is room in the end");
    let (windows, pages) = scene.fs.0.files.read_ahead.under_way();
    files.iter().chain([&scene.inode]).for_each(|inode| {
        scene.fs.0.files.settle_file(inode.inode());
    });
    let used = scene.fs.0.files.pages.pages_used();
    assert!(
        used <= u64::try_from(windows).unwrap() * pages,
        "{used} of {windows} windows"
    );
    scene.end();
}

#[test]
fn what_will_be_needed_is_under_way_and_what_will_not_leaves_memory() {
    let scene = Scene::with_cache(Rule::default(), 64 << 20);
    let (fs, inode) = (&scene.fs, &scene.inode);
    let (files, counters) = (&fs.0.files, || fs.0.store.region.counters().blocks_read);
    let (_, window) = files.read_ahead.under_way();
    fs.advise(inode, 0..2 * window * PAGE_U64, Advice::WillNeed)
        .unwrap();
    assert_eq!(files.read_ahead.under_way().0, 2, "windows");
    for page in 0..2 * window {
        assert_eq!(scene.read(inode, page).unwrap(), old(page));
    }
    let before = counters();
    // Pages 1 and 2 wholly, 0 and 3 in part.
    fs.advise(inode, 1..3 * PAGE_U64 + 1, Advice::DontNeed)
        .unwrap();
    for page in 0..4 {
        assert_eq!(scene.read(inode, page).unwrap(), old(page));
    }
    assert_eq!(counters() - before, 2, "pages that had left");
    fs.write(inode, PAGE_U64, &old(7), Stamp::Set).unwrap();
    fs.advise(inode, 0..u64::MAX, Advice::DontNeed).unwrap();
    let present = inode.inode().state().read().file().pages.present();
    assert_eq!(present, 1, "a dirty page stays");
    assert_eq!(scene.read(inode, 1).unwrap(), old(7));
    fs.write(inode, PAGE_U64, &old(1), Stamp::Set).unwrap();
    scene.end();
}
