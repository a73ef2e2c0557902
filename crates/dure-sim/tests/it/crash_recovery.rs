//! Crashes of the recovery from a crash, and what comes after it.
//!
//! `DURE_CRASH_EXHAUSTIVE=1` takes every other workload and up to 40 states of each; otherwise a
//! sample.

#![expect(clippy::print_stdout, reason = "the counts are the result")]

use dure_block::crash::{Selection, Tear};
use dure_block::overlay::OverlayRam;
use dure_block::ram::{Image, RamDevice};
use dure_block::share;
use dure_check::{CheckOptions, check};
use dure_fs::{FileSystem, FormatOptions, MountOptions, NewInode, SetAttributes, Stamp, SyncScope};
use dure_sim::crash::{
    Base, Call, Counts, CrashFrom, CrashSteps, Memo, Options, Recording, Step, Tree, Workload,
    cores, mount_options, workload,
};
use dure_sync::atomic::{AtomicUsize, Ordering};
use dure_sync::{Arc, amount};

fn is_exhaustive() -> bool {
    std::env::var("DURE_CRASH_EXHAUSTIVE").is_ok()
}

fn options(from: CrashFrom) -> Options {
    let selection = Selection {
        exhaustive_max: 6,
        random: 4,
        seed: 1,
        tear: Tear::None,
    };
    Options {
        selection,
        from,
        steps: if is_exhaustive() {
            CrashSteps::Every
        } else {
            CrashSteps::Frontiers
        },
        ..Options::default()
    }
}

/// Every so many workloads, and so many crashes of each.
fn sample() -> (usize, usize) {
    match is_exhaustive() {
        true => (2, 40),
        false => amount::either((100, 6), (25, 6)),
    }
}

fn workloads() -> Vec<Workload> {
    let all = [
        workload::one_operation(),
        cores::overlapped(),
        cores::back_and_forth(),
    ]
    .concat();
    all.into_iter().step_by(sample().0).collect()
}

/// Runs `then` on the volumes that crashes of the workloads leave; the power fails from the mount
/// on.
fn after_crashes(then: &Workload) -> Counts {
    let base = |calls: &&'static [_]| Base::new(calls).expect("a volume can be made");
    let bases: Vec<Base> = workload::SETUPS.iter().map(base).collect();
    let (mut counts, memo) = (Counts::default(), Memo::default());
    for workload in workloads() {
        let first = Recording::new(
            &bases[workload.setup],
            &workload,
            &options(CrashFrom::FirstStep),
        );
        let first = first.unwrap_or_else(|what| panic!("{workload}\n{what}"));
        let crashed = first.crashed(&options(CrashFrom::FirstStep), sample().1);
        for base in crashed.unwrap_or_else(|violation| panic!("{violation}")) {
            let second = Recording::new(&base, then, &options(CrashFrom::Mount));
            let second =
                second.unwrap_or_else(|what| panic!("after a crash of {workload}\n{what}"));
            let (more, violations) = second.crash_with(&options(CrashFrom::Mount), &memo);
            memo.trim();
            if let Some(violation) = violations.first() {
                panic!("after a crash of {workload}\n{violation}");
            }
            counts = counts.plus(more);
        }
    }
    counts
}

#[test]
fn a_crash_during_recovery_changes_nothing() {
    let nothing = Workload {
        setup: 1,
        steps: vec![],
    };
    let counts = after_crashes(&nothing);
    println!(
        "recoveries={} states={} images={}",
        counts.workloads, counts.states, counts.images
    );
    assert!(counts.images > 100, "recovery writes, so there are states");
}

#[test]
fn work_after_a_recovery_is_as_safe_as_before() {
    let path = "after";
    let create = Step::Call(Call::Create { path });
    let steps = vec![
        Step::Core(0),
        create,
        Step::Fsync(dure_sim::crash::At::Path(path)),
        Step::Core(1),
        Step::Call(Call::Mkdir { path: "later" }),
        Step::WriteBack,
        Step::Checkpoint,
    ];
    let counts = after_crashes(&Workload { setup: 1, steps });
    println!(
        "runs={} states={} images={}",
        counts.workloads, counts.states, counts.images
    );
    assert!(counts.images > 100, "it writes, so there are states");
}

/// Room for the records of all files.
const LOG_BLOCKS: u64 = 1024;
/// Owners that a file has one after the other: a record each.
const OWNERS: u32 = 16;

/// A volume with some hundred inodes, synced, and as many not synced, in both journals; the process
/// dies.
fn large_crash() -> Arc<Image> {
    let device = Arc::new(RamDevice::new("large", 4096));
    let format = FormatOptions {
        journals: Some(2),
        segment_blocks: Some(32),
        uuid: Some([8; 16]),
        ..FormatOptions::default()
    };
    let shared = share(Arc::clone(&device));
    FileSystem::format(shared.clone(), &format).expect("it has room");
    let core = Arc::new(AtomicUsize::new(0));
    let mut mount = mount_options();
    mount.core = Some(Arc::clone(&core));
    let fs = FileSystem::open(shared, mount).expect("a new volume");
    fs.grow_logs(LOG_BLOCKS).expect("room");
    let root = fs.root().expect("the root");
    let new = NewInode {
        mode: 0o100_644,
        ..NewInode::default()
    };
    let mut last = None;
    for number in 0..800_u32 {
        // Relaxed: any core is right.
        core.store(
            usize::try_from(number % 2).expect("0 or 1"),
            Ordering::Relaxed,
        );
        let name = format!("file {number}");
        let inode = fs.create(&root, name.as_bytes(), &new).expect("room");
        fs.write(&inode, 0, name.as_bytes(), Stamp::Set)
            .expect("room");
        if number == 300 {
            fs.checkpoint_now().expect("room");
        }
        for uid in 1..=OWNERS {
            let owner = SetAttributes {
                uid: Some(uid),
                ..SetAttributes::default()
            };
            fs.set_attributes(&inode, &owner).expect("room");
        }
        last = Some(inode);
    }
    fs.fsync(&last.expect("there are files"), SyncScope::All)
        .expect("room");
    drop(fs);
    Arc::new(device.snapshot())
}

/// What recovery by at most so many threads makes of the image, and how many applied the logs.
fn tree_with(image: &Arc<Image>, threads: usize) -> (Tree, u64) {
    let device = share(OverlayRam::new("recovery", Arc::clone(image)));
    let mount = MountOptions {
        recovery_threads: Some(threads),
        ..mount_options()
    };
    let fs = FileSystem::open(device.clone(), mount).expect("it recovers");
    let applying = fs.recovered().expect("it had crashed").threads_applying;
    let tree = Tree::read(&fs).expect("it can be read");
    fs.close().expect("it can be unmounted");
    let report = check(device, &CheckOptions::default()).expect("it can be checked");
    assert!(report.is_spotless(), "{:?}", report.issues());
    (tree, applying)
}

#[test]
fn the_number_of_threads_does_not_matter() {
    let image = large_crash();
    let (one, applying) = tree_with(&image, 1);
    assert_eq!(applying, 1);
    assert!(one.items.len() > 500, "most files were committed");
    // Of 64, as many as there are records for.
    for (threads, least) in [(2, 2), (3, 3), (64, 4)] {
        let (many, applying) = tree_with(&image, threads);
        assert!(applying >= least, "{applying} of {threads} threads");
        assert_eq!(one.digest(), many.digest(), "{threads} threads");
        assert_eq!(one, many, "{threads} threads");
    }
}
