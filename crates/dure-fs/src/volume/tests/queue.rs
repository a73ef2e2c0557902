//! The queue in front of the device.

use std::time::Duration;

use dure_block::ram::RamDevice;
use dure_block::{Device, DeviceInfo, Io, Result, share};
use dure_sync::atomic::{AtomicU32, Ordering};
use dure_sync::{Arc, thread};

use crate::{FileSystem, FormatOptions, MountOptions, NewInode, Stamp, SyncScope};

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

/// The most requests at once of four tasks that sync files of their own.
fn most_at_once(options: MountOptions) -> u32 {
    let device = Arc::new(Crowd {
        inner: RamDevice::new("crowd", 8192),
        now: AtomicU32::new(0),
        most: AtomicU32::new(0),
    });
    let volume = share(Arc::clone(&device));
    FileSystem::format(volume.clone(), &FormatOptions::default()).expect("large enough");
    let fs = FileSystem::open(volume, options).expect("a good volume mounts");
    device.most.store(0, Ordering::SeqCst);
    thread::scope(|scope| {
        for task in 0..4 {
            let fs = &fs;
            scope.spawn(move || {
                let new = NewInode {
                    mode: 0o100_644,
                    ..NewInode::default()
                };
                let root = fs.root().expect("there is one");
                let name = format!("f{task}");
                let file = fs.create(&root, name.as_bytes(), &new).expect("room");
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
fn queues_that_cannot_be_are_refused() {
    let refused = |key, value| MountOptions::default().set_policy(key, value).unwrap_err();
    for (key, value, what) in [
        ("blk.nr_requests", "0", "it is a number, 1 to 10240"),
        ("blk.nr_requests", "10241", "it is a number, 1 to 10240"),
        ("blk.hw_queues", "0", "it is a number, 1 to 1024"),
        ("blk.hw_queues", "all", "it is a number, 1 to 1024"),
    ] {
        assert_eq!(refused(key, value), format!("{key}={value}: {what}"));
    }
}
