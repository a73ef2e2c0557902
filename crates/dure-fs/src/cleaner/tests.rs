use dure_block::crash::{CrashImages, Selection, Tear};
use dure_block::ram::RamDevice;
use dure_block::record::RecordDevice;
use dure_block::{Device, share};
use dure_check::{CheckOptions, Data, check};
use dure_store::OpKind;
use dure_store::format::node::NodeKind;
use dure_store::layout::FormatOptions;
use dure_store::space::OpClass;
use dure_store::units::{BLOCK_BYTES, BLOCK_BYTES_U64, BlockNo};
use dure_sync::Arc;
use dure_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use dure_sync::thread;

use super::*;
use crate::file::{ReadMode, Stamp};
use crate::inode::{InodeRef, NewInode};
use crate::volume::Background;
use crate::volume::{FileSystem, MountOptions};

const BLOCKS: u64 = 6144;

fn options() -> MountOptions {
    MountOptions {
        background: Background::None,
        cache_bytes: 4 << 20,
        recovery_threads: Some(1),
        // Blocks of all pages lie in one partition, wherever the test is scheduled.
        core: Some(Arc::default()),
        ..MountOptions::default()
    }
}

fn format(device: &Arc<dyn Device>) {
    let format = FormatOptions {
        journals: Some(2),
        segment_blocks: Some(32),
        ..FormatOptions::default()
    };
    FileSystem::format(Arc::clone(device), &format).unwrap();
}

fn volume(blocks: u64) -> (Arc<RamDevice>, FileSystem) {
    let ram = Arc::new(RamDevice::new("ram", blocks));
    let device = share(Arc::clone(&ram));
    format(&device);
    (ram, FileSystem::open(device, options()).unwrap())
}

fn name(number: usize) -> Vec<u8> {
    format!("file{number}").into_bytes()
}

fn create(fs: &FileSystem, number: usize) -> InodeRef {
    let new = NewInode {
        mode: 0o100_644,
        ..NewInode::default()
    };
    fs.create(&fs.root().unwrap(), &name(number), &new).unwrap()
}

fn lookup(fs: &FileSystem, number: usize) -> InodeRef {
    fs.lookup(&fs.root().unwrap(), &name(number))
        .unwrap()
        .unwrap()
}

/// What page `page` of file `number` holds after `round` changes.
fn content(number: usize, page: u64, round: u64) -> Vec<u8> {
    let seed = dure_store::units::to_u64(number) << 40 | page << 16 | round;
    let word = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    word.iter().copied().cycle().take(BLOCK_BYTES).collect()
}

fn write(fs: &FileSystem, file: &InodeRef, number: usize, page: u64, round: u64) {
    let data = content(number, page, round);
    let written = fs
        .write(file, page * BLOCK_BYTES_U64, &data, Stamp::Set)
        .unwrap();
    assert_eq!(written, BLOCK_BYTES);
}

fn verify(fs: &FileSystem, number: usize, rounds: &[u64]) {
    let file = lookup(fs, number);
    let mut data = vec![0; BLOCK_BYTES];
    for (page, &round) in (0..).zip(rounds) {
        let read = fs
            .read(&file, page * BLOCK_BYTES_U64, &mut data, ReadMode::Bypass)
            .unwrap();
        assert_eq!(read, BLOCK_BYTES);
        assert!(
            data == content(number, page, round),
            "page {page} of file {number}"
        );
    }
}

fn sound(device: &Arc<RamDevice>) {
    let options = CheckOptions {
        data: Data::Verify,
        ..CheckOptions::default()
    };
    let report = check(share(Arc::clone(device)), &options).unwrap();
    assert!(report.is_sound(), "{:#?}", report.issues());
}

/// Files whose pages lie in turns: `files` of `pages` pages.
fn interleave(fs: &FileSystem, files: usize, pages: u64) {
    let open: Vec<_> = (0..files).map(|number| create(fs, number)).collect();
    for page in 0..pages {
        for (number, file) in open.iter().enumerate() {
            write(fs, file, number, page, 0);
            if page % 4 == 3 || page + 1 == pages {
                fs.0.files
                    .body
                    .write_back(&fs.0.files, file.inode())
                    .unwrap();
            }
        }
    }
    fs.sync().unwrap();
    fs.0.store.checkpoint().unwrap();
}

fn unlink(fs: &FileSystem, number: usize) {
    fs.unlink(&fs.root().unwrap(), &name(number)).unwrap();
}

#[test]
fn free_segments_appear_and_data_stays() {
    let (device, fs) = volume(BLOCKS);
    let total = fs.0.store.space.statistics().total;
    // Nine tenths full, then every other file goes.
    let files = 60;
    let pages = total * 9 / 10 / dure_store::units::to_u64(files);
    interleave(&fs, files, pages);
    let full = fs.0.store.space.statistics();
    assert!(full.free < full.total * 15 / 100, "{full:?}");
    for number in (0..files).step_by(2) {
        unlink(&fs, number);
    }
    fs.sync().unwrap();
    fs.0.store.checkpoint().unwrap();
    let before = fs.0.store.space.statistics();
    let holes = u32::try_from(before.free / 32).unwrap();
    assert!(before.segments_free < holes / 4, "{before:?}");
    let report = fs.0.cleaner.clean(holes).unwrap();
    let after = fs.0.store.space.statistics();
    assert!(after.segments_free > holes * 3 / 4, "{report:?} {after:?}");
    assert_eq!(report.segments, after.segments_free - before.segments_free);
    assert!(
        report.data > 500 && report.bad == 0 && report.disowned == 0,
        "{report:?}"
    );
    let rounds = vec![0; usize::try_from(pages).unwrap()];
    for number in (1..files).step_by(2) {
        verify(&fs, number, &rounds);
    }
    // As a crash leaves it, and once more after a clean unmount.
    drop(fs);
    let fs = FileSystem::open(share(Arc::clone(&device)), options()).unwrap();
    for number in (1..files).step_by(2) {
        verify(&fs, number, &rounds);
    }
    fs.close().unwrap();
    sound(&device);
}

#[test]
fn background_work_cleans_when_segments_run_short() {
    let (_, fs) = volume(BLOCKS);
    let pages = fs.0.store.space.statistics().total * 9 / 10 / 60;
    interleave(&fs, 60, pages);
    assert!(
        !fs.0.cleaner.wants_cleaning(),
        "there is nothing to gain in a full volume"
    );
    for number in (0..60).step_by(2) {
        unlink(&fs, number);
    }
    fs.sync().unwrap();
    fs.0.store.checkpoint().unwrap();
    // New data takes the wholly free segments first.
    let (file, mut page) = (create(&fs, 99), 0);
    while fs.0.store.space.statistics().segments_free > 1 {
        write(&fs, &file, 99, page, 0);
        fs.0.files
            .body
            .write_back(&fs.0.files, file.inode())
            .unwrap();
        page += 1;
    }
    assert!(
        fs.0.cleaner.wants_cleaning(),
        "{:?}",
        fs.0.store.space.statistics()
    );
    fs.0.background.round_of_all().unwrap();
    assert!(
        !fs.0.cleaner.wants_cleaning(),
        "{:?}",
        fs.0.store.space.statistics()
    );
    verify(&fs, 1, &vec![0; usize::try_from(pages).unwrap()]);
}

#[test]
fn node_images_move_too() {
    let (device, fs) = volume(2048);
    let mut nids = Vec::new();
    for number in 0..300_u64 {
        let mut op = fs.0.store.op(OpKind::Write, OpClass::Normal, 1).unwrap();
        let node = op.new_node(NodeKind::Blob).unwrap();
        op.edit(&node, 0).all()[..8].copy_from_slice(&number.to_le_bytes());
        op.finish();
        nids.push(node.nid);
    }
    fs.0.store.checkpoint().unwrap();
    for &nid in nids.iter().filter(|nid| nid.0 % 3 != 0) {
        let mut op = fs.0.store.op(OpKind::Write, OpClass::Delete, 1).unwrap();
        let node = fs.0.store.node(nid, NodeKind::Blob.of_none()).unwrap();
        op.free_node(&node).unwrap();
        op.finish();
    }
    fs.0.store.checkpoint().unwrap();
    let report = fs.0.cleaner.clean(5).unwrap();
    assert!(report.segments >= 5 && report.images >= 20, "{report:?}");
    drop(fs);
    let fs = FileSystem::open(share(Arc::clone(&device)), options()).unwrap();
    for (number, &nid) in (0_u64..).zip(&nids).filter(|(_, nid)| nid.0 % 3 == 0) {
        let node = fs.0.store.node(nid, NodeKind::Blob.of_none()).unwrap();
        assert_eq!(node.read(0).payload()[..8], number.to_le_bytes());
    }
}

#[test]
fn a_busy_inode_is_skipped() {
    let (_, fs) = volume(2048);
    interleave(&fs, 2, 40);
    unlink(&fs, 0);
    fs.sync().unwrap();
    fs.0.store.checkpoint().unwrap();
    let file = lookup(&fs, 1);
    let held = file.inode().lock_writeback();
    // Not all 20 pages if this task goes to another core on the way, whose blocks are elsewhere.
    let first = fs.0.cleaner.clean(10).unwrap();
    assert!(first.busy > 0 && first.data == 0, "{first:?}");
    drop(held);
    let report = fs.0.cleaner.clean(10).unwrap();
    assert!(
        report.busy == 0 && report.data >= first.busy,
        "{first:?}, {report:?}"
    );
    verify(&fs, 1, &[0; 40]);
}

#[test]
fn a_page_with_a_wrong_checksum_stays_where_it_is() {
    let (device, fs) = volume(2048);
    interleave(&fs, 2, 40);
    unlink(&fs, 0);
    fs.sync().unwrap();
    fs.0.store.checkpoint().unwrap();
    let file = lookup(&fs, 1);
    let slot = |index: usize| {
        let data = file.inode().data();
        let bytes = &data.body[index * 12..][..8];
        u64::from_le_bytes(bytes.try_into().unwrap())
    };
    let (bad, good) = (slot(3), slot(4));
    let rot = [0x55; BLOCK_BYTES];
    fs.0.store.region.write(BlockNo(bad), &rot).unwrap();
    let report = fs.0.cleaner.clean(10).unwrap();
    assert_eq!(report.bad, 1, "{report:?}");
    assert!(report.data >= 20, "{report:?}");
    assert_eq!(slot(3), bad);
    assert_ne!(slot(4), good);
    drop(device);
}

#[test]
fn preallocated_blocks_move_without_being_read() {
    let (device, fs) = volume(2048);
    interleave(&fs, 2, 8);
    let file = lookup(&fs, 1);
    let mode = crate::file::AllocateMode::Extend;
    fs.allocate(&file, mode, 8 * BLOCK_BYTES_U64, 60 * BLOCK_BYTES_U64)
        .unwrap();
    unlink(&fs, 0);
    fs.sync().unwrap();
    fs.0.store.checkpoint().unwrap();
    let blocks = fs.attributes(&file).unwrap().blocks;
    let report = fs.0.cleaner.clean(10).unwrap();
    assert!(report.data > 8, "{report:?}");
    assert_eq!(fs.attributes(&file).unwrap().blocks, blocks);
    verify(&fs, 1, &[0; 8]);
    let mut page = vec![1; BLOCK_BYTES];
    fs.read(&file, 60 * BLOCK_BYTES_U64, &mut page, ReadMode::Bypass)
        .unwrap();
    assert!(
        page.iter().all(|&byte| byte == 0),
        "preallocated pages read as zeroes"
    );
    drop(file);
    fs.close().unwrap();
    sound(&device);
}

#[test]
fn writers_go_on_while_segments_are_cleaned() {
    let (device, fs) = volume(BLOCKS);
    let (files, pages) = (24, 60_u64);
    interleave(&fs, files, pages);
    let (done, moved) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut all = vec![vec![0; usize::try_from(pages).unwrap()]; files];
    thread::scope(|scope| {
        let (fs, done, moved) = (&fs, &done, &moved);
        let cleaner = scope.spawn(move || {
            while !done.load(Ordering::Acquire) {
                let report = fs.0.cleaner.clean(8).unwrap();
                assert_eq!(report.bad, 0, "{report:?}");
                moved.fetch_add(report.data, Ordering::Relaxed);
            }
        });
        let mut round = 0_u64;
        while round < 1500 || moved.load(Ordering::Relaxed) < 100 {
            round += 1;
            assert!(round < 60_000, "there are holes to fill");
            let draw = round.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
            let number = dure_store::units::to_usize(draw) % files;
            let page = draw >> 16 & 0xffff;
            let page = page % pages;
            let file = lookup(fs, number);
            write(fs, &file, number, page, round);
            all[number][dure_store::units::to_usize(page)] = round;
            if round.is_multiple_of(8) {
                fs.0.files
                    .body
                    .write_back(&fs.0.files, file.inode())
                    .unwrap();
                verify(fs, number, &all[number]);
            }
        }
        done.store(true, Ordering::Release);
        cleaner.join().unwrap();
    });
    fs.sync().unwrap();
    drop(fs);
    let fs = FileSystem::open(share(Arc::clone(&device)), options()).unwrap();
    for (number, rounds) in all.iter().enumerate() {
        verify(&fs, number, rounds);
    }
    fs.close().unwrap();
    sound(&device);
}

#[test]
fn a_power_cut_while_cleaning_loses_nothing() {
    let ram = Arc::new(RamDevice::new("ram", 2048));
    let device = share(Arc::clone(&ram));
    format(&device);
    let fs = FileSystem::open(device, options()).unwrap();
    interleave(&fs, 4, 40);
    unlink(&fs, 0);
    unlink(&fs, 2);
    fs.close().unwrap();
    let start = ram.snapshot();
    let recorder = RecordDevice::new(share(Arc::clone(&ram)));
    let log = recorder.log();
    let fs = FileSystem::open(share(recorder), options()).unwrap();
    let report = fs.0.cleaner.clean(6).unwrap();
    assert!(report.data > 40, "{report:?}");
    // What was cleaned is used again at once.
    let file = create(&fs, 9);
    for page in 0..64 {
        write(&fs, &file, 9, page, 0);
    }
    fs.sync().unwrap();
    drop((file, fs));
    let images = CrashImages::new(start, &log);
    let selection = Selection {
        exhaustive_max: 3,
        random: 4,
        seed: 7,
        tear: Tear::Blocks,
    };
    let mut states = 0;
    for step in images.frontiers() {
        let point = images.at(step);
        for choice in point.choices(selection) {
            let device = Arc::new(point.image(&choice));
            let fs = FileSystem::open(share(Arc::clone(&device)), options()).unwrap();
            for number in [1, 3] {
                verify(&fs, number, &[0; 40]);
            }
            states += 1;
        }
    }
    assert!(states > 50, "only {states} states");
}

/// A cleaner that knew a block's owner of a moment ago asked for the node, whose life had ended,
/// and found the image of that life in the NAT: the number then stood for a live node when it was
/// given out again.
#[test]
fn race_the_cleaner_brought_a_freed_node_back() {
    let (_, fs) = volume(BLOCKS);
    let file = create(&fs, 0);
    write(&fs, &file, 0, 100, 0);
    fs.0.files
        .body
        .write_back(&fs.0.files, file.inode())
        .unwrap();
    fs.0.store.checkpoint().unwrap();
    let state = file.inode().state().read();
    let slot = crate::file::map::MapReader::new(&fs.0.files, file.inode()).slot(100);
    let nid = Nid(file.inode().data_head().map_root.get());
    drop(state);
    let block = slot.unwrap().block();
    let owned = vec![(block, fs.0.store.space.owner(block).unwrap())];
    fs.0.files.truncate(&file, 0).unwrap();
    let mut report = CleanReport::default();
    fs.0.cleaner.move_slots(owned, &mut report).unwrap();
    assert_eq!(report.disowned, 1, "{report:?}");
    fs.0.store.commit_all().unwrap();
    // Another file gets the number of the node.
    let mut found = false;
    for number in 1..40 {
        let other = create(&fs, number);
        write(&fs, &other, number, 100, 0);
        fs.0.files
            .body
            .write_back(&fs.0.files, other.inode())
            .unwrap();
        found |= other.inode().data_head().map_root.get() == nid.0;
    }
    assert!(found, "node {} was not used again", nid.0);
}

/// A checkpoint takes the owners of new blocks from memory and writes them to the summaries. A
/// cleaner that looked in between found neither, and took the segments for damaged.
#[cfg(dure_backend = "sim")]
#[test]
fn sim_race_owners_are_read_while_a_checkpoint_writes_them() {
    use dure_sync::CoreId;
    use dure_sync::sim::{Config, seeds, try_run};

    for seed in seeds(200) {
        let run = try_run(Config::random(2, seed), || {
            let (_, fs) = volume(1024);
            let open: Vec<_> = (0..3).map(|number| create(&fs, number)).collect();
            for page in 0..40 {
                for (number, file) in open.iter().enumerate() {
                    write(&fs, file, number, page, 0);
                    fs.0.files
                        .body
                        .write_back(&fs.0.files, file.inode())
                        .unwrap();
                }
            }
            drop(open);
            unlink(&fs, 0);
            fs.0.store.commit_all().unwrap();
            thread::scope(|scope| {
                scope.spawn_on(CoreId::new(0), || fs.0.store.checkpoint().unwrap());
                scope.spawn_on(CoreId::new(1), || {
                    let report = fs.0.cleaner.clean(4).unwrap();
                    assert_eq!(report.bad, 0, "{report:?}");
                });
            });
        });
        if let Err(failure) = run {
            panic!("{failure}");
        }
    }
}
