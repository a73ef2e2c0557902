//! The queue on a simulated machine: races of the compound flush, tags, rings, and lines shared by
//! cores.
//!
//! `RUSTFLAGS='--cfg dure_backend="sim"' cargo test -p dure-block --test sim`

#![cfg(dure_backend = "sim")]
#![cfg_attr(
    dure_backend = "sim",
    expect(
        clippy::unwrap_used,
        reason = "a test stops at what it does not expect"
    )
)]

mod media;
mod null;
mod ring;

/// What the source of the ring names.
mod rank {
    pub(crate) const REAPING_RANK: u8 = 210;
    pub(crate) const SUBMITTING_RANK: u8 = 212;
}

use std::time::Duration;

use dure_sync::atomic::{AtomicU64, Ordering};

use dure_block::crash::CrashImages;
use dure_block::ram::{Image, RamDevice};
use dure_block::record::RecordDevice;
use dure_block::{
    BLOCK_BYTES, Bio, BlockBuf, Device, DeviceInfo, FlushPolicy, Io, Lba, Merge, Queue,
    QueueConfig, Request, Result, WriteFlags, share,
};
use dure_sync::sim::{Config, Report, run, seeds, try_run};
use dure_sync::{Arc, CoreId, Mutex, thread};

/// A RAM disk that takes its time: flushes slow enough to be shared.
#[derive(Debug)]
struct SlowRam(RamDevice);

impl Device for SlowRam {
    fn info(&self) -> &DeviceInfo {
        self.0.info()
    }

    fn execute(&self, io: Io<'_>) -> Result<()> {
        let micros = if matches!(io, Io::Flush) { 400 } else { 2 };
        let result = self.0.execute(io);
        thread::sleep(Duration::from_micros(micros));
        result
    }
}

const TASKS: u16 = 4;
const BLOCKS: u64 = 64;

/// Each task writes and flushes; what it wrote must then be durable.
fn write_and_flush(policy: FlushPolicy) {
    let record = Arc::new(RecordDevice::new(share(SlowRam(RamDevice::new(
        "ram0", BLOCKS,
    )))));
    let log = record.log();
    let config = QueueConfig {
        flush: policy,
        nr_requests: 3,
        ..QueueConfig::default()
    };
    let queue = Queue::new(share(record), config);
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let (queue, log) = (Arc::clone(&queue), Arc::clone(&log));
            thread::spawn_on("writer", CoreId::new(task), move || {
                for round in 0..3_u64 {
                    let lba = Lba::new(u64::from(task) * 8 + round);
                    let data = vec![7; BLOCK_BYTES];
                    if round == 1 {
                        let bio = Bio::write(lba, BlockBuf::from_slice(&data));
                        let ticket = queue.submit(bio).unwrap();
                        queue.wait(ticket).result.unwrap();
                    } else {
                        queue.write(lba, &data, WriteFlags::NONE).unwrap();
                    }
                    queue.flush().unwrap();
                    let images = CrashImages::new(Image::zeroed(BLOCKS), &log);
                    let point = images.at(images.last_step());
                    let durable = point.durable().contains_key(&lba);
                    assert!(durable, "block {lba} is lost by a crash after its flush");
                }
            })
        })
        .collect();
    tasks.into_iter().for_each(|task| task.join().unwrap());
    let counters = queue.counters();
    assert_eq!(counters.flush_requests, u64::from(TASKS) * 3);
    assert!(
        counters.device_flushes <= counters.flush_requests,
        "{counters:?}"
    );
    assert_eq!(queue.in_flight(), 0);
}

#[test]
fn sim_a_flush_covers_the_callers_writes_on_every_schedule() {
    for policy in [FlushPolicy::Compound, FlushPolicy::Separate] {
        for seed in seeds(300) {
            run(Config::random(TASKS.into(), seed), move || {
                write_and_flush(policy)
            });
            run(Config::stall(TASKS.into(), seed), move || {
                write_and_flush(policy)
            });
        }
    }
}

/// Without the leader's wait each of two committers would miss the other's flush for ever.
#[test]
fn sim_two_committers_share_their_flushes() {
    const ROUNDS: u64 = 10;
    run(Config::random(2, 1), || {
        let device = RecordDevice::new(share(SlowRam(RamDevice::new("ram0", BLOCKS))));
        let config = QueueConfig {
            flush: FlushPolicy::Compound,
            ..QueueConfig::default()
        };
        let queue = Queue::new(share(device), config);
        let tasks = [0, 1].map(|task| {
            let queue = Arc::clone(&queue);
            thread::spawn_on("committer", CoreId::new(task), move || {
                // The second comes while the first flushes.
                thread::sleep(Duration::from_micros(10 * u64::from(task)));
                for round in 0..ROUNDS {
                    let lba = Lba::new(u64::from(task) * ROUNDS + round);
                    queue
                        .write(lba, &[7; BLOCK_BYTES], WriteFlags::NONE)
                        .unwrap();
                    queue.flush().unwrap();
                }
            })
        });
        tasks.into_iter().for_each(|task| task.join().unwrap());
        let flushes = queue.counters().device_flushes;
        assert!(
            (ROUNDS..2 * ROUNDS - 4).contains(&flushes),
            "{flushes} flushes for {ROUNDS} each"
        );
    });
}

#[test]
fn sim_canary_sharing_a_running_flush_is_caught() {
    let fails = |seed| {
        let config = Config::random(TASKS.into(), seed);
        try_run(config, || write_and_flush(FlushPolicy::CanarySharesRunning))
            .is_err_and(|failure| failure.to_string().contains("is lost by a crash"))
    };
    assert!(seeds(300).any(fails), "no schedule showed the lost write");
}

#[test]
fn sim_flushes_of_many_cores_coalesce() {
    let cores = 16;
    let done = run(Config::min_clock(cores), move || {
        let record = RecordDevice::new(share(SlowRam(RamDevice::new("ram0", BLOCKS))));
        let queue = Queue::new(share(record), QueueConfig::default());
        let tasks: Vec<_> = (0..u16::try_from(cores).unwrap())
            .map(|core| {
                let queue = Arc::clone(&queue);
                thread::spawn_on("flusher", CoreId::new(core), move || {
                    (0..20).for_each(|_| queue.flush().unwrap());
                })
            })
            .collect();
        tasks.into_iter().for_each(|task| task.join().unwrap());
        queue.counters()
    });
    let (requests, flushes) = (done.value.flush_requests, done.value.device_flushes);
    assert_eq!(requests, 320);
    assert!(
        flushes * 4 <= requests,
        "{flushes} device flushes for {requests} requests"
    );
}

/// Each core reads and writes its own blocks, `rounds` times.
fn private_blocks(rounds: u64, submitted: bool) -> Report {
    let cores = 4;
    run(Config::min_clock(cores), move || {
        let blocks = 64 * 512;
        let queue = Queue::new(
            share(RamDevice::new("ram0", blocks)),
            QueueConfig::default(),
        );
        let tasks: Vec<_> = (0..4_u16)
            .map(|core| {
                let queue = Arc::clone(&queue);
                thread::spawn_on("worker", CoreId::new(core), move || {
                    let mut data = vec![1; BLOCK_BYTES];
                    for round in 0..rounds {
                        let lba = Lba::new(u64::from(core) * 64 + round % 8);
                        if submitted {
                            let bio = Bio::write(lba, BlockBuf::zeroed(1));
                            let ticket = queue.submit(bio).unwrap();
                            queue.wait(ticket).result.unwrap();
                        } else {
                            queue.write(lba, &data, WriteFlags::NONE).unwrap();
                            queue.read(lba, &mut data).unwrap();
                        }
                    }
                })
            })
            .collect();
        tasks.into_iter().for_each(|task| task.join().unwrap());
    })
    .report
}

#[test]
fn sim_private_blocks_share_no_lines() {
    for submitted in [false, true] {
        let (few, many) = (
            private_blocks(50, submitted),
            private_blocks(150, submitted),
        );
        let more = many.transfers.saturating_sub(few.transfers);
        assert_eq!(
            more, 0,
            "{more} transfers in 400 operations, submitted: {submitted}: {:?}",
            many.hot_lines
        );
    }
}

#[test]
fn sim_everybody_gets_a_tag() {
    for seed in seeds(100) {
        run(Config::random(4, seed), || {
            let record = RecordDevice::new(share(RamDevice::new("ram0", BLOCKS)));
            let config = QueueConfig {
                nr_requests: 1,
                ..QueueConfig::default()
            };
            let queue = Queue::new(share(record), config);
            let tasks: Vec<_> = (0..4_u16)
                .map(|core| {
                    let queue = Arc::clone(&queue);
                    thread::spawn_on("submitter", CoreId::new(core), move || {
                        for _ in 0..3 {
                            let bio = || Bio::write(Lba::new(core.into()), BlockBuf::zeroed(1));
                            let tickets = queue.submit_all([bio(), bio()]).unwrap();
                            queue.read(Lba::new(0), &mut [0; BLOCK_BYTES]).unwrap();
                            for ticket in tickets {
                                queue.wait(ticket).result.unwrap();
                            }
                        }
                    })
                })
                .collect();
            tasks.into_iter().for_each(|task| task.join().unwrap());
            assert_eq!(queue.in_flight(), 0);
        });
    }
}

/// A waiter that nobody woke would still find a tag when it looks at the device again, 200 us
/// later: so a lost wake-up shows in the time that passes.
#[test]
fn sim_waiters_for_tags_are_woken() {
    let done = run(Config::min_clock(4), || {
        let config = QueueConfig {
            nr_requests: 1,
            ..QueueConfig::default()
        };
        let queue = Queue::new(share(SlowRam(RamDevice::new("ram0", BLOCKS))), config);
        let tasks: Vec<_> = (0..4_u16)
            .map(|core| {
                let queue = Arc::clone(&queue);
                thread::spawn_on("writer", CoreId::new(core), move || {
                    for _ in 0..100 {
                        let data = [0; BLOCK_BYTES];
                        queue
                            .write(Lba::new(core.into()), &data, WriteFlags::NONE)
                            .unwrap();
                    }
                })
            })
            .collect();
        tasks.into_iter().for_each(|task| task.join().unwrap());
        queue.counters().tag_waits
    });
    assert!(done.value > 100, "only {} of 400 writes waited", done.value);
    let per_write = done.report.virtual_ns / 400;
    assert!(
        per_write < 20_000,
        "{per_write} ns of virtual time for a write of 2000 ns"
    );
}

/// Completes what is submitted on a task of its own, some time later.
#[derive(Debug)]
struct LateRam {
    ram: RamDevice,
    held: Mutex<220, Vec<Request>>,
    completed: AtomicU64,
}

impl LateRam {
    /// Completes requests until `stop` says that none will come any more.
    fn complete(&self, stop: &AtomicU64) {
        loop {
            let last = stop.load(Ordering::Acquire) > 0;
            let held = std::mem::take(&mut *self.held.lock());
            if held.is_empty() && last {
                return;
            }
            for request in held.into_iter().rev() {
                thread::sleep(Duration::from_micros(5));
                request.run_on(&self.ram);
                self.completed.fetch_add(1, Ordering::Relaxed);
            }
            thread::sleep(Duration::from_micros(3));
        }
    }
}

impl Device for LateRam {
    fn info(&self) -> &DeviceInfo {
        self.ram.info()
    }

    fn execute(&self, io: Io<'_>) -> Result<()> {
        self.ram.execute(io)
    }

    fn submit(&self, request: Request) {
        self.held.lock().push(request);
    }
}

/// Three tasks submit more than there are tags, wait with limits that are too short, and drop some
/// tickets; the queue goes while requests are under way.
fn submit_wait_and_leave(merge: Merge) {
    const BIOS: u64 = 4;
    let device = Arc::new(LateRam {
        ram: RamDevice::new("late", BLOCKS),
        held: Mutex::new(Vec::new()),
        completed: AtomicU64::new(0),
    });
    let stop = Arc::new(AtomicU64::new(0));
    let config = QueueConfig {
        hw_queues: 2,
        nr_requests: 2,
        merge,
        ..QueueConfig::default()
    };
    let queue = Queue::new(share(Arc::clone(&device)), config);
    let driver = {
        let (device, stop) = (Arc::clone(&device), Arc::clone(&stop));
        thread::spawn_on("driver", CoreId::new(3), move || device.complete(&stop))
    };
    let tasks: Vec<_> = (0..3_u64)
        .map(|task| {
            let queue = Arc::clone(&queue);
            let core = CoreId::new(u16::try_from(task).unwrap());
            thread::spawn_on("submitter", core, move || {
                let first = task * BIOS;
                // Neighbours are not next to each other in the call.
                let bios = [0, 2, 1, 3].map(|block| {
                    let memory = BlockBuf::from_slice(&[7; BLOCK_BYTES]);
                    Bio::write(Lba::new(first + block), memory).with_cookie(block)
                });
                let mut tickets = queue.submit_all(bios).unwrap();
                // Nobody learns of one of them.
                drop(tickets.pop());
                let mut late = 0;
                for (mut ticket, cookie) in tickets.into_iter().zip([0, 2, 1]) {
                    let completion = loop {
                        match queue.wait_timeout(ticket, Duration::from_micros(2)) {
                            Ok(completion) => break completion,
                            Err(again) => (ticket, late) = (again, late + 1),
                        }
                    };
                    assert_eq!(completion.cookie, cookie);
                    let memory = completion.into_segments().unwrap();
                    assert_eq!(memory.len(), 1, "each bio gets its own memory");
                }
                late
            })
        })
        .collect();
    let late: u64 = tasks.into_iter().map(|task| task.join().unwrap()).sum();
    let counters = queue.counters();
    assert_eq!(counters.timeouts, late, "each late request is counted");
    let completed = 3 * BIOS - counters.merges;
    let in_flight = queue
        .hw_queues()
        .iter()
        .map(|queue| queue.in_flight)
        .sum::<u32>();
    assert!(
        in_flight <= 3,
        "at most the dropped ones are under way: {in_flight}"
    );
    drop(queue);
    stop.store(1, Ordering::Release);
    driver.join().unwrap();
    assert_eq!(device.completed.load(Ordering::Relaxed), completed);
    let image = device.ram.snapshot();
    for block in 0..3 * BIOS {
        let stored = image.get(Lba::new(block));
        assert!(
            stored.is_some_and(|stored| stored.bytes()[0] == 7),
            "block {block} is lost"
        );
    }
}

#[test]
fn sim_no_request_is_lost_by_exhaustion_timeouts_or_teardown() {
    for seed in seeds(300) {
        for merge in [Merge::Off, Merge::Contiguous] {
            run(Config::random(4, seed), move || {
                submit_wait_and_leave(merge)
            });
            run(Config::stall(4, seed), move || submit_wait_and_leave(merge));
        }
    }
}
