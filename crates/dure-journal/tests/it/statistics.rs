//! What the journal counts and traces: each event on two cores, and while the device hangs.

use std::time::Duration;

use dure_block::ram::RamDevice;
use dure_block::{Device, DeviceInfo, Io, Lba, Media, Op, Queue, QueueConfig, share};
use dure_journal::recovery::write_fresh_headers;
use dure_journal::{
    BeginError, Effects, GranuleId, Journal, JournalConfig, LogMedium, LogStatistics, Mark, Nid,
    Order, RingStart, Rules, Settle, Stall, TraceEvent,
};
use dure_sync::{Arc, Condvar, CoreId, Mutex, thread};

#[derive(Debug)]
struct Nothing;

impl Settle for Nothing {
    type Effect = ();

    fn settle(&self, _: Effects<()>) {}
}

/// Holds requests of one kind back while it is closed to them.
#[derive(Debug)]
struct Gate {
    ram: RamDevice,
    info: DeviceInfo,
    closed: Mutex<233, Option<Op>>,
    opened: Condvar,
}

impl Gate {
    fn close(&self, op: Option<Op>) {
        *self.closed.lock() = op;
        self.opened.notify_all();
    }
}

impl Device for Gate {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn execute(&self, io: Io<'_>) -> dure_block::Result<()> {
        let op = io.op();
        let mut closed = self.closed.lock();
        while *closed == Some(op) {
            closed = self.opened.wait(closed);
        }
        drop(closed);
        self.ram.execute(io)
    }
}

fn start() -> (Journal<Nothing>, Arc<Gate>) {
    let ram = RamDevice::new("ram", 4096);
    let info = DeviceInfo {
        // Or the queue would send no flushes.
        volatile_cache: true,
        ..ram.info().clone()
    };
    let gate = Arc::new(Gate {
        ram,
        info,
        closed: Mutex::new(None),
        opened: Condvar::new(),
    });
    let queue = Queue::new(share(Arc::clone(&gate)), QueueConfig::default());
    let medium = LogMedium::on(Media::behind(queue));
    let rings: Vec<_> = (0..2)
        .map(|journal| RingStart {
            header: Lba::new(4 * journal),
            generation: 1,
            segments: (0..2)
                .map(|n| Lba::new(64 + (journal * 16 + n) * 8))
                .collect(),
        })
        .collect();
    write_fresh_headers(&medium, 3, 8, &rings).unwrap();
    let config = JournalConfig {
        epoch: 1,
        first_number: 1,
        records: dure_journal::Records::Delta,
        order: Order::PerCore,
        seed: 3,
        segment_blocks: 8,
        journals: rings,
        rules: Rules::default(),
    };
    let journal = Journal::start(medium, Arc::new(Nothing), config).unwrap();
    (journal, gate)
}

/// A handle of core `core`: one delta of 10 bytes (34 with its head), and marks.
fn join(journal: &Journal<Nothing>, core: u16, operation: u8, marks: &[Mark]) -> Mark {
    let mut handle = journal.begin(CoreId::new(core), 200).unwrap();
    handle.set_operation(operation);
    let granule = GranuleId {
        nid: Nid(1),
        index: 0,
    };
    handle.delta(granule, 1, 0, &[5; 10]);
    marks.iter().for_each(|mark| handle.mark(*mark));
    handle.join()
}

fn of(journal: &Journal<Nothing>, index: usize) -> LogStatistics {
    journal.statistics()[index].clone()
}

/// Waits until the numbers of journal 0 are as wanted.
fn until(journal: &Journal<Nothing>, wanted: impl Fn(&LogStatistics) -> bool) {
    for _ in 0..10_000 {
        if wanted(&of(journal, 0)) {
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
    panic!("10 s are over: {:?}", of(journal, 0));
}

#[test]
fn handles_marks_and_bytes_are_counted_where_they_belong() {
    let (journal, _) = start();
    let first = join(&journal, 0, 3, &[]);
    // Three marks given, one of them twice, one into its own transaction.
    let own = join(&journal, 1, 4, &[]);
    let last = join(&journal, 1, 4, &[first, first, own]);
    drop(journal.begin(CoreId::new(1), 10).unwrap());
    let open = journal.begin(CoreId::new(1), 10).unwrap();
    let one = of(&journal, 1);
    assert_eq!(
        (one.begun, one.joined, one.dropped, one.open()),
        (4, 2, 1, 1)
    );
    assert_eq!((one.marks_given, one.marks_joined), (3, 2));
    assert_eq!(
        (one.operations[4].handles, one.operations[4].bytes),
        (2, 84)
    );
    assert_eq!(one.bytes_joined, 84);
    assert_eq!(one.transactions.running_handles, 2);
    assert_eq!(one.transactions.running_bytes, 84);
    drop(open);
    journal.commit(&[last]).unwrap();
    let (zero, one) = (of(&journal, 0), of(&journal, 1));
    assert_eq!((one.marks_written, one.marks_dropped), (1, 1));
    assert_eq!((one.record_bytes, zero.record_bytes), (68, 34));
    assert_eq!(zero.operations[3].bytes, 34);
    assert_eq!(
        (
            one.transactions.running_handles,
            one.transactions.running_bytes
        ),
        (0, 0)
    );
    let sum = |count: fn(&LogStatistics) -> u64| count(&zero) + count(&one);
    assert_eq!(sum(|log| log.writes), 2);
    assert_eq!(
        (sum(|log| log.commits), sum(|log| log.commit_journals)),
        (1, 2)
    );
    assert_eq!(
        (
            sum(|log| log.flushes),
            sum(|log| log.stall(Stall::Flush).count())
        ),
        (1, 1)
    );
    assert_eq!((one.ring_used, one.ring_capacity), (1, 16));
}

#[test]
fn transactions_pass_through_their_states() {
    let (journal, _) = start();
    for round in 1..=3 {
        let mark = join(&journal, 0, 0, &[]);
        journal.commit(&[mark]).unwrap();
        let counts = of(&journal, 0).transactions;
        assert_eq!((counts.valid, counts.checkpointed), (round, 0));
    }
    let times = of(&journal, 0).times;
    let left = [times.running, times.writing, times.written, times.durable];
    assert_eq!(left.map(|state| state.count()), [3; 4]);
    assert_eq!(times.valid.count(), 0);
    let cut = journal.cut();
    let after = join(&journal, 0, 0, &[]);
    journal.commit(&[after]).unwrap();
    journal.checkpoint_done(&cut, 1).unwrap();
    let log = of(&journal, 0);
    assert_eq!(
        (log.transactions.valid, log.transactions.checkpointed),
        (1, 3)
    );
    assert_eq!((log.times.valid.count(), log.headers), (3, 1));
}

#[test]
fn a_full_log_is_counted() {
    let (journal, _) = start();
    let mut open = Vec::new();
    let full = loop {
        match journal.begin(CoreId::new(0), 4000) {
            Ok(handle) => open.push(handle),
            Err(error) => break error,
        }
    };
    assert_eq!(full, BeginError::LogFull);
    assert_eq!(of(&journal, 0).begin_log_full, 1);
    journal.stalled(CoreId::new(0), Stall::LogFull, 5000);
    let log = of(&journal, 0);
    assert_eq!(log.stall(Stall::LogFull).sum, 5000);
    assert_eq!(log.stall(Stall::Checkpoint).count(), 0);
}

/// Statistics are wanted most when nothing moves: they must not wait for who holds the log.
#[test]
fn a_hanging_device_hides_no_numbers() {
    let (journal, gate) = start();
    let mark = join(&journal, 0, 0, &[]);
    gate.close(Some(Op::Write));
    thread::scope(|scope| {
        let first = scope.spawn(|| journal.commit(&[mark]));
        until(&journal, |log| log.transactions.writing == 1);
        // A second committer wants to write the same log.
        let next = join(&journal, 0, 0, &[]);
        let second = scope.spawn({
            let journal = &journal;
            move || journal.commit(&[next])
        });
        thread::sleep(Duration::from_millis(20));
        gate.close(Some(Op::Flush));
        until(&journal, |log| log.transactions.written == 2);
        thread::sleep(Duration::from_millis(20));
        gate.close(None);
        first.join().unwrap().unwrap();
        second.join().unwrap().unwrap();
    });
    let log = of(&journal, 0);
    assert_eq!((log.transactions.written, log.transactions.valid), (0, 2));
    let waited = |stall| -> (u64, u64) {
        let all = journal.statistics();
        let counts = all.iter().map(|log| *log.stall(stall));
        counts.fold((0, 0), |sum, one| (sum.0 + one.count(), sum.1 + one.sum))
    };
    let (writers, writer_ns) = waited(Stall::Writer);
    assert_eq!(writers, 1);
    assert!(writer_ns > 10_000_000, "{writer_ns}");
    let (flushes, flush_ns) = waited(Stall::Flush);
    assert!(
        flushes >= 1 && flush_ns > 10_000_000,
        "{flushes} {flush_ns}"
    );
    assert!(log.times.written.sum > 20_000_000, "{:?}", log.times);
}

fn names(journal: &Journal<Nothing>, from: &[u64]) -> Vec<String> {
    let batch = journal.trace().read(from);
    let name = |event: TraceEvent| {
        let text = format!("{event:?}");
        let end = text.find(' ').unwrap_or(text.len());
        text[..end].to_owned()
    };
    batch
        .records
        .iter()
        .map(|record| name(record.event))
        .collect()
}

#[test]
fn the_trace_tells_a_commit_step_by_step() {
    let (journal, _) = start();
    join(&journal, 0, 0, &[]);
    assert!(names(&journal, &[]).is_empty(), "it is off at first");
    journal.trace().start(100);
    let mark = join(&journal, 0, 7, &[]);
    journal.commit(&[mark]).unwrap();
    let told = [
        "Begin",
        "Join",
        "CommitBegin",
        "Write",
        "Written",
        "FlushBegin",
        "FlushEnd",
        "Stall",
        "Valid",
        "CommitEnd",
    ];
    assert_eq!(names(&journal, &[]), told);
    let batch = journal.trace().read(&[]);
    let joined = batch.records[1];
    assert_eq!(joined.journal, Some(mark.journal()));
    let number = mark.number();
    let event = TraceEvent::Join {
        number,
        bytes: 34,
        operation: 7,
    };
    assert_eq!(joined.event, event);
    // A reader that goes on where it stopped.
    assert!(names(&journal, &batch.next).is_empty());
    drop(journal.begin(CoreId::new(0), 10).unwrap());
    assert_eq!(names(&journal, &batch.next), ["Begin", "Drop"]);
    journal.trace().stop();
    join(&journal, 0, 0, &[]);
    assert!(names(&journal, &[]).is_empty(), "off again");
}

#[test]
fn the_trace_is_bounded_and_says_what_is_lost() {
    let (journal, _) = start();
    journal.trace().start(4);
    // Somebody else wants less, and goes again: the first keeps what it has.
    journal.trace().start(1);
    journal.trace().stop();
    let before = journal.trace().read(&[]).next;
    for _ in 0..10 {
        drop(journal.begin(CoreId::new(0), 10).unwrap());
    }
    let batch = journal.trace().read(&before);
    let cores = batch.next.len();
    let kept = batch.records.len();
    assert!((4..=4 * cores).contains(&kept), "{kept} of {cores} cores");
    assert_eq!(usize::try_from(batch.lost).unwrap(), 20 - kept);
}

#[test]
fn the_traces_of_all_cores_are_merged_in_the_order_of_time() {
    let (journal, _) = start();
    journal.trace().start(10_000);
    thread::scope(|scope| {
        for core in 0..4 {
            let journal = &journal;
            scope.spawn(move || {
                for _ in 0..500 {
                    drop(journal.begin(CoreId::new(core), 10).unwrap());
                }
            });
        }
    });
    let batch = journal.trace().read(&[]);
    assert_eq!((batch.records.len(), batch.lost), (4000, 0));
    assert!(batch.records.is_sorted_by_key(|record| record.ns));
}
