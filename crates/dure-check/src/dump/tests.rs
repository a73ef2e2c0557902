//! The text of a dump is stable: scripts read it.

use dure_block::ram::RamDevice;
use dure_block::share;
use dure_fs::{Error, FileSystem, FormatOptions};
use dure_store::units::{BlockNo, Ino, Nid, SegNo};
use dure_sync::Arc;

use super::{What, dump};
use crate::tests::volume::{TestVolume, place::*};

fn text(volume: &TestVolume, what: What) -> String {
    let mut text = String::new();
    dump(volume.write().device(), what, &mut text).unwrap();
    text
}

#[test]
fn superblock() {
    let text = text(&TestVolume::new(), What::Superblock);
    assert!(text.starts_with(
        "superblock at 0: valid\nsuperblock at 1023: valid\nversion: 4\n\
         uuid: 07070707-0707-0707-0707-070707070707\nlabel: \"\"\ncreated: 0\n"
    ));
    assert!(
        text.contains("segments: 28 of 32 blocks\njournals: 1\n"),
        "{text}"
    );
}

#[test]
fn volume_header_and_journals() {
    let volume = TestVolume::new();
    assert_eq!(
        text(&volume, What::VolumeHeader),
        [3, 5]
            .map(|at| format!(
                "volume header at {at}, generation 1\n  state: clean\n  epoch: 3\n  first number: \
             10\n  checkpoint: 5\n  mounts: 0\n  nodes: 10\n  inodes: 9\n  written: 0\n  snapshots: 0\n"
            ))
            .concat()
            + "pack 0: checkpoint 5, pairs and their slots: 0:1 1:1\n\
               pack 1: checkpoint 5, pairs and their slots: 0:1\n"
    );
    assert_eq!(
        text(&volume, What::Journals),
        "journal 0, generation 2\n  epoch: 3\n  checkpoint: 5\n  tail: segment 0, block 0, sequence \
         1, number 10\n  durable up to: 9\n  segments: 96 128\n"
    );
}

#[test]
fn nodes_by_kind() {
    let volume = TestVolume::new();
    assert_eq!(
        text(&volume, What::Nat(Nid(LEAF))),
        "node 4: entry 4 of NAT pair 0\n  block: 164\n  kind: Leaf\n  free inodes: 0\n  version: 2\n"
    );
    assert_eq!(
        text(&volume, What::Nat(Nid(300))),
        "node 300: entry 48 of NAT pair 1\n  free, version 0\n"
    );
    assert_eq!(text(&volume, What::Node(Nid(300))), "node 300: no image\n");
    let leaf = text(&volume, What::Node(Nid(LEAF)));
    assert!(leaf.starts_with(
        "node 4: Leaf, image at block 164\n  owner: inode 5\ngranule 4.0, version 2\n  slot 2: block 173, crc "
    ), "{leaf}");
    assert!(text(&volume, What::Node(Nid(INDEX))).contains("  child 1: node 10\n"));
    assert!(
        text(&volume, What::Node(Nid(ORPHANS))).contains("  slot 0: inode 56, to be deleted\n")
    );
    let blob = text(&volume, What::Node(Nid(XATTR_BLOB)));
    assert!(
        blob.contains("  bytes: \"\\x03\\x00\\x00\\x00\\x06\\x00\\x00\\x00user.aabc\"\n"),
        "{blob}"
    );
}

#[test]
fn inodes_and_trees() {
    let volume = TestVolume::new();
    let link = text(&volume, What::Inode(Ino(SHORT_LINK)));
    assert!(link.starts_with("inode 4: granule 0.4\n  ino: 4\n  generation: 1\n  mode: 0120777\n"));
    assert!(link.ends_with("  target: \"small\"\n"));
    assert_eq!(
        text(&volume, What::Inode(Ino(58))),
        "inode 58: granule 7.2, free\n"
    );
    let root = text(&volume, What::Directory(Ino(1)));
    assert_eq!(root.matches("\nbucket 2.").count(), 8);
    assert!(
        root.contains(": inode 3, type 4, ordinal 0, \"sub\"\n"),
        "{root}"
    );
    let deep = text(&volume, What::Map(Ino(DEEP)));
    let lines: Vec<&str> = deep.lines().collect();
    assert_eq!(lines[0], "file 57: 4096000 bytes, 1 blocks");
    assert_eq!(
        lines[1..3],
        [
            "node 9: Index, pages from 24",
            "node 10: Leaf, pages from 344"
        ]
    );
    assert!(lines[3].starts_with("  page 414: block "));
}

#[test]
fn segments_and_blocks() {
    let volume = TestVolume::new();
    let segment = text(&volume, What::Segment(SegNo(2)));
    assert!(segment.starts_with(
        "segment 2: blocks 160..=191\n  use: Data\n  live blocks: 16\n  changed: 0\n  \
         block 160: image of node 0\n  block 161: image of node 1\n"
    ));
    assert!(segment.contains("  block 170: slot 0 of granule 0.10\n"));
    for (block, line) in [
        (0, "block 0: superblock"),
        (3, "block 3: slot 1 of volume header pair 0"),
        (9, "block 9: slot 1 of pack pair 0, second copy"),
        (20, "block 20: slot 0 of NAT pair 1"),
        (97, "block 97: block 1 of segment 0, log of journal 0"),
        (
            164,
            "block 164: block 4 of segment 2, live, summary: image of node 4",
        ),
        (
            300,
            "block 300: block 12 of segment 6, free, summary: nobody",
        ),
        (1000, "block 1000: unused"),
    ] {
        let text = text(&volume, What::Block(BlockNo(block)));
        assert_eq!(text.lines().next(), Some(line));
    }
    let block = text(&volume, What::Block(BlockNo(164)));
    assert!(block.contains("\n  000: 4e 4f 44 45 "), "{block}");
}

#[test]
fn what_is_not_there_is_refused() {
    let device = TestVolume::new().write().device();
    for what in [
        What::Nat(Nid(1 << 40)),
        What::Segment(SegNo(28)),
        What::Block(BlockNo(1024)),
        What::Directory(Ino(SMALL)),
        What::Map(Ino(1)),
        What::Inode(Ino(LEAF * 8)),
    ] {
        let error = dump(device.clone(), what, &mut String::new()).unwrap_err();
        assert!(
            matches!(error, Error::BadOption { .. }),
            "{what:?}: {error}"
        );
    }
    let empty = share(RamDevice::new("empty", 8));
    let error = dump(empty, What::Superblock, &mut String::new()).unwrap_err();
    assert!(matches!(error, Error::NotDure));
}

#[test]
fn the_log_of_a_fresh_volume_is_empty() {
    let device = share(Arc::new(RamDevice::new("fresh", 1024)));
    let options = FormatOptions {
        journals: Some(1),
        ..Default::default()
    };
    FileSystem::format(device.clone(), &options).unwrap();
    let mut text = String::new();
    dump(device, What::Log(None), &mut text).unwrap();
    assert_eq!(text, "epoch 1: 0 complete transactions\n");
}
