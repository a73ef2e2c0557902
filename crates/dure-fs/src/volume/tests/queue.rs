//! The queue in front of the device.

use std::time::Duration;

use dure_block::ram::RamDevice;
use dure_block::{Device, DeviceInfo, Io, Result, share};
use dure_sync::atomic::{AtomicU32, Ordering};
use dure_sync::{Arc, thread};

use crate::{
    Background, FileSystem, FormatOptions, InodeRef, MountOptions, NewInode, ReadMode, Stamp,
    SyncScope,
};

/// Counts the requests that are in a device at once.
#[derive(Debug)]
struct Crowd {
    inner: RamDevice,
    now: AtomicU32,
    most: AtomicU32,
}

impl Device for Crowd {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn execute(&self, io: Io<'_>) -> Result<()> {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        thread::sleep(Duration::from_micros(300));
        let result = self.inner.execute(io);
        self.now.fetch_sub(1, Ordering::SeqCst);
        result
    }
}

impl Crowd {
    fn new() -> Self {
        Self {
            inner: RamDevice::new("crowd", 8192),
            now: AtomicU32::new(0),
            most: AtomicU32::new(0),
        }
    }
}

fn new_file(fs: &FileSystem, task: usize) -> InodeRef {
    let new = NewInode {
        mode: 0o100_644,
        ..NewInode::default()
    };
    let root = fs.root().expect("there is one");
    let name = format!("f{task}");
    fs.create(&root, name.as_bytes(), &new).expect("room")
}

/// The most requests at once of four tasks that sync files of their own.
fn most_at_once(options: MountOptions) -> u32 {
    let device = Arc::new(Crowd::new());
    let volume = share(Arc::clone(&device));
    FileSystem::format(volume.clone(), &FormatOptions::default()).expect("large enough");
    let fs = FileSystem::open(volume, options).expect("a good volume mounts");
    device.most.store(0, Ordering::SeqCst);
    thread::scope(|scope| {
        for task in 0..4 {
            let fs = &fs;
            scope.spawn(move || {
                let file = new_file(fs, task);
                for _ in 0..20 {
                    fs.write(&file, 0, &[1; 65536], Stamp::Set).expect("room");
                    fs.fsync(&file, SyncScope::All).expect("room");
                }
            });
        }
    });
    fs.close().expect("nothing fails");
    device.most.load(Ordering::SeqCst)
}

#[test]
fn no_more_requests_are_in_the_device_than_there_are_tags() {
    let with = |key, value| {
        let mut options = MountOptions::default();
        assert_eq!(options.set_policy(key, value), Ok(true));
        most_at_once(options)
    };
    assert_eq!(with("blk.nr_requests", "1"), 1);
    assert!(with("blk.nr_requests", "256") > 1);
    assert!(with("blk.hw_queues", "2") > 1);
}

#[test]
fn the_submit_lock_lets_one_request_be_made_at_a_time() {
    // Of reads: writes and flushes of the journal have no such lock, and a worker makes them when
    // its interval is over.
    let with = |value| {
        let mut options = MountOptions {
            background: Background::None,
            cache_bytes: 64 << 10,
            ..MountOptions::default()
        };
        assert_eq!(options.set_policy("submit_lock", value), Ok(true));
        let device = Arc::new(Crowd::new());
        let volume = share(Arc::clone(&device));
        FileSystem::format(volume.clone(), &FormatOptions::default()).expect("large enough");
        let fs = FileSystem::open(volume, options).expect("a good volume mounts");
        let files: Vec<_> = (0..4).map(|task| new_file(&fs, task)).collect();
        for file in &files {
            fs.write(file, 0, &[1; 1 << 20], Stamp::Set).expect("room");
            fs.fsync(file, SyncScope::All).expect("room");
        }
        device.most.store(0, Ordering::SeqCst);
        thread::scope(|scope| {
            for file in &files {
                let fs = &fs;
                scope.spawn(move || {
                    for page in 0..64 {
                        let mut out = [0; 4096];
                        let at = page * 37 % 256 * 4096;
                        fs.read(file, at, &mut out, ReadMode::Bypass)
                            .expect("nothing fails");
                        assert_eq!(out, [1; 4096]);
                    }
                });
            }
        });
        let most = device.most.load(Ordering::SeqCst);
        let waits = fs.activity().submit_lock;
        fs.close().expect("nothing fails");
        (most, waits)
    };
    let (most, waits) = with("none");
    assert!(most > 1 && waits.is_none());
    assert!(with("writes").0 > 1);
    let (most, waits) = with("all");
    assert_eq!(most, 1);
    let waits = waits.expect("there is such a lock");
    assert!(
        waits.waits > 0 && waits.wait_ns > 0 && waits.cpu_ns > 0,
        "{waits:?}"
    );
}

/// Without merging each block is a request; what is stored is the same.
#[test]
fn blocks_are_requests_of_their_own_without_merging() {
    let writes = |value| {
        let mut options = MountOptions::default();
        assert_eq!(options.set_policy("blk.merge", value), Ok(true));
        assert_eq!(options.set_policy("blk.poll", "hybrid"), Ok(true));
        let volume = share(RamDevice::new("merge", 8192));
        FileSystem::format(volume.clone(), &FormatOptions::default()).expect("large enough");
        let fs = FileSystem::open(volume.clone(), options).expect("a good volume mounts");
        let file = new_file(&fs, 0);
        let before = fs.0.store.region.counters().writes;
        fs.write(&file, 0, &[1; 1 << 20], Stamp::Set).expect("room");
        fs.fsync(&file, SyncScope::All).expect("room");
        let writes = fs.0.store.region.counters().writes - before;
        let mut out = vec![0; 1 << 20];
        fs.read(&file, 0, &mut out, ReadMode::Bypass)
            .expect("nothing fails");
        assert_eq!(out, [1; 1 << 20]);
        drop(file);
        fs.close().expect("nothing fails");
        writes
    };
    let (merged, alone) = (writes("on"), writes("off"));
    assert!(alone >= 256, "256 pages in {alone} requests");
    assert!(merged <= 64, "256 pages in {merged} requests");
}

#[test]
fn queues_that_cannot_be_are_refused() {
    let refused = |key, value| MountOptions::default().set_policy(key, value).unwrap_err();
    for (key, value, what) in [
        ("blk.nr_requests", "0", "it is a number, 1 to 10240"),
        ("blk.nr_requests", "10241", "it is a number, 1 to 10240"),
        ("blk.hw_queues", "0", "it is a number, 1 to 1024"),
        ("blk.hw_queues", "all", "it is a number, 1 to 1024"),
        ("blk.merge", "some", "it is on or off"),
        ("blk.poll", "never", "it is sleep or poll or hybrid"),
        ("submit_lock", "reads", "it is none or writes or all"),
    ] {
        assert_eq!(refused(key, value), format!("{key}={value}: {what}"));
    }
}
