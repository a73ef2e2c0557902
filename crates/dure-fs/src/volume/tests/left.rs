//! What a volume leaves in memory: nothing.

use dure_block::Device;
use dure_block::ram::RamDevice;
use dure_sync::sim::{Config, Rng, seeds, try_run};
use dure_sync::{Arc, CoreId, thread};

use crate::{
    Background, FileKind, FileSystem, FormatOptions, InodeRef, MountOptions, NewInode, Stamp,
};

/// What cores do with a few names that they share.
fn use_names(fs: &FileSystem, core: u16, seed: u64) {
    let new = NewInode {
        mode: 0o100_644,
        ..NewInode::default()
    };
    let root = fs.root().unwrap();
    let mut random = Rng::new(seed ^ u64::from(core) << 32);
    let mut open = None;
    for _ in 0..24 {
        let name = [b'a' + u8::try_from(random.index(3)).unwrap()];
        match random.index(6) {
            0 => drop(fs.create(&root, &name, &new)),
            1 => drop(fs.unlink(&root, &name)),
            2 => drop(fs.mkdir(&root, &name, &new)),
            3 => drop(fs.rmdir(&root, &name)),
            4 => {
                if let Some(file) = open.filter(|file: &InodeRef| file.kind() == FileKind::File) {
                    fs.write(&file, 0, b"data", Stamp::Set).unwrap();
                }
                open = None;
            }
            _ => open = fs.lookup(&root, &name).unwrap(),
        }
    }
}

/// Nodes and inodes that count per core do not keep themselves when the volume has gone.
#[test]
fn sim_nothing_of_a_volume_is_left_in_memory() {
    for seed in seeds(60) {
        let done = try_run(Config::random(3, seed), move || {
            let ram = RamDevice::new("ram", 1024);
            let device: Arc<dyn Device> = dure_block::share(Arc::new(ram));
            let format = FormatOptions {
                journals: Some(2),
                segment_blocks: Some(32),
                ..FormatOptions::default()
            };
            FileSystem::format(device.clone(), &format).unwrap();
            let options = MountOptions {
                background: Background::None,
                cache_bytes: 2 << 20,
                recovery_threads: Some(1),
                ..MountOptions::default()
            };
            let fs = FileSystem::open(device, options).unwrap();
            thread::scope(|scope| {
                for core in 0..3 {
                    let fs = &fs;
                    scope.spawn_on(CoreId::new(core), move || use_names(fs, core, seed));
                }
            });
            let nodes = fs.0.store.nodes.in_memory();
            let pins = fs.0.inodes.cache.collect(|_| true);
            let inodes: Vec<_> = pins.iter().map(|pin| Arc::downgrade(pin.inode())).collect();
            drop(pins);
            assert!(!nodes.is_empty() && !inodes.is_empty());
            if seed % 2 == 0 {
                fs.close().unwrap();
            }
            drop(fs);
            assert!(inodes.iter().all(|inode| inode.upgrade().is_none()));
            assert!(nodes.iter().all(|node| node.upgrade().is_none()));
        });
        if let Err(failure) = done {
            panic!("{failure}");
        }
    }
}
