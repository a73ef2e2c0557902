//! Trimming a mounted volume: what is told to the device is free, and who needs the last blocks gets
//! them. Beside writers under many schedules: `trim` of the schedule suites.

use std::time::Duration;

use dure_block::ram::RamDevice;
use dure_block::{Device, DeviceInfo, Io, Result, share};
use dure_check::{CheckOptions, Data, check};
use dure_fs::{
    Background, Error, FileSystem, FormatOptions, InodeRef, MountOptions, NewInode, Stamp,
    SyncScope,
};
use dure_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use dure_sync::{Arc, thread};

use dure_sync::random::Seeded;

use crate::workload::step;

const PAGE: usize = 4096;

/// Counts what is discarded; takes its time for it.
#[derive(Debug)]
struct Slow {
    ram: Arc<RamDevice>,
    pause: Duration,
    discarded: AtomicU64,
    discards: AtomicBool,
}

impl Device for Slow {
    fn info(&self) -> &DeviceInfo {
        self.ram.info()
    }

    fn execute(&self, io: Io<'_>) -> Result<()> {
        if let Io::Discard { blocks, .. } = io {
            self.discards.store(true, Ordering::SeqCst);
            thread::sleep(self.pause);
            self.discarded.fetch_add(blocks, Ordering::SeqCst);
        }
        self.ram.execute(io)
    }
}

fn volume(blocks: u64, pause: Duration) -> (Arc<Slow>, FileSystem) {
    let slow = Arc::new(Slow {
        ram: Arc::new(RamDevice::new("volume", blocks)),
        pause,
        discarded: AtomicU64::new(0),
        discards: AtomicBool::new(false),
    });
    let format = FormatOptions {
        journals: Some(2),
        segment_blocks: Some(32),
        ..FormatOptions::default()
    };
    FileSystem::format(share(slow.clone()), &format).expect("room");
    let options = MountOptions {
        background: Background::None,
        log_data_pages: 0,
        recovery_threads: Some(1),
        ..MountOptions::default()
    };
    let fs = FileSystem::open(share(slow.clone()), options).expect("it mounts");
    (slow, fs)
}

fn create(fs: &FileSystem, name: &[u8]) -> InodeRef {
    let new = NewInode {
        mode: 0o100_644,
        ..NewInode::default()
    };
    fs.create(&fs.root().expect("a root"), name, &new)
        .expect("room")
}

/// Appends pages and syncs them.
fn append(fs: &FileSystem, file: &InodeRef, pages: u64) -> dure_fs::Result<usize> {
    let bytes = vec![7; usize::try_from(pages).expect("a few") * PAGE];
    let written = fs.write(file, fs.size(file)?, &bytes, Stamp::Set)?;
    fs.fsync(file, SyncScope::All)?;
    Ok(written)
}

#[test]
fn what_was_deleted_is_told_to_the_device_and_nothing_else() {
    let (slow, fs) = volume(4096, Duration::ZERO);
    let mut random = Seeded::new(3);
    let mut told = 0;
    for _ in 0..20 {
        (0..60).for_each(|_| drop(step(&fs, &mut random)));
        told += fs.trim(0..u64::MAX, 0).expect("a good device");
        // The power is cut: what was synced is there, and every page has its bytes.
        let crashed = Arc::new(RamDevice::from_image("crashed", &slow.ram.snapshot()));
        let options = CheckOptions {
            data: Data::Verify,
            ..CheckOptions::default()
        };
        let mounted = FileSystem::open(share(crashed.clone()), MountOptions::default());
        mounted
            .expect("it recovers")
            .close()
            .expect("a good device");
        let report = check(share(crashed), &options).expect("a superblock");
        assert_eq!(report.issues(), []);
    }
    assert_eq!(told, slow.discarded.load(Ordering::SeqCst) * 4096);
    assert!(told > 1 << 20, "only {told} bytes");
    // Runs that are too short, and blocks outside of what was asked for, are left alone.
    assert_eq!(fs.trim(0..u64::MAX, 1 << 20).expect("a good device"), 0);
    assert_eq!(fs.trim(0..4096, 0).expect("a good device"), 0);
    fs.close().expect("a good device");
    let refused = fs.trim(0..u64::MAX, 0);
    assert!(matches!(refused, Err(Error::ReadOnly)), "{refused:?}");
}

/// Without the gate the append finds the last blocks taken, and is refused.
#[test]
fn a_write_that_needs_the_blocks_that_are_being_trimmed_waits_for_them() {
    let (slow, fs) = volume(1024, Duration::from_millis(300));
    let file = create(&fs, b"file");
    while fs.statistics().blocks_available > 48 {
        let more = fs.statistics().blocks_available - 48;
        append(&fs, &file, more.min(64)).expect("room");
    }
    let last = fs.statistics().blocks_available;
    let trims = {
        let fs = fs.clone();
        thread::spawn("trim", move || fs.trim(0..u64::MAX, 0).map(drop))
    };
    while !slow.discards.load(Ordering::SeqCst) {
        thread::sleep(Duration::from_millis(1));
    }
    let written = append(&fs, &file, last).expect("what is available can be had");
    assert_eq!(written, usize::try_from(last).expect("a few") * PAGE);
    trims.join().expect("no panic").expect("a good device");
    fs.close().expect("a good device");
}
