//! The order of a receive: what a crash leaves, and what it would leave without.

use std::io::{self, BufReader, Read};

use dure_block::crash::{CrashImages, Selection};
use dure_block::record::RecordDevice;
use dure_fs::SyncScope;
use dure_sync::canary::Rule;

use super::super::state::State;
use super::*;

/// A source, with the streams of its two snapshots: files are written, changed, and change places.
fn source() -> (Disk, [Vec<u8>; 2]) {
    let disk = Disk::new(4096);
    let session = disk.volume.root();
    for directory in ["a", "b", "a/c"] {
        session.create_dir(directory).unwrap();
        for n in 0..4 {
            let path = format!("{directory}/file{n}");
            session.write(&path, &vec![b'0' + n; 9000]).unwrap();
        }
    }
    disk.take("one");
    let whole = disk.stream("one", None);
    session.rename("a/c", "c").unwrap();
    session.rename("a", "c/a").unwrap();
    session.rename("b/file1", "b/file0").unwrap();
    session.write("c/file2", &[7; 20_000]).unwrap();
    session.remove_file("c/a/file3").unwrap();
    session.write("b/file1", b"new").unwrap();
    disk.take("two");
    let increment = disk.stream("two", Some("one"));
    (disk, [whole, increment])
}

/// Whether a receive that was cut at any request of the device, and any that were not flushed lost, is
/// ended by another.
fn ends_after_a_power_cut(how: How) -> bool {
    let (disk, [whole, increment]) = source();
    for (at, stream) in [&whole, &increment].into_iter().enumerate() {
        let copy = Disk::new(4096);
        if at == 1 {
            copy.receive(&whole).unwrap();
        }
        copy.volume.close().unwrap();
        let base = copy.ram.snapshot();
        let record = RecordDevice::new(share(copy.ram.clone()));
        let log = record.log();
        let volume = Volume::open_on(share(record), options()).unwrap();
        receive_as(how, (&volume, None), &mut &stream[..], &mut go).unwrap();
        volume.close().unwrap();
        let then = disk.past(["one", "two"][at]);
        let images = CrashImages::new(base, &log);
        for step in images.frontiers() {
            let point = images.at(step);
            for choice in point.choices(Selection::default()).take(3) {
                let image = point.image(&choice).snapshot();
                let copy = Disk::open(Arc::new(RamDevice::from_image("crashed", &image)));
                if copy.receive_as(how, stream).is_err() {
                    return false;
                }
                expect_same(&then, &content(copy.fs()));
                copy.expect_sound();
            }
        }
    }
    true
}

#[test]
fn a_power_cut_leaves_what_the_same_stream_completes() {
    let how = How {
        sync_bytes: 20_000,
        ..How::default()
    };
    assert!(ends_after_a_power_cut(how));
}

#[test]
fn canary_the_state_is_there_before_the_first_change_and_until_the_snapshot_is() {
    assert!(!ends_after_a_power_cut(How {
        state_first: Rule::LEFT_OUT,
        ..How::default()
    }));
    assert!(!ends_after_a_power_cut(How {
        state_last: Rule::LEFT_OUT,
        ..How::default()
    }));
}

/// Killed between the last record and the snapshot.
#[test]
fn a_snapshot_that_is_all_that_is_missing_is_taken() {
    let (disk, [whole, _]) = source();
    let copy = Disk::new(4096);
    copy.receive(&whole).unwrap();
    let state = State::of(&copy.fs().open_snapshot("one", options()).unwrap());
    let state = state.unwrap().unwrap();
    assert_eq!(state.whole, Some(1));
    copy.volume.delete_snapshot("one").unwrap();
    let set = (crate::XattrMode::Any, dure_fs::SetGid::Keep);
    let root = copy.fs().root().unwrap();
    let shared = copy.volume.shared();
    shared
        .set_xattr(&root, (STATE, &state.encode()), set)
        .unwrap();
    let received = copy.receive(&whole).unwrap();
    assert_eq!(received.skipped, received.bytes);
    expect_same(&disk.past("one"), &copy.past("one"));
    assert_eq!(State::of(copy.fs()).unwrap(), None);
}

/// A stream, during which another task commits operations, but no content of files.
struct Committing<'s> {
    stream: &'s [u8],
    fs: &'s FileSystem,
}

impl Read for Committing<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.fs
            .fsync(&self.fs.root().unwrap(), SyncScope::All)
            .unwrap();
        self.stream.read(out)
    }
}

/// Whether receives that were killed have lost nothing of what the next one skips.
fn keeps_what_is_skipped(how: How) -> bool {
    let (disk, [whole, _]) = source();
    let then = disk.past("one");
    (1..20).all(|part| {
        let copy = Disk::new(4096);
        let stream = &whole[..whole.len() * part / 20];
        let fs = copy.fs();
        let mut input = BufReader::with_capacity(1000, Committing { stream, fs });
        receive_as(how, (&copy.volume, None), &mut input, &mut go).unwrap_err();
        let copy = copy.killed();
        copy.receive_as(how, &whole).unwrap();
        content(copy.fs()) == then
    })
}

#[test]
fn canary_what_is_skipped_is_durable() {
    let how = How {
        sync_bytes: 10_000,
        ..How::default()
    };
    assert!(keeps_what_is_skipped(how));
    assert!(!keeps_what_is_skipped(How {
        sync_first: Rule::LEFT_OUT,
        ..how
    }));
}

/// The same increment, from the original and from a backup, whose inodes have other numbers: one goes
/// on with what the other one began.
#[test]
fn a_stream_of_another_holder_ends_what_was_begun() {
    let disk = Disk::new(4096);
    let session = disk.volume.root();
    session.create_dir("a").unwrap();
    session.create_dir("b").unwrap();
    for path in ["x", "b/q", "a/p", "y", "a/o", "b/r"] {
        session.write(path, path.as_bytes()).unwrap();
    }
    disk.take("one");
    let whole = disk.stream("one", None);
    let exchange = crate::RenameMode::Exchange;
    for (one, other) in [("x", "a/p"), ("b/q", "y"), ("a/o", "b/r"), ("a", "b")] {
        session.rename_with(one, other, exchange).unwrap();
        session
            .write(one, format!("{one} was {other}").as_bytes())
            .unwrap_or(());
    }
    let then = disk.take("two");
    let original = disk.stream("two", Some("one"));
    let backup = Disk::new(4096);
    backup.receive(&whole).unwrap();
    backup.receive(&original).unwrap();
    let numbers = |disk: &Disk| {
        let metadata = |path: &str| disk.volume.root().metadata(path).unwrap().ino();
        [metadata("x"), metadata("b/p"), metadata("y")]
    };
    assert_ne!(numbers(&disk), numbers(&backup));
    let other = backup.stream("two", Some("one"));
    for sync_bytes in [1, 1 << 20] {
        let how = How {
            sync_bytes,
            ..How::default()
        };
        for cut in (50..original.len()).step_by(37) {
            let copy = Disk::new(4096);
            copy.receive(&whole).unwrap();
            copy.receive_as(how, &original[..cut]).unwrap_err();
            if copy.receive_as(how, &other).is_err() {
                copy.receive_as(how, &other).unwrap();
            }
            expect_same(&then, &content(copy.fs()));
        }
    }
}
