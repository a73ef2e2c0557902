//! Check, mount and repair agree: what a mount refuses, the check reports; a mount that is refused
//! has written nothing; and damage that concerns one file refuses no mount.

use dure_fs::{
    Background, FileSystem, InodeRef, MountOptions, NewInode, ReadMode, SetAttributes, Stamp,
    SyncScope,
};
use dure_store::error::{Error, Result};
use dure_store::format::nat::NatEntry;
use dure_store::format::node::NodeKind;
use dure_store::format::orphan::{INTENT_DELETE, LINK_GRANULE};
use dure_store::format::slot::Slot;
use dure_store::media::Region;
use dure_store::read_header;
use dure_store::units::{BLOCK_BYTES, BlockNo, Nid};

use super::disk::{Disk, lines};
use super::volume::{TestVolume, page, place::*};
use crate::{CheckOptions, Repair};

/// A second orphan node.
const SECOND: u64 = 20;

fn mount(disk: &Disk) -> Result<FileSystem> {
    let options = MountOptions {
        background: Background::None,
        cache_bytes: 8 << 20,
        recovery_threads: Some(1),
        ..MountOptions::default()
    };
    FileSystem::open(disk.device(), options)
}

fn named(fs: &FileSystem, name: &str) -> InodeRef {
    let root = fs.root().unwrap();
    fs.lookup(&root, name.as_bytes()).unwrap().unwrap()
}

fn with_two_orphan_nodes() -> TestVolume {
    let mut volume = TestVolume::new();
    volume.add(SECOND, NodeKind::Orphan);
    link(&mut volume, ORPHANS, SECOND);
    volume
}

fn link(volume: &mut TestVolume, from: u64, to: u64) {
    volume.payload(from, usize::from(LINK_GRANULE))[..8].copy_from_slice(&to.to_le_bytes());
}

/// The mount is refused and has written nothing, and the check reports it.
#[track_caller]
fn assert_refused(disk: &Disk) {
    let before = disk.device.snapshot();
    let error = mount(disk).expect_err("it is refused");
    assert_eq!(error.errno(), libc::EIO, "{error}");
    assert_eq!(disk.device.snapshot().first_difference(&before), None);
    assert!(!disk.check().is_sound());
}

/// Regression: the mount read the second node of a chain only when it had written the header.
#[test]
fn a_rotten_orphan_node_is_refused_before_anything_is_written() {
    let volume = with_two_orphan_nodes();
    let disk = volume.write();
    assert_eq!(disk.issues(), Vec::<String>::new());
    mount(&volume.write()).unwrap().close().unwrap();
    let block = volume.nodes[&Nid(SECOND)].1.0;
    disk.damage(block, |bytes| bytes[1000] ^= 4);
    assert_refused(&disk);
}

/// Regression: the same where the chain leads to a node that is missing, or to none of orphans.
#[test]
fn an_orphan_list_that_names_a_missing_node_is_refused_before_anything_is_written() {
    for to in [SECOND + 1, u64::MAX, LEAF, MORE_INODES, ORPHANS, SECOND] {
        let mut volume = with_two_orphan_nodes();
        link(&mut volume, SECOND, to);
        assert_refused(&volume.write());
    }
    let disk = TestVolume::new().write();
    disk.nat(ORPHANS, |entry| *entry = NatEntry::tombstone(2));
    assert_refused(&disk);
}

/// Regression: a mount reads the logs of a volume that was unmounted, too; the check did not.
#[test]
fn a_hole_in_a_log_of_an_unmounted_volume_is_reported() {
    let disk = TestVolume::new().write();
    let mut header = disk.journal_header();
    header.durable_upto = 1 << 35;
    disk.journal(&header);
    assert_refused(&disk);
}

/// Regression: the mount was refused, behind the write of the header.
#[test]
fn an_orphan_slot_whose_inode_cannot_be_read_refuses_no_mount() {
    // In a node that is missing, in one beyond the table, and a directory that is to be truncated.
    for (ino, intent) in [(30 * 8, INTENT_DELETE), (1 << 60, 0), (SUB, 0)] {
        let mut volume = TestVolume::new();
        volume.orphan(3, ino, intent);
        let disk = volume.write();
        let issues = disk.issues();
        assert_eq!(issues.len(), 1, "{issues:?}");
        mount(&disk).unwrap().close().unwrap();
        assert_eq!(disk.issues(), issues);
    }
}

/// Regression: the same for a truncate whose file has a damaged map. What it leaves behind the end
/// is not shown when the file grows again.
#[test]
fn a_truncate_that_cannot_be_finished_refuses_no_mount_and_shows_nothing() {
    let mut volume = TestVolume::new();
    volume.edit(BIG, |big| big.data.size.set(4096));
    volume.written(BIG, 0, 1, 6);
    volume.orphan(1, BIG, 4096);
    let disk = volume.write();
    assert_eq!(disk.issues(), Vec::<String>::new());
    let block = volume.nodes[&Nid(LEAF)].1.0;
    disk.damage(block, |bytes| bytes[1000] ^= 4);
    let fs = mount(&disk).unwrap();
    let big = named(&fs, "big");
    let longer = SetAttributes {
        size: Some(3 * 4096),
        ..SetAttributes::default()
    };
    let grown = fs.set_attributes(&big, &longer);
    assert!(matches!(grown, Err(Error::Corrupt { .. })), "{grown:?}");
    let mut bytes = vec![0; BLOCK_BYTES];
    let read = fs.read(&big, 4096, &mut bytes, ReadMode::Cached).unwrap();
    assert_eq!(&bytes[..read], vec![0; read]);
    assert_eq!(
        fs.read(&big, 0, &mut bytes, ReadMode::Cached).unwrap(),
        4096
    );
    assert_eq!(bytes, page(5));
    drop(big);
    fs.close().unwrap();
}

/// Regression: the header was right, the table wrong; the repair mended the table, and left the
/// header with what the table had said.
#[test]
fn a_repair_leaves_a_correct_header_count_right() {
    let disk = TestVolume::new().write();
    let region = Region::open(disk.device());
    let counts = || {
        let (header, generation) = read_header(&region, &disk.layout).unwrap();
        (header.nodes.get(), header.inodes.get(), generation)
    };
    let (nodes, inodes, generation) = counts();
    disk.nat(MORE_INODES, |entry| {
        let version = entry.version.get();
        *entry = NatEntry::live(entry.block(), NodeKind::Inode, 1, version);
    });
    assert_eq!(disk.check().issues().len(), 2, "{:?}", disk.issues());
    let report = disk.check_with(&CheckOptions {
        repair: Repair::Safe,
        ..CheckOptions::default()
    });
    assert!(report.is_sound(), "{:?}", lines(&report));
    assert_eq!(counts(), (nodes, inodes, generation + 1));
    assert_eq!(disk.issues(), Vec::<String>::new());
}

/// What docs/user/security.md says of a block that two files name.
#[test]
fn a_block_of_two_files_is_reported_and_shows_no_other_data() {
    let mut volume = TestVolume::new();
    let shared = *volume
        .data
        .iter()
        .find(|(_, (_, bytes))| *bytes == page(5))
        .unwrap()
        .0;
    let crc = dure_block::crc32c::crc32c(&page(5));
    volume.set_slot(SMALL, 0, 0, Slot::written(BlockNo(shared.0), crc));
    let disk = volume.write();
    let issues = disk.issues();
    let line = format!("block {} ", shared.0);
    assert!(
        issues.iter().any(|issue| issue.contains(&line)),
        "{issues:?}"
    );
    let fs = mount(&disk).unwrap();
    let small = named(&fs, "small");
    fs.write(&small, 0, &[1; BLOCK_BYTES], Stamp::Set).unwrap();
    fs.fsync(&small, SyncScope::All).unwrap();
    assert!(
        fs.store().space.is_dead(shared),
        "it was freed under the other file"
    );
    let root = fs.root().unwrap();
    let new = NewInode {
        mode: 0o100_644,
        ..NewInode::default()
    };
    let mut files = Vec::new();
    while fs.store().space.is_dead(shared) {
        let file = fs
            .create(&root, format!("new {}", files.len()).as_bytes(), &new)
            .unwrap();
        fs.write(&file, 0, &[2; 16 * BLOCK_BYTES], Stamp::Set)
            .unwrap();
        fs.fsync(&file, SyncScope::All).unwrap();
        files.push(file);
    }
    let mut bytes = vec![0; BLOCK_BYTES];
    let read = fs.read(&named(&fs, "big"), 0, &mut bytes, ReadMode::Cached);
    assert!(matches!(read, Err(Error::Corrupt { .. })), "{read:?}");
}
