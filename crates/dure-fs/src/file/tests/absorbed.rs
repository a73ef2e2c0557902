//! Dirty pages in persistent memory, on a volume that has a disk too: `page_cache=nvram`.

use std::time::Duration;

use dure_block::fault::{Fault, FaultDevice, Rule, When};
use dure_block::linear::Part;
use dure_block::nvm::NvmDevice;
use dure_block::ram::RamDevice;
use dure_block::{BLOCK_BYTES, Device, Lba, Op, OsError, share};
use dure_pmem::Region;
use dure_store::Error;
use dure_store::layout::{FormatOptions, NodeLog, NvmRegion};
use dure_store::members::{Member, join};
use dure_store::units::{BlockNo, nth_core};
use dure_sync::Arc;

use super::random::{End, run_on, threads_on};
use super::{World, content, file, fsck, nth_file};
use crate::file::map::MapReader;
use crate::inode::InodeRef;
use crate::volume::Background;
use crate::volume::{FileSystem, MountOptions, PageCaching};
use crate::{AllocateMode, Stamp, SyncScope};

const NVM_BLOCKS: u64 = 4096;
const DISK_BLOCKS: u64 = 16384;
/// The least share: two segments of 128 KiB for each journal.
const LEAST: (&str, &str) = ("nvram", "512K");
const AT_ONCE: (&str, &str) = ("nvram_low", "90");
const MOVE: (&str, &str) = ("nvram_absorb", "move");

fn set(options: &mut MountOptions, policies: &[(&str, &str)]) {
    for (key, value) in policies {
        assert_eq!(options.set_policy(key, value), Ok(true), "{key}={value}");
    }
}

/// A fresh volume on `disk`, and persistent memory.
fn beside(disk: Arc<dyn Device>, node_log: NodeLog) -> Arc<dyn Device> {
    let bytes = usize::try_from(NVM_BLOCKS).unwrap() * BLOCK_BYTES;
    let nvm = share(NvmDevice::in_memory(
        "nvm",
        Region::anonymous(bytes).unwrap(),
    ));
    let format = FormatOptions {
        journals: Some(2),
        segment_blocks: Some(32),
        node_log,
        nvm: vec![NvmRegion {
            device: nvm.clone(),
            path: "nvm".into(),
            node: 0,
        }],
        ..FormatOptions::default()
    };
    FileSystem::format(disk.clone(), &format).unwrap();
    let members = [nvm, disk].map(|device| Member {
        device,
        path: String::new(),
    });
    join(&members).unwrap()
}

fn world_on(disk: Arc<dyn Device>, policies: &[(&str, &str)]) -> World {
    let mut world = World::new(1024, 4 << 20);
    world.nvm = Some(beside(disk, NodeLog::Nvm));
    world.options.page_cache = Some(PageCaching::Nvram);
    set(&mut world.options, policies);
    world
}

fn world(policies: &[(&str, &str)]) -> World {
    let disk = share(RamDevice::new("disk", DISK_BLOCKS));
    world_on(disk, policies)
}

/// Where the pages of a file are: how many in persistent memory, and how many on the disk.
fn places(fs: &FileSystem, inode: &InodeRef) -> (u64, u64) {
    let _held = inode.inode().state().read();
    let mut map = MapReader::new(&fs.0.files, inode.inode());
    let (mut nvm, mut disk, mut page) = (0, 0, 0);
    while let Some((mapped, slot)) = map.next_mapped(page, u64::MAX).unwrap() {
        match fs.0.store.layout.is_in_nvm(slot.block()) {
            true => nvm += 1,
            false => disk += 1,
        }
        page = mapped + 1;
    }
    (nvm, disk)
}

fn move_all(fs: &FileSystem) {
    let all = [0, 1].map(|n| nth_core(n, 2));
    while fs.0.cleaner.move_absorbed(&all).unwrap() {}
}

fn pattern(pages: u8) -> Vec<u8> {
    (1..=pages).flat_map(|page| [page; BLOCK_BYTES]).collect()
}

#[test]
fn random_calls_match_and_each_survives_without_a_sync() {
    for seed in 400..404 {
        run_on(&world(&[]), seed, (5, 100), End::Calls);
    }
}

#[test]
fn random_calls_match_while_workers_move_what_they_write() {
    for seed in 410..413 {
        let mut world = world(&[LEAST, AT_ONCE]);
        world.options.background = Background::Workers;
        world.options.commit_interval = Duration::from_millis(2);
        run_on(&world, seed, (4, 100), End::Calls);
    }
    for seed in 415..418 {
        let mut world = world(&[LEAST, MOVE, ("nvram_low", "cached")]);
        world.options.background = Background::Workers;
        world.options.commit_interval = Duration::from_millis(2);
        run_on(&world, seed, (4, 100), End::Calls);
    }
    for seed in 420..422 {
        let mut world = world(&[LEAST, AT_ONCE, ("nvram_absorb", "sync")]);
        world.options.background = Background::Workers;
        world.options.commit_interval = Duration::from_millis(2);
        run_on(&world, seed, (4, 100), End::Fsync);
    }
}

#[test]
fn several_threads_share_a_small_share() {
    for policies in [&[LEAST, AT_ONCE][..], &[LEAST, AT_ONCE, MOVE]] {
        let mut world = world(policies);
        world.options.background = Background::Workers;
        threads_on(&world);
        fsck(world.device(), "after threads");
    }
}

#[test]
fn data_moves_to_the_disk_when_little_is_free() {
    let mut world = world(&[("nvram", "2M")]);
    {
        let fs = world.mount();
        let inode = file(&fs);
        fs.write(&inode, 0, &pattern(200), Stamp::Set).unwrap();
        fs.write(&nth_file(&fs, 1), 0, &pattern(220), Stamp::Set)
            .unwrap();
        assert_eq!(places(&fs, &inode), (200, 0), "nothing was moved yet");
        move_all(&fs);
        let absorbed = fs.activity().absorbed.unwrap();
        assert!(
            absorbed.blocks * 4 <= absorbed.blocks_max * 3,
            "{absorbed:?}"
        );
        let (nvm, disk) = places(&fs, &inode);
        let (nvm_too, disk_too) = places(&fs, &nth_file(&fs, 1));
        assert_eq!((nvm + disk, nvm_too + disk_too), (200, 220));
        assert_eq!(disk + disk_too, absorbed.moved);
        assert!(content(&fs, &inode) == pattern(200));
    }
    // The power fails; and the next mount does without.
    fsck(world.device(), "after the move");
    world.options.page_cache = None;
    world.options.nvram = crate::NvramOptions::default();
    let fs = world.mount();
    assert!(content(&fs, &file(&fs)) == pattern(200));
    assert!(content(&fs, &nth_file(&fs, 1)) == pattern(220));
}

/// What was overwritten before is never moved.
#[test]
fn what_is_dead_is_not_moved() {
    let fs = world(&[("nvram", "2M")]).mount();
    let inode = file(&fs);
    for _ in 0..20 {
        fs.write(&inode, 0, &pattern(30), Stamp::Set).unwrap();
        move_all(&fs);
    }
    assert!(fs.activity().absorbed.unwrap().moved <= 60);
    assert!(content(&fs, &inode) == pattern(30));
}

/// Blocks of persistent memory whose pages were overwritten are used again, also in segments where
/// another page lives.
#[test]
fn a_share_with_dead_blocks_is_not_full() {
    let fs = world(&[("nvram", "2M")]).mount();
    let (lives, often) = (file(&fs), nth_file(&fs, 1));
    for round in 0..64 {
        fs.write(&lives, round * 4096, &pattern(1), Stamp::Set)
            .unwrap();
        fs.write(&often, 0, &pattern(30), Stamp::Set).unwrap();
    }
    assert_eq!(places(&fs, &lives), (64, 0));
    assert_eq!(places(&fs, &often), (30, 0));
    let absorbed = fs.activity().absorbed.unwrap();
    assert_eq!((absorbed.refused, absorbed.moved), (0, 0), "{absorbed:?}");
    // What is free in an open segment counts as used.
    assert!(absorbed.blocks <= 64 + 30 + 2 * 32, "{absorbed:?}");
}

#[test]
fn a_full_share_lets_writes_go_to_the_disk() {
    let world = world(&[LEAST]);
    let fs = world.mount();
    let inode = file(&fs);
    fs.write(&inode, 0, &pattern(250), Stamp::Set).unwrap();
    let absorbed = fs.activity().absorbed.unwrap();
    let (nvm, disk) = places(&fs, &inode);
    assert!(nvm > 90 && disk > 100, "{nvm} {disk}");
    assert!(absorbed.blocks <= absorbed.blocks_max + 32, "{absorbed:?}");
    drop((inode, fs));
    let fs = world.mount();
    assert!(content(&fs, &file(&fs)) == pattern(250));
}

/// Blocks that were preallocated are on the disk; what is written there is not.
#[test]
fn preallocated_pages_are_absorbed() {
    let world = world(&[]);
    {
        let fs = world.mount();
        let inode = file(&fs);
        fs.allocate(&inode, AllocateMode::Extend, 0, 64 * 4096)
            .unwrap();
        assert_eq!(places(&fs, &inode), (0, 64));
        fs.write(&inode, 8 * 4096, &pattern(10), Stamp::Set)
            .unwrap();
        assert_eq!(places(&fs, &inode), (10, 54));
    }
    fsck(world.device(), "preallocated");
    let fs = world.mount();
    assert!(content(&fs, &file(&fs))[8 * 4096..18 * 4096] == pattern(10));
}

/// The published page cache: a page that is written moves from DRAM to persistent memory, is read
/// there, and stays there when it is written again.
#[test]
fn a_page_that_moves_is_in_one_memory_only() {
    let fs = world(&[MOVE]).mount();
    let inode = file(&fs);
    let in_dram = |inode: &InodeRef| inode.inode().state().read().file().pages.present();
    fs.write(&inode, 0, &pattern(9), Stamp::Set).unwrap();
    assert_eq!((places(&fs, &inode), in_dram(&inode)), ((9, 0), 0));
    assert!(content(&fs, &inode) == pattern(9));
    assert_eq!(in_dram(&inode), 0, "a read leaves no copy");
    // What is on the disk is read into DRAM, and nothing else.
    let fs = world(&[MOVE, LEAST, AT_ONCE]).mount();
    let inode = file(&fs);
    let mut bytes = pattern(100);
    fs.write(&inode, 0, &bytes, Stamp::Set).unwrap();
    move_all(&fs);
    assert!(content(&fs, &inode) == bytes);
    let (nvm, disk) = places(&fs, &inode);
    assert!(nvm > 0 && disk > 50, "{nvm} and {disk}");
    assert_eq!(in_dram(&inode), disk);
    // A write takes its pages out again, also one of a part of a page.
    let written = 40 * BLOCK_BYTES + 100;
    bytes[..written].fill(200);
    fs.write(&inode, 0, &bytes[..written], Stamp::Set).unwrap();
    fs.append(&inode, &pattern(2)).unwrap();
    bytes.extend(pattern(2));
    let (_, after) = places(&fs, &inode);
    assert!(after < disk, "{after} of {disk}");
    assert_eq!(in_dram(&inode), after);
    assert!(content(&fs, &inode) == bytes);
    assert_eq!(in_dram(&inode), after);
}

/// The published rule: free persistent memory, compared with that which holds data.
#[test]
fn data_moves_when_less_is_free_than_holds_data() {
    let fs = world(&[MOVE, ("nvram", "2M"), ("nvram_low", "cached")]).mount();
    let inode = file(&fs);
    fs.write(&inode, 0, &pattern(200), Stamp::Set).unwrap();
    move_all(&fs);
    assert_eq!(fs.activity().absorbed.unwrap().moved, 0, "half is free");
    fs.write(&nth_file(&fs, 1), 0, &pattern(200), Stamp::Set)
        .unwrap();
    move_all(&fs);
    let absorbed = fs.activity().absorbed.unwrap();
    assert!(absorbed.moved > 0, "{absorbed:?}");
    assert!(absorbed.blocks * 2 <= absorbed.blocks_max, "{absorbed:?}");
}

#[test]
fn only_what_is_synced_is_absorbed_if_so_asked() {
    let fs = world(&[("nvram_absorb", "sync")]).mount();
    let (synced, other) = (file(&fs), nth_file(&fs, 1));
    fs.write(&synced, 0, &pattern(9), Stamp::Set).unwrap();
    fs.write(&other, 0, &pattern(9), Stamp::Set).unwrap();
    fs.fsync(&synced, SyncScope::Data).unwrap();
    fs.background_now().unwrap();
    assert_eq!(places(&fs, &synced), (9, 0));
    assert_eq!(places(&fs, &other), (0, 9));
}

/// A file that is being written back is left for the next round.
#[test]
fn a_busy_file_is_moved_later() {
    let fs = world(&[LEAST, AT_ONCE]).mount();
    let inode = file(&fs);
    fs.write(&inode, 0, &pattern(100), Stamp::Set).unwrap();
    {
        let _busy = inode.inode().lock_writeback();
        move_all(&fs);
        assert_eq!(fs.activity().absorbed.unwrap().moved, 0);
    }
    move_all(&fs);
    assert!(fs.activity().absorbed.unwrap().moved > 60);
    assert!(content(&fs, &inode) == pattern(100));
}

/// A small share, and a disk that can fail.
fn faulty() -> (Arc<FaultDevice>, World) {
    let disk = Arc::new(FaultDevice::new(share(RamDevice::new("disk", DISK_BLOCKS))));
    let world = world_on(share(disk.clone()), &[("nvram", "1M"), AT_ONCE]);
    (disk, world)
}

fn fail_writes(disk: &FaultDevice) {
    disk.add(Rule::new(When::From(1), Fault::Error(OsError::EIO)).on(Op::Write));
}

/// A round whose moves fail commits all the same.
#[test]
fn a_disk_that_fails_keeps_no_operation_from_being_committed() {
    let (disk, world) = faulty();
    {
        let fs = world.mount();
        fs.write(&file(&fs), 0, &pattern(100), Stamp::Set).unwrap();
        nth_file(&fs, 1);
        fail_writes(&disk);
        fs.background_now().unwrap_err();
        disk.clear();
    }
    let fs = world.mount();
    let root = fs.root().unwrap();
    assert!(fs.lookup(&root, b"file 1").unwrap().is_some());
}

/// The device is written by a move, and not flushed yet: a write does not do it.
#[test]
fn a_write_does_not_flush_what_others_write_to_the_disk() {
    let fs = world(&[]).mount();
    let inode = file(&fs);
    let last = BlockNo(fs.0.store.layout.total_blocks - 2);
    fs.0.store.region.write(last, &[0; BLOCK_BYTES]).unwrap();
    let flushes = || fs.activity().device.flush_requests;
    let before = flushes();
    fs.write(&inode, 0, &pattern(9), Stamp::Set).unwrap();
    fs.fsync(&inode, SyncScope::All).unwrap();
    assert_eq!(flushes(), before);
    fs.0.store.region.flush().unwrap();
    assert!(flushes() > before, "there was something to flush");
}

/// A disk that takes nothing leaves what is in persistent memory there.
#[test]
fn a_disk_that_fails_loses_nothing_of_a_move() {
    let (disk, world) = faulty();
    let fs = world.mount();
    let inode = file(&fs);
    fs.write(&inode, 0, &pattern(100), Stamp::Set).unwrap();
    fail_writes(&disk);
    let all = [0, 1].map(|n| nth_core(n, 2));
    fs.0.cleaner.move_absorbed(&all).unwrap_err();
    assert_eq!(places(&fs, &inode), (100, 0));
    // Calls go on: they ask nothing of the disk.
    fs.write(&inode, 0, &pattern(1), Stamp::Set).unwrap();
    disk.clear();
    move_all(&fs);
    assert!(places(&fs, &inode).1 > 60);
    assert!(content(&fs, &inode) == pattern(100));
    drop((inode, fs));
    fsck(world.device(), "a disk that failed");
}

/// One block that cannot be written: the page goes to another.
#[test]
fn a_bad_block_of_the_disk_is_passed_over_by_a_move() {
    let (disk, world) = faulty();
    let fs = world.mount();
    let inode = file(&fs);
    fs.write(&inode, 0, &pattern(100), Stamp::Set).unwrap();
    let bad = |lba: Lba| lba.number().is_multiple_of(7);
    disk.add(
        Rule::new(When::From(1), Fault::Error(OsError::EIO))
            .on(Op::Write)
            .where_block(bad),
    );
    move_all(&fs);
    assert!(places(&fs, &inode).1 > 60);
    assert!(content(&fs, &inode) == pattern(100));
    drop((inode, fs));
    fsck(world.device(), "bad blocks");
}

#[track_caller]
fn refused(device: &Arc<dyn Device>, policies: &[(&str, &str)]) -> String {
    let mut options = MountOptions {
        background: Background::None,
        ..MountOptions::default()
    };
    set(&mut options, policies);
    match FileSystem::open(device.clone(), options) {
        Err(error @ Error::BadOption { .. }) => error.to_string(),
        other => panic!("{policies:?}: {other:?}"),
    }
}

#[test]
fn what_cannot_be_together_is_refused_by_name() {
    const NVRAM: (&str, &str) = ("page_cache", "nvram");
    let disk = || share(RamDevice::new("disk", DISK_BLOCKS));
    let device = beside(disk(), NodeLog::Nvm);
    for (policies, says) in [
        (&[NVRAM, ("data", "journal")][..], "data=ordered"),
        (&[NVRAM, ("data", "writeback")], "data=ordered"),
        (
            &[NVRAM, ("journal", "none"), ("no-crash-guarantee", "")],
            "journal=none",
        ),
        (&[NVRAM, ("flush", "one")], "flush=two"),
        (&[NVRAM, ("nvram", "128K")], "512 KiB"),
        (&[NVRAM, ("nvram", "1G")], "MiB"),
        (&[NVRAM, ("durability", "strict")], "page_cache=none"),
        (&[("nvram", "1M")], "page_cache=nvram"),
        (&[("nvram_absorb", "sync")], "page_cache=nvram"),
        (&[("nvram_low", "50")], "page_cache=nvram"),
        (&[("page_cache", "none")], "wholly"),
    ] {
        let why = refused(&device, policies);
        assert!(why.contains(says), "{policies:?}: {why}");
    }
    let logs_on_disk = beside(disk(), NodeLog::Block);
    assert!(refused(&logs_on_disk, &[NVRAM]).contains("--nvm"));
    let plain = World::new(8192, 1 << 20).device();
    assert!(refused(&plain, &[NVRAM]).contains("--nvm"));
    let all = World::in_nvm(8192).device();
    assert!(refused(&all, &[NVRAM]).contains("page_cache=none"));
    // Memory that is not mapped has a cache that a commit would have to flush.
    let unmapped = unmapped(&device);
    assert!(refused(&unmapped, &[NVRAM]).contains("mapped"));
    let mut options = MountOptions::default();
    assert!(options.set_policy("nvram_low", "0").is_err());
    assert!(options.set_policy("nvram_low", "half").is_err());
    assert!(options.set_policy("nvram_absorb", "none").is_err());
    assert!(options.set_policy("nvram", "much").is_err());
}

/// The same media, the persistent memory behind requests.
fn unmapped(device: &Arc<dyn Device>) -> Arc<dyn Device> {
    let whole = |part: &Part| Part::whole(part.device.clone());
    let media: Vec<Part> = device.parts().iter().map(whole).collect();
    let behind = media.into_iter().map(|part| Member {
        // A device that fails nothing hides that it can be mapped.
        device: share(FaultDevice::new(part.device)),
        path: String::new(),
    });
    join(&behind.collect::<Vec<_>>()).unwrap()
}

#[test]
fn a_block_of_the_disk_is_not_in_persistent_memory() {
    let fs = world(&[]).mount();
    let layout = &fs.0.store.layout;
    let first = layout.segment_start(dure_store::units::SegNo(layout.nvm_segments));
    assert!(!layout.is_in_nvm(first) && layout.is_in_nvm(BlockNo(first.0 - 1)));
}
