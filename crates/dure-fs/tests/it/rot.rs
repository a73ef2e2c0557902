//! Rot: one bit of any block of the metadata area is flipped, on a volume that was unmounted and on
//! one that crashed. What is read is the newest state or an error, never an older one; and a mount
//! that is refused, or a repair that cannot prove what is free, has destroyed nothing.

use dure_block::ram::{Image, RamDevice, SharedBlock};
use dure_block::{BLOCK_BYTES, Device, Lba, share};
use dure_check::{CheckOptions, Repair, check};
use dure_fs::{
    Background, Error, FileSystem, FormatOptions, Layout, MountOptions, NewInode, ReadMode, Stamp,
    SyncScope,
};
use dure_sync::Arc;

const FILES: u64 = 40;
const ROUNDS: u8 = 3;

fn shared(device: &Arc<RamDevice>) -> Arc<dyn Device> {
    share(Arc::clone(device))
}

fn mount(device: &Arc<RamDevice>) -> Result<FileSystem, Error> {
    let options = MountOptions {
        background: Background::None,
        cache_bytes: 4 << 20,
        recovery_threads: Some(1),
        ..MountOptions::default()
    };
    FileSystem::open(shared(device), options)
}

/// What a file holds after round `round`.
fn content(file: u64, round: u8) -> Vec<u8> {
    let mut page = vec![round; BLOCK_BYTES];
    page[..8].copy_from_slice(&file.to_le_bytes());
    page
}

/// Files overwritten and synced, with a clean unmount after each round but the last, so that both
/// slots of the tables in use hold valid states.
fn volume(clean: bool) -> (Layout, Image) {
    let device = Arc::new(RamDevice::new("rot", 2048));
    let options = FormatOptions {
        journals: Some(2),
        segment_blocks: Some(32),
        ..FormatOptions::default()
    };
    let layout = FileSystem::format(shared(&device), &options).expect("room");
    for round in 1..=ROUNDS {
        let fs = mount(&device).expect("a good volume");
        let root = fs.root().expect("a root");
        for file in 0..FILES {
            let name = format!("file {file}");
            let found = fs.lookup(&root, name.as_bytes()).expect("a lookup");
            let inode = found.unwrap_or_else(|| {
                let new = NewInode {
                    mode: 0o100_600,
                    ..NewInode::default()
                };
                fs.create(&root, name.as_bytes(), &new).expect("room")
            });
            fs.write(&inode, 0, &content(file, round), Stamp::Set)
                .expect("room");
            fs.fsync(&inode, SyncScope::All).expect("a good device");
        }
        if clean || round < ROUNDS {
            fs.close().expect("a good device");
        }
    }
    (layout, device.snapshot())
}

/// Reads all files: each has its newest content, or says that the volume is corrupt. Gives how many
/// did.
fn corrupt_files(fs: &FileSystem, at: u64) -> u64 {
    let mut corrupt = 0;
    for file in 0..FILES {
        let name = format!("file {file}");
        let mut page = vec![0; BLOCK_BYTES];
        let read = fs.root().and_then(|root| {
            let inode = fs.lookup(&root, name.as_bytes())?.ok_or(Error::NotFound)?;
            fs.read(&inode, 0, &mut page, ReadMode::Cached)
        });
        match read {
            Ok(BLOCK_BYTES) => assert_eq!(page, content(file, ROUNDS), "{name}, block {at}"),
            Err(Error::Corrupt { .. }) => corrupt += 1,
            other => panic!("{name}, block {at}: {other:?}"),
        }
    }
    corrupt
}

/// Mounts with block `at` rotten: refused, with nothing changed, or the newest state. Gives whether
/// anything was said.
fn try_rotten(rotten: &Image, at: u64) -> bool {
    let device = Arc::new(RamDevice::from_image("rotten", rotten));
    match mount(&device) {
        Ok(fs) => corrupt_files(&fs, at) > 0,
        Err(error) => {
            assert_eq!(error.errno(), libc::EIO, "block {at}: {error}");
            assert_eq!(
                device.snapshot().first_difference(rotten),
                None,
                "block {at}"
            );
            true
        }
    }
}

/// The check and its repair with block `at` rotten, and what a mount shows then. Gives whether the
/// check said anything.
fn try_repair(rotten: &Image, at: u64) -> bool {
    let device = Arc::new(RamDevice::from_image("rotten", rotten));
    let report = check(shared(&device), &CheckOptions::default()).expect("a superblock");
    let options = CheckOptions {
        repair: Repair::Safe,
        ..CheckOptions::default()
    };
    check(shared(&device), &options).expect("a superblock");
    if let Ok(fs) = mount(&device) {
        corrupt_files(&fs, at);
    }
    !report.is_spotless()
}

fn flip_everywhere(clean: bool) {
    let (layout, image) = volume(clean);
    let mut said = 0;
    for at in layout.volume_header..layout.main {
        let Some(block) = image.get(Lba::new(at)) else {
            continue;
        };
        let mut bytes = block.bytes().to_vec();
        let bit = usize::try_from(at).expect("small") * 7919 % (8 * BLOCK_BYTES);
        bytes[bit / 8] ^= 1 << (bit % 8);
        let mut rotten = image.clone();
        rotten.set(Lba::new(at), SharedBlock::new(&bytes));
        let mount_said = try_rotten(&rotten, at);
        said += u32::from(mount_said);
        if clean {
            let check_said = try_repair(&rotten, at);
            assert!(
                check_said || !mount_said,
                "block {at}: the check calls it sound"
            );
        }
    }
    assert!(said >= 2, "a NAT pair and a SIT pair at least: {said}");
}

#[test]
fn no_rotten_bit_of_a_table_brings_an_old_state_back() {
    flip_everywhere(true);
}

#[test]
fn no_rotten_bit_of_a_table_is_recovered_from() {
    flip_everywhere(false);
}
