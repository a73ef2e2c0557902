//! The namespace on volumes in memory: every call, every refusal, mounts in between, crashes.

mod access_times;
mod attribute_lock;
mod attributes;
mod calls;
mod cold;
mod counts;
mod crash;
mod hostile;
mod large_attributes;
mod model;
mod rename;
mod threads;
mod walk;

use std::ops::ControlFlow;

use dure_block::Device;
use dure_block::ram::RamDevice;
use dure_sync::Arc;

use crate::{
    Attributes, Background, FileKind, FileSystem, FormatOptions, InodeRef, MountOptions, NewInode,
    Result,
};

/// A volume of its own in memory.
pub(crate) struct Disk {
    device: Arc<dyn Device>,
}

impl Disk {
    pub(crate) fn new(blocks: u64) -> Disk {
        Disk::with_journals(blocks, 2)
    }

    pub(crate) fn with_journals(blocks: u64, journals: u32) -> Disk {
        let device: Box<dyn Device> = Box::new(RamDevice::new("names", blocks));
        let device: Arc<dyn Device> = Arc::from(device);
        let options = FormatOptions {
            journals: Some(journals),
            ..FormatOptions::default()
        };
        FileSystem::format(device.clone(), &options).unwrap();
        Disk { device }
    }

    pub(crate) fn mount(&self) -> FileSystem {
        FileSystem::open(self.device.clone(), options()).unwrap()
    }

    /// Unmounts and mounts again.
    pub(crate) fn remount(&self, fs: FileSystem) -> FileSystem {
        fs.close().unwrap();
        drop(fs);
        self.check();
        self.mount()
    }

    /// Unmounts, and runs the structural check.
    pub(crate) fn check(&self) {
        let report = dure_check::check(self.device.clone(), &dure_check::CheckOptions::default());
        let report = report.unwrap();
        assert!(report.issues().is_empty(), "{:#?}", report.issues());
    }
}

pub(crate) fn options() -> MountOptions {
    MountOptions {
        background: Background::None,
        cache_bytes: 64 << 20,
        recovery_threads: Some(1),
        ..MountOptions::default()
    }
}

pub(crate) fn fresh() -> (Disk, FileSystem) {
    // Segments of 2 MiB: the longest attribute fits a record.
    let disk = Disk::new(1 << 17);
    let fs = disk.mount();
    (disk, fs)
}

pub(crate) fn file() -> NewInode {
    NewInode {
        mode: FileKind::File.mode() | 0o644,
        uid: 10,
        gid: 20,
        ..NewInode::default()
    }
}

pub(crate) fn directory() -> NewInode {
    NewInode {
        mode: 0o755,
        uid: 10,
        gid: 20,
        ..NewInode::default()
    }
}

pub(crate) fn stat(fs: &FileSystem, inode: &InodeRef) -> Attributes {
    fs.attributes(inode).unwrap()
}

pub(crate) fn list(fs: &FileSystem, inode: &InodeRef) -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    fs.read_directory(inode, 0, &mut |entry| {
        names.push(entry.name.to_vec());
        ControlFlow::Continue(())
    })
    .unwrap();
    names.sort();
    names
}

pub(crate) fn errno<T>(result: Result<T>) -> i32 {
    result.err().map_or(0, |error| error.errno())
}

pub(crate) fn get(fs: &FileSystem, at: &InodeRef, name: &str) -> InodeRef {
    fs.lookup(at, name.as_bytes())
        .unwrap()
        .unwrap_or_else(|| panic!("{name} is not there"))
}
