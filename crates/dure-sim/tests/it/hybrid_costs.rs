//! What calls cost the disk of a volume with persistent memory: requests and flushes are counted,
//! and timed only to be printed.

#![expect(clippy::print_stdout, reason = "the counts and times are the result")]

use std::fmt;
use std::time::Duration;

use dure_block::delay::DelayDevice;
use dure_block::nvm::NvmDevice;
use dure_block::ram::RamDevice;
use dure_block::record::{Cache, Effect, LostFlushes, RecordDevice, RecordLog};
use dure_block::{Device, share};
use dure_fs::members::{Member, join};
use dure_fs::{
    Background, FileSystem, FormatOptions, MountOptions, NewInode, NodeLog, NvmRegion, PageCaching,
    Stamp, SyncScope,
};
use dure_pmem::Region;
use dure_sync::{Arc, clock};

const CALLS: u64 = 50;
const NVM_BLOCKS: u64 = 4096;
const DISK_BLOCKS: u64 = 8192;

/// Writes and flushes of the disk, and microseconds, per call.
#[derive(Debug, Clone, Copy)]
struct Cost {
    writes: u64,
    flushes: u64,
    us: u64,
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cost {
            writes,
            flushes,
            us,
        } = self;
        write!(f, "{writes} writes, {flushes} flushes, {us} us a call")
    }
}

struct Volume {
    fs: FileSystem,
    log: Arc<RecordLog>,
}

/// A disk of which a flush takes so long.
fn disk(flush: Duration, log: &Arc<RecordLog>) -> Arc<dyn Device> {
    let ram = share(RamDevice::new("disk", DISK_BLOCKS));
    let slow = share(DelayDevice::new(ram, Duration::ZERO, flush));
    let (cache, lost, log) = (Cache::Volatile, LostFlushes::None, Arc::clone(log));
    share(RecordDevice::into_log(slow, cache, lost, log))
}

fn mount(device: Arc<dyn Device>, page_cache: Option<PageCaching>) -> FileSystem {
    let options = MountOptions {
        background: Background::None,
        cache_bytes: 64 << 20,
        page_cache,
        ..MountOptions::default()
    };
    FileSystem::open(device, options).expect("it mounts")
}

/// A volume on a disk, with persistent memory if `node_log` says for what.
fn volume(node_log: Option<NodeLog>, flush: Duration) -> Volume {
    volume_with(node_log, flush, None)
}

/// The same with a page cache of this kind.
fn volume_with(
    node_log: Option<NodeLog>,
    flush: Duration,
    page_cache: Option<PageCaching>,
) -> Volume {
    let log = Arc::default();
    let disk = disk(flush, &log);
    let mut format = FormatOptions {
        journals: Some(2),
        segment_blocks: Some(64),
        ..FormatOptions::default()
    };
    let Some(node_log) = node_log else {
        FileSystem::format(disk.clone(), &format).expect("a volume can be made");
        return Volume {
            fs: mount(disk, page_cache),
            log,
        };
    };
    let bytes = usize::try_from(NVM_BLOCKS * 4096).expect("small");
    let region = Region::anonymous(bytes).expect("memory");
    let device = share(NvmDevice::in_memory("nvm", region));
    let path = "nvm".to_owned();
    format.node_log = node_log;
    format.nvm = vec![NvmRegion {
        device: device.clone(),
        path,
        node: 0,
    }];
    FileSystem::format(disk.clone(), &format).expect("a volume can be made");
    let members = [device, disk].map(|device| Member {
        device,
        path: String::new(),
    });
    let device = join(&members).expect("they belong together");
    let fs = mount(device, page_cache);
    Volume { fs, log }
}

fn counted(log: &RecordLog) -> (u64, u64) {
    let entries = log.entries();
    let count = |is: fn(&Effect) -> bool| {
        u64::try_from(entries.iter().filter(|entry| is(&entry.effect)).count()).expect("few")
    };
    let writes = count(|effect| matches!(effect, Effect::Write { .. }));
    (writes, count(|effect| *effect == Effect::Flush))
}

/// Of `CALLS` calls, on the disk.
fn cost(volume: &Volume, mut call: impl FnMut(u64)) -> Cost {
    let (writes, flushes) = counted(&volume.log);
    let begin = clock::monotonic_ns();
    (0..CALLS).for_each(&mut call);
    let us = (clock::monotonic_ns() - begin) / 1000 / CALLS;
    let after = counted(&volume.log);
    Cost {
        writes: after.0 - writes,
        flushes: after.1 - flushes,
        us,
    }
}

fn create_and_fsync(volume: &Volume) -> Cost {
    let root = volume.fs.root().expect("a root");
    cost(volume, |number| {
        let name = format!("file{number}");
        let new = NewInode {
            mode: 0o100_644,
            ..NewInode::default()
        };
        let file = volume
            .fs
            .create(&root, name.as_bytes(), &new)
            .expect("room");
        volume
            .fs
            .fsync(&file, SyncScope::All)
            .expect("it is durable");
    })
}

/// DWSL: overwrites of so many pages, each followed by an fsync.
fn overwrite_and_fsync(volume: &Volume, pages: usize) -> Cost {
    let root = volume.fs.root().expect("a root");
    let new = NewInode {
        mode: 0o100_644,
        ..NewInode::default()
    };
    let file = volume.fs.create(&root, b"overwritten", &new).expect("room");
    let write = |byte: u8| {
        let data = vec![byte; pages * 4096];
        volume.fs.write(&file, 0, &data, Stamp::Set).expect("room");
        volume
            .fs
            .fsync(&file, SyncScope::All)
            .expect("it is durable");
    };
    write(0);
    cost(volume, |number| write(u8::try_from(number).expect("few")))
}

#[test]
fn an_fsync_without_much_data_asks_nothing_of_the_disk() {
    let fast = Duration::ZERO;
    let hybrid = volume(Some(NodeLog::Nvm), fast);
    let created = create_and_fsync(&hybrid);
    assert_eq!((created.writes, created.flushes), (0, 0), "{created:?}");
    // A page each time fills the log: a checkpoint writes the last one to its block, and flushes.
    let overwritten = overwrite_and_fsync(&hybrid, 1);
    assert!(
        overwritten.writes <= 2 && overwritten.flushes <= 2,
        "{overwritten:?}"
    );
    // Eight pages are no longer logged: they are written at once and flushed once.
    let hybrid = volume(Some(NodeLog::Nvm), fast);
    let large = overwrite_and_fsync(&hybrid, 8);
    assert_eq!(large.flushes, CALLS, "{large:?}");
    for node_log in [None, Some(NodeLog::Block)] {
        let volume = volume(node_log, fast);
        let cost = create_and_fsync(&volume);
        assert_eq!(
            (cost.writes, cost.flushes),
            (CALLS, CALLS),
            "{node_log:?} {cost:?}"
        );
    }
}

#[test]
fn with_dirty_pages_in_persistent_memory_no_fsync_asks_anything_of_the_disk() {
    for pages in [1, 8, 64] {
        let nvram = Some(PageCaching::Nvram);
        let volume = volume_with(Some(NodeLog::Nvm), Duration::ZERO, nvram);
        let cost = overwrite_and_fsync(&volume, pages);
        assert_eq!((cost.writes, cost.flushes), (0, 0), "{pages} {cost:?}");
    }
}

#[test]
#[ignore = "a measurement: cargo test -p dure-sim --test it hybrid_costs -- --ignored --nocapture"]
fn times_with_a_flush_of_a_millisecond() {
    let flush = Duration::from_millis(1);
    for node_log in [None, Some(NodeLog::Block), Some(NodeLog::Nvm)] {
        for _ in 0..5 {
            let created = create_and_fsync(&volume(node_log, flush));
            let one = overwrite_and_fsync(&volume(node_log, flush), 1);
            let eight = overwrite_and_fsync(&volume(node_log, flush), 8);
            println!("{node_log:?}: create {created}; 4 KiB {one}; 32 KiB {eight}");
        }
    }
}
