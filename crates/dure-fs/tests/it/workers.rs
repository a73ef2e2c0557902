//! Workers in the background when requests fail, and when the volume is unmounted under them.

#![expect(clippy::unwrap_used, reason = "tests panic")]

use std::time::Duration;

use dure_block::delay::DelayDevice;
use dure_block::fault::{Fault, FaultDevice, Rule, When};
use dure_block::ram::RamDevice;
use dure_block::{Op, OsError, share};
use dure_check::{CheckOptions, check};
use dure_fs::{
    Error, FileSystem, FormatOptions, InodeRef, MountOptions, NewInode, ReadMode, Stamp, SyncScope,
};
use dure_sync::{Arc, CoreId, clock, thread};

const PAGE: usize = 4096;

fn formatted(journals: u32) -> Arc<RamDevice> {
    let ram = Arc::new(RamDevice::new("volume", 1 << 15));
    let format = FormatOptions {
        journals: Some(journals),
        ..FormatOptions::default()
    };
    FileSystem::format(share(Arc::clone(&ram)), &format).unwrap();
    ram
}

fn options(interval: Duration) -> MountOptions {
    MountOptions {
        commit_interval: interval,
        workers: Some(2),
        cache_bytes: 32 << 20,
        ..MountOptions::default()
    }
}

fn create(fs: &FileSystem, name: &str) -> InodeRef {
    let new = NewInode {
        mode: 0o100_644,
        ..NewInode::default()
    };
    fs.create(&fs.root().unwrap(), name.as_bytes(), &new)
        .unwrap()
}

fn rounds(fs: &FileSystem) -> Vec<u64> {
    let workers = fs.activity().workers;
    workers.iter().map(|worker| worker.rounds).collect()
}

/// Waits for that, at most some seconds.
fn soon(what: &str, is_so: impl Fn() -> bool) {
    let end = clock::monotonic_ns() + 20_000_000_000;
    while !is_so() {
        assert!(clock::monotonic_ns() < end, "never: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// A flush that fails in a worker stops the volume, as one in a call does; the workers go on, and
/// what is there can be read.
#[test]
fn a_flush_that_fails_in_a_worker_stops_the_volume_and_no_worker() {
    let ram = formatted(2);
    let device = Arc::new(FaultDevice::new(share(Arc::clone(&ram))));
    let fs = FileSystem::open(
        share(Arc::clone(&device)),
        options(Duration::from_millis(2)),
    )
    .unwrap();
    let kept = create(&fs, "kept");
    fs.write(&kept, 0, &[1; PAGE], Stamp::Set).unwrap();
    fs.fsync(&kept, SyncScope::All).unwrap();
    let rule = Rule::new(When::From(1), Fault::Error(OsError::new(5)));
    device.add(rule.on(Op::Flush));
    fs.write(&kept, 0, &[2; PAGE], Stamp::Set).unwrap();
    soon("the volume stops", || fs.stopped().is_some());
    let before = rounds(&fs);
    soon("all workers go on", || {
        let now = rounds(&fs);
        now.iter().zip(&before).all(|(now, before)| now > before)
    });
    let refused = fs.write(&kept, 0, &[3; PAGE], Stamp::Set);
    assert!(matches!(refused, Err(Error::Stopped { .. })), "{refused:?}");
    let mut page = [0; PAGE];
    fs.read(&kept, 0, &mut page, ReadMode::Cached).unwrap();
    assert_eq!(page, [2; PAGE]);
    device.clear();
    assert!(fs.close().is_err(), "what was not written is lost");
    drop(fs);
    let fs = FileSystem::open(share(ram), options(Duration::from_secs(5))).unwrap();
    let kept = fs.lookup(&fs.root().unwrap(), b"kept").unwrap().unwrap();
    fs.read(&kept, 0, &mut page, ReadMode::Cached).unwrap();
    assert!(page == [1; PAGE] || page == [2; PAGE]);
    fs.close().unwrap();
}

/// Writes of data that fail in a worker are no loss yet: the pages stay dirty, the volume runs, and
/// when the device works again they are written.
#[test]
fn data_that_a_worker_cannot_write_stays_dirty_and_is_written_later() {
    let ram = formatted(2);
    let device = Arc::new(FaultDevice::new(share(Arc::clone(&ram))));
    let fs = FileSystem::open(
        share(Arc::clone(&device)),
        options(Duration::from_millis(2)),
    )
    .unwrap();
    let file = create(&fs, "file");
    fs.sync().unwrap();
    let rule = Rule::new(When::From(1), Fault::Error(OsError::new(5)));
    device.add(rule.on(Op::Write));
    fs.write(&file, 0, &[7; 64 * PAGE], Stamp::Set).unwrap();
    let hits = || device.seen().hits;
    soon("a worker tries", || hits() > 0);
    let backlog = || {
        let workers = fs.activity().workers;
        workers.iter().map(|worker| worker.backlog).sum::<u64>()
    };
    soon("they are dirty again", || backlog() == 64);
    assert_eq!(fs.stopped(), None, "nothing durable was at stake");
    assert!(fs.fsync(&file, SyncScope::All).is_err(), "an fsync says so");
    device.clear();
    assert_eq!(fs.stopped(), None, "nor then");
    fs.fsync(&file, SyncScope::All).unwrap();
    assert_eq!(backlog(), 0);
    fs.close().unwrap();
    let report = check(share(ram), &CheckOptions::default()).unwrap();
    assert_eq!(report.issues(), []);
}

/// Unmount while workers write: it waits for them, and everything is there.
#[test]
fn unmount_while_workers_are_busy_keeps_everything() {
    let mut busy = 0;
    for round in 0..5_u8 {
        let ram = formatted(4);
        let slow = DelayDevice::new(
            share(Arc::clone(&ram)),
            Duration::from_millis(1),
            Duration::from_millis(1),
        );
        let fs = FileSystem::open(share(slow), options(Duration::from_millis(1))).unwrap();
        let writers: Vec<_> = (0..4)
            .map(|core| {
                let fs = fs.clone();
                thread::spawn_on("writer", CoreId::new(core), move || {
                    let file = create(&fs, &format!("file{core}"));
                    for page in 0..500 {
                        let page = page * 4096;
                        fs.write(&file, page, &[round; PAGE], Stamp::Set).unwrap();
                    }
                })
            })
            .collect();
        writers
            .into_iter()
            .for_each(|writer| writer.join().expect("it writes"));
        let workers = fs.activity().workers;
        busy += u32::from(workers.iter().any(|worker| worker.backlog > 0));
        fs.close().unwrap();
        let late = fs.lookup(&fs.root().unwrap(), b"file0").unwrap().unwrap();
        assert!(fs.write(&late, 0, &[9; PAGE], Stamp::Set).is_err());
        drop(fs);
        let report = check(share(Arc::clone(&ram)), &CheckOptions::default()).unwrap();
        assert_eq!(report.issues(), []);
        let fs = FileSystem::open(share(ram), options(Duration::from_secs(5))).unwrap();
        assert_eq!(fs.recovered().map(|_| ()), None, "it was unmounted");
        for core in 0..4 {
            let name = format!("file{core}");
            let root = fs.root().unwrap();
            let file = fs.lookup(&root, name.as_bytes()).unwrap().unwrap();
            let mut data = vec![0; 500 * PAGE];
            fs.read(&file, 0, &mut data, ReadMode::Cached).unwrap();
            assert!(data.iter().all(|byte| *byte == round));
        }
        fs.close().unwrap();
    }
    assert!(busy > 0, "no worker had anything to do");
}

/// Nodes that are half as many as may be dirty wake a worker: no operation makes the checkpoint,
/// although no round comes for an hour.
#[test]
fn a_worker_makes_the_checkpoint_before_dirty_nodes_are_too_many() {
    let ram = formatted(2);
    let mount = MountOptions {
        cache_bytes: 16 << 20,
        ..options(Duration::from_secs(3600))
    };
    let fs = FileSystem::open(share(Arc::clone(&ram)), mount).unwrap();
    fs.grow_logs(1 << 13).unwrap();
    let file = create(&fs, "sparse");
    let before = fs.activity().checkpoints;
    // A leaf of the map each. A quarter of the cache has some 680 nodes, of which half may be dirty.
    for leaf in 0..240_u64 {
        fs.write(&file, leaf * 321 * 4096, &[1; PAGE], Stamp::Set)
            .unwrap();
        fs.fsync(&file, SyncScope::All).unwrap();
    }
    soon("a worker makes a checkpoint", || {
        fs.activity().checkpoints > before
    });
    fs.close().unwrap();
    let report = check(share(ram), &CheckOptions::default()).unwrap();
    assert_eq!(report.issues(), []);
}

/// Fills the log of core 0 with small operations on `file` until its worker has emptied it some
/// times; core 1 syncs `synced` meanwhile. Returns the first error of each.
fn fill_log(
    fs: &FileSystem,
    [file, synced]: [InodeRef; 2],
    checkpoints: u64,
) -> [Option<Error>; 2] {
    let filling = fs.clone();
    let filler = thread::spawn_on("filler", CoreId::new(0), move || {
        let end = clock::monotonic_ns() + 20_000_000_000;
        while filling.activity().checkpoints < checkpoints {
            assert!(clock::monotonic_ns() < end, "never: checkpoints");
            for round in 0..50_u8 {
                let name = format!("name{round}");
                let root = filling.root().unwrap();
                let made = filling.link(&file, &root, name.as_bytes());
                let gone = made.and_then(|_| filling.unlink(&root, name.as_bytes()));
                if let Err(error) = gone {
                    return Some(error);
                }
            }
        }
        None
    });
    let syncing = fs.clone();
    let other = thread::spawn_on("other", CoreId::new(1), move || {
        for round in 0..200_u8 {
            let written = syncing.write(&synced, 0, &[round; PAGE], Stamp::Set);
            if let Err(error) = written.and_then(|_| syncing.fsync(&synced, SyncScope::All)) {
                return Some(error);
            }
        }
        None
    });
    [filler, other].map(|task| task.join().expect("an error is no panic"))
}

/// A log that gets full is emptied by its worker: no call fails, of that core or another.
#[test]
fn a_full_log_stops_nobody() {
    let ram = formatted(2);
    let fs = FileSystem::open(share(Arc::clone(&ram)), options(Duration::from_millis(1))).unwrap();
    let files = ["filled", "other"].map(|name| create(&fs, name));
    let failed = fill_log(&fs, files, 5);
    assert!(failed.iter().all(Option::is_none), "{failed:?}");
    assert_eq!(fs.stopped(), None);
    fs.close().unwrap();
    let report = check(share(ram), &CheckOptions::default()).unwrap();
    assert_eq!(report.issues(), []);
}

/// The worker that empties a full log cannot write an image: the checkpoint may not go on, so the
/// volume stops, all calls say so, and the workers go on. What was synced is there.
#[test]
fn an_image_that_a_worker_cannot_write_stops_the_volume_and_no_worker() {
    let ram = formatted(2);
    let device = Arc::new(FaultDevice::new(share(Arc::clone(&ram))));
    let fs = FileSystem::open(
        share(Arc::clone(&device)),
        options(Duration::from_millis(1)),
    )
    .unwrap();
    let kept = create(&fs, "kept");
    fs.write(&kept, 0, &[1; PAGE], Stamp::Set).unwrap();
    fs.fsync(&kept, SyncScope::All).unwrap();
    let files = ["filled", "other"].map(|name| create(&fs, name));
    // The header and the tables behind it: what only a checkpoint writes.
    let tables = dure_block::Lba::new(0).range(fs.layout().main);
    let rule = Rule::new(When::From(1), Fault::Error(OsError::new(5)));
    device.add(rule.on(Op::Write).within(tables));
    let failed = fill_log(&fs, files, u64::MAX);
    // Who makes the checkpoint, or helps, may get the error of the device itself.
    let is_told = |error: &Option<Error>| {
        matches!(error, Some(Error::Stopped { .. } | Error::Block(_)) | None)
    };
    assert!(
        failed.iter().all(is_told) && failed[0].is_some(),
        "{failed:?}"
    );
    assert!(fs.stopped().is_some());
    let before = rounds(&fs);
    soon("all workers go on", || {
        let now = rounds(&fs);
        now.iter().zip(&before).all(|(now, before)| now > before)
    });
    device.clear();
    drop((kept, fs));
    let fs = FileSystem::open(share(ram), options(Duration::from_secs(5))).unwrap();
    let kept = fs.lookup(&fs.root().unwrap(), b"kept").unwrap().unwrap();
    let mut page = [0; PAGE];
    fs.read(&kept, 0, &mut page, ReadMode::Cached).unwrap();
    assert_eq!(page, [1; PAGE]);
    fs.close().unwrap();
}
