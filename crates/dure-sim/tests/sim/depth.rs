//! Many readers of one file on a drive that serves many requests at once: how many are under way is
//! in the time that they take.
//!
//! Runs with the sim backend only: `cargo xtask sim -p dure-sim -- sim_depth`. Time is simulated:
//! the drive's and that of moved cache lines, and no instruction takes any.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests print what they have seen"
)]

use dure_block::delay::{DelayDevice, Model};
use dure_block::ram::RamDevice;
use dure_block::share;
use dure_fs::{
    Begun, FileSystem, FormatOptions, InodeRef, MountOptions, NewInode, ReadMode, Stamp,
};
use dure_sync::atomic::{AtomicU32, Ordering};
use dure_sync::sim::{Config, run};
use dure_sync::{Arc, CoreId, clock, thread};

const PAGE: usize = 4096;
/// Time of a request, and requests that the drive serves at once.
const REQUEST_NS: u64 = 80_000;
const AT_ONCE: u64 = 128;
/// Reads of each reader.
const READS: u64 = 24;
/// Reads of each before.
const WARM_UP: u64 = 8;
const FILE_PAGES: u64 = 8192;

/// A volume for so many cores with a file, of which nothing is in memory, on such a drive.
fn cold(cores: u16) -> (FileSystem, InodeRef) {
    let blocks = 2 * FILE_PAGES + u64::from(cores) * 16 * 32;
    let ram = Arc::new(RamDevice::new("drive", blocks));
    let format = FormatOptions {
        journals: Some(cores.into()),
        segment_blocks: Some(32),
        ..FormatOptions::default()
    };
    FileSystem::format(share(Arc::clone(&ram)), &format).unwrap();
    let options = MountOptions {
        background: dure_fs::Background::None,
        cache_bytes: 128 << 20,
        ..MountOptions::default()
    };
    let fs = FileSystem::open(share(Arc::clone(&ram)), options.clone()).unwrap();
    let new = NewInode {
        mode: 0o100_644,
        ..NewInode::default()
    };
    let file = fs.create(&fs.root().unwrap(), b"file", &new).unwrap();
    for page in 0..FILE_PAGES {
        let bytes = page.to_le_bytes().repeat(PAGE / 8);
        fs.write(&file, page * 4096, &bytes, Stamp::Set).unwrap();
    }
    drop(file);
    fs.close().unwrap();
    drop(fs);
    let model = Model::of_drive("nvme").unwrap();
    let drive = DelayDevice::with_model(share(ram), model);
    let fs = FileSystem::open(share(drive), options).unwrap();
    let file = fs.lookup(&fs.root().unwrap(), b"file").unwrap().unwrap();
    // The leaves of the map are read.
    for page in (0..FILE_PAGES).step_by(64) {
        read(&fs, &file, page + 63);
    }
    (fs, file)
}

fn read(fs: &FileSystem, file: &InodeRef, page: u64) {
    let mut bytes = [0; PAGE];
    let len = fs.read(file, page * 4096, &mut bytes, ReadMode::Cached);
    assert_eq!(len.unwrap(), PAGE);
    assert_eq!(bytes[..8], page.to_le_bytes());
}

/// A page that no reader reads twice, far from those before it, and not at the beginning of the
/// file, which reads more.
fn page_of(reader: u64, n: u64, readers: u64) -> u64 {
    let number = n * readers + reader;
    // Of 64 pages the last ones were read before. 61 and 7620 have no common factor.
    let place = number * 61 % ((FILE_PAGES / 64 - 1) * 60);
    64 + place / 60 * 64 + place % 60
}

fn assert_rate(what: &str, reads: u64, ns: u64, depth: u64) {
    let possible_ns = reads * REQUEST_NS / depth.min(AT_ONCE);
    let percent = possible_ns * 100 / ns;
    println!("{what}: {reads} reads in {ns} ns, {percent} % of what the drive can do");
    assert!(percent >= 95, "{what}: {percent} %");
}

fn readers(count: u16) {
    let body = move || {
        let (fs, file) = cold(count);
        let (ready, begun) = (AtomicU32::new(0), AtomicU32::new(0));
        let start = thread::scope(|scope| {
            for core in 0..count {
                let (fs, file, ready, begun) = (&fs, &file, &ready, &begun);
                scope.spawn_on(CoreId::new(core), move || {
                    let read = |n| read(fs, file, page_of(core.into(), n, count.into()));
                    // The inode lock learns that cores share the file.
                    (0..WARM_UP).for_each(read);
                    ready.fetch_add(1, Ordering::AcqRel);
                    while begun.load(Ordering::Acquire) == 0 {
                        thread::yield_now();
                    }
                    (WARM_UP..WARM_UP + READS).for_each(read);
                });
            }
            while ready.load(Ordering::Acquire) < count.into() {
                thread::yield_now();
            }
            let start = clock::monotonic_ns();
            begun.store(1, Ordering::Release);
            start
        });
        let ns = clock::monotonic_ns() - start;
        let reads = u64::from(count) * READS;
        assert_rate(&format!("{count} readers"), reads, ns, count.into());
    };
    run(Config::min_clock(usize::from(count) + 1), body);
}

#[test]
fn sim_depth_64_readers_of_one_file_have_64_requests_under_way() {
    readers(64);
}

#[test]
fn sim_depth_192_readers_of_one_file_keep_the_drive_full() {
    readers(192);
}

/// One task has as many under way as it wants.
#[test]
fn sim_depth_one_thread_has_32_reads_under_way() {
    run(Config::min_clock(1), || {
        let (fs, file) = cold(4);
        let (depth, reads) = (32, 32 * READS);
        let mut under_way = std::collections::VecDeque::new();
        let start = clock::monotonic_ns();
        for n in 0..reads + depth {
            if n >= depth {
                let (page, begun, mut bytes): (u64, _, Vec<u8>) = under_way.pop_front().unwrap();
                let len = fs.end_read(&file, begun, page * 4096, &mut bytes).unwrap();
                assert_eq!(len, PAGE);
                assert_eq!(bytes[..8], page.to_le_bytes());
            }
            if n < reads {
                let (page, mut bytes) = (page_of(0, n, 1), vec![0; PAGE]);
                match fs.begin_read(&file, page * 4096, &mut bytes).unwrap() {
                    Begun::UnderWay(read, begun) => {
                        under_way.push_back((page, (read, begun), bytes));
                    }
                    Begun::Read(_) => panic!("page {page} is in memory"),
                }
            }
        }
        let ns = clock::monotonic_ns() - start;
        assert_rate("one thread", reads, ns, depth);
    });
}
