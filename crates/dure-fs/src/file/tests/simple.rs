use super::{World, check, content, file};
use crate::file::map::FILE_BYTES_MAX;
use crate::{AllocateMode, Error, Extents, ReadMode, SeekTarget, Stamp, SyncScope};

fn pattern(len: usize, seed: u64) -> Vec<u8> {
    (0..len as u64)
        .map(|n| (n.wrapping_mul(seed * 2 + 1) >> 3).to_le_bytes()[0] | 1)
        .collect()
}

#[test]
fn what_was_synced_is_read_after_a_crash() {
    let world = World::new(8192, 8 << 20);
    let data = pattern(700_001, 3);
    {
        let fs = world.mount();
        let inode = file(&fs);
        assert_eq!(fs.write(&inode, 5, &data, Stamp::Set).unwrap(), data.len());
        fs.fsync(&inode, SyncScope::All).unwrap();
        check(&fs, &inode);
        assert_eq!(fs.write(&inode, 0, b"lost", Stamp::Set).unwrap(), 4);
    }
    let fs = world.mount();
    let inode = file(&fs);
    let mut want = vec![0; 5];
    want.extend(&data);
    assert_eq!(content(&fs, &inode), want);
    check(&fs, &inode);
    fs.close().unwrap();
    let fs = world.mount();
    assert_eq!(content(&fs, &file(&fs)), want);
}

#[test]
fn reads_past_the_cache_see_dirty_pages_and_the_device() {
    let world = World::new(8192, 8 << 20);
    let fs = world.mount();
    let inode = file(&fs);
    let mut data = pattern(40 * 4096, 7);
    fs.write(&inode, 0, &data, Stamp::Set).unwrap();
    fs.fsync(&inode, SyncScope::Data).unwrap();
    drop(fs);
    let fs = world.mount();
    let inode = file(&fs);
    fs.write(&inode, 9 * 4096 + 7, b"dirty", Stamp::Set)
        .unwrap();
    data[9 * 4096 + 7..][..5].copy_from_slice(b"dirty");
    for (offset, len) in [
        (0, 40 * 4096),
        (1, 100),
        (4096, 4096),
        (3 * 4096 + 5, 30 * 4096),
        (163_000, 4096),
    ] {
        let mut buf = vec![0; len];
        let got = fs
            .read(&inode, offset as u64, &mut buf, ReadMode::Bypass)
            .unwrap();
        assert_eq!(got, len.min(data.len() - offset));
        assert_eq!(buf[..got], data[offset..offset + got]);
    }
    assert_eq!(
        inode.inode().state().read().file().pages.present(),
        1,
        "nothing was kept"
    );
    assert!(fs.0.files.pages.counters.bypassed.sum() > 40);
}

#[test]
fn sequential_reads_read_ahead() {
    let world = World::new(8192, 8 << 20);
    {
        let fs = world.mount();
        let inode = file(&fs);
        fs.write(&inode, 0, &pattern(64 * 4096, 1), Stamp::Set)
            .unwrap();
        fs.close().unwrap();
    }
    let fs = world.mount();
    let inode = file(&fs);
    let before = fs.0.store.region.counters();
    for page in 0..64 {
        let mut buf = [0; 4096];
        assert_eq!(
            fs.read(&inode, page * 4096, &mut buf, ReadMode::Cached)
                .unwrap(),
            4096
        );
    }
    let reads = fs.0.store.region.counters().reads - before.reads;
    assert!(reads < 12, "{reads} device reads for 64 pages in order");
    assert_eq!(fs.0.files.pages.counters.loaded.sum(), 64);
}

#[test]
fn a_shorter_file_has_zeroes_when_it_grows_again() {
    for (first, cut) in [
        (10_000, 5_000),
        (10_000, 4096),
        (3_000_000, 100_001),
        (200_000, 0),
        (5000, 4999),
    ] {
        let world = World::new(8192, 8 << 20);
        let fs = world.mount();
        let inode = file(&fs);
        let data = pattern(first, 5);
        fs.write(&inode, 0, &data, Stamp::Set).unwrap();
        fs.fsync(&inode, SyncScope::All).unwrap();
        fs.0.files.truncate(&inode, cut as u64).unwrap();
        check(&fs, &inode);
        fs.0.files.truncate(&inode, first as u64).unwrap();
        let mut want = data[..cut].to_vec();
        want.resize(first, 0);
        assert_eq!(content(&fs, &inode), want);
        fs.fsync(&inode, SyncScope::All).unwrap();
        drop(fs);
        let fs = world.mount();
        assert_eq!(content(&fs, &file(&fs)), want, "cut at {cut}");
        check(&fs, &file(&fs));
    }
}

#[test]
fn a_sparse_file_reaches_the_greatest_offset() {
    let world = World::new(8192, 8 << 20);
    let fs = world.mount();
    let inode = file(&fs);
    let offsets = [
        0,
        24 * 4096,
        344 * 4096,
        1 << 30,
        1 << 36,
        1 << 40,
        FILE_BYTES_MAX - 1,
    ];
    for &offset in offsets.iter().rev() {
        fs.write(&inode, offset, b"x", Stamp::Set).unwrap();
        fs.fsync(&inode, SyncScope::All).unwrap();
        check(&fs, &inode);
    }
    drop(fs);
    let fs = world.mount();
    let inode = file(&fs);
    check(&fs, &inode);
    let mut at = 0;
    for &offset in &offsets {
        let start = offset - offset % 4096;
        assert_eq!(
            fs.seek(&inode, at, SeekTarget::Data).unwrap(),
            Some(start.max(at))
        );
        let hole = fs.seek(&inode, start, SeekTarget::Hole).unwrap();
        at = (start + 4096).min(FILE_BYTES_MAX);
        assert_eq!(hole, Some(at));
        let mut byte = [0];
        assert_eq!(
            fs.read(&inode, offset, &mut byte, ReadMode::Cached)
                .unwrap(),
            1
        );
        assert_eq!(&byte, b"x");
    }
    assert!(matches!(
        fs.write(&inode, FILE_BYTES_MAX, b"x", Stamp::Set),
        Err(Error::TooLarge)
    ));
    assert_eq!(
        fs.write(&inode, FILE_BYTES_MAX - 1, b"yz", Stamp::Set)
            .unwrap(),
        1
    );
    let free = fs.0.store.space.statistics().available;
    fs.0.files.truncate(&inode, 1).unwrap();
    check(&fs, &inode);
    assert_eq!(inode.inode().data_head().blocks.get(), 1);
    fs.0.store.checkpoint().unwrap();
    assert!(fs.0.store.space.statistics().available > free);
}

/// `tar -S` takes a file without blocks for a hole.
#[test]
fn pages_that_wait_for_write_back_are_counted() {
    let world = World::new(8192, 8 << 20);
    let fs = world.mount();
    let inode = file(&fs);
    // Asked twice: the second answer may come from the table that needs no lock.
    let blocks = |want: u64| {
        for _ in 0..3 {
            assert_eq!(fs.attributes(&inode).unwrap().blocks, want * 8);
        }
    };
    blocks(0);
    fs.write(&inode, 0, &[1; 10 * 4096 - 7], Stamp::Keep)
        .unwrap();
    blocks(10);
    fs.write(&inode, 20 << 12, &[1; 1], Stamp::Keep).unwrap();
    blocks(11);
    fs.fsync(&inode, SyncScope::All).unwrap();
    blocks(11);
    fs.write(&inode, 0, &[2; 10 * 4096], Stamp::Keep).unwrap();
    blocks(11);
    fs.0.files.write_back_all().unwrap();
    fs.write(&inode, 0, &[3; 30 * 4096], Stamp::Keep).unwrap();
    blocks(30);
    fs.fsync(&inode, SyncScope::All).unwrap();
    fs.write(&inode, 0, &[4; 30 * 4096], Stamp::Keep).unwrap();
    blocks(30);
    fs.0.files.truncate(&inode, 4096).unwrap();
    blocks(1);
}

#[test]
fn preallocated_blocks_are_filled_in_place() {
    let world = World::new(8192, 8 << 20);
    let fs = world.mount();
    let inode = file(&fs);
    fs.allocate(&inode, AllocateMode::KeepSize, 0, 3 << 20)
        .unwrap();
    check(&fs, &inode);
    assert_eq!(inode.inode().data_head().blocks.get(), 768);
    assert_eq!(content(&fs, &inode), b"");
    fs.allocate(&inode, AllocateMode::Extend, 0, 3 << 20)
        .unwrap();
    assert_eq!(content(&fs, &inode), vec![0; 3 << 20]);
    assert_eq!(
        fs.seek(&inode, 0, SeekTarget::Data).unwrap(),
        None,
        "nothing was written"
    );
    fs.0.store.commit_all().unwrap();
    let before = fs.0.store.space.statistics().available;
    fs.write(&inode, 1 << 20, &[7; 1 << 20], Stamp::Set)
        .unwrap();
    fs.fsync(&inode, SyncScope::All).unwrap();
    assert_eq!(inode.inode().data_head().blocks.get(), 768);
    let after = fs.0.store.space.statistics().available;
    assert!(
        before - after < 8,
        "{before} -> {after}: data went into its own blocks"
    );
    assert_eq!(fs.seek(&inode, 5, SeekTarget::Data).unwrap(), Some(1 << 20));
    assert_eq!(
        fs.seek(&inode, 1 << 20, SeekTarget::Hole).unwrap(),
        Some(2 << 20)
    );
    drop(fs);
    let fs = world.mount();
    let mut want = vec![0; 3 << 20];
    want[1 << 20..2 << 20].fill(7);
    assert_eq!(content(&fs, &file(&fs)), want);
    fs.0.files.truncate(&file(&fs), 3 << 20).unwrap();
    fs.allocate(&file(&fs), AllocateMode::Punch, 0, 3 << 20)
        .unwrap();
    check(&fs, &file(&fs));
    assert_eq!(file(&fs).inode().data_head().blocks.get(), 0);
}

#[test]
fn a_truncate_to_the_size_of_the_file_frees_what_lies_behind() {
    let world = World::new(8192, 8 << 20);
    let fs = world.mount();
    let inode = file(&fs);
    fs.write(&inode, 0, &[7; 5000], Stamp::Set).unwrap();
    fs.fsync(&inode, SyncScope::All).unwrap();
    let blocks = || inode.inode().data_head().blocks.get();
    let ctime = || fs.attributes(&inode).unwrap().ctime;
    let tick = || {
        let now = ctime();
        while fs.0.store.now() == now {
            dure_sync::thread::yield_now();
        }
        now
    };
    // Clean and not listed, listed, and with something behind the end in both ways.
    for prealloc in [false, false, true, false] {
        if prealloc {
            fs.allocate(&inode, AllocateMode::KeepSize, 4096, 1 << 20)
                .unwrap();
            assert_eq!(blocks(), 257);
        }
        let before = tick();
        fs.0.files.truncate(&inode, 5000).unwrap();
        assert_ne!(ctime(), before, "a truncate marks the file");
        assert_eq!(blocks(), 2);
        check(&fs, &inode);
    }
    let last = tick();
    fs.0.files.truncate(&inode, 5000).unwrap();
    let marked = ctime();
    assert_ne!(marked, last);
    fs.fsync(&inode, SyncScope::All).unwrap();
    drop(inode);
    drop(fs);
    let fs = world.mount();
    assert_eq!(fs.attributes(&file(&fs)).unwrap().ctime, marked);
    let mut want = vec![7; 5000];
    assert_eq!(content(&fs, &file(&fs)), want);
    want.resize(9000, 0);
    fs.0.files.truncate(&file(&fs), 9000).unwrap();
    assert_eq!(content(&fs, &file(&fs)), want);
}

#[test]
fn a_read_before_a_write_back_of_pages_keeps_its_time() {
    let world = World::new(8192, 8 << 20);
    let fs = world.mount();
    let inode = file(&fs);
    fs.write(&inode, 0, &[7; 5000], Stamp::Set).unwrap();
    fs.fsync(&inode, SyncScope::All).unwrap();
    let made = fs.attributes(&inode).unwrap();
    while fs.0.store.now() == made.mtime {
        dure_sync::thread::yield_now();
    }
    fs.read(&inode, 0, &mut [0; 100], ReadMode::Cached).unwrap();
    let read = fs.attributes(&inode).unwrap().atime;
    assert_ne!(read, made.atime);
    fs.write(&inode, 0, &[8; 100], Stamp::Set).unwrap();
    fs.fsync(&inode, SyncScope::All).unwrap();
    assert_eq!(fs.attributes(&inode).unwrap().atime, read);
    drop(inode);
    drop(fs);
    let fs = world.mount();
    assert_eq!(fs.attributes(&file(&fs)).unwrap().atime, read);
}

#[test]
fn times_alone_do_not_make_a_data_sync_write() {
    let world = World::new(8192, 8 << 20);
    let fs = world.mount();
    let inode = file(&fs);
    fs.write(&inode, 0, b"content", Stamp::Set).unwrap();
    fs.fsync(&inode, SyncScope::All).unwrap();
    inode.inode().state().write().file_mut().stamp(
        Stamp::Set,
        dure_store::format::inode::Time {
            secs: 5.into(),
            nanos: 1.into(),
        },
    );
    let before = fs.0.store.region.counters();
    fs.fsync(&inode, SyncScope::Data).unwrap();
    let after = fs.0.store.region.counters();
    assert_eq!(
        (before.writes, before.flush_requests),
        (after.writes, after.flush_requests)
    );
    fs.fsync(&inode, SyncScope::All).unwrap();
    assert_eq!(
        fs.0.store.region.counters().flush_requests,
        after.flush_requests + 1
    );
    assert_eq!(inode.inode().data_head().mtime.secs.get(), 5);
}

#[test]
fn an_overwrite_and_fsync_is_one_write_and_one_flush() {
    count_writes_of_a_sync(4, 1);
}

#[test]
fn an_overwrite_and_fsync_past_the_log_is_two_writes_and_one_flush() {
    count_writes_of_a_sync(0, 2);
}

fn count_writes_of_a_sync(log_data_pages: u32, writes: u64) {
    let mut world = World::new(8192, 8 << 20);
    world.options.log_data_pages = log_data_pages;
    let fs = world.mount();
    let inode = file(&fs);
    fs.write(&inode, 0, &[1; 4096], Stamp::Set).unwrap();
    fs.fsync(&inode, SyncScope::All).unwrap();
    let mut exact = 0;
    for n in 0..50 {
        let checkpoints = fs.0.store.counters.checkpoints.sum();
        let before = fs.0.store.region.counters();
        fs.write(&inode, 0, &[n; 4096], Stamp::Set).unwrap();
        fs.fsync(&inode, SyncScope::All).unwrap();
        let after = fs.0.store.region.counters();
        if fs.0.store.counters.checkpoints.sum() > checkpoints {
            continue; // the small log was full
        }
        exact += 1;
        assert_eq!(after.writes - before.writes, writes);
        assert_eq!(after.flush_requests - before.flush_requests, 1);
        assert_eq!(after.blocks_written - before.blocks_written, 2);
    }
    assert!(exact > 40, "{exact} of 50");
}

#[test]
fn appends_of_many_threads_neither_mix_nor_get_lost() {
    let world = World::new(16384, 4 << 20);
    let fs = world.mount();
    let inode = file(&fs);
    dure_sync::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let (fs, inode) = (&fs, &inode);
            scope.spawn(move || {
                for _ in 0..100 {
                    let (at, len) = fs.append(inode, &[thread + 1; 5001]).unwrap();
                    assert_eq!((at % 5001, len), (0, 5001));
                }
            });
        }
    });
    let bytes = content(&fs, &inode);
    assert_eq!(bytes.len(), 400 * 5001);
    assert!(
        bytes
            .chunks(5001)
            .all(|record| record.iter().all(|&byte| byte == record[0]))
    );
    for thread in 1..=4 {
        assert_eq!(
            bytes.iter().filter(|&&byte| byte == thread).count(),
            100 * 5001
        );
    }
}

#[test]
fn extents_are_runs_of_neighbouring_blocks() {
    let world = World::new(8192, 8 << 20);
    let fs = world.mount();
    let inode = file(&fs);
    assert_eq!(fs.extents(&inode).unwrap(), Extents::default());
    fs.write(&inode, 0, &[1; 5 * 4096], Stamp::Set).unwrap();
    fs.write(&inode, 40 * 4096, &[2; 4096], Stamp::Set).unwrap();
    fs.sync().unwrap();
    let extents = fs.extents(&inode).unwrap();
    assert_eq!(extents.blocks, 6);
    assert!((2..=3).contains(&extents.runs), "{extents:?}");
    // Every second page goes elsewhere.
    for page in [1, 3] {
        fs.write(&inode, page * 4096, &[3; 4096], Stamp::Set)
            .unwrap();
        fs.fsync(&inode, SyncScope::All).unwrap();
    }
    let extents = fs.extents(&inode).unwrap();
    assert_eq!(extents.blocks, 6);
    assert!((4..=6).contains(&extents.runs), "{extents:?}");
    assert!(matches!(
        fs.extents(&fs.root().unwrap()),
        Err(Error::IsDirectory)
    ));
}
