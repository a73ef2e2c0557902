//! File data over a RAM device: against a model, over crashes, with small caches, full volumes and
//! bad devices.

mod absorbed;
mod batches;
mod crashes;
mod data_log;
mod direct;
mod direct_shared;
mod direct_two_cores;
mod errors;
mod growth;
mod journaled;
mod lost_pages;
mod misses;
mod projects;
mod quotas;
mod races;
mod random;
mod range_waits;
mod read_ahead;
mod room;
mod room_crashes;
mod rounds;
mod shared;
mod simple;
mod slow;
mod unmapped;
mod unplaced;
mod waits;

use dure_block::ram::RamDevice;
use dure_block::{Device, share};
use dure_store::layout::FormatOptions;
use dure_sync::Arc;

use crate::inode::InodeRef;
use crate::volume::Background;
use crate::volume::{FileSystem, MountOptions, PageCaching};

/// A device and how to mount it.
pub(super) struct World {
    pub(super) ram: Arc<RamDevice>,
    /// Persistent memory in its place.
    nvm: Option<Arc<dyn Device>>,
    pub(super) options: MountOptions,
}

impl World {
    /// A fresh volume of `blocks` blocks with a page and node cache of `cache_bytes` bytes.
    pub(super) fn new(blocks: u64, cache_bytes: u64) -> World {
        let ram = Arc::new(RamDevice::new("ram", blocks));
        let format = FormatOptions {
            journals: Some(2),
            ..FormatOptions::default()
        };
        FileSystem::format(share(ram.clone()), &format).expect("the device is large enough");
        let options = MountOptions {
            background: Background::None,
            cache_bytes,
            recovery_threads: Some(1),
            ..MountOptions::default()
        };
        let nvm = None;
        World { ram, nvm, options }
    }

    /// A fresh volume in persistent memory, whose files are not in memory.
    pub(super) fn in_nvm(blocks: u64) -> World {
        let mut world = World::new(blocks, 1 << 20);
        let nvm = direct::nvm_of(&world.ram);
        world.nvm = Some(nvm);
        world.options.page_cache = Some(PageCaching::None);
        world
    }

    pub(super) fn device(&self) -> Arc<dyn Device> {
        let ram = || share(self.ram.clone());
        self.nvm.clone().unwrap_or_else(ram)
    }

    pub(super) fn mount(&self) -> FileSystem {
        FileSystem::open(self.device(), self.options.clone()).expect("a good volume mounts")
    }
}

/// A regular file, made at the first call.
pub(super) fn file(fs: &FileSystem) -> InodeRef {
    nth_file(fs, 0)
}

/// The n-th regular file, made at the first call.
pub(super) fn nth_file(fs: &FileSystem, n: u64) -> InodeRef {
    let root = fs.root().expect("a root");
    let name = format!("file {n}");
    let new = crate::NewInode {
        mode: 0o100_644,
        ..crate::NewInode::default()
    };
    let found = fs.lookup(&root, name.as_bytes()).expect("readable");
    found.unwrap_or_else(|| {
        fs.create(&root, name.as_bytes(), &new)
            .expect("there is room")
    })
}

/// The whole content.
pub(super) fn content(fs: &FileSystem, inode: &InodeRef) -> Vec<u8> {
    let size = fs.size(inode).expect("a regular file");
    let mut bytes = vec![0xee; usize::try_from(size).expect("a small file") + 3];
    let len = fs
        .read(inode, 0, &mut bytes, crate::ReadMode::Cached)
        .expect("readable");
    bytes.truncate(len);
    bytes
}

/// Checks what must hold of a file in memory at any quiet moment.
pub(super) fn check(fs: &FileSystem, inode: &InodeRef) {
    use super::map::MapReader;
    // While one writes owners, they cannot be read.
    let _no_checkpoint = fs.0.store.checkpoint.lock();
    let state = inode.inode().state().read();
    let data = inode.inode().data_head();
    let mut map = MapReader::new(&fs.0.files, inode.inode());
    let mut blocks = 0;
    let mut page = 0;
    while let Some((mapped, slot)) = map.next_mapped(page, u64::MAX).expect("a map") {
        blocks += 1;
        let beyond = mapped * 4096 >= data.size.get();
        assert!(
            !beyond || slot.is_unwritten(),
            "page {mapped} is written beyond the logged size"
        );
        assert!(fs.0.store.space.owner(slot.block()).is_ok());
        page = mapped + 1;
    }
    assert_eq!(data.blocks.get(), blocks, "blocks of the record");
    assert!(state.file().size() >= data.size.get());
    assert_eq!(state.file().logged_size(), data.size.get());
    inode.inode().access_time().check(&data);
    if blocks == 0 {
        assert!(data.map_root.get() == 0 && data.map_height.get() == 0);
    }
}

/// The volume, which is not mounted, has no fault in structures and data.
pub(super) fn fsck(device: Arc<dyn Device>, what: &str) {
    use dure_check::{CheckOptions, Data, check};
    let options = CheckOptions {
        data: Data::Verify,
        ..CheckOptions::default()
    };
    let report = check(device, &options).expect("there is a volume");
    assert!(report.is_sound(), "{what}: {:#?}", report.issues());
}
