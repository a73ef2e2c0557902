//! Heads and stamps of the media of a volume that lies on several.

use dure_block::linear::LinearDevice;
use dure_block::ram::RamDevice;
use dure_block::{Device, Io, Lba, WriteFlags, share};
use dure_fs::NvmRegion;
use dure_fs::members::{Member, join};
use dure_store::units::{BLOCK_BYTES, to_usize};
use dure_sync::Arc;

use super::disk::lines;
use crate::tests::{CheckOptions, FileSystem, FormatOptions, check};
use crate::{Repair, Report};

const NVM_BLOCKS: u64 = 600;
const DISK_BLOCKS: u64 = 2000;

/// Two regions and a disk, one behind the other.
struct Media(Arc<RamDevice>);

impl Media {
    fn new() -> Media {
        let media = Media(Arc::new(RamDevice::new(
            "all",
            2 * NVM_BLOCKS + DISK_BLOCKS,
        )));
        let [a, b, disk] = media.each();
        let region = |member: Member| NvmRegion {
            device: member.device,
            path: member.path,
            node: 0,
        };
        let options = FormatOptions {
            journals: Some(2),
            segment_blocks: Some(32),
            nvm: vec![region(a), region(b)],
            path: "disk".into(),
            ..FormatOptions::default()
        };
        FileSystem::format(disk.device, &options).unwrap();
        media
    }

    fn each(&self) -> [Member; 3] {
        let all = share(Arc::clone(&self.0));
        let run = |first, blocks, path: &str| Member {
            device: share(LinearDevice::new(vec![(
                all.clone(),
                Lba::new(first),
                blocks,
            )])),
            path: path.into(),
        };
        [
            run(0, NVM_BLOCKS, "a"),
            run(NVM_BLOCKS, NVM_BLOCKS, "b"),
            run(2 * NVM_BLOCKS, DISK_BLOCKS, "disk"),
        ]
    }

    fn volume(&self) -> Arc<dyn Device> {
        join(&self.each()).unwrap()
    }

    fn destroy(&self, first: u64, blocks: u64) {
        let bytes = vec![0x5a; to_usize(blocks) * BLOCK_BYTES];
        let (parts, flags) = (&[&bytes[..]][..], WriteFlags::NONE);
        let lba = Lba::new(first);
        self.0.execute(Io::Write { lba, parts, flags }).unwrap();
    }

    fn check(&self, repair: Repair) -> Report {
        let options = CheckOptions {
            repair,
            ..CheckOptions::default()
        };
        check(self.volume(), &options).unwrap()
    }
}

/// What is destroyed from this block on is found and mended, by either repair; then the media are as
/// they were.
#[track_caller]
fn mends(first: u64, blocks: u64, expect: &str) {
    for repair in [Repair::Safe, Repair::Full] {
        let media = Media::new();
        let before = media.0.snapshot();
        media.destroy(first, blocks);
        assert_eq!(lines(&media.check(Repair::No)), [expect]);
        let report = media.check(repair);
        assert_eq!(lines(&report), [format!("{expect} (repaired)")]);
        assert!(report.repaired() && report.is_sound());
        assert_eq!(media.0.snapshot().first_difference(&before), None);
        assert_eq!(lines(&media.check(Repair::No)), Vec::<String>::new());
    }
}

#[test]
fn a_destroyed_head_is_written_again() {
    mends(
        NVM_BLOCKS,
        1,
        "error: medium 2, which was b: its head is destroyed; the other media have what it said",
    );
    mends(
        2 * NVM_BLOCKS,
        1,
        "error: medium 3, which was disk: its head is destroyed; the other media have what it said",
    );
}

#[test]
fn a_destroyed_stamp_is_written_again() {
    // The pair is written once: the slots of the other generation are empty.
    let media = Media::new();
    media.destroy(NVM_BLOCKS + 1, 4);
    let stamp = "error: medium 2, which was b: its stamp is destroyed";
    assert_eq!(lines(&media.check(Repair::No)), [stamp]);
    media.check(Repair::Safe);
    assert_eq!(lines(&media.check(Repair::No)), Vec::<String>::new());
}

/// The head of the first medium is the first copy of the superblock.
#[test]
fn a_destroyed_head_of_the_first_medium_is_written_again() {
    let media = Media::new();
    let before = media.0.snapshot();
    media.destroy(0, 1);
    let report = media.check(Repair::Safe);
    assert_eq!(report.issues().len(), 1, "{:?}", lines(&report));
    assert_eq!(media.0.snapshot().first_difference(&before), None);
}
