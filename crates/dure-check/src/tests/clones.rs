//! Blocks that several slots name: which of them are clones, and what a repair makes of their lists.

use dure_store::format::feature::CLONES;
use dure_store::format::slot::Slot;
use dure_store::units::{BLOCK_BYTES, BlockNo, Nid};

use super::disk::lines;
use super::repairs::SAFE;
use super::volume::{TestVolume, page, place::*};
use crate::{CheckOptions, Data, Issue, IssueKind};

/// A volume with a page of two files in one block, and no list.
fn cloned() -> TestVolume {
    cloned_in().0
}

/// The same, and the block.
fn cloned_in() -> (TestVolume, u64) {
    let mut volume = TestVolume::new();
    volume.layout.superblock = volume.layout.superblock.with(CLONES);
    let block = volume.written(BIG, LEAF, 3, 11);
    name(&mut volume, block, page(11));
    (volume, block)
}

/// Lets a file name a block as if it had this content.
fn name(volume: &mut TestVolume, block: u64, content: Vec<u8>) {
    let crc = dure_block::crc32c::crc32c(&content);
    volume.set_slot(DEEP, 0, 4, Slot::written(BlockNo(block), crc));
}

/// Regression: a repair that could not read a node took its slots out of the lists.
#[test]
fn a_slot_of_a_node_that_cannot_be_read_stays_listed() {
    let volume = cloned();
    let disk = volume.write();
    let report = disk.check_with(&SAFE);
    assert!(report.is_sound(), "{:?}", lines(&report));
    assert_eq!(disk.issues(), Vec::<String>::new());

    let leaf = volume.nodes[&Nid(LEAF)].1.0;
    let before = disk.get(leaf);
    disk.put(leaf, &[0x5a; BLOCK_BYTES]);
    let report = disk.check_with(&SAFE);
    let mut stale = report
        .issues()
        .iter()
        .filter(|issue| matches!(issue.kind, IssueKind::SharedStale { count: 1, .. }));
    let is_left = |issue: &Issue| !issue.repaired;
    assert!(stale.next().is_some_and(is_left), "{:?}", lines(&report));
    disk.put(leaf, &before);
    assert_eq!(disk.issues(), Vec::<String>::new());
}

/// Regression: a block of a node that a slot names, and one with two contents, were called clones,
/// and marked as repaired.
#[test]
fn what_slots_with_the_same_content_share_with_nothing_else_is_a_clone() {
    let (mut of_node, mut differs) = (TestVolume::new(), cloned());
    of_node.layout = differs.layout.clone();
    let node = of_node.nodes[&Nid(LEAF)].1.0;
    name(&mut of_node, node, page(11));
    differs.edit(DEEP, |deep| deep.data.body[4 * 12 + 8] ^= 1);
    for volume in [of_node, differs] {
        let disk = volume.write();
        let found = disk.issues();
        assert!(
            found.len() == 1 && found[0].contains("and by something else"),
            "{found:?}"
        );
        let report = disk.check_with(&SAFE);
        assert!(!report.is_sound(), "{:?}", lines(&report));
        assert_eq!(disk.issues(), found);
    }
}

/// Regression: of a destroyed block that two files share only the file that came first was named.
#[test]
fn each_file_with_a_page_in_a_destroyed_block_is_named() {
    let (volume, block) = cloned_in();
    let disk = volume.write();
    assert!(disk.check_with(&SAFE).is_sound());
    let options = CheckOptions {
        data: Data::Verify,
        ..CheckOptions::default()
    };
    assert!(disk.check_with(&options).is_sound());
    disk.damage(block, |block| block[5] ^= 1);
    let report = disk.check_with(&options);
    let named = report.issues().iter().map(|issue| match issue.kind {
        IssueKind::DataChecksum { ino, block: at, .. } if at == block => ino,
        ref other => panic!("{other}"),
    });
    let named: Vec<_> = named.collect();
    assert!(named.len() == 2 && named[0] != named[1], "{named:?}");
}
