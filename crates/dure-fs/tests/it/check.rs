//! The check on whole volumes: after random work, after every kind of crash in it, and after
//! recovery.

use crate::workload::step;
use dure_block::crash::{CrashImages, Selection};
use dure_block::ram::RamDevice;
use dure_block::record::RecordDevice;
use dure_block::{Device, share};
use dure_check::{CheckOptions, Data, IssueKind, Report, check};
use dure_fs::{Background, FileSystem, FormatOptions, MountOptions};
use dure_sync::Arc;
use dure_sync::random::Seeded;

fn formatted(blocks: u64, journals: u32) -> Arc<RamDevice> {
    let device = Arc::new(RamDevice::new("volume", blocks));
    let options = FormatOptions {
        journals: Some(journals),
        ..FormatOptions::default()
    };
    FileSystem::format(share(Arc::clone(&device)), &options).expect("the device is large enough");
    device
}

fn mount(device: Arc<dyn Device>) -> FileSystem {
    let options = MountOptions {
        background: Background::None,
        cache_bytes: 2 << 20,
        recovery_threads: Some(1),
        ..MountOptions::default()
    };
    FileSystem::open(device, options).expect("a volume mounts after any crash")
}

/// Inodes in use, as `df -i` shows them.
fn inodes_used(fs: &FileSystem) -> u64 {
    let statistics = fs.statistics();
    statistics.inodes - statistics.inodes_free
}

/// Inodes in use, as the check finds them.
fn inodes_found(report: &Report) -> u64 {
    let counts = report.counts();
    counts.files + counts.directories + counts.symlinks + counts.others
}

fn checked(device: &Arc<RamDevice>) -> Report {
    let options = CheckOptions {
        data: Data::Verify,
        ..CheckOptions::default()
    };
    check(share(Arc::clone(device)), &options).expect("the superblock is intact")
}

/// Issues other than those a crash explains.
fn unexplained(report: &Report) -> Vec<String> {
    let explained = |kind: &IssueKind| {
        matches!(
            kind,
            IssueKind::NotClean { .. } | IssueKind::PairSlotBad { .. }
        )
    };
    let issues = report
        .issues()
        .iter()
        .filter(|issue| !explained(&issue.kind));
    issues.map(ToString::to_string).collect()
}

#[test]
fn a_volume_is_spotless_after_random_work() {
    for seed in 0..6 {
        let device = formatted(16384, 3);
        let mut random = Seeded::new(seed);
        for round in 0..3 {
            let fs = mount(share(Arc::clone(&device)));
            let mut failed = 0;
            for _ in 0..800 {
                failed += u32::from(step(&fs, &mut random).is_err());
            }
            assert!(failed < 700, "most calls must do something");
            let used = inodes_used(&fs);
            fs.close().expect("a good device");
            let report = checked(&device);
            assert_eq!(used, inodes_found(&report), "seed {seed}, round {round}");
            let lines: Vec<String> = report.issues().iter().map(ToString::to_string).collect();
            assert_eq!(lines, Vec::<String>::new(), "seed {seed}, round {round}");
            assert!(report.counts().directories > 1 && report.counts().pages_verified > 10);
        }
    }
}

#[test]
fn a_crash_leaves_nothing_that_recovery_does_not_mend() {
    for seed in 100..104 {
        let device = formatted(8192, 2);
        let base = device.snapshot();
        let record = RecordDevice::new(share(Arc::clone(&device)));
        let log = record.log();
        let fs = mount(share(record));
        let mut random = Seeded::new(seed);
        for n in 0..300 {
            let _ = step(&fs, &mut random);
            if n % 40 == 39 {
                fs.sync().expect("a good device");
            }
        }
        fs.close().expect("a good device");
        let images = CrashImages::new(base, &log);
        let mut at = 0;
        let mut states = 0;
        while at <= images.last_step() {
            let point = images.at(at);
            let choices = point.choices(Selection::default());
            for choice in choices
                .skip(usize::try_from(random.below(4)).expect("small"))
                .take(2)
            {
                let image = point.image(&choice).snapshot();
                let crashed = Arc::new(RamDevice::from_image("crashed", &image));
                let why = format!("seed {seed}, step {at}");
                assert_eq!(
                    unexplained(&checked(&crashed)),
                    Vec::<String>::new(),
                    "{why}"
                );
                let fs = mount(share(Arc::clone(&crashed)));
                let used = inodes_used(&fs);
                fs.close().expect("a good device");
                let report = checked(&crashed);
                assert_eq!(
                    unexplained(&report),
                    Vec::<String>::new(),
                    "{why}, recovered"
                );
                assert_eq!(used, inodes_found(&report), "{why}, inodes in use");
                states += 1;
            }
            at += 1 + random.below(images.last_step() / 40 + 1);
        }
        assert!(states > 30, "{states} states");
    }
}
