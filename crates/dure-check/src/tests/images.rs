//! A checkpoint writes images before it commits what they hold. One that a power cut ends between
//! leaves images that never counted; a rebuild that has lost the NAT and the SIT finds them next to
//! those that did.
//!
//! Crash scenario without `rebuild::belief`: a file has mode 600; chmod 640, in memory only; a
//! checkpoint writes the image of its node, and the power fails. A mount recovers 600 and changes
//! the node no more. The tables are destroyed: the image with 640 is of the latest checkpoint.

use dure_block::crash::{CrashImages, Selection, Tear};
use dure_block::ram::RamDevice;
use dure_block::record::RecordDevice;
use dure_block::share;
use dure_fs::{FileSystem, InodeRef, NewInode, SetAttributes, SyncScope, XattrMode};
use dure_store::VolumeInfo;
use dure_store::layout::FormatOptions;
use dure_store::units::BLOCK_BYTES;
use dure_sync::Arc;

use super::aged::{self, files, mount};
use super::disk::Disk;
use crate::{CheckOptions, Data, Repair, check};

/// A volume with two nodes of inodes, both checkpointed.
fn volume() -> Arc<RamDevice> {
    let device = Arc::new(RamDevice::new("images", 4096));
    // One NAT pair has all nodes, whatever core this runs on.
    let options = FormatOptions {
        journals: Some(1),
        ..FormatOptions::default()
    };
    FileSystem::format(share(Arc::clone(&device)), &options).unwrap();
    let fs = mount(&device);
    let root = fs.root().unwrap();
    let new = NewInode {
        mode: 0o100_600,
        ..NewInode::default()
    };
    for n in 0..12 {
        let name = format!("file {n}");
        fs.create(&root, name.as_bytes(), &new).unwrap();
    }
    drop(root);
    fs.close().unwrap();
    device
}

fn file(fs: &FileSystem, n: u32) -> InodeRef {
    let root = fs.root().unwrap();
    let found = fs.lookup(&root, format!("file {n}").as_bytes());
    found.unwrap().unwrap()
}

fn chmod(fs: &FileSystem, n: u32, mode: u32) {
    let mode = SetAttributes {
        mode: Some(mode),
        ..SetAttributes::default()
    };
    fs.change_attributes(&file(fs, n), &mode).unwrap();
}

/// Changes that are synced, then some that are not, and a checkpoint. Gives every volume that a
/// power cut during the checkpoint leaves, with a word about it.
fn cut_checkpoints(synced: &dyn Fn(&FileSystem)) -> Vec<(String, Arc<RamDevice>)> {
    let device = volume();
    let base = device.snapshot();
    let record = Arc::new(RecordDevice::new(share(device)));
    let log = record.log();
    let options = aged::options();
    let fs = FileSystem::open(share(Arc::clone(&record)), options).unwrap();
    synced(&fs);
    chmod(&fs, 1, 0o640);
    chmod(&fs, 11, 0o640);
    fs.set_xattr(&file(&fs, 11), b"user.a", &[1; 3000], XattrMode::Any)
        .unwrap();
    let begun = log.step();
    fs.checkpoint_now().unwrap();
    let images = CrashImages::new(base, &log);
    let some = Selection {
        exhaustive_max: 2,
        random: 4,
        seed: 1,
        tear: Tear::None,
    };
    let mut cut = Vec::new();
    for step in begun..=images.last_step() {
        let point = images.at(step);
        for (n, choice) in point.choices(some).enumerate() {
            let image = point.image(&choice).snapshot();
            let device = Arc::new(RamDevice::from_image("cut", &image));
            cut.push((format!("cut at step {step}, choice {n}"), device));
        }
    }
    assert!(cut.len() > 10, "only {} states", cut.len());
    cut
}

/// Destroys what says where images are, and which blocks are in use.
fn lose_tables(device: &Arc<RamDevice>) {
    let info = VolumeInfo::read(share(Arc::clone(device))).unwrap();
    let disk = Disk {
        device: Arc::clone(device),
        layout: info.layout,
    };
    let pairs = [disk.layout.nat_pair(0), disk.layout.sit_pair(0)];
    for at in pairs.into_iter().flat_map(|first| [first, first + 1]) {
        disk.put(at, &[0; BLOCK_BYTES]);
    }
}

fn rebuild(device: &Arc<RamDevice>) {
    let options = CheckOptions {
        repair: Repair::Full,
        data: Data::Verify,
        threads: Some(1),
        ..CheckOptions::default()
    };
    check(share(Arc::clone(device)), &options).unwrap();
}

#[test]
fn an_image_that_never_counted_is_not_taken_for_the_newest() {
    for (at, device) in cut_checkpoints(&|_| {}) {
        let fs = mount(&device);
        let want = files(&fs);
        fs.close().unwrap();
        lose_tables(&device);
        rebuild(&device);
        assert!(files(&mount(&device)) == want, "{at}");
    }
}

/// Nobody mounts the volume before the tables are destroyed.
#[test]
fn a_rebuild_without_tables_finds_what_a_mount_would_have_recovered() {
    let synced = |fs: &FileSystem| {
        chmod(fs, 2, 0o604);
        fs.fsync(&file(fs, 2), SyncScope::All).unwrap();
    };
    for (at, device) in cut_checkpoints(&synced) {
        let copy = Arc::new(RamDevice::from_image("copy", &device.snapshot()));
        let want = files(&mount(&copy));
        lose_tables(&device);
        rebuild(&device);
        assert!(files(&mount(&device)) == want, "{at}");
    }
}
