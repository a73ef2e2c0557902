use std::time::Duration;

use dure_sync::atomic::{AtomicU64, Ordering};
use dure_sync::{Arc, Condvar, Mutex, thread};

use super::*;
use crate::null::{Irq, NullDevice};
use crate::ram::RamDevice;
use crate::record::RecordDevice;
use crate::{Bio, BlockBuf, Error, OsError, Request, share};

fn pattern(byte: u8, blocks: usize) -> Vec<u8> {
    vec![byte; blocks * BLOCK_BYTES]
}

/// A RAM disk whose flushes wait for a permit, and whose requests are limited to two blocks.
#[derive(Debug)]
struct SlowFlush {
    ram: RamDevice,
    info: DeviceInfo,
    flushes_started: AtomicU64,
    permits: Mutex<220, Permits>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Permits {
    flushes: u64,
    fail: bool,
}

impl SlowFlush {
    fn new() -> Arc<Self> {
        let ram = RamDevice::new("slow", 64);
        let mut info = ram.info().clone();
        info.volatile_cache = true;
        info.max_blocks_per_request = 2;
        Arc::new(Self {
            ram,
            info,
            flushes_started: AtomicU64::new(0),
            permits: Mutex::new(Permits::default()),
            changed: Condvar::new(),
        })
    }

    fn permit(&self, flushes: u64) {
        self.permits.lock().flushes += flushes;
        self.changed.notify_all();
    }

    fn wait_until_started(&self, flushes: u64) {
        while self.flushes_started.load(Ordering::Acquire) < flushes {
            thread::sleep(Duration::from_micros(100));
        }
    }
}

impl Device for SlowFlush {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn execute(&self, io: Io<'_>) -> Result<()> {
        assert!(io.blocks() <= 2, "the queue splits long requests");
        if !matches!(io, Io::Flush) {
            return self.ram.execute(io);
        }
        self.flushes_started.fetch_add(1, Ordering::AcqRel);
        let mut permits = self.permits.lock();
        while permits.flushes == 0 {
            permits = self.changed.wait(permits);
        }
        permits.flushes -= 1;
        if permits.fail {
            return Err(Error::Io {
                device: "slow".to_owned(),
                op: Op::Flush,
                lba: Lba::new(0),
                blocks: 0,
                os: OsError::EIO,
            });
        }
        Ok(())
    }
}

/// Device flushes that started before a caller returned that came while flush 1 was running.
fn flushes_needed_by_late_caller(policy: FlushPolicy) -> u64 {
    let device = SlowFlush::new();
    let config = QueueConfig {
        flush: policy,
        ..QueueConfig::default()
    };
    let queue = Queue::new(share(Arc::clone(&device)), config);
    thread::scope(|scope| {
        let first = scope.spawn(|| queue.flush());
        device.wait_until_started(1);
        let late = scope.spawn(|| {
            queue
                .write(Lba::new(3), &pattern(1, 1), WriteFlags::NONE)
                .unwrap();
            queue.flush().unwrap();
            device.flushes_started.load(Ordering::Acquire)
        });
        while queue.counters().flush_requests < 2 {
            thread::sleep(Duration::from_micros(100));
        }
        thread::sleep(Duration::from_millis(5));
        device.permit(2);
        first.join().unwrap().unwrap();
        late.join().unwrap()
    })
}

#[test]
fn a_flush_in_progress_is_never_shared() {
    assert_eq!(flushes_needed_by_late_caller(FlushPolicy::Compound), 2);
    assert_eq!(flushes_needed_by_late_caller(FlushPolicy::Separate), 2);
}

#[test]
fn canary_a_shared_running_flush_is_noticed() {
    assert_eq!(
        flushes_needed_by_late_caller(FlushPolicy::CanarySharesRunning),
        1
    );
}

/// One flush runs while `callers` more arrive; returns their results.
fn crowd(queue: &Queue, device: &SlowFlush, callers: u64) -> Vec<Result<()>> {
    thread::scope(|scope| {
        let first = scope.spawn(|| queue.flush());
        device.wait_until_started(1);
        let crowd: Vec<_> = (0..callers)
            .map(|_| scope.spawn(|| queue.flush()))
            .collect();
        while queue.counters().flush_requests < callers + 1 {
            thread::sleep(Duration::from_micros(100));
        }
        thread::sleep(Duration::from_millis(5));
        device.permit(1);
        first.join().unwrap().unwrap();
        device.wait_until_started(2);
        device.permits.lock().fail = true;
        device.permit(callers);
        crowd
            .into_iter()
            .map(|caller| caller.join().unwrap())
            .collect()
    })
}

#[test]
fn concurrent_callers_share_one_flush_and_its_failure() {
    let device = SlowFlush::new();
    let queue = Queue::new(share(Arc::clone(&device)), QueueConfig::default());
    let results = crowd(&queue, &device, 7);
    assert_eq!(results.len(), 7);
    for result in results {
        let error = result.unwrap_err();
        assert_eq!(error.os(), Some(OsError::EIO));
        assert_eq!(
            error.to_string(),
            "slow: flush of 0 blocks at block 0 failed: Input/output error (os error 5)"
        );
    }
    let counters = queue.counters();
    assert_eq!(
        (
            counters.flush_requests,
            counters.device_flushes,
            counters.errors
        ),
        (8, 2, 1)
    );
    // A later flush is not tainted.
    device.permits.lock().fail = false;
    device.permit(1);
    queue.flush().unwrap();
}

#[test]
fn long_requests_are_split() {
    let device = SlowFlush::new();
    let queue = Queue::new(share(Arc::clone(&device)), QueueConfig::default());
    let (one, five) = (pattern(1, 1), pattern(5, 5));
    queue.write_vectored(Lba::new(2), &[&one, &five]).unwrap();
    let mut out = pattern(0, 8);
    queue.read(Lba::new(1), &mut out).unwrap();
    assert_eq!(out, [pattern(0, 1), one, five, pattern(0, 1)].concat());
    let error = queue
        .submit(Bio::read(Lba::new(1), BlockBuf::zeroed(3)))
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "slow: read of 3 blocks at block 1 is longer than the 2 blocks the device takes at once; \
         submit it in parts"
    );
    let counters = queue.counters();
    assert_eq!((counters.writes, counters.blocks_written), (4, 6));
    assert_eq!((counters.reads, counters.blocks_read), (4, 8));
}

#[test]
fn bad_requests_are_refused_with_all_details() {
    let queue = Queue::new(share(RamDevice::new("ram0", 8)), QueueConfig::default());
    let outside = queue
        .write(Lba::new(7), &pattern(1, 2), WriteFlags::NONE)
        .unwrap_err();
    assert_eq!(
        outside.to_string(),
        "ram0: write of 2 blocks at block 7 is outside the device, which has 8 blocks; the \
         volume was made for a larger device, or its metadata is wrong"
    );
    let overflow = queue
        .read(Lba::new(u64::MAX), &mut pattern(0, 1))
        .unwrap_err();
    assert!(matches!(overflow, Error::OutOfRange { .. }), "{overflow}");
    let unaligned = queue
        .write_vectored(Lba::new(0), &[&[0; 2048], &[0; 2048]])
        .unwrap_err();
    assert_eq!(
        unaligned.to_string(),
        "ram0: write of 2048 bytes at block 0: not a multiple of 4096 bytes"
    );
    assert!(queue.submit(Bio::discard(Lba::new(0), 9)).is_err());
    assert_eq!(queue.in_flight(), 0);
}

#[test]
fn asynchronous_requests_come_back_with_cookie_and_memory() {
    let record = Arc::new(RecordDevice::new(share(RamDevice::new("ram0", 64))));
    let trace = Trace::Ring {
        records_per_core: 16,
    };
    let config = QueueConfig {
        merge: Merge::Off,
        trace,
        ..QueueConfig::default()
    };
    let queue = Queue::new(share(Arc::clone(&record)), config);
    let write = |n: u8| {
        let buf = BlockBuf::from_slice(&pattern(n, 1));
        Bio::write(Lba::new(n.into()), buf).with_cookie(n.into())
    };
    let tickets = queue.submit_all((1..=3).map(write)).unwrap();
    assert_eq!(queue.in_flight(), 3);
    for (ticket, n) in tickets.into_iter().zip(1..) {
        let completion = queue.wait(ticket);
        assert_eq!(completion.cookie, n);
        let Stamps {
            queued_ns,
            merged_ns: _,
            tagged_ns,
            inserted_ns,
            dispatched_ns,
            completed_ns,
            tag_wait_ns,
        } = completion.stamps;
        assert_eq!(tag_wait_ns, 0, "there are tags");
        let stages = [
            queued_ns,
            tagged_ns,
            inserted_ns,
            dispatched_ns,
            completed_ns,
        ];
        assert!(queued_ns > 0 && stages.is_sorted(), "{stages:?}");
        assert_eq!(completion.into_segments().unwrap()[0].blocks(), 1);
    }
    let ticket = queue
        .submit(Bio::read(Lba::new(2), BlockBuf::zeroed(2)))
        .unwrap();
    let segments = queue.wait(ticket).into_segments().unwrap();
    assert_eq!(
        segments[0].as_slice(),
        [pattern(2, 1), pattern(3, 1)].concat()
    );
    assert_eq!(queue.in_flight(), 0);
    let records = queue.take_trace();
    assert_eq!(records.len(), 4);
    let phases = Phases::of(&records);
    let sum = phases.q2g.mean_ns + phases.g2i.mean_ns + phases.i2d.mean_ns + phases.d2c.mean_ns;
    assert!((sum - phases.q2c.mean_ns).abs() < 1.0, "{phases:?}");
    assert!(queue.take_trace().is_empty());
}

#[test]
fn preflush_covers_earlier_writes() {
    let record = Arc::new(RecordDevice::new(share(RamDevice::new("ram0", 64))));
    let queue = Queue::new(share(Arc::clone(&record)), QueueConfig::default());
    queue
        .write(Lba::new(1), &pattern(1, 1), WriteFlags::NONE)
        .unwrap();
    let flags = WriteFlags::PREFLUSH | WriteFlags::FUA;
    queue.write(Lba::new(2), &pattern(2, 1), flags).unwrap();
    let kinds: Vec<_> = record
        .log()
        .entries()
        .iter()
        .map(|entry| entry.effect.clone())
        .collect();
    assert_eq!(kinds.len(), 3);
    assert!(matches!(
        kinds[0],
        crate::record::Effect::Write { fua: false, .. }
    ));
    assert_eq!(kinds[1], crate::record::Effect::Flush);
    assert!(matches!(
        kinds[2],
        crate::record::Effect::Write { fua: true, .. }
    ));
}

/// More tasks than tags, each doing asynchronous and synchronous requests: all get through.
#[test]
fn submitters_wait_for_tags_and_nobody_is_lost() {
    let record = RecordDevice::new(share(RamDevice::new("ram0", 1024)));
    let config = QueueConfig {
        nr_requests: 2,
        ..QueueConfig::default()
    };
    let queue = Queue::new(share(record), config);
    let tasks = 6_u64;
    let rounds = 60_u64;
    thread::scope(|scope| {
        for task in 0..tasks {
            let queue = &queue;
            scope.spawn(move || {
                for round in 0..rounds {
                    let lba = Lba::new(task * rounds + round);
                    // Three in flight per task: more than there are tags in all.
                    let bios = (0..3).map(|_| Bio::write(lba, BlockBuf::zeroed(1)));
                    let tickets = queue.submit_all(bios).unwrap();
                    queue.write(lba, &pattern(9, 1), WriteFlags::NONE).unwrap();
                    for ticket in tickets {
                        queue.wait(ticket).into_segments().unwrap();
                    }
                }
            });
        }
    });
    assert_eq!(queue.in_flight(), 0);
    let counters = queue.counters();
    assert_eq!(counters.writes, tasks * rounds * 4);
    assert!(counters.tag_waits > 0, "{counters:?}");
}

#[test]
fn every_tag_is_handed_out_once() {
    for nr_requests in [1, 2, 63, 64, 65, 256, 1000] {
        let tags = TagSet::new(nr_requests, 4);
        let taken: Vec<_> = std::iter::from_fn(|| tags.take_now(0)).collect();
        assert_eq!(taken.len(), usize::try_from(nr_requests).unwrap());
        let mut numbers: Vec<_> = taken.iter().map(|tag| tag.number()).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), taken.len());
        assert_eq!(tags.in_flight(), nr_requests);
        taken.into_iter().for_each(|tag| tags.release(tag));
        assert_eq!(tags.in_flight(), 0);
    }
}

#[test]
#[should_panic(expected = "released twice")]
fn a_tag_is_not_released_twice() {
    let tags = TagSet::new(4, 2);
    let tag = tags.take_now(0).unwrap();
    tags.release(tag);
    tags.release(tag);
}

#[test]
fn a_dropped_request_is_reported() {
    #[derive(Debug)]
    struct Forgetful(RamDevice);
    impl Device for Forgetful {
        fn info(&self) -> &DeviceInfo {
            self.0.info()
        }
        fn execute(&self, io: Io<'_>) -> Result<()> {
            self.0.execute(io)
        }
        fn submit(&self, request: Request) {
            drop(request);
        }
    }
    let queue = Queue::new(
        share(Forgetful(RamDevice::new("ram0", 8))),
        QueueConfig::default(),
    );
    let ticket = queue
        .submit(Bio::read(Lba::new(4), BlockBuf::zeroed(1)))
        .unwrap();
    let error = queue.wait(ticket).result.unwrap_err();
    assert_eq!(
        error.to_string(),
        "ram0: read of 1 block at block 4 was abandoned by its driver"
    );
    assert_eq!((queue.in_flight(), queue.counters().errors), (0, 1));
}

/// More device queues than cores: a core that has several gives each the next request in turn, so
/// that it has the tags of all.
#[test]
fn a_core_uses_its_hardware_queues_in_turn() {
    let device = NullDevice::with_irq("null", 8, Irq::Timer(Duration::from_secs(3600)));
    let config = QueueConfig {
        hw_queues: HW_QUEUES_MAX,
        nr_requests: 2,
        ..QueueConfig::default()
    };
    let queue = Queue::new(share(device), config);
    assert_eq!(queue.nr_requests(), 2 * HW_QUEUES_MAX);
    let core = CoreId::new(0);
    let own = |queue: &HwQueue| queue.cores == [core];
    let count = queue.hw_queues().into_iter().filter(own).count();
    assert!(count >= usize::try_from(HW_QUEUES_MAX).unwrap() / core_count());
    thread::scope(|scope| {
        scope.spawn_on(core, || {
            let reads = (0..count + 1).map(|_| Bio::read(Lba::new(0), BlockBuf::zeroed(1)));
            drop(queue.submit_all(reads).unwrap());
        });
    });
    let in_flight = queue.hw_queues();
    let in_flight = in_flight.iter().filter(|hw| own(hw));
    let in_flight: Vec<_> = in_flight.map(|hw| hw.in_flight).collect();
    assert_eq!(in_flight.iter().sum::<u32>(), queue.in_flight());
    assert_eq!(in_flight.iter().filter(|flying| **flying == 2).count(), 1);
    assert_eq!(
        in_flight.iter().filter(|flying| **flying == 1).count(),
        count - 1
    );
    assert_eq!(queue.counters().tag_waits, 0);
}

/// Each synchronous request counts at the queue that it went to.
#[test]
fn counters_of_several_queues_of_a_core_add_up() {
    let config = QueueConfig {
        hw_queues: 16,
        trace: Trace::Ring {
            records_per_core: 100,
        },
        ..QueueConfig::default()
    };
    for config in [
        config,
        QueueConfig {
            trace: Trace::Off,
            ..config
        },
    ] {
        let queue = Queue::new(share(RamDevice::new("ram", 8)), config);
        for _ in 0..64 {
            queue.read(Lba::new(0), &mut pattern(0, 1)).unwrap();
        }
        assert_eq!(queue.counters().reads, 64);
        let reads = queue.hw_queues().into_iter().map(|hw| hw.counters.reads);
        assert_eq!(reads.clone().sum::<u64>(), 64);
        let used = reads.filter(|reads| *reads > 0).count();
        assert!(used * core_count() >= 16 && used <= 16, "{used}");
        let traced = queue.take_trace();
        assert_eq!(
            traced.len(),
            if config.trace == Trace::Off { 0 } else { 64 }
        );
        let queues: std::collections::BTreeSet<_> = traced.iter().map(|r| r.hw_queue).collect();
        assert!(queues.is_empty() || queues.len() == used);
    }
}
