//! `.snapshots`: what the kernel is told, and for how long.

use std::path::PathBuf;

use dure_fs::{FileSystem, SnapshotInfo};
use dure_sync::Arc;
use dure_sync::atomic::{AtomicU32, Ordering};
use zerocopy::FromBytes;

use super::World;
use crate::protocol::ROOT;
use crate::protocol::opcode as op;
use crate::protocol::reply::EntryOut;
use crate::server::SnapshotPlaces;
use crate::{MountSettings, SNAPSHOTS};

/// Mounts nothing, and counts.
#[derive(Debug, Default)]
struct Places {
    shown: AtomicU32,
    ended: AtomicU32,
}

impl SnapshotPlaces for Places {
    fn directory(&self, snapshot: &SnapshotInfo) -> PathBuf {
        format!("/places/{}", snapshot.id).into()
    }

    fn show(&self, _: &FileSystem, _: &SnapshotInfo) -> Result<(), i32> {
        self.shown.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn ended(&self) -> u32 {
        self.ended.load(Ordering::Relaxed)
    }
}

fn world() -> (World, Arc<Places>) {
    let places = Arc::new(Places::default());
    let shared: Box<dyn SnapshotPlaces> = Box::new(Arc::clone(&places));
    let settings = MountSettings {
        snapshots: Some(Arc::from(shared)),
        ..MountSettings::default()
    };
    (World::with(4096, &settings), places)
}

fn lookup(world: &mut World, parent: u64, name: &[u8]) -> EntryOut {
    let body = world.done(op::LOOKUP, parent, &[name, b"\0"]);
    EntryOut::read_from_bytes(&body).unwrap()
}

#[test]
fn the_kernel_keeps_no_name_that_snapshots_may_get_or_lose() {
    let (mut world, places) = world();
    let absent = lookup(&mut world, ROOT, SNAPSHOTS);
    assert_eq!((absent.node, absent.entry_valid), (0, 0), "none yet");
    let other = lookup(&mut world, ROOT, b"other");
    assert_eq!((other.node, other.entry_valid), (0, u64::MAX));
    world.mounted.file_system().create_snapshot("one").unwrap();
    let directory = lookup(&mut world, ROOT, SNAPSHOTS);
    assert!(directory.node != 0 && directory.entry_valid == 0);
    let absent = lookup(&mut world, directory.node, b"two");
    assert_eq!((absent.node, absent.entry_valid), (0, 0));
    let one = lookup(&mut world, directory.node, b"one");
    assert_eq!((one.entry_valid, one.attr_valid), (0, 0));
    assert_eq!(one.attr.mode & libc::S_IFMT, libc::S_IFLNK);
    assert_eq!(world.done(op::READLINK, one.node, &[]), b"/places/1");
    assert_eq!(places.shown.load(Ordering::Relaxed), 1);
    // The kernel keeps the target of a node.
    assert_eq!(lookup(&mut world, directory.node, b"one").node, one.node);
    places.ended.store(1, Ordering::Relaxed);
    assert_ne!(lookup(&mut world, directory.node, b"one").node, one.node);
    // What it has of the old one is answered as the new one.
    assert_eq!(world.done(op::READLINK, one.node, &[]), b"/places/1");
    world.mounted.file_system().delete_snapshot("one").unwrap();
    assert_eq!(lookup(&mut world, directory.node, b"one").node, 0);
    assert_eq!(world.errno(op::READLINK, one.node, &[]), libc::ESTALE);
    world.end();
}

#[test]
fn nothing_in_the_directory_can_be_changed() {
    let (mut world, _places) = world();
    world.mounted.file_system().create_snapshot("one").unwrap();
    let file = world.create(b"file");
    let directory = lookup(&mut world, ROOT, SNAPSHOTS).node;
    let link = lookup(&mut world, directory, b"one").node;
    let mode = [libc::S_IFREG | 0o644, 0, 0, 0];
    let mode: Vec<u8> = mode.into_iter().flat_map(u32::to_le_bytes).collect();
    let refused = [
        world.errno(op::MKNOD, directory, &[&mode, b"new\0"]),
        world.errno(op::UNLINK, directory, &[b"one\0"]),
        world.errno(op::RMDIR, directory, &[b"one\0"]),
        world.errno(op::LINK, directory, &[&file.to_le_bytes(), b"new\0"]),
        world.errno(op::LINK, ROOT, &[&link.to_le_bytes(), b"new\0"]),
        world.errno(
            op::RENAME,
            ROOT,
            &[&directory.to_le_bytes(), b"file\0new\0"],
        ),
        world.errno(op::RENAME, directory, &[&ROOT.to_le_bytes(), b"one\0new\0"]),
        world.errno(op::SETATTR, link, &[&[0; 88]]),
    ];
    assert_eq!(refused, [libc::EROFS; 8]);
    world.end();
}

#[test]
fn a_file_with_the_name_of_the_directory_is_shown() {
    let (mut world, _places) = world();
    let file = world.create(SNAPSHOTS);
    world.mounted.file_system().create_snapshot("one").unwrap();
    assert_eq!(lookup(&mut world, ROOT, SNAPSHOTS).node, file);
    world.end();
}
