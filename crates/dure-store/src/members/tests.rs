use dure_block::ram::RamDevice;
use dure_block::record::RecordDevice;
use dure_block::share;

use super::*;
use crate::format::sit::SegmentUse;
use crate::headers::read_layout;
use crate::layout::{FormatOptions, NodeLog, NvmRegion};
use crate::media::Region;
use crate::store::make_volume;
use crate::units::BlockNo;

const NVM_BLOCKS: u64 = 600;
const DISK_BLOCKS: u64 = 2000;

/// A medium that remembers whether it was written.
struct Disk {
    ram: Arc<RamDevice>,
    path: &'static str,
}

impl Disk {
    fn new(path: &'static str, blocks: u64) -> Disk {
        let ram = Arc::new(RamDevice::new(path, blocks));
        Disk { ram, path }
    }

    fn device(&self) -> Arc<dyn Device> {
        share(Arc::clone(&self.ram))
    }

    fn region(&self) -> NvmRegion {
        let path = self.path.into();
        NvmRegion {
            device: self.device(),
            path,
            node: 0,
        }
    }

    /// A medium of so many blocks with this content.
    fn copy(&self, path: &'static str, blocks: u64) -> Disk {
        let copy = Disk::new(path, blocks);
        let mut bytes = vec![0; BLOCK_BYTES];
        for at in 0..blocks.min(self.ram.info().blocks) {
            Region::open(self.device())
                .read(BlockNo(at), &mut bytes)
                .unwrap();
            Region::open(copy.device())
                .write(BlockNo(at), &bytes)
                .unwrap();
        }
        copy
    }
}

fn options(regions: &[&Disk], uuid: u8) -> FormatOptions {
    FormatOptions {
        journals: Some(2),
        segment_blocks: Some(32),
        uuid: Some([uuid; 16]),
        nvm: regions.iter().map(|region| region.region()).collect(),
        path: "disk".into(),
        ..FormatOptions::default()
    }
}

struct Three {
    a: Disk,
    b: Disk,
    disk: Disk,
    layout: Layout,
}

fn three(uuid: u8) -> Three {
    let (a, b) = (Disk::new("a", NVM_BLOCKS), Disk::new("b", NVM_BLOCKS));
    let disk = Disk::new("disk", DISK_BLOCKS);
    let layout = make_volume(disk.device(), &options(&[&a, &b], uuid)).unwrap();
    Three { a, b, disk, layout }
}

/// Joins them on devices that record, and says what is wrong; nothing may have been written.
fn refused(disks: &[&Disk]) -> String {
    let records: Vec<_> = disks
        .iter()
        .map(|disk| Arc::new(RecordDevice::new(disk.device())))
        .collect();
    let members: Vec<_> = disks
        .iter()
        .zip(&records)
        .map(|(disk, record)| Member {
            device: share(Arc::clone(record)),
            path: disk.path.into(),
        })
        .collect();
    let error = join(&members).map(|_| ()).unwrap_err().to_string();
    assert!(
        records.iter().all(|record| record.log().step() == 0),
        "{error}"
    );
    error
}

fn joined(three: &Three) -> Arc<dyn Device> {
    let member = |disk: &Disk| Member {
        device: disk.device(),
        path: disk.path.into(),
    };
    join(&[member(&three.a), member(&three.b), member(&three.disk)]).unwrap()
}

#[test]
fn a_volume_on_three_media_is_one_space() {
    let three = three(1);
    let device = joined(&three);
    let layout = read_layout(&Region::open(device)).unwrap();
    assert_eq!(layout.total_blocks, three.layout.total_blocks);
    let media = layout.superblock.media();
    // Whole segments; all but the first lack one for the head.
    let runs: Vec<_> = media.iter().map(|m| (m.first, m.start, m.blocks)).collect();
    assert_eq!(runs, [(0, 0, 576), (576, 32, 544), (1120, 32, 1968)]);
    let paths: Vec<_> = media.iter().map(|medium| medium.path.as_str()).collect();
    assert_eq!(paths, ["a", "b", "disk"]);
    let border = layout.segment_start(crate::units::SegNo(layout.nvm_segments));
    assert_eq!(border, BlockNo(1120), "segments do not lie across media");
    assert_eq!(layout.areas(SegmentUse::Node)[0], 0..layout.nvm_segments);
    assert_eq!(layout.areas(SegmentUse::Data)[1], 0..layout.nvm_segments);
    let head = look(&three.b.ram).unwrap().unwrap();
    assert_eq!((head.member, head.media.len()), (1, 3));
}

#[test]
fn logs_and_nodes_lie_in_persistent_memory_or_not() {
    for (node_log, in_nvm) in [(NodeLog::Nvm, true), (NodeLog::Block, false)] {
        let (a, disk) = (Disk::new("a", NVM_BLOCKS), Disk::new("disk", DISK_BLOCKS));
        let options = FormatOptions {
            node_log,
            ..options(&[&a], 1)
        };
        let layout = make_volume(disk.device(), &options).unwrap();
        let member = |disk: &Disk| Member {
            device: disk.device(),
            path: disk.path.into(),
        };
        let device = join(&[member(&a), member(&disk)]).unwrap();
        let journals = crate::JournalsInfo::read(device).unwrap();
        let border = layout.superblock.media()[1].first;
        let segments = journals
            .journals
            .iter()
            .flat_map(|journal| &journal.segments);
        assert!(segments.clone().count() == 4);
        assert!(
            segments.clone().all(|at| (*at < border) == in_nvm),
            "{node_log:?}"
        );
    }
}

#[test]
fn a_medium_alone_is_no_volume() {
    let three = three(1);
    for disk in [&three.a, &three.b, &three.disk] {
        let error = read_layout(&Region::open(disk.device()))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("of the 3 it lies on"),
            "{}: {error}",
            disk.path
        );
    }
    let error = refused(&[&three.disk]);
    assert!(
        error.contains("2 regions of persistent memory, and --nvm names 0"),
        "{error}"
    );
}

#[test]
fn a_swapped_region_is_refused() {
    let three = three(1);
    let error = refused(&[&three.b, &three.a, &three.disk]);
    assert!(
        error.starts_with("b: is medium 2 of 3, where medium 1 was expected"),
        "{error}"
    );
    let error = refused(&[&three.disk, &three.b, &three.a]);
    assert!(error.starts_with("disk: is medium 3 of 3"), "{error}");
}

#[test]
fn a_truncated_region_is_refused() {
    let three = three(1);
    let cut = three.b.copy("cut", NVM_BLOCKS - 100);
    let error = refused(&[&three.a, &cut, &three.disk]);
    assert!(
        error.starts_with("cut: has") && error.contains("cut off"),
        "{error}"
    );
}

#[test]
fn a_wiped_region_is_refused() {
    let three = three(1);
    for (wiped, n) in [(&three.a, 0), (&three.b, 1)] {
        let empty = Disk::new("empty", NVM_BLOCKS);
        let mut disks = [&three.a, &three.b, &three.disk];
        disks[n] = &empty;
        let error = refused(&disks);
        assert!(
            error.starts_with("empty: holds no part of a volume"),
            "{}: {error}",
            wiped.path
        );
    }
}

#[test]
fn a_region_of_another_volume_is_refused() {
    let (three, other) = (three(1), self::three(2));
    let error = refused(&[&other.a, &three.b, &three.disk]);
    assert!(
        error.starts_with("a: belongs to volume 02020202-"),
        "{error}"
    );
    let error = refused(&[&three.a, &three.b, &other.disk]);
    assert!(
        error.starts_with("a: belongs to volume 01010101-"),
        "{error}"
    );
}

#[test]
fn two_regions_with_one_identity_are_refused() {
    let three = three(1);
    let copy = three.a.copy("copy", NVM_BLOCKS);
    let error = refused(&[&three.a, &copy, &three.disk]);
    assert!(
        error.starts_with("copy: is medium 1 of 3, which a is too"),
        "{error}"
    );
}

#[test]
fn a_region_is_refused_with_a_volume_on_one_device() {
    let disk = Disk::new("disk", DISK_BLOCKS);
    make_volume(disk.device(), &options(&[], 1)).unwrap();
    let error = refused(&[&Disk::new("a", NVM_BLOCKS), &disk]);
    assert!(error.contains("no volume on several media"), "{error}");
}

#[test]
fn persistent_memory_that_is_too_small_is_refused_before_anything_is_written() {
    let disk = RecordDevice::new(share(RamDevice::new("disk", DISK_BLOCKS)));
    let log = disk.log();
    let small = Disk::new("small", 128);
    let error = make_volume(share(disk), &options(&[&small], 1))
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("small: has 512 KiB, but tables, logs and nodes need"),
        "{error}"
    );
    assert_eq!(log.step(), 0);
    let tiny = Disk::new("tiny", 31);
    let disk = Disk::new("disk", DISK_BLOCKS);
    let error = make_volume(disk.device(), &options(&[&tiny], 1))
        .unwrap_err()
        .to_string();
    assert!(error.starts_with("tiny: has 124 KiB"), "{error}");
}

#[test]
fn the_last_block_stands_in_for_the_head_of_the_device() {
    let three = three(1);
    let zeroes = vec![0; BLOCK_BYTES];
    Region::open(three.disk.device())
        .write(BlockNo(0), &zeroes)
        .unwrap();
    read_layout(&Region::open(joined(&three))).unwrap();
}
