//! Repairs: what they mend, what they leave alone, and that a second check finds nothing.

use dure_block::crash::{CrashImages, Selection};
use dure_block::ram::RamDevice;
use dure_block::record::RecordDevice;
use dure_block::share;
use dure_store::error::Error;
use dure_store::format::node::NodeKind;
use dure_store::format::orphan::INTENT_DELETE;
use dure_store::format::pair_kind;
use dure_store::format::volume::{STATE_DIRTY, VolumeHeader};
use dure_store::units::SegNo;

use super::disk::{Disk, lines};
use super::volume::{TestVolume, place::*};
use crate::{CheckOptions, Repair, check};

pub(super) const SAFE: CheckOptions<'_> = CheckOptions {
    repair: Repair::Safe,
    data: super::Data::Skip,
    progress: None,
    threads: None,
    recover: dure_fs::Recover::Whole,
};

/// Repairs, and expects every issue mended and a clean second check.
fn mends(disk: &Disk, issues: usize) {
    let report = disk.check_with(&SAFE);
    assert_eq!(report.issues().len(), issues, "{:?}", lines(&report));
    assert!(report.repaired() && report.is_sound());
    assert!(
        report.issues().iter().all(|issue| issue.repaired),
        "{:?}",
        lines(&report)
    );
    assert_eq!(disk.issues(), Vec::<String>::new());
}

#[test]
fn nothing_is_written_to_a_sound_volume() {
    let disk = TestVolume::new().write();
    let before = disk.device.snapshot();
    let report = disk.check_with(&SAFE);
    assert!(report.is_spotless() && !report.repaired());
    assert_eq!(disk.device.snapshot(), before);
}

#[test]
fn nothing_is_written_without_being_asked() {
    let mut volume = TestVolume::new();
    volume.edit(SMALL, |small| small.attributes.nlink.set(9));
    volume.orphan(3, 60, INTENT_DELETE);
    let disk = volume.write();
    disk.sit(|sit| sit.entries[9].live[0] = 1);
    let before = disk.device.snapshot();
    assert_eq!(disk.check().issues().len(), 4);
    assert_eq!(disk.device.snapshot(), before);
}

#[test]
fn both_copies_of_the_superblock() {
    for at in [0, 1023] {
        let disk = TestVolume::new().write();
        disk.damage(at, |block| block.fill(0));
        mends(&disk, 1);
    }
}

#[test]
fn counts_of_the_header() {
    let mut volume = TestVolume::new();
    volume.header.nodes.set(1);
    volume.header.inodes.set(u64::MAX);
    mends(&volume.write(), 2);
}

#[test]
fn counts_orphans_bits_and_owners_at_once() {
    let mut volume = TestVolume::new();
    volume.edit(SMALL, |small| small.attributes.nlink.set(9));
    volume.edit(BIG, |big| big.data.blocks.set(9));
    volume.edit(DEEP, |deep| deep.attributes.nlink.set(0));
    volume.orphan(3, 60, INTENT_DELETE);
    let disk = volume.write();
    disk.sit(|sit| {
        sit.entries[9].live[1] = 0b101;
        sit.entries[9].valid.set(2);
        sit.entries[2].live[0] &= !1;
    });
    let first = disk.layout.summary_pair(SegNo(2), 0);
    disk.reseal(pair_kind::SUMMARY, first, |payload| payload[16] = 200);
    mends(&disk, 8);
}

#[test]
fn names_are_not_given_up_while_something_is_lost() {
    let mut volume = TestVolume::new();
    volume.edit(SMALL, |small| small.attributes.nlink.set(5));
    let disk = volume.write();
    // The bucket node of the subdirectory, and with it the second name of the file.
    let block = disk.nat_entry(SUB_BUCKETS).block().0;
    disk.damage(block, |block| block[100] ^= 1);
    disk.sit(|sit| {
        sit.entries[9].live[1] = 0b101;
        sit.entries[9].valid.set(2);
    });
    let report = disk.check_with(&SAFE);
    assert!(!report.is_sound() && !report.repaired());
    let again = disk.issues();
    assert_eq!(again.len(), 3, "{again:?}");
    assert_eq!(
        again[1],
        "error: inode 2: has 1 names but a link count of 5"
    );
    assert!(again[2].contains("2 blocks from 392 on, live in the SIT without"));
}

#[test]
fn a_volume_without_a_free_block_keeps_its_wrong_counts() {
    let mut volume = TestVolume::new();
    let end = volume.layout.main
        + u64::from(volume.layout.segments) * u64::from(volume.layout.segment_blocks);
    let mut pages = 0;
    volume.inode(58, 0o100_600, |file| {
        file.data.map_root.set(400);
        file.data.map_height.set(2);
        file.data.size.set(2000 * 4096);
    });
    volume.entry(ROOT_BUCKETS, 58, "full", 8);
    volume.add_of(400, NodeKind::Index, 58);
    for leaf in 0..3 {
        volume.add_of(401 + leaf, NodeKind::Leaf, 58);
        volume.payload(400, 0)[8 * usize::try_from(leaf).unwrap()] =
            0x91 + u8::try_from(leaf).unwrap();
        volume.payload(400, 0)[8 * usize::try_from(leaf).unwrap() + 1] = 1;
    }
    loop {
        let slot = usize::try_from(pages % 320).unwrap();
        let block = volume.written(58, 401 + pages / 320, slot, 1);
        pages += 1;
        if block + 1 == end {
            break;
        }
    }
    assert_eq!(volume.issues(), Vec::<String>::new());
    volume.edit(SMALL, |small| small.attributes.nlink.set(9));
    let disk = volume.write();
    let report = disk.check_with(&SAFE);
    assert!(!report.repaired() && !report.is_sound());
    assert_eq!(report.issues().len(), 1);
}

#[test]
fn a_volume_that_was_not_unmounted_is_not_repaired() {
    let disk = TestVolume::new().write();
    disk.reseal(pair_kind::VOLUME, 2, |payload| {
        let (header, _) = zerocopy::FromBytes::mut_from_prefix(payload).unwrap();
        let header: &mut VolumeHeader = header;
        header.state.set(STATE_DIRTY);
    });
    let error = check(disk.device(), &SAFE).unwrap_err();
    assert!(matches!(
        error,
        Error::BadOption {
            option: "repair",
            ..
        }
    ));
    assert_eq!(
        disk.issues(),
        [
            "warning: the volume was not unmounted cleanly; the check looked at what a mount will \
          recover from 0 transactions"
        ]
    );
}

#[test]
fn a_repair_that_is_cut_off_loses_nothing() {
    let mut volume = TestVolume::new();
    volume.edit(SMALL, |small| small.attributes.nlink.set(9));
    volume.edit(DEEP, |deep| deep.data.blocks.set(7));
    let disk = volume.write();
    let base = disk.device.snapshot();
    let record = RecordDevice::new(disk.device());
    let log = record.log();
    check(share(record), &SAFE).unwrap();
    let images = CrashImages::new(base, &log);
    let mut states = 0;
    for step in 0..=images.last_step() {
        let point = images.at(step);
        for choice in point.choices(Selection::default()) {
            let device = share(RamDevice::from_image(
                "crash",
                &point.image(&choice).snapshot(),
            ));
            let report = check(device.clone(), &SAFE).unwrap();
            assert!(report.is_sound(), "step {step}: {:?}", lines(&report));
            let report = check(device, &CheckOptions::default()).unwrap();
            assert_eq!(lines(&report), Vec::<String>::new(), "step {step}");
            states += 1;
        }
    }
    assert!(states > 40, "only {states} crash states");
}
