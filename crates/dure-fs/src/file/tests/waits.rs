//! Which calls would wait, of a task that serves others.

use dure_block::{Device, DeviceInfo, Io, share};
use dure_sync::Arc;

use super::{World, file};
use crate::volume::FileSystem;
use crate::{Stamp, SyncScope};

/// A device that is no memory.
#[derive(Debug)]
struct Disk {
    info: DeviceInfo,
    below: Arc<dyn Device>,
}

impl Device for Disk {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn execute(&self, io: Io<'_>) -> dure_block::Result<()> {
        self.below.execute(io)
    }
}

#[test]
fn an_fsync_waits_for_a_disk_and_in_memory_for_many_pages() {
    let world = World::new(8192, 8 << 20);
    let fs = world.mount();
    let inode = file(&fs);
    assert!(!fs.fsync_waits(&inode));
    fs.write(&inode, 0, &[7; 8 << 12], Stamp::Set).unwrap();
    assert!(!fs.fsync_waits(&inode));
    fs.write(&inode, 8 << 12, b"a ninth", Stamp::Set).unwrap();
    assert!(fs.fsync_waits(&inode));
    assert!(!fs.fsync_waits(&fs.root().unwrap()), "names are few bytes");
    fs.fsync(&inode, SyncScope::All).unwrap();
    assert!(!fs.fsync_waits(&inode));
    fs.close().unwrap();

    let below = world.device();
    let info = DeviceInfo {
        in_memory: false,
        ..below.info().clone()
    };
    let disk = share(Disk { info, below });
    let fs = FileSystem::open(disk, world.options).unwrap();
    assert!(fs.fsync_waits(&file(&fs)) && fs.fsync_waits(&fs.root().unwrap()));
}
