//! Volumes made by the file system itself: in use, crashed, and unmounted.

use dure_block::crash::{CrashImages, Selection};
use dure_block::ram::RamDevice;
use dure_block::record::RecordDevice;
use dure_block::{Device, share};
use dure_fs::{Background, FileSystem, MountOptions};
use dure_store::OpKind;
use dure_store::format::node::NodeKind;
use dure_store::layout::FormatOptions;
use dure_store::space::OpClass;
use dure_store::units::{Mark, Nid};
use dure_sync::Arc;

use super::disk::lines;
use crate::{CheckOptions, Report, check};

fn formatted(journals: u32) -> Arc<RamDevice> {
    let device = Arc::new(RamDevice::new("mounted", 2048));
    let options = FormatOptions {
        journals: Some(journals),
        ..FormatOptions::default()
    };
    FileSystem::format(share(Arc::clone(&device)), &options).unwrap();
    device
}

fn mount(device: Arc<dyn Device>) -> FileSystem {
    let options = MountOptions {
        background: Background::None,
        cache_bytes: 8 << 20,
        recovery_threads: Some(1),
        ..MountOptions::default()
    };
    FileSystem::open(device, options).unwrap()
}

/// A blob node that nothing refers to.
fn make(fs: &FileSystem, text: &[u8]) -> (Nid, Mark) {
    let mut op = fs.store().op(OpKind::Write, OpClass::Normal, 1).unwrap();
    let node = op.new_node(NodeKind::Blob).unwrap();
    op.edit(&node, 0).all()[..text.len()].copy_from_slice(text);
    (node.nid, op.finish())
}

fn change(fs: &FileSystem, nid: Nid, text: &[u8]) -> Mark {
    let mut op = fs.store().op(OpKind::Write, OpClass::Normal, 1).unwrap();
    let node = fs.store().node(nid, NodeKind::Blob.of_none()).unwrap();
    op.edit(&node, 0).all()[..text.len()].copy_from_slice(text);
    op.finish()
}

fn free(fs: &FileSystem, nid: Nid) -> Mark {
    let mut op = fs.store().op(OpKind::Write, OpClass::Delete, 1).unwrap();
    let node = fs.store().node(nid, NodeKind::Blob.of_none()).unwrap();
    op.free_node(&node).unwrap();
    op.finish()
}

fn checked(device: &Arc<RamDevice>) -> Report {
    check(share(Arc::clone(device)), &CheckOptions::default()).unwrap()
}

#[test]
fn a_crashed_volume_is_checked_as_its_recovery_leaves_it() {
    let device = formatted(2);
    let fs = mount(share(Arc::clone(&device)));
    let (kept, mark) = make(&fs, b"kept");
    fs.store().commit(&[mark]).unwrap();
    make(&fs, b"never committed");
    drop(fs);
    let before = device.snapshot();
    let report = checked(&device);
    assert_eq!(
        lines(&report),
        [
            "warning: the volume was not unmounted cleanly; the check looked at what a mount will \
             recover from 1 transaction"
                .to_owned(),
            format!("warning: node {kept} (Blob) belongs to nothing; its space is lost"),
        ]
    );
    assert_eq!(before.first_difference(&device.snapshot()), None);
    mount(share(Arc::clone(&device))).close().unwrap();
    let line = format!("warning: node {kept} (Blob) belongs to nothing; its space is lost");
    assert_eq!(lines(&checked(&device)), [line]);
}

#[test]
fn a_log_that_does_not_fit_the_images_is_fatal() {
    let device = formatted(1);
    let fs = mount(share(Arc::clone(&device)));
    let (nid, _) = make(&fs, b"first");
    fs.store().checkpoint().unwrap();
    for round in 0..3_u8 {
        let mark = change(&fs, nid, &[round]);
        fs.store().commit(&[mark]).unwrap();
    }
    drop(fs);
    assert!(checked(&device).is_sound());
    // Forget the image: the logs change a node that is not there.
    let layout = dure_store::VolumeInfo::read(share(Arc::clone(&device)))
        .unwrap()
        .layout;
    let disk = super::disk::Disk {
        device: Arc::clone(&device),
        layout,
    };
    let (pair, _) = dure_store::format::nat::place_of(nid);
    let first = disk.layout.nat_pair(pair);
    for at in [first, first + 1] {
        disk.put(at, &[0; 4096]);
    }
    let report = checked(&device);
    let last = lines(&report).pop().unwrap();
    assert!(
        last.starts_with("fatal: the logs cannot be replayed: corrupt: log record"),
        "{last}"
    );
}

/// Issues that a state between operations must never have.
fn bad(report: &Report) -> Vec<String> {
    let lines = lines(report);
    let allowed = [
        "not unmounted cleanly",
        "belongs to nothing; its space",
        "is not valid (torn",
    ];
    lines
        .into_iter()
        .filter(|line| !allowed.iter().any(|part| line.contains(part)))
        .collect()
}

#[test]
fn no_crash_leaves_more_than_leaked_nodes() {
    let device = formatted(2);
    let base = device.snapshot();
    let record = RecordDevice::new(share(Arc::clone(&device)));
    let log = record.log();
    let fs = mount(share(record));
    let mut nids = Vec::new();
    for round in 0..12_u8 {
        let (nid, mark) = make(&fs, &[round]);
        nids.push(nid);
        change(&fs, nids[usize::from(round / 2)], &[round, round]);
        fs.store().commit(&[mark]).unwrap();
        if round % 4 == 3 {
            free(&fs, nids.remove(0));
            fs.store().checkpoint().unwrap();
        }
    }
    fs.close().unwrap();
    let images = CrashImages::new(base, &log);
    let mut states = 0;
    for step in 0..=images.last_step() {
        let point = images.at(step);
        for choice in point.choices(Selection::default()).take(6) {
            let device = RamDevice::from_image("crash", &point.image(&choice).snapshot());
            let device = Arc::new(device);
            assert_eq!(bad(&checked(&device)), Vec::<String>::new(), "step {step}");
            mount(share(Arc::clone(&device))).close().unwrap();
            assert_eq!(
                bad(&checked(&device)),
                Vec::<String>::new(),
                "step {step}, recovered"
            );
            states += 1;
        }
    }
    assert!(states > 100, "{states} states");
}

/// Regression: a change of a nid's earlier life, still in the log, was laid over the image of its
/// present life, of a kind with smaller granules, and recovery refused the volume.
#[test]
fn a_nid_that_lives_again_as_another_kind_recovers() {
    let device = formatted(1);
    let base = device.snapshot();
    let record = RecordDevice::new(share(Arc::clone(&device)));
    let log = record.log();
    let fs = mount(share(record));
    let (first, mark) = make(&fs, &[7; 4000]);
    fs.store().commit(&[mark]).unwrap();
    let mark = free(&fs, first);
    fs.store().commit(&[mark]).unwrap();
    let mut op = fs.store().op(OpKind::Write, OpClass::Normal, 1).unwrap();
    let node = op.new_node(NodeKind::Orphan).unwrap();
    op.edit(&node, 6).part(0..1)[0] = 1;
    let mark = op.finish();
    assert_eq!(node.nid, first, "the freed nid lives again");
    fs.store().commit(&[mark]).unwrap();
    fs.store().checkpoint().unwrap();
    drop(fs);
    let images = CrashImages::new(base, &log);
    for step in 0..=images.last_step() {
        let point = images.at(step);
        for choice in point.choices(Selection::default()).take(8) {
            let device = RamDevice::from_image("crash", &point.image(&choice).snapshot());
            let device = Arc::new(device);
            assert_eq!(bad(&checked(&device)), Vec::<String>::new(), "step {step}");
            mount(share(Arc::clone(&device))).close().unwrap();
        }
    }
}
