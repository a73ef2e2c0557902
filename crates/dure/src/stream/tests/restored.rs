//! Files that are made those of a snapshot again: random trees, cuts, streams whose rest is lost.

use dure_block::crash::{CrashImages, Selection};
use dure_block::record::RecordDevice;
use dure_sync::canary::Rule;
use dure_sync::random::Seeded;

use super::super::restore::restore_as;
use super::super::{Restored, restore};
use super::random::step;
use super::*;

impl Disk {
    fn restore(&self, name: &str) -> crate::Result<Restored> {
        restore(&self.volume, name, &mut go)
    }
}

#[test]
fn a_random_tree_becomes_that_of_any_snapshot() {
    for seed in 0..20 {
        let mut random = Seeded::new(seed);
        let mut disk = Disk::new(16_384);
        let mut taken = Vec::new();
        for round in 0..3 {
            for _ in 0..random.below(200) {
                step(disk.fs(), &mut random);
            }
            let name = format!("s{round}");
            taken.push((disk.take(&name), name));
        }
        for _ in 0..4 {
            for _ in 0..random.below(80) {
                step(disk.fs(), &mut random);
            }
            let now = content(disk.fs());
            let at = usize::try_from(random.below(taken.len() as u64)).unwrap();
            let (then, name) = taken[at].clone();
            if random.below(2) == 0 {
                // Stopped some way, and the process killed.
                let mut left = random.below(40);
                let how = How {
                    sync_bytes: 1 + random.below(5000),
                    ..How::default()
                };
                let stopped = restore_as(how, (&disk.volume, &name), &mut |_| {
                    left = left.saturating_sub(1);
                    match left {
                        0 => ControlFlow::Break(()),
                        _ => ControlFlow::Continue(()),
                    }
                });
                if stopped.is_err() && random.below(2) == 0 {
                    disk.volume.sync().unwrap();
                }
                disk = disk.killed();
            }
            let restored = disk.restore(&name).unwrap();
            assert_eq!(restored.copy, None);
            expect_same(&then, &content(disk.fs()));
            expect_same(&then, &disk.past(&name));
            taken.push((now, restored.before));
        }
        for (then, name) in &taken {
            // That of a restore that was whole when it was stopped is of the second call.
            if name.starts_with('s') {
                expect_same(then, &disk.past(name));
            }
        }
        disk.expect_sound();
    }
}

#[test]
fn what_was_there_before_comes_back_too() {
    let disk = Disk::new(8192);
    let session = disk.volume.root();
    session.write("kept", b"old").unwrap();
    session.write("removed", &vec![1; 50_000]).unwrap();
    let old = disk.take("monday");
    let inode = |name: &str| session.metadata(name).unwrap().ino();
    let kept = inode("kept");
    session.write("kept", b"new").unwrap();
    session.remove_file("removed").unwrap();
    session.write("added", b"added").unwrap();
    let new = content(disk.fs());
    let restored = disk.restore("monday").unwrap();
    assert_eq!(restored.before, "before-monday");
    expect_same(&old, &content(disk.fs()));
    assert_eq!(inode("kept"), kept);
    expect_same(&new, &disk.past("before-monday"));
    let back = disk.restore("before-monday").unwrap();
    assert_eq!(back.before, "before-before-monday");
    expect_same(&new, &content(disk.fs()));
    // Nothing differs: two records and the root.
    assert!(disk.restore("before-monday").unwrap().bytes < 1000);
    let error = disk.restore("none").unwrap_err().to_string();
    assert!(error.contains("no snapshot called none"), "{error}");
    disk.expect_sound();
}

/// A source with increments, and a copy that has the first snapshot.
fn backup() -> (Disk, Disk) {
    let disk = Disk::new(8192);
    let session = disk.volume.root();
    session.create_dir("d").unwrap();
    for n in 0..6 {
        session.write(format!("d/{n}"), &vec![n; 30_000]).unwrap();
    }
    disk.take("one");
    for n in 0..5_u8 {
        let to = format!("d/{}", 10 + n);
        session.rename(format!("d/{n}"), &to).unwrap();
        session.write(&to, &vec![n + 1; 30_000]).unwrap();
    }
    session.remove_file("d/5").unwrap();
    disk.take("two");
    session.write("d/new", b"new").unwrap();
    disk.take("three");
    let copy = Disk::new(8192);
    copy.receive(&disk.stream("one", None)).unwrap();
    (disk, copy)
}

#[test]
fn a_stream_whose_rest_is_lost_is_given_up() {
    let (disk, _) = backup();
    let whole = disk.stream("one", None);
    let lost = disk.stream("two", Some("one"));
    for cut in (200..lost.len()).step_by(lost.len() / 23) {
        let copy = Disk::new(8192);
        copy.receive(&whole).unwrap();
        copy.receive(&lost[..cut]).unwrap_err();
        let restored = copy.restore("one").unwrap();
        assert_eq!(restored.copy.as_deref(), Some("restored-one"));
        expect_same(&disk.past("one"), &content(copy.fs()));
        // Those that are relative to what was restored fit: here of two at once.
        copy.receive(&disk.stream("three", Some("one"))).unwrap();
        expect_same(&disk.past("three"), &content(copy.fs()));
        copy.expect_sound();
    }
}

#[test]
fn a_backup_that_was_changed_takes_increments_again() {
    let (disk, copy) = backup();
    copy.volume.root().write("d/3", b"mine").unwrap();
    copy.volume.root().remove_file("d/4").unwrap();
    let increment = disk.stream("two", Some("one"));
    copy.receive(&increment).unwrap_err();
    copy.restore("one").unwrap();
    copy.receive(&increment).unwrap();
    expect_same(&disk.past("two"), &content(copy.fs()));
}

/// Whether a restore that was cut at any request of the device is ended by another.
fn ends_after_a_power_cut(how: How) -> bool {
    let (disk, _) = backup();
    let session = disk.volume.root();
    session.write("d/10", b"short").unwrap();
    disk.volume.close().unwrap();
    let base = disk.ram.snapshot();
    let record = RecordDevice::new(share(disk.ram.clone()));
    let log = record.log();
    let volume = Volume::open_on(share(record), options()).unwrap();
    let now = content(volume.file_system());
    restore_as(how, (&volume, "one"), &mut go).unwrap();
    volume.close().unwrap();
    let disk = Disk::open(disk.ram.clone());
    let then = disk.past("one");
    let images = CrashImages::new(base, &log);
    for step in images.frontiers() {
        let point = images.at(step);
        for choice in point.choices(Selection::default()).take(3) {
            let image = point.image(&choice).snapshot();
            let copy = Disk::open(Arc::new(RamDevice::from_image("crashed", &image)));
            let half = super::super::half_done(copy.fs()).unwrap().is_some();
            let is = content(copy.fs());
            if !half && is != then && is != now {
                return false;
            }
            let restored = copy.restore("one").unwrap();
            expect_same(&then, &content(copy.fs()));
            if is != then || half {
                expect_same(&now, &copy.past(&restored.before));
            }
            copy.expect_sound();
        }
    }
    true
}

#[test]
fn canary_a_tree_in_between_is_known_as_one_after_a_power_cut() {
    let how = How {
        sync_bytes: 20_000,
        ..How::default()
    };
    assert!(ends_after_a_power_cut(how));
    assert!(!ends_after_a_power_cut(How {
        state_first: Rule::LEFT_OUT,
        ..how
    }));
}
