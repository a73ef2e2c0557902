//! Damage is found and named, what is in order is not, and a cursor leaves nothing out.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use dure_block::ram::RamDevice;
use dure_block::{Device, share};
use dure_store::format::slot::Slot;
use dure_store::layout::{FormatOptions, TableCopies};
use dure_store::packs::Table;
use dure_store::units::{BLOCK_BYTES, BLOCK_BYTES_U64, BlockNo, Nid};
use dure_sync::{Arc, clock};

use super::*;
use crate::file::{ReadMode, Stamp};
use crate::inode::{InodeRef, NewInode};
use crate::volume::{Background, FileSystem, MountOptions};

mod clones;
mod copies;
mod second_look;

const PAGES: u64 = 700;

fn device(table_copies: TableCopies) -> Arc<dyn Device> {
    let device = share(Arc::new(RamDevice::new("ram", 8192)));
    let format = FormatOptions {
        table_copies,
        journals: Some(2),
        segment_blocks: Some(64),
        ..FormatOptions::default()
    };
    FileSystem::format(Arc::clone(&device), &format).unwrap();
    device
}

fn open(device: &Arc<dyn Device>) -> FileSystem {
    let options = MountOptions {
        background: Background::None,
        cache_bytes: 16 << 20,
        ..MountOptions::default()
    };
    FileSystem::open(Arc::clone(device), options).unwrap()
}

/// `directory/file` with pages that differ, on the medium.
fn filled() -> (Arc<dyn Device>, FileSystem) {
    filled_on(device(TableCopies::One))
}

fn filled_on(device: Arc<dyn Device>) -> (Arc<dyn Device>, FileSystem) {
    let fs = open(&device);
    let new = |mode| NewInode {
        mode,
        ..NewInode::default()
    };
    let root = fs.root().unwrap();
    let directory = fs.mkdir(&root, b"directory", &new(0o040_755)).unwrap();
    let file = fs.create(&directory, b"file", &new(0o100_644)).unwrap();
    write(&fs, &file, 0..PAGES, 1);
    fs.sync().unwrap();
    fs.checkpoint_now().unwrap();
    (device, fs)
}

fn write(fs: &FileSystem, file: &InodeRef, pages: std::ops::Range<u64>, round: u64) {
    for page in pages {
        let word = (page << 8 | round).to_le_bytes();
        let bytes: Vec<u8> = word.iter().copied().cycle().take(BLOCK_BYTES).collect();
        let at = page * BLOCK_BYTES_U64;
        fs.write(file, at, &bytes, Stamp::Set).unwrap();
    }
}

/// The same, with nothing of it in memory.
fn filled_and_mounted() -> (Arc<dyn Device>, FileSystem) {
    let (device, fs) = filled();
    fs.close().unwrap();
    drop(fs);
    let fs = open(&device);
    (device, fs)
}

fn file(fs: &FileSystem) -> InodeRef {
    let root = fs.root().unwrap();
    let directory = fs.lookup(&root, b"directory").unwrap().unwrap();
    fs.lookup(&directory, b"file").unwrap().unwrap()
}

/// Inverts a bit of a block on the medium.
fn flip(fs: &FileSystem, block: BlockNo) {
    let region = &fs.0.store.region;
    let mut bytes = [0; BLOCK_BYTES];
    region.read(block, &mut bytes).unwrap();
    bytes[1000] ^= 4;
    region.write_once(block, &bytes).unwrap();
}

/// The block of a page of the file.
fn block_of(fs: &FileSystem, page: u64) -> BlockNo {
    let inode = file(fs);
    let files = &fs.0.files;
    let mut slot = Slot::HOLE;
    let mut map = crate::file::map::MapReader::new(files, inode.inode());
    if let Some((at, found)) = map.next_mapped(page, page + 1).unwrap() {
        assert_eq!(at, page);
        slot = found;
    }
    slot.block()
}

/// What a scrub of everything finds, and counts.
fn scrub(fs: &FileSystem) -> (Vec<BadBlock>, ScrubCounts) {
    let mut found = Vec::new();
    let mut ended = false;
    let options = ScrubOptions {
        rate: Some(1 << 40),
        ..ScrubOptions::default()
    };
    let counts = fs.scrub(&options, &mut |now| {
        found.extend(now.found.iter().cloned());
        ended = now.cursor.is_none();
        ControlFlow::Continue(())
    });
    let counts = counts.unwrap();
    assert!(ended);
    assert_eq!(counts.bad, u64::try_from(found.len()).unwrap());
    assert_eq!(counts.blocks_done, counts.blocks_total, "{counts:?}");
    (found, counts)
}

/// The one thing that is damaged.
fn only(fs: &FileSystem) -> BadBlock {
    let (mut found, _) = scrub(fs);
    let one = found.pop().expect("it is found");
    assert!(found.is_empty(), "{one:?} and {found:?}");
    one
}

const PATH: &[u8] = b"directory/file";

#[test]
fn what_is_in_order_is_compared_and_not_blamed() {
    let (_, fs) = filled_and_mounted();
    let (found, counts) = scrub(&fs);
    assert_eq!(found, []);
    assert!(counts.compared > PAGES, "{counts:?}");
    assert_eq!((counts.unknown, counts.replaced), (0, 0));
}

#[test]
fn a_damaged_page_is_named_by_path_and_offset() {
    let (_, fs) = filled_and_mounted();
    for page in [3, 300, PAGES - 1] {
        let block = block_of(&fs, page);
        flip(&fs, block);
        let bad = only(&fs);
        assert_eq!((bad.block, bad.mended), (block, false));
        assert_eq!(bad.paths, [PATH]);
        let offset = Some(page * BLOCK_BYTES_U64);
        let ino = file(&fs).ino();
        assert_eq!(bad.part, BadPart::Page { ino, offset });
        flip(&fs, block);
    }
    assert_eq!(scrub(&fs).0, []);
}

#[test]
fn a_page_in_memory_mends_its_block() {
    let (device, fs) = filled_and_mounted();
    let mut page = [0; BLOCK_BYTES];
    let read = fs.read(
        &file(&fs),
        300 * BLOCK_BYTES_U64,
        &mut page,
        ReadMode::Cached,
    );
    assert_eq!(read.unwrap(), BLOCK_BYTES);
    let block = block_of(&fs, 300);
    flip(&fs, block);
    let bad = only(&fs);
    assert!(bad.mended && bad.block == block, "{bad:?}");
    assert_ne!(block_of(&fs, 300), block);
    assert_eq!(scrub(&fs).0, []);
    fs.close().unwrap();
    drop(fs);
    let (fs, mut again) = (open(&device), [0; BLOCK_BYTES]);
    fs.read(
        &file(&fs),
        300 * BLOCK_BYTES_U64,
        &mut again,
        ReadMode::Cached,
    )
    .unwrap();
    assert_eq!(page, again);
}

#[test]
fn a_damaged_node_is_named_by_the_file_it_is_of() {
    let (device, fs) = filled();
    let owner = fs.0.store.space.owner(block_of(&fs, 300)).unwrap();
    let leaf = Nid(owner.nid.get());
    fs.close().unwrap();
    drop(fs);
    let fs = open(&device);
    let block = fs.0.store.nat.entry(leaf).unwrap().block();
    flip(&fs, block);
    let bad = only(&fs);
    assert_eq!((bad.block, bad.mended), (block, false));
    let inodes = vec![file(&fs).ino()];
    assert_eq!(bad.part, BadPart::Node { inodes });
    assert_eq!(bad.paths, [PATH]);
    let (_, counts) = scrub(&fs);
    assert!(
        counts.unknown > 100,
        "its pages have no checksum: {counts:?}"
    );
}

#[test]
fn a_node_in_memory_mends_its_image() {
    let (_, fs) = filled_and_mounted();
    let ino = file(&fs).ino();
    let block = fs.0.store.nat.entry(ino.nid()).unwrap().block();
    flip(&fs, block);
    let bad = only(&fs);
    assert!(bad.mended && bad.block == block, "{bad:?}");
    assert!(bad.paths.contains(&PATH.to_vec()), "{bad:?}");
    assert_eq!(scrub(&fs).0, []);
}

#[test]
fn damaged_tables_are_named() {
    let (_, fs) = filled_and_mounted();
    let store = &fs.0.store;
    for (table, name) in [(Table::Nat, "NAT pair"), (Table::Sit, "SIT pair")] {
        let first = match table {
            Table::Nat => store.layout.nat_pair(0),
            Table::Sit => store.layout.sit_pair(0),
        };
        // Of the two slots one counts.
        let found = [first, first + 1]
            .map(BlockNo)
            .into_iter()
            .find_map(|slot| {
                flip(&fs, slot);
                let found = scrub(&fs).0.pop();
                assert!(found.as_ref().is_none_or(|bad| bad.block == slot));
                found
            });
        let bad = found.expect("it is found");
        assert!(bad.why.contains(name), "{bad:?}");
        // It is in memory.
        assert!(bad.mended);
        assert_eq!(scrub(&fs).0, []);
    }
    for block in [0, store.layout.total_blocks - 1] {
        flip(&fs, BlockNo(block));
        assert_eq!(only(&fs).block, BlockNo(block));
        flip(&fs, BlockNo(block));
    }
}

#[test]
fn a_cursor_leaves_nothing_out() {
    let (_, fs) = filled_and_mounted();
    let whole = scrub(&fs).1;
    let (mut from, mut compared) = (Some(ScrubCursor::default()), 0);
    let mut steps = BTreeSet::new();
    while let Some(cursor) = from {
        assert_eq!(cursor.to_string().parse(), Ok(cursor));
        let options = ScrubOptions {
            from: cursor,
            rate: Some(1 << 40),
        };
        let counts = fs.scrub(&options, &mut |now| {
            from = now.cursor;
            // At the cursor it began with it has read something, too.
            match now.cursor != Some(cursor) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        compared += counts.unwrap().compared;
        assert!(steps.insert(from), "it goes on: {from:?}");
    }
    assert!(steps.len() > 10, "{steps:?}");
    assert!(compared >= whole.compared, "{compared} of {whole:?}");
}

#[test]
fn a_rate_is_kept() {
    let (_, fs) = filled_and_mounted();
    let start = clock::monotonic_ns();
    let options = ScrubOptions {
        rate: Some(10 << 20),
        ..ScrubOptions::default()
    };
    let counts = fs
        .scrub(&options, &mut |_| ControlFlow::Continue(()))
        .unwrap();
    let passed_ms = (clock::monotonic_ns() - start) / 1_000_000;
    let least_ms = counts.blocks_read * 1000 * BLOCK_BYTES_U64 / (10 << 20) * 9 / 10;
    assert!(passed_ms >= least_ms, "{passed_ms} ms, not {least_ms}");
}

#[test]
fn what_only_a_snapshot_has_is_compared_and_named() {
    let (device, fs) = filled();
    fs.create_snapshot("monday").unwrap();
    let before = block_of(&fs, 300);
    let inode = file(&fs).ino();
    let image = fs.0.store.nat.entry(inode.nid()).unwrap().block();
    write(&fs, &file(&fs), 0..PAGES, 2);
    fs.sync().unwrap();
    fs.checkpoint_now().unwrap();
    fs.close().unwrap();
    drop(fs);
    let fs = open(&device);
    let (found, counts) = scrub(&fs);
    assert_eq!(found, []);
    assert_eq!((counts.unknown, counts.replaced), (0, 0), "{counts:?}");
    assert!(counts.compared > 2 * PAGES, "{counts:?}");
    for block in [before, image] {
        flip(&fs, block);
        let bad = only(&fs);
        assert_eq!((bad.block, bad.mended), (block, false));
        assert_eq!(bad.snapshot.as_deref(), Some("monday"));
        if block == before {
            assert_eq!(bad.paths, [PATH]);
        }
        flip(&fs, block);
    }
    for own in fs.0.store.snapshots.own() {
        flip(&fs, own);
        assert_eq!(only(&fs).block, own);
        flip(&fs, own);
    }
    flip(&fs, before);
    fs.delete_snapshot("monday").unwrap();
    assert_eq!(scrub(&fs).0, []);
}

#[test]
fn the_block_of_a_snapshot_with_the_same_content_mends_a_page() {
    let (device, fs) = filled();
    fs.create_snapshot("monday").unwrap();
    // The same content, elsewhere.
    write(&fs, &file(&fs), 300..301, 1);
    fs.close().unwrap();
    drop(fs);
    let fs = open(&device);
    let block = block_of(&fs, 300);
    flip(&fs, block);
    let bad = only(&fs);
    assert!(
        bad.mended && bad.block == block && bad.snapshot.is_none(),
        "{bad:?}"
    );
    assert_eq!(scrub(&fs).0, []);
}

/// The next snapshot gets its number.
#[test]
fn a_snapshot_that_is_deleted_meanwhile_is_not_blamed() {
    let (_, fs) = filled();
    fs.create_snapshot("old").unwrap();
    write(&fs, &file(&fs), 0..PAGES, 2);
    fs.sync().unwrap();
    let (mut calls, mut found) = (0, Vec::new());
    let options = ScrubOptions {
        rate: Some(1 << 40),
        ..ScrubOptions::default()
    };
    fs.scrub(&options, &mut |now| {
        found.extend(now.found.iter().cloned());
        calls += u32::from(now.cursor.is_some_and(|at| at.stage == ScrubStage::Main));
        // What the snapshot has was looked up, and is about to be read.
        if calls == 2 {
            fs.delete_snapshot("old").unwrap();
            fs.create_snapshot("new").unwrap();
            for round in 3..11 {
                write(&fs, &file(&fs), 0..PAGES, round);
                fs.sync().unwrap();
                fs.checkpoint_now().unwrap();
            }
        }
        ControlFlow::Continue(())
    })
    .unwrap();
    assert!(calls > 2);
    assert_eq!(found, []);
}

#[test]
fn a_block_that_a_snapshot_shares_is_not_mended() {
    let (_, fs) = filled();
    fs.create_snapshot("monday").unwrap();
    let block = block_of(&fs, 300);
    flip(&fs, block);
    let bad = only(&fs);
    assert_eq!((bad.block, bad.mended), (block, false));
    assert_eq!(bad.snapshot.as_deref(), Some("monday"));
    assert_ne!(block_of(&fs, 300), block, "the file has its page again");
}

#[test]
fn a_snapshot_is_not_scrubbed_by_itself() {
    let (_, fs) = filled();
    fs.create_snapshot("monday").unwrap();
    let then = fs.open_snapshot("monday", MountOptions::default()).unwrap();
    let refused = then.scrub(&ScrubOptions::default(), &mut |_| ControlFlow::Continue(()));
    assert!(matches!(refused, Err(dure_store::Error::Invalid(_))));
}

/// Else it would take its own requests for those of others, and be slow for a while after each.
#[test]
fn it_counts_all_that_it_asks_of_the_device_as_its_own() {
    let (_, fs) = filled_and_mounted();
    let volume = &fs.0;
    let region = &volume.store.region;
    let scrub = Scrub {
        store: &volume.store,
        cleaner: &volume.cleaner,
        names: &volume.names,
        paths: &|_, _, _| BTreeMap::new(),
        rule: Rule::Holds,
    };
    let before = region.counters();
    let mut run = Run {
        scrub: &scrub,
        pace: Pace::new(None, &before),
        counts: ScrubCounts::default(),
        found: Vec::new(),
        known: BTreeMap::new(),
        cursor: ScrubCursor::default(),
        go_on: &mut |_| ControlFlow::Continue(()),
    };
    run.all(ScrubCursor::default()).unwrap();
    assert_eq!(run.counts.bad, 0);
    let made = pace::requests(&region.counters()) - pace::requests(&before);
    assert_eq!(run.pace.own(), made);
}
