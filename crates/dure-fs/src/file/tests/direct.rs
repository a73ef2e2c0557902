//! Files in persistent memory without a page cache.

#![expect(clippy::print_stdout, reason = "a measurement says what it found")]

use dure_block::nvm::NvmDevice;
use dure_block::ram::RamDevice;
use dure_block::{BLOCK_BYTES, Device, Io, Lba, WriteFlags, share};
use dure_pmem::Region;
use dure_store::OpKind;
use dure_store::space::OpClass;
use dure_store::{Durability, Error, RecordPolicy};
use dure_sync::{Arc, clock};

use super::random::{End, run_on, threads_on};
use super::{World, check, content, file, fsck, nth_file};
use crate::file::map::MapReader;
use crate::inode::InodeRef;
use crate::volume::{DataMode, FileSystem, MountOptions};
use crate::{AllocateMode, ReadMode, Stamp, SyncScope};

/// The content of a device, in emulated persistent memory.
pub(super) fn nvm_of(ram: &RamDevice) -> Arc<dyn Device> {
    let blocks = usize::try_from(ram.info().blocks).unwrap();
    let region = Region::anonymous(blocks * BLOCK_BYTES).unwrap();
    let nvm = NvmDevice::in_memory("nvm", region);
    let mut block = [0; BLOCK_BYTES];
    for at in 0..ram.info().blocks {
        let (lba, out) = (Lba::new(at), &mut block[..]);
        ram.execute(Io::Read { lba, out }).unwrap();
        write(&nvm, at, &block);
    }
    share(nvm)
}

fn write(device: &dyn Device, at: u64, block: &[u8]) {
    let (lba, parts, flags) = (Lba::new(at), &[block][..], WriteFlags::NONE);
    device.execute(Io::Write { lba, parts, flags }).unwrap();
}

/// The block of a page.
fn block_of(fs: &FileSystem, inode: &InodeRef, page: u64) -> u64 {
    let _held = inode.inode().state().read();
    let mut map = MapReader::new(&fs.0.files, inode.inode());
    map.slot(page).unwrap().block().0
}

#[test]
fn random_calls_match_and_each_survives_without_a_sync() {
    for seed in 200..206 {
        run_on(&World::in_nvm(16384), seed, (5, 100), End::Calls);
    }
}

#[test]
fn random_calls_match_where_a_sync_makes_them_durable() {
    for seed in 300..303 {
        let mut world = World::in_nvm(16384);
        world.options.durability = Some(Durability::Posix);
        run_on(&world, seed, (5, 100), End::Fsync);
    }
}

#[test]
fn threads_write_files_of_their_own() {
    threads_on(&World::in_nvm(32768));
}

/// Threads write pages of one file, each its own ones; a reader sees each page whole.
#[test]
fn threads_write_one_file() {
    let world = World::in_nvm(16384);
    let fs = world.mount();
    let inode = file(&fs);
    fs.write(&inode, 0, &[0; 8 * BLOCK_BYTES], Stamp::Set)
        .unwrap();
    dure_sync::thread::scope(|scope| {
        for thread in 1..4_u8 {
            let (fs, inode) = (&fs, &inode);
            scope.spawn(move || {
                for round in 0..60_u64 {
                    let at = (round % 8) * 4096 + u64::from(thread) * 1024;
                    fs.write(inode, at, &[thread; 1024], Stamp::Set).unwrap();
                    let mut page = [0xee; BLOCK_BYTES];
                    fs.read(inode, at - at % 4096, &mut page, ReadMode::Cached)
                        .unwrap();
                    for (index, part) in (0_u8..).zip(page.chunks(1024)) {
                        assert!(part.iter().all(|byte| *byte == part[0]), "part {index}");
                        assert!(part[0] == 0 || part[0] == index);
                    }
                }
            });
        }
    });
    for page in content(&fs, &inode).chunks(BLOCK_BYTES) {
        for (thread, part) in (0_u8..).zip(page.chunks(1024)) {
            assert_eq!(part, [thread; 1024]);
        }
    }
    check(&fs, &inode);
    drop(inode);
    drop(fs);
    fsck(world.device(), "after threads");
}

/// Names, attributes and extended attributes are durable when their calls return.
#[test]
fn calls_on_names_and_attributes_are_durable_when_they_return() {
    let world = World::in_nvm(4096);
    let fs = world.mount();
    let root = fs.root().unwrap();
    let kept = file(&fs);
    fs.set_xattr(&kept, b"user.a", b"value", crate::XattrMode::Any)
        .unwrap();
    let set = crate::SetAttributes {
        mode: Some(0o600),
        ..crate::SetAttributes::default()
    };
    fs.change_attributes(&kept, &set).unwrap();
    drop(nth_file(&fs, 1));
    fs.unlink(&root, b"file 1").unwrap();
    drop(nth_file(&fs, 2));
    fs.rename(
        &root,
        b"file 2",
        &root,
        b"moved",
        crate::RenameMode::Replace,
    )
    .unwrap();
    fs.link(&kept, &root, b"linked").unwrap();
    let directory = crate::NewInode {
        mode: 0o40755,
        ..crate::NewInode::default()
    };
    fs.mkdir(&root, b"directory", &directory).unwrap();
    drop((kept, root, fs));
    let fs = world.mount();
    let root = fs.root().unwrap();
    let names = [
        &b"file 0"[..],
        b"file 1",
        b"file 2",
        b"moved",
        b"linked",
        b"directory",
    ];
    let found = names.map(|name| fs.lookup(&root, name).unwrap().is_some());
    assert_eq!(found, [true, false, false, true, true, true]);
    let kept = file(&fs);
    assert_eq!(
        fs.get_xattr(&kept, b"user.a").unwrap().as_deref(),
        Some(&b"value"[..])
    );
    let attributes = fs.attributes(&kept).unwrap();
    assert_eq!((attributes.mode & 0o777, attributes.nlink), (0o600, 2));
}

#[test]
fn a_log_that_is_full_all_the_time_loses_no_call() {
    let world = World::in_nvm(2048);
    let fs = world.mount();
    let inode = file(&fs);
    for round in 0..3000_u32 {
        fs.write(
            &inode,
            u64::from(round % 50) * 4096,
            &round.to_le_bytes(),
            Stamp::Set,
        )
        .unwrap();
    }
    let before = content(&fs, &inode);
    assert!(
        fs.0.store.counters.checkpoints.sum() > 1,
        "the logs were full"
    );
    drop((inode, fs));
    let fs = world.mount();
    assert_eq!(content(&fs, &file(&fs)), before);
    fs.close().unwrap();
    fsck(world.device(), "after many calls");
}

/// Operations that others have begun keep room in the log, so that a commit cannot enter the next
/// segment of its ring: the operation is late, and its call commits it after a checkpoint.
#[test]
fn a_commit_that_finds_the_log_full_is_made_by_the_end_of_its_call() {
    let mut world = World::in_nvm(4096);
    world.options.core = Some(Arc::default());
    let fs = world.mount();
    let inode = file(&fs);
    let begun: Vec<_> = (0..8)
        .map(|_| fs.0.store.op(OpKind::Write, OpClass::Delete, 40).unwrap())
        .collect();
    for round in 0..300_u64 {
        let page = [u8::try_from(round % 250).unwrap(); BLOCK_BYTES];
        fs.write(&inode, round % 20 * 4096, &page, Stamp::Set)
            .unwrap();
        let (late, durable) = fs.0.store.late_operations();
        assert_eq!(late, durable, "a call returned before it was durable");
    }
    assert!(
        fs.0.store.late_operations().0 > 0,
        "no commit found a full log"
    );
    let before = content(&fs, &inode);
    drop(begun);
    drop((inode, fs));
    let fs = world.mount();
    assert!(content(&fs, &file(&fs)) == before);
}

#[test]
fn a_full_volume_takes_no_half_of_a_write_and_rewrites_what_it_has() {
    let world = World::in_nvm(2048);
    let fs = world.mount();
    let inode = file(&fs);
    let data = [7; 16 * BLOCK_BYTES];
    let mut size = 0;
    let full = loop {
        match fs.write(&inode, size, &data, Stamp::Set) {
            Ok(done) => size += u64::try_from(done).unwrap(),
            Err(error) => break error,
        }
    };
    assert!(matches!(full, Error::NoSpace { .. }), "{full}");
    assert!(size > 0 && fs.size(&inode).unwrap() == size);
    let refused = fs.write_whole(&inode, size, &data, Stamp::Set);
    assert!(matches!(refused, Err(Error::NoSpace { .. })));
    assert_eq!(fs.size(&inode).unwrap(), size);
    for round in 0..200_u64 {
        let at = (round * 4096 * 7) % size;
        fs.write(&inode, at - at % 4096, &[8; BLOCK_BYTES], Stamp::Set)
            .unwrap();
    }
    check(&fs, &inode);
    fs.0.files.truncate(&inode, 0).unwrap();
    fs.write(&inode, 0, &data, Stamp::Set).unwrap();
    fs.close().unwrap();
    drop((inode, fs));
    fsck(world.device(), "after a full volume");
}

/// What the medium does not report is noticed by the first read of a page after a mount.
#[test]
fn damage_is_noticed_by_the_first_read_of_a_page() {
    let world = World::in_nvm(4096);
    let fs = world.mount();
    let inode = file(&fs);
    fs.write(&inode, 0, &[3; 3 * BLOCK_BYTES], Stamp::Set)
        .unwrap();
    let damaged = block_of(&fs, &inode, 1);
    fs.close().unwrap();
    drop((inode, fs));
    write(&*world.device(), damaged, &[4; BLOCK_BYTES]);
    let fs = world.mount();
    let inode = file(&fs);
    let mut part = [0; 10];
    for _ in 0..2 {
        let read = fs.read(&inode, 4096 + 50, &mut part, ReadMode::Bypass);
        assert!(
            matches!(read, Err(Error::Corrupt { at, .. }) if at == damaged),
            "{read:?}"
        );
        let written = fs.write(&inode, 4096 + 50, &part, Stamp::Set);
        assert!(
            matches!(written, Err(Error::Corrupt { .. })),
            "a part of a bad page"
        );
    }
    assert_eq!(
        fs.read(&inode, 8192 + 50, &mut part, ReadMode::Bypass)
            .unwrap(),
        10
    );
    assert_eq!(part, [3; 10]);
    fs.write(&inode, 4096, &[5; BLOCK_BYTES], Stamp::Set)
        .unwrap();
    assert_eq!(
        fs.read(&inode, 4096 + 50, &mut part, ReadMode::Bypass)
            .unwrap(),
        10
    );
    assert_eq!(part, [5; 10]);
}

/// Preallocated pages and holes are written in parts, over crashes.
#[test]
fn preallocated_pages_are_filled_in_place() {
    let world = World::in_nvm(4096);
    let fs = world.mount();
    let inode = file(&fs);
    fs.allocate(&inode, AllocateMode::Extend, 0, 4 * 4096)
        .unwrap();
    let before = block_of(&fs, &inode, 2);
    fs.write(&inode, 2 * 4096 + 100, b"here", Stamp::Set)
        .unwrap();
    assert_eq!(block_of(&fs, &inode, 2), before);
    fs.write(&inode, 2 * 4096 + 200, b"there", Stamp::Set)
        .unwrap();
    assert_ne!(
        block_of(&fs, &inode, 2),
        before,
        "a page that counts is never overwritten"
    );
    fs.allocate(&inode, AllocateMode::Punch, 2 * 4096 + 102, 99)
        .unwrap();
    drop((inode, fs));
    let fs = world.mount();
    let inode = file(&fs);
    let mut want = vec![0; 4 * BLOCK_BYTES];
    want[2 * BLOCK_BYTES + 100..][..2].copy_from_slice(b"he");
    want[2 * BLOCK_BYTES + 201..][..4].copy_from_slice(b"here");
    assert!(content(&fs, &inode) == want);
    fs.fsync(&inode, SyncScope::All).unwrap();
    check(&fs, &inode);
}

/// Options that contradict each other, or the medium, are refused by name.
#[test]
fn contradictions_are_refused_by_name() {
    let refused = |world: &World, change: &dyn Fn(&mut MountOptions)| {
        let mut options = world.options.clone();
        change(&mut options);
        match FileSystem::open(world.device(), options) {
            Err(Error::BadOption { option, .. }) => option,
            other => panic!("{other:?}"),
        }
    };
    let mut disk = World::new(4096, 1 << 20);
    let strict = |options: &mut MountOptions| options.durability = Some(Durability::Strict);
    assert_eq!(refused(&disk, &strict), "durability=strict");
    disk.options.page_cache = World::in_nvm(2048).options.page_cache;
    assert_eq!(refused(&disk, &|_| {}), "page_cache=none");
    let nvm = World::in_nvm(4096);
    for mode in [DataMode::Journal, DataMode::Writeback] {
        let change = move |options: &mut MountOptions| options.data = mode;
        assert_eq!(refused(&nvm, &change), "page_cache=none");
    }
    let images = |options: &mut MountOptions| {
        strict(options);
        options.records = RecordPolicy::Image;
    };
    assert_eq!(refused(&nvm, &images), "durability=strict");
    let mut options = nvm.options.clone();
    options.records = RecordPolicy::Image;
    let fs = FileSystem::open(nvm.device(), options).unwrap();
    drop(file(&fs));
    fs.close().unwrap();
}

/// The median of five rounds of `turns` calls, in ns a call.
fn median_ns(turns: u64, mut call: impl FnMut(u64)) -> u64 {
    (0..turns).for_each(&mut call);
    let mut round = |_| {
        let begin = clock::monotonic_ns();
        (0..turns).for_each(&mut call);
        (clock::monotonic_ns() - begin) / turns
    };
    let mut rounds = [0, 1, 2, 3, 4].map(&mut round);
    rounds.sort_unstable();
    rounds[2]
}

/// What a page costs by instructions of the processor alone, and by calls: of files that the caches
/// of the processor hold, and of one that they do not.
#[test]
#[ignore = "a measurement: cargo test --release -p dure-fs --lib -- --ignored --nocapture what_a_durable"]
fn what_a_durable_overwrite_costs() {
    for pages in [1024, 32 * 1024] {
        measure_pages(pages);
    }
}

fn measure_pages(pages: u64) {
    let page = [7; BLOCK_BYTES];
    // 7919 is prime: each page once, and none behind the one before it.
    let at = |turn: u64| turn * 7919 % pages * 4096;
    let region = Region::anonymous(usize::try_from(pages).unwrap() * BLOCK_BYTES).unwrap();
    let turns = 20_000.max(pages);
    let bare = median_ns(turns, |turn| {
        let _ = region.copy(at(turn), &page).unwrap().fence();
        let _ = region.copy(at(turn), &[]).unwrap().fence();
    });
    let mut out = [0; BLOCK_BYTES];
    let copy = median_ns(turns, |turn| region.read(at(turn), &mut out).unwrap());
    let mib = pages / 256;
    println!("{mib} MiB: copied past the cache and fenced twice {bare} ns, read {copy} ns");
    for durability in [Durability::Strict, Durability::Posix] {
        let mut world = World::in_nvm(65536);
        world.options.durability = Some(durability);
        let fs = world.mount();
        let inode = file(&fs);
        // In another order than it is read: blocks lie next to each other as they were written.
        for page_number in 0..pages {
            fs.write(&inode, page_number * 4096, &page, Stamp::Set)
                .unwrap();
        }
        let read = median_ns(turns, |turn| {
            fs.read(&inode, at(turn), &mut out, ReadMode::Bypass)
                .unwrap();
        });
        let overwrite = median_ns(turns, |turn| {
            fs.write(&inode, at(turn), &page, Stamp::Set).unwrap();
        });
        let part = median_ns(turns, |turn| {
            fs.write(&inode, at(turn), &page[..100], Stamp::Set)
                .unwrap();
        });
        let root = fs.root().unwrap();
        let new = crate::NewInode {
            mode: 0o100_644,
            ..crate::NewInode::default()
        };
        let create = median_ns(5_000, |_| {
            drop(fs.create(&root, b"new", &new).unwrap());
            fs.unlink(&root, b"new").unwrap();
        });
        println!(
            "{durability:?}: overwrite {overwrite} ns, of 100 bytes {part} ns, read {read} ns, create \
             and unlink {create} ns"
        );
    }
}
