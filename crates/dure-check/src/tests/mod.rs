//! Tests of the check. Each builds a volume by hand, puts one inconsistency into it and expects
//! exactly the issues that follow from it.

mod aged;
mod agreement;
mod cases;
mod clones;
mod counters;
mod directories;
pub(crate) mod disk;
mod files;
mod holes;
mod hostile;
mod images;
mod journals;
mod media;
mod mounted;
mod notes;
mod rebuild;
mod repairs;
mod rescue;
mod tables;
pub(crate) mod volume;

use std::collections::BTreeSet;

use dure_block::fault::{Fault, FaultDevice, Rule, When};
use dure_block::ram::RamDevice;
use dure_block::{Lba, Op, OsError, share};
use dure_fs::{FileSystem, FormatOptions, MountOptions};

use dure_store::format::pair_kind;
use dure_store::format::volume::{STATE_UNLOGGED, VolumeHeader};
use dure_store::layout::{Layout, TableCopies};
use dure_store::units::BlockNo;

use super::{CheckOptions, Data, IssueKind, Repair, Severity, check};
use disk::lines;
use volume::{TestVolume, place::*};

#[test]
fn a_sound_volume_has_no_issues() {
    let report = TestVolume::new().check();
    assert_eq!(lines(&report), Vec::<String>::new());
    let counts = report.counts();
    assert_eq!(
        (
            counts.files,
            counts.directories,
            counts.symlinks,
            counts.others
        ),
        (4, 2, 2, 1)
    );
    assert_eq!(
        (counts.nodes, counts.orphans, counts.blocks_data),
        (10, 1, 6)
    );
    assert_eq!((counts.blocks_log, counts.blocks_used), (64, 80));
    assert!(report.is_spotless() && report.is_sound() && report.worst().is_none());
}

#[test]
fn a_fresh_volume_has_no_issues() {
    for (blocks, journals) in [(1024, 1), (4096, 4), (65536, 16)] {
        let device = share(RamDevice::new("fresh", blocks));
        let options = FormatOptions {
            journals: Some(journals),
            ..Default::default()
        };
        FileSystem::format(device.clone(), &options).unwrap();
        let report = check(device, &CheckOptions::default()).unwrap();
        assert_eq!(lines(&report), Vec::<String>::new());
        assert_eq!(report.counts().directories, 1);
    }
}

#[test]
fn every_inconsistency_is_reported_exactly() {
    let mut wrong = 0;
    for case in [
        tables::CASES,
        journals::CASES,
        directories::CASES,
        files::CASES,
    ]
    .concat()
    {
        let report = (case.make)().check();
        assert!(
            report
                .issues()
                .iter()
                .any(|issue| issue.kind.name() == case.kind),
            "{}",
            case.kind
        );
        let got = lines(&report);
        if got != case.expect {
            eprintln!("{}: got {got:#?}, want {:#?}", case.kind, case.expect);
            wrong += 1;
        }
    }
    assert_eq!(wrong, 0, "cases with other issues than expected");
}

#[test]
fn every_kind_of_issue_has_a_test() {
    let cases = [
        tables::CASES,
        journals::CASES,
        directories::CASES,
        files::CASES,
    ]
    .concat();
    let elsewhere = [
        "DeviceTooSmall", // a_device_that_ends_too_early
        "Unreadable",     // a_block_that_cannot_be_read
        "NotClean",       // mounted.rs
        "Unlogged",       // a_volume_without_a_log
        "ReplayFailed",   // mounted.rs
        "LogHole",        // holes.rs
        "CountTooLarge",  // counters.rs
        "OrdinalTwice",   // directory/tests.rs
        "SnapshotBad",    // dure-fs/tests/it/hostile_snapshots.rs
        "SnapshotsLost",  // the same
        "SharedLost",     // dure-fs/tests/it/hostile_clones.rs
        "SharedMissing",  // the same
        "SharedUnlisted", // the same
        "SharedStale",    // the same
        "QuotaLimits",    // dure-fs/src/file/tests/quotas.rs
        "QuotaUsage",     // the same
        "MediumHead",     // media.rs
        "MediumStamp",    // media.rs
        "DataChecksum",   // a_page_that_changed_is_found_only_when_asked
    ];
    let tested: BTreeSet<&str> = cases
        .iter()
        .map(|case| case.kind)
        .chain(elsewhere.iter().copied())
        .collect();
    let all: BTreeSet<&str> = IssueKind::NAMES.iter().copied().collect();
    assert_eq!(all, tested);
}

#[test]
fn a_device_that_ends_too_early() {
    let disk = TestVolume::new().write();
    let short = RamDevice::new("short", 1000);
    assert!(
        check(disk.device(), &CheckOptions::default())
            .unwrap()
            .is_spotless()
    );
    disk.copy_to(&short, 1000);
    let report = check(share(short), &CheckOptions::default()).unwrap();
    let line = "fatal: the volume has 1024 blocks of 4 KiB but the device only 1000; the end of the \
                image is missing";
    assert_eq!(lines(&report), [line]);
    assert_eq!(report.worst(), Some(Severity::Fatal));
}

/// Regression: the mount refused what the check had called sound.
#[test]
fn a_sit_entry_behind_the_last_segment_must_be_zero() {
    let disk = TestVolume::new().write();
    disk.sit(|sit| sit.entries[43].reserved.set(256));
    let line = "error: SIT entry of segment 43, which does not exist at block 22: reserved bytes must be zero";
    assert_eq!(disk.issues(), [line]);
}

/// Regression: the check believed the other copy, the mount did not.
#[test]
fn a_superblock_that_needs_a_newer_dure_is_not_damage() {
    let disk = TestVolume::new().write();
    let mut superblock = disk.layout.superblock;
    superblock.incompat.set(1 << 40);
    disk.put(0, &superblock.seal(0));
    let error = check(disk.device(), &CheckOptions::default()).unwrap_err();
    assert!(
        matches!(error, dure_fs::Error::Unsupported { .. }),
        "{error}"
    );
}

#[test]
fn a_block_that_cannot_be_read() {
    let disk = TestVolume::new().write();
    let device = FaultDevice::new(disk.device());
    let at = Lba::new(disk.nat_entry(LINK_BLOB).block().0);
    let fault = Fault::Error(OsError::EIO);
    device.add(
        Rule::new(When::From(1), fault)
            .on(Op::Read)
            .within(at.range(1)),
    );
    let report = check(share(device), &CheckOptions::default()).unwrap();
    let lines = lines(&report);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(
        lines[0].starts_with("error: block 165 cannot be read: "),
        "{lines:?}"
    );
}

#[test]
fn a_volume_without_a_log() {
    let disk = TestVolume::new().write();
    disk.reseal(pair_kind::VOLUME, 2, |payload| {
        let (header, _) = zerocopy::FromBytes::mut_from_prefix(payload).unwrap();
        let header: &mut VolumeHeader = header;
        header.state.set(STATE_UNLOGGED);
    });
    let line = "error: the volume was mounted with journal=none and was not unmounted: what was \
                written since the last checkpoint is lost, and pages of files may be, too";
    assert_eq!(disk.issues(), [line]);
    let full = CheckOptions {
        repair: Repair::Full,
        ..CheckOptions::default()
    };
    let report = check(disk.device(), &full).unwrap();
    assert_eq!(lines(&report), [format!("{line} (repaired)")]);
    assert!(disk.check().is_spotless());
}

#[test]
fn each_copy_of_each_pair_is_mended_from_the_other() {
    let pairs = |layout: &Layout| 2 * (layout.nat_pairs + layout.sit_pairs);
    let full = CheckOptions {
        repair: Repair::Full,
        ..CheckOptions::default()
    };
    for n in 0..u64::from(pairs(&TestVolume::with(TableCopies::Two).layout)) {
        for second in [false, true] {
            let disk = TestVolume::with(TableCopies::Two).write();
            assert!(disk.check().is_spotless());
            let at = BlockNo(disk.layout.nat + n);
            let at = match second {
                true => disk.layout.copy_of(at).unwrap(),
                false => at,
            };
            let before = disk.get(at.0);
            disk.damage(at.0, |block| block[99] ^= 4);
            let report = check(disk.device(), &full).unwrap();
            // Slot 1 counts.
            let counts = n % 2 == 1;
            let found = lines(&report);
            assert_eq!(found.len(), usize::from(counts), "{found:?}");
            assert!(
                found.iter().all(|line| line.ends_with("(repaired)")),
                "{found:?}"
            );
            assert!(disk.check().is_spotless());
            assert_eq!(disk.get(at.0) == before, counts);
        }
    }
}

#[test]
fn a_pair_whose_copies_are_both_damaged_is_lost() {
    let disk = TestVolume::with(TableCopies::Two).write();
    let at = BlockNo(disk.layout.nat + 1);
    for at in [at, disk.layout.copy_of(at).unwrap()] {
        disk.damage(at.0, |block| block[99] ^= 4);
    }
    let at = at.0;
    let lost =
        format!("error: NAT pair 0 at block {at}: what counts is damaged; its content is lost");
    assert!(disk.issues().contains(&lost), "{:?}", disk.issues());
}

#[test]
fn a_page_that_changed_is_found_only_when_asked() {
    let mut volume = TestVolume::new();
    let block = volume.written(BIG, LEAF, 4, 13);
    let disk = volume.write();
    disk.damage(block, |block| block[5] ^= 1);
    assert!(disk.check().is_spotless());
    let report = disk.check_with(&CheckOptions {
        data: Data::Verify,
        ..Default::default()
    });
    assert_eq!(report.counts().pages_verified, 6);
    assert_eq!(report.issues().len(), 1);
    assert!(matches!(
        report.issues()[0].kind,
        IssueKind::DataChecksum { page: 28, .. }
    ));
}

/// Regression: the superblock at the end of a device was believed after another file system had
/// been made on the device, and a mount or a repair would have written into that.
#[test]
fn a_volume_under_another_file_system_is_refused_and_left() {
    let disk = TestVolume::new().write();
    disk.damage(0, |block| block[..4].copy_from_slice(b"XFSB"));
    let image = || -> Vec<_> { (0..1024).map(|at| disk.get(at)).collect() };
    let before = image();
    let options = CheckOptions {
        repair: Repair::Full,
        ..CheckOptions::default()
    };
    let device = || share(disk.device.clone());
    let checked = check(device(), &options).map(|_| ());
    let mounted = FileSystem::open(device(), MountOptions::default()).map(|_| ());
    for refused in [checked, mounted] {
        let why = refused.expect_err("it is not dure's").to_string();
        assert!(why.contains("block 0 is the beginning of XFS"), "{why}");
    }
    assert!(image() == before, "something was written");
}
