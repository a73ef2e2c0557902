//! Directories that are listed with the attributes of all entries, with nothing in memory.

use dure_block::fault::{Fault, FaultDevice, Rule, When};
use dure_block::{Lba, Op, OsError, share};
use dure_sync::Arc;

use super::{Disk, directory, file, get, list, options};
use crate::{FileSystem, InodeRef};

const FILES: usize = 1000;

/// A directory of many files on a device that is not memory, of which nothing is in memory.
fn cold() -> (Arc<FaultDevice>, FileSystem, InodeRef) {
    let disk = Disk::new(1 << 15);
    let fs = disk.mount();
    let dir = fs.mkdir(&fs.root().unwrap(), b"d", &directory()).unwrap();
    for n in 0..FILES {
        let name = format!("name-{n}");
        fs.create(&dir, name.as_bytes(), &file()).unwrap();
    }
    drop(dir);
    fs.close().unwrap();
    drop(fs);
    let device = Arc::new(FaultDevice::new(disk.device.clone()));
    let fs = FileSystem::open(share(device.clone()), options()).unwrap();
    let dir = get(&fs, &fs.root().unwrap(), "d");
    (device, fs, dir)
}

fn attributes_of_all(fs: &FileSystem, dir: &InodeRef) -> usize {
    let names = list(fs, dir);
    let found = names.iter().filter(|name| {
        let inode = fs.lookup(dir, name);
        inode.is_ok_and(|inode| fs.attributes(&inode.unwrap()).is_ok())
    });
    found.count()
}

#[test]
fn a_cold_listing_with_attributes_takes_few_requests() {
    let (_device, fs, dir) = cold();
    let before = fs.0.store.region.counters().reads;
    assert_eq!(attributes_of_all(&fs, &dir), FILES);
    let requests = fs.0.store.region.counters().reads - before;
    // Some 140 nodes, of which 64 are submitted together, each run of blocks in one request.
    assert!(requests <= 110, "{requests} requests");
    fs.close().unwrap();
}

#[test]
fn names_alone_read_no_inode() {
    let (_device, fs, dir) = cold();
    let before = fs.0.store.region.counters().reads;
    assert_eq!(list(&fs, &dir).len(), FILES);
    let requests = fs.0.store.region.counters().reads - before;
    assert!(requests <= 24, "{requests} requests");
    fs.close().unwrap();
}

#[test]
fn a_node_that_cannot_be_read_hides_its_own_inodes_only() {
    let (device, fs, dir) = cold();
    let inode = get(&fs, &dir, "name-500").ino();
    fs.close().unwrap();
    drop((dir, fs));
    let fs = FileSystem::open(share(device.clone()), options()).unwrap();
    let dir = get(&fs, &fs.root().unwrap(), "d");
    let image = fs.0.store.nat.entry(inode.nid()).unwrap().block();
    let bad = Lba::new(image.0);
    let flaw = Rule::new(When::From(1), Fault::Error(OsError::EIO)).on(Op::Read);
    device.add(flaw.within(bad..bad.offset(1)));
    let found = attributes_of_all(&fs, &dir);
    assert!((FILES - 16..FILES).contains(&found), "{found} found");
    device.clear();
    assert_eq!(attributes_of_all(&fs, &dir), FILES);
    fs.close().unwrap();
}
