//! What a mounted volume counts and traces, and what its journals say when it is not mounted.

#![expect(clippy::unwrap_used, reason = "tests panic")]

use dure_block::ram::RamDevice;
use dure_block::share;
use dure_fs::{
    Background, FileSystem, FormatOptions, InodeRef, JournalsInfo, LogStatistics, MountOptions,
    NewInode, OpKind, Order, RecordPolicy, Stall, Stamp, SyncScope, TraceEvent,
};
use dure_sync::Arc;

fn formatted(blocks: u64, journals: u32) -> Arc<RamDevice> {
    let device = Arc::new(RamDevice::new("volume", blocks));
    let options = FormatOptions {
        journals: Some(journals),
        ..FormatOptions::default()
    };
    FileSystem::format(share(Arc::clone(&device)), &options).unwrap();
    device
}

fn mount(device: &Arc<RamDevice>, trace: Option<usize>) -> FileSystem {
    let options = MountOptions {
        background: Background::None,
        // All in one journal, on whatever core the test runs.
        order: Order::Single,
        cache_bytes: 2 << 20,
        trace,
        ..MountOptions::default()
    };
    FileSystem::open(share(Arc::clone(device)), options).unwrap()
}

fn create(fs: &FileSystem, name: &str) -> InodeRef {
    let new = NewInode {
        mode: 0o100_644,
        ..NewInode::default()
    };
    let root = fs.root().unwrap();
    fs.create(&root, name.as_bytes(), &new).unwrap()
}

fn handles(log: &LogStatistics, kind: OpKind) -> u64 {
    log.operations[usize::from(kind.number())].handles
}

#[test]
fn operations_are_counted_by_what_they_are_for() {
    let fs = mount(&formatted(8192, 2), None);
    let root = fs.root().unwrap();
    let file = create(&fs, "a");
    fs.link(&file, &root, b"b").unwrap();
    fs.unlink(&root, b"a").unwrap();
    fs.write(&file, 0, &[7; 5000], Stamp::Set).unwrap();
    let flushes = fs.activity().device.flush_requests;
    let before = fs.activity().journals[0].clone();
    assert_eq!(
        handles(&before, OpKind::Write),
        0,
        "write-back makes the handle"
    );
    fs.fsync(&file, SyncScope::All).unwrap();
    let activity = fs.activity();
    let log = &activity.journals[0];
    let counted = [OpKind::Create, OpKind::Link, OpKind::Remove, OpKind::Write];
    assert_eq!(counted.map(|kind| handles(log, kind)), [1; 4]);
    let logged = log.operations.iter().map(|one| one.bytes).sum::<u64>();
    assert_eq!(logged, log.bytes_joined);
    assert!(log.bytes_joined > 200, "{log:?}");
    assert_eq!((log.commits, log.transactions.valid), (1, 1));
    assert_eq!(log.open(), 0);
    assert_eq!(
        (activity.device.flush_requests - flushes, log.flushes),
        (1, 1)
    );
    assert_eq!(fs.activity().journals[1].joined, 0);
}

/// The images of compound transactions take numbers of their own, but no handle made them.
#[test]
fn running_handles_are_counted_with_either_record_policy() {
    for records in [RecordPolicy::Delta, RecordPolicy::Image] {
        let options = MountOptions {
            background: Background::None,
            order: Order::Single,
            cache_bytes: 2 << 20,
            records,
            ..MountOptions::default()
        };
        let fs = FileSystem::open(share(formatted(8192, 2)), options).unwrap();
        for n in 0..3 {
            let file = create(&fs, &format!("file{n}"));
            fs.fsync(&file, SyncScope::All).unwrap();
        }
        create(&fs, "running");
        let counts = fs.activity().journals[0].transactions;
        assert_eq!(
            (counts.running_handles, counts.writing),
            (1, 0),
            "{records:?}"
        );
        // Images get their bytes when they are taken.
        let logs_bytes = records == RecordPolicy::Delta;
        assert_eq!(counts.running_bytes > 0, logs_bytes, "{counts:?}");
        assert!(counts.valid >= 3, "{counts:?}");
        fs.sync().unwrap();
        let counts = fs.activity().journals[0].transactions;
        assert_eq!(
            (counts.running_handles, counts.running_bytes),
            (0, 0),
            "{records:?}"
        );
    }
}

#[test]
fn waiting_for_log_space_is_counted() {
    let fs = mount(&formatted(4096, 2), None);
    let mut n = 0;
    while fs.activity().journals[0].stall(Stall::LogFull).count() == 0 {
        create(&fs, &format!("file{n}"));
        n += 1;
        assert!(n < 20_000, "the log never fills: {:?}", fs.activity());
    }
    let activity = fs.activity();
    assert_eq!(activity.checkpoints, 1);
    let log = &activity.journals[0];
    assert_eq!(log.begin_log_full, 1);
    assert!(log.stall(Stall::LogFull).sum > 0 && activity.images > 0);
    // What the checkpoint wrote is behind the tail now.
    assert!(log.transactions.checkpointed > 0, "{log:?}");
    assert_eq!(log.times.valid.count(), log.transactions.checkpointed);
}

#[test]
fn a_checkpoint_tells_its_steps() {
    let fs = mount(&formatted(8192, 2), Some(1000));
    create(&fs, "a");
    fs.checkpoint_now().unwrap();
    let batch = fs.trace().unwrap().read(&[]);
    let steps: Vec<_> = batch
        .records
        .iter()
        .filter_map(|record| match record.event {
            TraceEvent::Checkpoint { step, .. } => Some(step),
            _ => None,
        })
        .collect();
    let all = ["cut", "images", "committed", "nat", "space", "headers"];
    assert_eq!(steps, all);
    let join = |event| matches!(event, TraceEvent::Join { operation, .. } if operation == OpKind::Create.number());
    assert!(batch.records.iter().any(|record| join(record.event)));
    let tail = |event| matches!(event, TraceEvent::Tail { .. });
    assert!(batch.records.iter().any(|record| tail(record.event)));
}

#[test]
fn the_journals_of_a_clean_volume_are_empty() {
    let device = formatted(8192, 2);
    let fs = mount(&device, None);
    create(&fs, "a");
    fs.close().unwrap();
    let info = JournalsInfo::read(share(device)).unwrap();
    assert!(info.clean && info.recovery.is_none());
    assert_eq!((info.journals.len(), info.epoch), (2, 2));
    let log = &info.journals[0];
    assert_eq!(log.transactions, dure_fs::LoggedCounts::default());
    assert_eq!((log.header_epoch, log.tail_number), (2, log.next_number));
    assert!(log.tail_sequence > 1 && log.segments.len() >= 2, "{log:?}");
}

#[test]
fn the_journals_of_a_crashed_volume_say_what_recovery_does() {
    let device = formatted(8192, 2);
    let fs = mount(&device, None);
    for n in 0..5 {
        let file = create(&fs, &format!("file{n}"));
        fs.fsync(&file, SyncScope::All).unwrap();
    }
    let gone = create(&fs, "gone");
    drop(gone);
    drop(fs);
    let image = device.snapshot();
    let info = JournalsInfo::read(share(Arc::clone(&device))).unwrap();
    assert!(!info.clean);
    let counts = info.journals[0].transactions;
    assert_eq!((counts.complete, counts.valid, counts.handles), (5, 5, 5));
    // The flush behind the last one is told by nobody who came later.
    assert_eq!((counts.durable, counts.written), (4, 1));
    let plan = info.recovery.unwrap().unwrap();
    assert_eq!((plan.apply, plan.leave_out), (5, 0));
    assert!(plan.nodes_changed >= 2 && plan.nodes_freed == 0, "{plan:?}");
    assert_eq!(device.snapshot(), image, "nothing is written");

    // A block of the third transaction, which was durable, is lost: the next mount would fail.
    let log = &info.journals[0];
    let third = log.segments[0] + u64::from(log.tail.1) + 2;
    let queue = dure_block::Queue::new(
        share(Arc::clone(&device)),
        dure_block::QueueConfig::default(),
    );
    let nothing = [0; 4096];
    queue
        .write(
            dure_block::Lba::new(third),
            &nothing,
            dure_block::WriteFlags::NONE,
        )
        .unwrap();
    let info = JournalsInfo::read(share(device)).unwrap();
    let why = info.recovery.unwrap().unwrap_err();
    assert!(
        why.contains("the log of journal 0 has a hole: transaction 3"),
        "{why}"
    );
    assert_eq!(info.journals[0].transactions.complete, 2);
}
