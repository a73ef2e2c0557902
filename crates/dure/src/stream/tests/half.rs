//! What is needed to end what is half done stays.

use super::super::{Fault, Half, check_delete, half_done, restore};
use super::*;
use crate::Cause;

/// A volume with `one` and `two`, of which the first is half restored.
fn half_restored() -> Disk {
    let disk = Disk::new(8192);
    for name in ["old", "one", "two"] {
        disk.volume.root().write(name, &vec![3; 100_000]).unwrap();
        disk.take(name);
    }
    let mut records = 0;
    let mut cut = |_: &Progress| {
        records += 1;
        match records {
            0..2 => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        }
    };
    restore(&disk.volume, "one", &mut cut).unwrap_err();
    disk
}

#[track_caller]
fn expect_needed(disk: &Disk, name: &str, half: &Half) {
    let error = disk.volume.delete_snapshot(name).unwrap_err();
    let expected = Fault::Needed {
        name: name.into(),
        half: half.clone(),
    };
    assert!(
        matches!(error.cause(), Cause::Stream(fault) if *fault == expected),
        "{error}"
    );
    assert_eq!(error.errno(), rustix::io::Errno::BUSY.raw_os_error());
}

#[test]
fn what_ends_a_half_restored_volume_is_not_deleted() {
    let disk = half_restored();
    let half = Half::Restored("one".into());
    assert_eq!(half_done(disk.fs()).unwrap(), Some(half.clone()));
    expect_needed(&disk, "one", &half);
    expect_needed(&disk, "before-one", &half);
    // What is not needed makes room.
    disk.volume.delete_snapshot("old").unwrap();
    // Under a new name it is the same one.
    disk.volume.rename_snapshot("one", "first").unwrap();
    disk.volume.rename_snapshot("two", "one").unwrap();
    let half = Half::Restored("first".into());
    assert_eq!(half_done(disk.fs()).unwrap(), Some(half.clone()));
    expect_needed(&disk, "first", &half);
    disk.volume.delete_snapshot("one").unwrap();
    let disk = disk.remounted();
    expect_needed(&disk, "before-one", &half);
    restore(&disk.volume, "first", &mut go).unwrap();
    assert_eq!(half_done(disk.fs()).unwrap(), None);
    disk.volume.delete_snapshot("before-one").unwrap();
    disk.volume.delete_snapshot("first").unwrap();
    assert!(disk.volume.snapshots().is_empty());
}

#[test]
fn what_ends_a_half_received_volume_is_not_deleted() {
    let disk = Disk::new(8192);
    for name in ["one", "two"] {
        disk.volume.root().write(name, &vec![3; 100_000]).unwrap();
        disk.take(name);
    }
    let copy = Disk::new(8192);
    copy.receive(&disk.stream("one", None)).unwrap();
    copy.volume.rename_snapshot("one", "first").unwrap();
    let increment = disk.stream("two", Some("one"));
    copy.receive(&increment[..increment.len() - 1]).unwrap_err();
    let half = Half::Received("two".into());
    assert_eq!(half_done(copy.fs()).unwrap(), Some(half.clone()));
    expect_needed(&copy, "first", &half);
    let missing = copy.volume.delete_snapshot("none").unwrap_err();
    assert_eq!(missing.errno(), rustix::io::Errno::NOENT.raw_os_error());
    copy.receive(&increment).unwrap();
    copy.volume.delete_snapshot("first").unwrap();
}

#[test]
fn the_last_snapshot_of_a_half_received_volume_stays() {
    let disk = Disk::new(8192);
    disk.volume.root().write("one", &vec![3; 100_000]).unwrap();
    disk.take("one");
    let copy = Disk::new(8192);
    copy.take("empty");
    copy.take("also");
    let whole = disk.stream("one", None);
    copy.receive(&whole[..whole.len() - 1]).unwrap_err();
    copy.volume.delete_snapshot("also").unwrap();
    expect_needed(&copy, "empty", &Half::Received("one".into()));
    // The stream is lost.
    restore(&copy.volume, "empty", &mut go).unwrap();
    check_delete(copy.fs(), "empty").unwrap();
}
