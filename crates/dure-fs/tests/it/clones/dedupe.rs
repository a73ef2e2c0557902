//! What two files have in common is shared, and nothing else.

use std::time::Duration;

use dure_block::ram::RamDevice;
use dure_block::{Device, DeviceInfo, Io, share};
use dure_fs::{AllocateMode, Deduped, FileSystem, SyncScope};
use dure_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use dure_sync::{Arc, thread};

use super::model::{Model, expect};
use super::{P, clone, file, size, write};
use crate::snapshots::{expect_sound, formatted, made, options};

fn dedupe(fs: &FileSystem, from: (&str, u64), to: (&str, u64), len: u64) -> Deduped {
    let (source, target) = (file(fs, from.0), file(fs, to.0));
    let found = fs.dedupe_range((&source, from.1), (&target, to.1), len);
    found.expect("a good device")
}

fn same(same: u64) -> Deduped {
    Deduped {
        same,
        differs: false,
    }
}

fn then_differs(same: u64) -> Deduped {
    Deduped {
        same,
        differs: true,
    }
}

#[test]
fn what_is_equal_is_shared_and_its_times_stay() {
    let (ram, fs) = made(4096);
    let content: Vec<u8> = (0..200 * P + 77)
        .map(|n| (n / P).to_le_bytes()[0] | 1)
        .collect();
    for name in ["a", "b", "c"] {
        write(&fs, name, 0, &content);
    }
    write(&fs, "c", 150 * P + 9, &[0; 3]);
    fs.sync().expect("a good device");
    let before = fs.attributes(&file(&fs, "b")).expect("attributes");
    let len = content.len() as u64;
    assert_eq!(dedupe(&fs, ("a", 0), ("b", 0), len), same(len));
    assert_eq!(dedupe(&fs, ("a", 0), ("c", 0), len), then_differs(150 * P));
    assert_eq!(
        dedupe(&fs, ("a", 151 * P), ("c", 151 * P), len),
        same(len - 151 * P)
    );
    assert_eq!(fs.blocks_shared(), 201 + 200);
    let after = fs.attributes(&file(&fs, "b")).expect("attributes");
    assert_eq!(
        (after.size, after.blocks, after.mtime, after.ctime),
        (before.size, before.blocks, before.mtime, before.ctime)
    );
    // Again: nothing is left to do.
    assert_eq!(dedupe(&fs, ("a", 0), ("b", 0), len), same(len));
    assert_eq!(fs.blocks_shared(), 201 + 200);
    write(&fs, "a", 5 * P, &[0; 10]);
    let mut model: Model = ["a", "b", "c"]
        .map(|name| (name.to_owned(), content.clone()))
        .into();
    model.get_mut("a").expect("one")[size(5 * P)..][..10].fill(0);
    model.get_mut("c").expect("one")[size(150 * P) + 9..][..3].fill(0);
    expect(&fs, &model);
    fs.close().expect("a good device");
    expect_sound(&ram);
    let fs = FileSystem::open(share(ram), options()).expect("it mounts");
    expect(&fs, &model);
}

#[test]
fn zeroes_are_equal_to_holes_and_stay_as_they_are() {
    let (ram, fs) = made(2048);
    write(&fs, "holes", 30 * P, &[1; 4096]);
    write(&fs, "zeroes", 0, &vec![0; size(30 * P)]);
    write(&fs, "zeroes", 30 * P, &[1; 4096]);
    let filled = file(&fs, "filled");
    fs.allocate(&filled, AllocateMode::Extend, 0, 31 * P)
        .expect("room");
    write(&fs, "filled", 30 * P, &[1; 4096]);
    let len = 31 * P;
    assert_eq!(dedupe(&fs, ("holes", 0), ("zeroes", 0), len), same(len));
    assert_eq!(dedupe(&fs, ("zeroes", 0), ("filled", 0), len), same(len));
    assert_eq!(dedupe(&fs, ("holes", 0), ("filled", 0), len), same(len));
    assert_eq!(fs.blocks_shared(), 2, "the last page of three files");
    write(&fs, "zeroes", 3 * P, &[1]);
    assert_eq!(
        dedupe(&fs, ("holes", 0), ("zeroes", 0), len),
        then_differs(3 * P)
    );
    assert_eq!(
        dedupe(&fs, ("zeroes", 0), ("filled", 0), len),
        then_differs(3 * P)
    );
    fs.close().expect("a good device");
    expect_sound(&ram);
}

#[test]
fn what_is_no_pair_of_pages_is_left() {
    let (_ram, fs) = made(2048);
    write(&fs, "a", 0, &[1; 3 * 4096 + 7]);
    write(&fs, "b", 0, &[1; 4 * 4096]);
    assert_eq!(dedupe(&fs, ("a", 1), ("b", 0), P), same(0));
    assert_eq!(dedupe(&fs, ("a", 0), ("b", 1), P), same(0));
    assert_eq!(dedupe(&fs, ("a", 0), ("a", P), P), same(0));
    assert_eq!(
        dedupe(&fs, ("a", 0), ("b", 0), 3 * P + 7),
        same(3 * P),
        "the end of one of them"
    );
    assert_eq!(fs.blocks_shared(), 3);
    // Equal to the end of the page, and longer: the other does not grow.
    write(
        &fs,
        "long",
        0,
        &[&[5; 3 * 4096 + 7][..], &[0; 4089]].concat(),
    );
    write(&fs, "short", 0, &[5; 3 * 4096 + 7]);
    assert_eq!(dedupe(&fs, ("long", 0), ("short", 0), 4 * P), same(3 * P));
    let short = fs.attributes(&file(&fs, "short")).expect("attributes");
    assert_eq!(short.size, 3 * P + 7);
}

/// Holds back the end of one read, the one that is told.
#[derive(Debug)]
struct Gate {
    ram: Arc<RamDevice>,
    /// Reads until then.
    left: AtomicU64,
    waits: AtomicBool,
}

const IDLE: u64 = u64::MAX;

impl Device for Gate {
    fn info(&self) -> &DeviceInfo {
        self.ram.info()
    }

    fn execute(&self, io: Io<'_>) -> dure_block::Result<()> {
        let is_read = matches!(io, Io::Read { .. });
        let done = self.ram.execute(io);
        let next = |left: u64| (left != IDLE).then(|| left.checked_sub(1).unwrap_or(IDLE));
        let ordering = Ordering::SeqCst;
        if is_read && self.left.fetch_update(ordering, ordering, next) == Ok(0) {
            self.waits.store(true, ordering);
            while self.waits.load(ordering) {
                thread::sleep(Duration::from_millis(1));
            }
        }
        done
    }
}

/// The source is written when the dedupe has read it, or both: what was compared is not what it
/// has now.
#[test]
fn a_page_that_changes_after_it_was_compared_is_not_shared() {
    for reads in [0, 1] {
        let gate = Arc::new(Gate {
            ram: formatted(2048),
            left: AtomicU64::new(IDLE),
            waits: AtomicBool::new(false),
        });
        let fs = FileSystem::open(share(gate.clone()), options()).expect("it mounts");
        for name in ["a", "b"] {
            write(&fs, name, 0, &[1; 4 << 12]);
        }
        // The first clone is announced, which begins anew.
        assert!(clone(&fs, "b", "c"));
        fs.sync().expect("a good device");
        fs.checkpoint_now().expect("a good device");
        let a = file(&fs, "a");
        gate.left.store(reads, Ordering::SeqCst);
        let compared = {
            let fs = fs.clone();
            thread::spawn("dedupe", move || dedupe(&fs, ("a", 0), ("b", 0), 4 << 12))
        };
        while !gate.waits.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(1));
        }
        write(&fs, "a", P, &[2; 4096]);
        fs.fsync(&a, SyncScope::All).expect("a good device");
        gate.waits.store(false, Ordering::SeqCst);
        assert_eq!(compared.join().expect("no panic"), then_differs(P));
        let mut changed = vec![1; 4 << 12];
        changed[4096..8192].fill(2);
        let model = [
            ("a".to_owned(), changed),
            ("b".to_owned(), vec![1; 4 << 12]),
        ];
        expect(&fs, &Model::from(model));
        fs.close().expect("a good device");
        expect_sound(&gate.ram);
    }
}

#[test]
fn a_clone_of_what_was_shared_is_shared_by_three() {
    let (ram, fs) = made(2048);
    for name in ["a", "b"] {
        write(&fs, name, 0, &[9; 6 << 12]);
    }
    assert_eq!(dedupe(&fs, ("a", 0), ("b", 0), 6 << 12), same(6 << 12));
    assert!(clone(&fs, "b", "c"));
    assert_eq!(fs.blocks_shared(), 12);
    let root = fs.root().expect("a root");
    fs.unlink(&root, b"a").expect("it is there");
    fs.sync().expect("a good device");
    assert_eq!(fs.blocks_shared(), 6);
    fs.close().expect("a good device");
    expect_sound(&ram);
}
