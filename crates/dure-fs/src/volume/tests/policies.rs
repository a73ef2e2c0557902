//! Where two cores allocate, by policy; and what an fsync commits.

use dure_block::ram::RamDevice;
use dure_block::share;
use dure_store::format::nat::place_of;
use dure_sync::Arc;
use dure_sync::atomic::{AtomicUsize, Ordering};

use crate::{
    AllocPolicy, Background, FileSystem, FormatOptions, FsyncScope, InodeRef, MountOptions,
    NewInode, Stamp, SyncScope,
};

fn mounted(options: MountOptions) -> (FileSystem, Arc<AtomicUsize>) {
    let device = share(RamDevice::new("ram", 8192));
    let format = FormatOptions {
        journals: Some(2),
        ..FormatOptions::default()
    };
    FileSystem::format(device.clone(), &format).expect("large enough");
    let core = Arc::new(AtomicUsize::new(0));
    let options = MountOptions {
        background: Background::None,
        cache_bytes: 16 << 20,
        core: Some(core.clone()),
        ..options
    };
    (
        FileSystem::open(device, options).expect("a good volume mounts"),
        core,
    )
}

fn file(fs: &FileSystem, name: &str) -> InodeRef {
    let new = NewInode {
        mode: 0o100_644,
        ..NewInode::default()
    };
    let root = fs.root().expect("there is one");
    let file = fs.create(&root, name.as_bytes(), &new).expect("room");
    fs.write(&file, 0, &[1; 4096], Stamp::Set).expect("room");
    fs.fsync(&file, SyncScope::All).expect("room");
    file
}

/// Partition of the inode's node, and segment of its page, of files that each core made in turn.
fn places(alloc: AllocPolicy) -> Vec<(u64, u64)> {
    let (fs, core) = mounted(MountOptions {
        alloc,
        ..MountOptions::default()
    });
    let layout = fs.layout().clone();
    let places = (0..6).map(|n| {
        core.store(n % 2, Ordering::Relaxed);
        let inode = file(&fs, &format!("f{n}"));
        let _held = inode.inode().state().read();
        let slot = crate::file::map::MapReader::new(&fs.0.files, inode.inode()).slot(0);
        let slot = slot.expect("a direct slot");
        let (segment, _) = layout.locate(slot.block()).expect("a data block");
        let (pair, _) = place_of(inode.ino().nid());
        (pair % 2, segment.0.into())
    });
    let places = places.collect();
    fs.close().expect("nothing fails");
    places
}

#[test]
fn local_keeps_two_cores_apart() {
    let places = places(AllocPolicy::Local);
    let of = |core: usize| places.iter().skip(core).step_by(2);
    // Inodes 0..7 are the root's node, which belongs to partition 0.
    assert!(of(0).all(|place| place.0 == 0), "{places:?}");
    assert!(of(1).all(|place| place.0 == 1), "{places:?}");
    assert!(
        of(0).all(|a| of(1).all(|b| a.1 != b.1)),
        "no segment holds data of both: {places:?}"
    );
}

#[test]
fn global_lets_them_share_nodes_and_segments() {
    let places = places(AllocPolicy::Global);
    assert!(places.iter().all(|place| *place == places[0]), "{places:?}");
}

#[test]
fn fsync_commits_its_closure_or_everything() {
    for (scope, others) in [(FsyncScope::Closure, false), (FsyncScope::All, true)] {
        let (fs, core) = mounted(MountOptions {
            fsync: scope,
            ..MountOptions::default()
        });
        let (a, b) = (file(&fs, "a"), file(&fs, "b"));
        core.store(1, Ordering::Relaxed);
        let mark = {
            let xattr = fs.set_xattr(&b, b"user.x", b"y", crate::XattrMode::Any);
            xattr.expect("room");
            let inode = b.inode();
            inode.node.last_writer(inode.index)
        };
        core.store(0, Ordering::Relaxed);
        fs.write(&a, 0, &[2; 10], Stamp::Set).expect("room");
        fs.fsync(&a, SyncScope::All).expect("room");
        assert_eq!(fs.0.store.journal().is_valid(mark), others, "{scope:?}");
        fs.close().expect("nothing fails");
    }
}
