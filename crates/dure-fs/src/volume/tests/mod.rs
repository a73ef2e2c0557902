//! The core without names and files: nodes made, changed and freed by operations, over crashes.

mod granules;
mod images;
#[cfg(dure_backend = "sim")]
mod left;
mod policies;
mod presets;
mod queue;
mod unlogged;

use dure_block::crash::{CrashImages, Selection, Tear};
use dure_block::ram::RamDevice;
use dure_block::record::{Effect as Recorded, RecordDevice};
use dure_block::{Device, share};
use dure_store::OpKind;
use dure_store::format::inode::{AttributesRecord, InodeData};
use dure_store::format::node::NodeKind;
use dure_store::layout::FormatOptions;
use dure_store::space::OpClass;
use dure_store::units::{Ino, Mark, Nid, Run, journal_id};
use dure_sync::canary::Rule;
use dure_sync::{Arc, clock, thread};
use std::mem::offset_of;
use std::time::Duration;

use super::{Background, FileSystem, MountOptions};

fn options() -> MountOptions {
    MountOptions {
        background: Background::None,
        cache_bytes: 8 << 20,
        recovery_threads: Some(1),
        ..MountOptions::default()
    }
}

fn ram(blocks: u64, journals: u32) -> Arc<RamDevice> {
    let device = Arc::new(RamDevice::new("ram", blocks));
    let format = FormatOptions {
        journals: Some(journals),
        ..FormatOptions::default()
    };
    FileSystem::format(shared(&device), &format).expect("the device is large enough");
    device
}

fn shared(device: &Arc<RamDevice>) -> Arc<dyn Device> {
    share(Arc::clone(device))
}

fn open(device: &Arc<RamDevice>) -> FileSystem {
    FileSystem::open(shared(device), options()).expect("a good volume mounts")
}

/// A blob node that holds `text`.
fn make(fs: &FileSystem, text: &[u8]) -> (Nid, Mark) {
    let mut op =
        fs.0.store
            .op(OpKind::Write, OpClass::Normal, 1)
            .expect("there is room");
    let node = op.new_node(NodeKind::Blob).expect("there are nids");
    op.edit(&node, 0).all()[..text.len()].copy_from_slice(text);
    (node.nid, op.finish())
}

fn change(fs: &FileSystem, nid: Nid, text: &[u8]) -> Mark {
    let mut op =
        fs.0.store
            .op(OpKind::Write, OpClass::Normal, 1)
            .expect("there is room");
    let node =
        fs.0.store
            .node(nid, NodeKind::Blob.of_none())
            .expect("it is there");
    op.edit(&node, 0).all()[..text.len()].copy_from_slice(text);
    op.finish()
}

fn free(fs: &FileSystem, nid: Nid) -> Mark {
    let mut op =
        fs.0.store
            .op(OpKind::Write, OpClass::Delete, 1)
            .expect("there is room");
    let node =
        fs.0.store
            .node(nid, NodeKind::Blob.of_none())
            .expect("it is there");
    op.free_node(&node).unwrap();
    op.finish()
}

fn text(fs: &FileSystem, nid: Nid, len: usize) -> Vec<u8> {
    let node =
        fs.0.store
            .node(nid, NodeKind::Blob.of_none())
            .expect("it is there");
    node.read(0).payload()[..len].to_vec()
}

#[test]
fn a_fresh_volume_mounts_and_unmounts_clean() {
    let device = ram(4096, 2);
    for _ in 0..3 {
        open(&device).close().expect("nothing to write");
    }
}

#[test]
fn committed_changes_survive_a_crash_and_others_do_not() {
    let device = ram(4096, 2);
    let fs = open(&device);
    let (nid, mark) = make(&fs, b"first");
    fs.0.store.commit(&[mark]).unwrap();
    change(&fs, nid, b"second, never committed");
    drop(fs);
    let fs = open(&device);
    assert_eq!(text(&fs, nid, 5), b"first");
    let mark = change(&fs, nid, b"third");
    fs.0.store.commit(&[mark]).unwrap();
    drop(fs);
    let fs = open(&device);
    assert_eq!(text(&fs, nid, 5), b"third");
    fs.close().unwrap();
    assert_eq!(text(&open(&device), nid, 5), b"third");
}

#[test]
fn checkpoints_let_the_log_go_round_many_times() {
    let device = ram(4096, 1);
    let fs = open(&device);
    let nids: Vec<Nid> = (0..8).map(|_| make(&fs, b"0").0).collect();
    for round in 0..2000_u64 {
        for &nid in &nids {
            change(&fs, nid, &round.to_le_bytes());
        }
        if round % 16 == 0 {
            fs.0.store.commit_all().unwrap();
        }
    }
    let grown = u64::try_from(fs.0.store.counters.rings_grown.sum()).unwrap();
    assert!(grown > 0, "a log that forces checkpoints gets room");
    let logs = fs.0.store.space.statistics().segments_log;
    assert!(u64::from(logs) == 2 + grown && logs <= fs.0.store.layout.segments / 8);
    assert!(
        fs.0.store.counters.checkpoints.sum() > 1,
        "the log must have filled"
    );
    fs.0.store.commit_all().unwrap();
    drop(fs);
    let fs = open(&device);
    for &nid in &nids {
        assert_eq!(text(&fs, nid, 8), 1999_u64.to_le_bytes());
    }
}

#[test]
fn a_log_that_is_half_full_wakes_the_background() {
    let device = ram(16384, 1);
    let options = MountOptions {
        background: Background::Workers,
        commit_interval: Duration::from_secs(3600),
        ..options()
    };
    let fs = FileSystem::open(shared(&device), options).unwrap();
    let nid = make(&fs, b"0").0;
    let id = journal_id(0);
    let capacity = fs.0.store.journal().usage(id).capacity;
    let checkpoints = || fs.0.store.counters.checkpoints.sum();
    // A quarter of the log at a time, with a pause that a checkpoint fits into.
    for _ in 0..4 {
        for round in 0..capacity / 4 {
            let mut op = fs.0.store.op(OpKind::Write, OpClass::Normal, 1).unwrap();
            let node = fs.0.store.node(nid, NodeKind::Blob.of_none()).unwrap();
            op.edit(&node, 0)
                .all()
                .fill(u8::try_from(round % 250).unwrap());
            op.finish();
        }
        let deadline = clock::monotonic_ns() + 1_000_000_000;
        while checkpoints() == 0 && clock::monotonic_ns() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
        if checkpoints() > 0 {
            break;
        }
    }
    let full = fs.0.store.journal().statistics()[0].begin_log_full;
    assert_eq!((checkpoints(), full), (1, 0), "nobody waited for it");
}

/// Found by a benchmark: the core that wrote first took all the log space there is, and the next
/// one did a checkpoint every 500 fsyncs for ever.
#[test]
fn a_ring_that_starves_gets_segments_of_the_largest() {
    let device = ram(16384, 2);
    let fs = open(&device);
    let segments = |index| {
        let capacity = fs.0.store.journal().usage(journal_id(index)).capacity;
        capacity / u64::from(fs.0.store.layout.segment_blocks)
    };
    let grow = |index, times| {
        for _ in 0..times {
            fs.0.store.grow_ring(journal_id(index)).unwrap();
        }
    };
    grow(0, 100);
    let all = segments(0) + segments(1);
    assert!(segments(0) > 10 && segments(1) == 2);
    grow(1, 100);
    assert_eq!(segments(0) + segments(1), all, "none is lost");
    assert!(segments(0).abs_diff(segments(1)) < 2);
    let (nid, mark) = make(&fs, b"kept");
    fs.0.store.commit(&[mark]).unwrap();
    drop(fs);
    assert_eq!(text(&open(&device), nid, 4), b"kept");
}

/// Segments go from one ring to the other, and the power is cut at every step: the first volume
/// that does not mount.
fn cut_while_segments_move(flush_shrunk: Rule) -> Option<crate::Error> {
    let device = ram(16384, 2);
    let base = device.snapshot();
    let record = RecordDevice::new(shared(&device));
    let log = record.log();
    let mut options = options();
    options.rules.flush_shrunk = flush_shrunk;
    let fs = FileSystem::open(share(record), options.clone()).unwrap();
    for journal in [0, 1] {
        for _ in 0..20 {
            fs.0.store.grow_ring(journal_id(journal)).unwrap();
        }
    }
    drop(fs);
    let images = CrashImages::new(base, &log);
    let selection = Selection {
        exhaustive_max: 4,
        random: 0,
        seed: 1,
        tear: Tear::None,
    };
    let mut choices = images.frontiers().into_iter().flat_map(|step| {
        let point = images.at(step);
        let choices = point.choices(selection);
        let image = |choice| point.image(&choice);
        choices.map(image).collect::<Vec<_>>()
    });
    choices.find_map(|image| FileSystem::open(share(Arc::new(image)), options.clone()).err())
}

#[test]
fn no_crash_leaves_a_log_segment_in_two_rings() {
    let refused = cut_while_segments_move(Rule::Holds);
    assert!(refused.is_none(), "{refused:?}");
}

#[test]
fn canary_a_ring_that_takes_a_segment_too_early_is_noticed() {
    let refused = cut_while_segments_move(Rule::LEFT_OUT).expect("a volume must not mount");
    assert!(refused.to_string().contains("listed twice"), "{refused}");
}

#[test]
fn a_freed_nid_lives_again_only_after_its_end_is_valid() {
    let device = ram(4096, 1);
    let fs = open(&device);
    let (nid, _) = make(&fs, b"old life");
    let mark = free(&fs, nid);
    let others: Vec<Nid> = (0..50).map(|_| make(&fs, b"other").0).collect();
    assert!(
        !others.contains(&nid),
        "used again before the freeing handle was valid"
    );
    fs.0.store.commit(&[mark]).unwrap();
    let (again, mark) = make(&fs, b"new life");
    assert_eq!(again, nid, "the freed nid is the next one given out");
    fs.0.store.commit(&[mark]).unwrap();
    drop(fs);
    let fs = open(&device);
    assert_eq!(text(&fs, nid, 8), b"new life");
    // Once more with the image of the life before on the medium.
    fs.0.store.checkpoint().unwrap();
    let mark = free(&fs, nid);
    fs.0.store.commit(&[mark]).unwrap();
    let (again, mark) = make(&fs, b"third");
    assert_eq!(again, nid);
    fs.0.store.commit(&[mark]).unwrap();
    drop(fs);
    assert_eq!(text(&open(&device), nid, 5), b"third");
}

#[test]
fn a_dropped_operation_leaves_nothing() {
    let device = ram(4096, 1);
    let fs = open(&device);
    let (nid, _) = make(&fs, b"kept");
    let before = fs.0.store.space.statistics();
    for _ in 0..10_000 {
        let mut op = fs.0.store.op(OpKind::Write, OpClass::Normal, 3).unwrap();
        let node = fs.0.store.node(nid, NodeKind::Blob.of_none()).unwrap();
        op.edit(&node, 0).all()[0] = b'X';
        op.new_node(NodeKind::Leaf).unwrap();
    }
    assert_eq!(text(&fs, nid, 4), b"kept");
    assert_eq!(fs.0.store.space.statistics(), before);
}

#[test]
fn a_read_only_mount_of_a_crashed_volume_shows_what_survived_and_writes_nothing() {
    let device = ram(4096, 2);
    let fs = open(&device);
    let (nid, mark) = make(&fs, b"logged");
    fs.0.store.commit(&[mark]).unwrap();
    drop(fs);
    let before = device.snapshot();
    let fs = FileSystem::open(
        shared(&device),
        MountOptions {
            read_only: true,
            ..options()
        },
    );
    let fs = fs.unwrap();
    assert_eq!(text(&fs, nid, 6), b"logged");
    assert!(fs.0.store.op(OpKind::Write, OpClass::Normal, 1).is_err());
    fs.close().unwrap();
    assert_eq!(before.first_difference(&device.snapshot()), None);
}

#[test]
fn threads_change_their_own_and_common_nodes() {
    let device = ram(8192, 4);
    let fs = open(&device);
    let (common, _) = make(&fs, &[0; 8]);
    let lock = dure_sync::Mutex::<60, u64>::new(0);
    dure_sync::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let (own, _) = make(&fs, b"own");
                for round in 0..500_u64 {
                    let mark = change(&fs, own, &round.to_le_bytes());
                    let mut op = fs.0.store.op(OpKind::Write, OpClass::Normal, 1).unwrap();
                    let mut count = lock.lock();
                    *count += 1;
                    let node = fs.0.store.node(common, NodeKind::Blob.of_none()).unwrap();
                    op.edit(&node, 0).all()[..8].copy_from_slice(&count.to_le_bytes());
                    let second = op.finish();
                    drop(count);
                    if round % 32 == 0 {
                        fs.0.store.commit(&[mark, second]).unwrap();
                    }
                }
            });
        }
    });
    fs.0.store.commit_all().unwrap();
    drop(fs);
    assert_eq!(text(&open(&device), common, 8), 1500_u64.to_le_bytes());
}

/// What the medium is said to have wrong.
fn corrupt<T: std::fmt::Debug>(result: crate::Result<T>) -> String {
    match result {
        Err(crate::Error::Corrupt { what, .. }) => what,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_sit_that_denies_an_image_stops_the_checkpoint_that_moves_it() {
    let device = ram(4096, 1);
    let fs = open(&device);
    let (nid, _) = make(&fs, b"once");
    fs.0.store.checkpoint().unwrap();
    let first = fs.0.store.nat.entry(nid).unwrap().block();
    fs.0.store.space.mend_dead(Run { first, count: 1 }).unwrap();
    change(&fs, nid, b"more");
    let what = corrupt(fs.0.store.checkpoint());
    assert!(what.contains("it is not live"), "{what}");
    assert!(fs.stopped().is_some_and(|reason| reason.contains(&what)));
    assert!(fs.0.store.op(OpKind::Write, OpClass::Normal, 1).is_err());
}

#[test]
fn a_slot_that_names_a_free_block_stops_the_volume_when_it_is_freed() {
    let device = ram(4096, 1);
    let fs = open(&device);
    let (nid, _) = make(&fs, b"owner");
    let mut op = fs.0.store.op(OpKind::Write, OpClass::Delete, 1).unwrap();
    let node = fs.0.store.node(nid, NodeKind::Blob.of_none()).unwrap();
    op.edit(&node, 0).all()[0] = b'O';
    let owner = dure_store::units::SlotRef {
        nid,
        granule: 0,
        slot: 0,
    };
    let first = fs
        .layout()
        .segment_start(dure_store::units::SegNo(fs.layout().segments - 1));
    op.unplace(owner, Run { first, count: 1 });
    let mark = op.finish();
    let what = corrupt(fs.0.store.commit(&[mark]));
    assert!(what.contains("frees it, but it is free"), "{what}");
    assert!(fs.stopped().is_some_and(|reason| reason.contains(&what)));
    assert!(matches!(
        fs.0.background.round_of_all(),
        Err(crate::Error::Stopped { .. })
    ));
}

#[test]
fn an_inode_with_impossible_fields_is_refused() {
    let device = ram(4096, 1);
    let root = Ino::ROOT;
    let refused = |index: u8, at: usize, bytes: &[u8]| {
        let fs = open(&device);
        let node =
            fs.0.store
                .node(root.nid(), NodeKind::Inode.of_none())
                .unwrap();
        let mut op = fs.0.store.op(OpKind::Write, OpClass::Normal, 1).unwrap();
        op.edit(&node, index).all()[at..at + bytes.len()].copy_from_slice(bytes);
        op.finish();
        corrupt(fs.root())
    };
    let xattr_bytes = offset_of!(AttributesRecord, xattr_bytes);
    let blocks = offset_of!(InodeData, head.blocks);
    assert_eq!(
        refused(root.index(), xattr_bytes, &u32::MAX.to_le_bytes()),
        "xattr length of inode 1"
    );
    assert_eq!(
        refused(root.data_index(), blocks, &[0xff; 8]),
        "blocks of inode 1"
    );
}

/// Found by a schedule, of the format before: the header of a checkpoint that moves no tail was not
/// flushed, and the next checkpoint wrote over what the older header named.
#[test]
fn a_checkpoint_flushes_its_header_though_no_tail_moves() {
    let device = ram(4096, 1);
    let record = RecordDevice::new(shared(&device));
    let log = record.log();
    let fs = FileSystem::open(share(record), options()).unwrap();
    let first = fs.layout().volume_header;
    for _ in 0..3 {
        fs.0.store.checkpoint().unwrap();
        let entries = log.entries();
        let is_header = |effect: &Recorded| {
            matches!(effect, Recorded::Write { lba, .. }
                if (first..first + 4).contains(&lba.number()))
        };
        let last = entries.iter().rposition(|entry| is_header(&entry.effect));
        let behind = &entries[last.expect("a header was written")..];
        let flushed = behind
            .iter()
            .any(|entry| matches!(entry.effect, Recorded::Flush));
        assert!(
            flushed,
            "the next checkpoint writes to the slots the one before named"
        );
    }
}

fn content(device: &RamDevice) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(device.info().blocks).unwrap() * 4096];
    let (lba, out) = (dure_block::Lba::new(0), &mut bytes[..]);
    device.execute(dure_block::Io::Read { lba, out }).unwrap();
    bytes
}

/// An image was mounted twice, by names that no lock covered, and ended in contradictions.
#[test]
fn a_mount_that_finds_anothers_header_writes_nothing_more() {
    let device = ram(4096, 1);
    let first = open(&device);
    make(&first, b"first");
    first.0.store.checkpoint().unwrap();
    let second = open(&device);
    let (nid, _) = make(&second, b"second");
    second.0.store.checkpoint().unwrap();
    let before = content(&device);

    make(&first, b"lost");
    let refused = first.0.store.checkpoint();
    assert!(
        matches!(refused, Err(crate::Error::TakenOver)),
        "{refused:?}"
    );
    let why = first.stopped().unwrap();
    assert!(why.contains("another process has mounted"), "{why}");
    assert!(first.sync().is_err() && first.close().is_err());
    assert!(content(&device) == before, "it wrote nothing");

    change(&second, nid, b"goes on");
    second.close().unwrap();
    let third = open(&device);
    assert_eq!(text(&third, nid, 7), b"goes on");
    third.close().unwrap();
}
