//! Range locks under random, stalling and priority schedules: `cargo xtask sim -p dure-sync`.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::time::Duration;

use dure_sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use dure_sync::range_lock::{Access, ByteRange, Config as LockConfig, Policy, RangeLock};
use dure_sync::sim::{Config, FailureKind, Report, Schedule, charge, run, seeds, try_run};
use dure_sync::{Arc, CoreId, random, thread};

type Lock = RangeLock<10>;

const PAGE: u64 = 4096;
/// Pages the oracle watches; 16 of them fill a chunk of policy `segment`.
const PAGES: u64 = 40;
/// What a writer leaves in the oracle's word of a page.
const WRITER: u32 = 100;

fn below(end: u64) -> u64 {
    random::u64() % end
}

fn pages(first: u64, count: u64) -> ByteRange {
    ByteRange::new(first * PAGE, count * PAGE).unwrap()
}

/// The schedules that look for races, on 3 cores.
fn hunts(seed: u64) -> [Config; 3] {
    [
        Config::random(3, seed),
        Config::stall(3, seed),
        Config::priority(3, seed),
    ]
}

fn hunt(count: u64, program: impl Fn() + Copy + Send + 'static) {
    for seed in seeds(count) {
        for config in hunts(seed) {
            run(config, program);
        }
    }
}

fn fails(seed_count: u64, program: impl Fn() + Copy + Send + 'static) -> bool {
    (0..seed_count).any(|seed| {
        hunts(seed)
            .into_iter()
            .any(|config| try_run(config, program).is_err())
    })
}

/// Fails when a page has a writer and anybody else.
struct Oracle {
    pages: Vec<AtomicU32>,
    /// Whether readers exclude each other too.
    readers_alone: bool,
}

impl Oracle {
    fn new(policy: Policy) -> Self {
        Self {
            pages: (0..PAGES).map(|_| AtomicU32::new(0)).collect(),
            readers_alone: policy == Policy::Bitmap,
        }
    }

    fn of(&self, range: ByteRange) -> &[AtomicU32] {
        let last = (range.last() / PAGE).min(PAGES - 1);
        let index = |page| usize::try_from(page).unwrap();
        &self.pages[index(range.first() / PAGE)..=index(last)]
    }

    /// The caller has the range; it looks twice.
    fn visit(&self, range: ByteRange, access: Access) {
        let pages = self.of(range);
        if access == Access::Exclusive {
            for page in pages {
                assert_eq!(
                    page.swap(WRITER, Ordering::Relaxed),
                    0,
                    "not alone in {range:?}"
                );
            }
            if below(2) == 0 {
                thread::yield_now();
            }
            for page in pages {
                assert_eq!(
                    page.swap(0, Ordering::Relaxed),
                    WRITER,
                    "not alone in {range:?}"
                );
            }
        } else {
            let others_max = if self.readers_alone { 0 } else { WRITER - 1 };
            for page in pages {
                let others = page.fetch_add(1, Ordering::Relaxed);
                assert!(others <= others_max, "{others} others in {range:?}");
            }
            if below(2) == 0 {
                thread::yield_now();
            }
            for page in pages {
                page.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}

/// Few chunks, so that words move; none, so that all claims are wide.
fn any_config() -> LockConfig {
    let policy = Policy::ALL[usize::try_from(below(5)).unwrap()];
    let chunks_max = [0, 1, 2, 3, 100][usize::try_from(below(5)).unwrap()];
    LockConfig::new(policy).with_chunks_max(chunks_max)
}

/// Some pages, or all from one on.
fn any_range() -> ByteRange {
    let first = below(PAGES);
    match below(6) {
        0 => ByteRange::from_offset(first * PAGE),
        1 => pages(first, (1 + below(30)).min(PAGES - first)),
        _ => pages(first, (1 + below(3)).min(PAGES - first)),
    }
}

fn any_access() -> Access {
    [Access::Shared, Access::Exclusive][usize::from(below(2) == 0)]
}

fn take(lock: &Lock, oracle: &Oracle, range: ByteRange, access: Access, patient: bool) {
    let guard = match (access, patient) {
        (Access::Shared, true) => Some(lock.read(range)),
        (Access::Exclusive, true) => Some(lock.write(range)),
        (Access::Shared, false) => lock.try_read(range),
        (Access::Exclusive, false) => lock.try_write(range),
    };
    if let Some(guard) = guard {
        oracle.visit(range, access);
        drop(guard);
    }
}

#[test]
fn sim_ranges_exclude_and_wake_everyone() {
    hunt(8_000, || {
        let config = any_config();
        let (lock, oracle) = (Lock::new(config), Oracle::new(config.policy()));
        thread::scope(|scope| {
            for _ in 0..5 {
                scope.spawn(|| {
                    for _ in 0..5 {
                        let patient = below(5) > 0;
                        take(&lock, &oracle, any_range(), any_access(), patient);
                    }
                });
            }
        });
        // Nothing is left behind.
        assert!(lock.try_write(ByteRange::ALL).is_some());
    });
}

/// Pages of one chunk only: all tasks meet in few words.
#[test]
fn sim_few_pages_are_fought_for() {
    hunt(5_000, || {
        let config = any_config();
        let (lock, oracle) = (Lock::new(config), Oracle::new(config.policy()));
        thread::scope(|scope| {
            for _ in 0..5 {
                scope.spawn(|| {
                    for _ in 0..6 {
                        let first = below(3);
                        let range = pages(first, 1 + below(3 - first));
                        take(&lock, &oracle, range, any_access(), true);
                    }
                });
            }
        });
        assert!(lock.try_write(ByteRange::ALL).is_some());
    });
}

/// Words move from chunk to chunk while tasks look for them.
#[test]
fn sim_words_that_move_are_still_locks() {
    hunt(5_000, || {
        let policy = [Policy::Bitmap, Policy::Segment][usize::from(below(2) == 0)];
        let pages_of_a_chunk = if policy == Policy::Bitmap { 512 } else { 16 };
        let config = LockConfig::new(policy);
        let lock = Lock::new(config.with_chunks_max(usize::try_from(1 + below(2)).unwrap()));
        let oracle = Oracle::new(policy);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..8 {
                        // One page in each of four chunks, which the oracle knows by its number.
                        let number = below(4);
                        let range = pages(number * pages_of_a_chunk, 1);
                        let guard = lock.write(range);
                        oracle.visit(pages(number, 1), Access::Exclusive);
                        drop(guard);
                    }
                });
            }
        });
    });
}

/// Each task holds ranges of two files at once, taken in the order of the files.
#[test]
fn sim_ranges_of_two_files_taken_in_order_do_not_deadlock() {
    hunt(3_000, || {
        let config = any_config();
        let locks = [Lock::new(config), Lock::new(config)];
        let oracles = [Oracle::new(config.policy()), Oracle::new(config.policy())];
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..4 {
                        let (from, to) = (any_range(), any_range());
                        let source = locks[0].read(from);
                        let target = locks[1].write_ordered(to);
                        oracles[0].visit(from, Access::Shared);
                        oracles[1].visit(to, Access::Exclusive);
                        drop((source, target));
                    }
                });
            }
        });
    });
}

#[test]
fn sim_canary_two_files_in_opposite_orders_deadlock() {
    let program = || {
        let locks = [(); 2].map(|()| Lock::new(LockConfig::new(Policy::Segment)));
        thread::scope(|scope| {
            for first in 0..2 {
                let locks = &locks;
                scope.spawn(move || {
                    let _one = locks[first].write(pages(0, 1));
                    // A false promise.
                    let _two = locks[1 - first].write_ordered(pages(0, 1));
                });
            }
        });
    };
    let failure = (0..200).find_map(|seed| try_run(Config::random(2, seed), program).err());
    let failure = failure.expect("some schedule deadlocks");
    assert!(
        matches!(failure.kind, FailureKind::Deadlock { .. }),
        "{failure}"
    );
}

/// The originals: a truncate takes the words that it knows, or none.
#[test]
fn sim_canary_truncate_of_known_words_only_is_caught() {
    assert!(fails(200, || {
        let lock = Lock::new(LockConfig::new(Policy::Segment));
        let oracle = Oracle::new(Policy::Segment);
        thread::scope(|scope| {
            scope.spawn(|| take(&lock, &oracle, pages(9, 1), Access::Exclusive, true));
            scope.spawn(|| {
                let guard = lock.write(pages(2, 1));
                oracle.visit(ByteRange::from_offset(2 * PAGE), Access::Exclusive);
                drop(guard);
            });
        });
    }));
}

/// Three tasks take `range` without pause until a fourth has had what it wants.
fn storm(config: LockConfig, range: ByteRange, access: Access, victim: (ByteRange, Access)) {
    let lock = Lock::new(config);
    let served = AtomicU32::new(0);
    let enter = |range, access| match access {
        Access::Shared => lock.read(range),
        Access::Exclusive => lock.write(range),
    };
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while served.load(Ordering::Relaxed) == 0 {
                    let guard = enter(range, access);
                    thread::sleep(Duration::from_micros(5));
                    drop(guard);
                }
            });
        }
        scope.spawn(|| {
            // The storm has begun.
            thread::sleep(Duration::from_micros(20));
            drop(enter(victim.0, victim.1));
            served.store(1, Ordering::Relaxed);
        });
    });
}

#[test]
fn sim_nobody_starves() {
    let wide = ByteRange::from_offset(0);
    let narrow = pages(3, 1);
    for seed in seeds(20) {
        for schedule in [Schedule::Random, Schedule::MinClock { ahead_ns: 0 }] {
            for policy in Policy::ALL {
                for chunks_max in [0, 8] {
                    let config = LockConfig::new(policy).with_chunks_max(chunks_max);
                    let machine = Config::new(4, seed, schedule).with_steps_max(2_000_000);
                    run(machine, move || {
                        for storm_range in [wide, narrow, pages(2, 3)] {
                            for range in [wide, narrow] {
                                let accesses = [Access::Shared, Access::Exclusive];
                                for access in accesses {
                                    let other = accesses[usize::from(access == accesses[0])];
                                    storm(config, storm_range, access, (range, other));
                                    let both = (range, Access::Exclusive);
                                    storm(config, storm_range, access, both);
                                }
                            }
                        }
                    });
                }
            }
        }
    }
}

/// A lock that is taken by whoever comes first after a release, as in the originals.
#[test]
fn sim_canary_readers_starve_a_writer_that_only_spins() {
    let failure = (0..20).find_map(|seed| {
        let schedule = Schedule::MinClock { ahead_ns: 0 };
        let machine = Config::new(4, seed, schedule).with_steps_max(200_000);
        try_run(machine, || {
            let lock = Lock::new(LockConfig::new(Policy::Segment));
            let served = AtomicU32::new(0);
            thread::scope(|scope| {
                for delay in 1..=3 {
                    let (lock, served) = (&lock, &served);
                    scope.spawn(move || {
                        thread::sleep(Duration::from_micros(2 * delay));
                        while served.load(Ordering::Relaxed) == 0 {
                            let guard = lock.read(pages(0, 1));
                            thread::sleep(Duration::from_micros(5));
                            drop(guard);
                        }
                    });
                }
                scope.spawn(|| {
                    thread::sleep(Duration::from_micros(20));
                    while lock.try_write(pages(0, 1)).is_none() {
                        thread::spin_hint();
                    }
                    served.store(1, Ordering::Relaxed);
                });
            });
        })
        .err()
    });
    let failure = failure.expect("the writer never gets in");
    assert!(
        matches!(failure.kind, FailureKind::StepLimit { .. }),
        "{failure}"
    );
}

/// How often others got a range that all want, at most, while a task waited for it.
fn overtaken(policy: Policy, tasks: u64, seed: u64) -> u64 {
    let schedule = Schedule::MinClock { ahead_ns: 0 };
    let cores = usize::try_from(tasks).unwrap();
    run(Config::new(cores, seed, schedule), move || {
        let lock = Lock::new(LockConfig::new(policy));
        let (taken, worst) = (AtomicU64::new(0), AtomicU64::new(0));
        thread::scope(|scope| {
            for task in 0..tasks {
                let (lock, taken, worst) = (&lock, &taken, &worst);
                scope.spawn_on(CoreId::new(u16::try_from(task).unwrap()), move || {
                    for turn in 0..50 {
                        let before = taken.load(Ordering::Relaxed);
                        let access = (turn + task) % 3;
                        let guard = match access {
                            0 => lock.read(pages(0, 2)),
                            1 => lock.write(pages(1, 2)),
                            _ => lock.write(ByteRange::from_offset(PAGE)),
                        };
                        let since = taken.fetch_add(1, Ordering::Relaxed) - before;
                        worst.fetch_max(since, Ordering::Relaxed);
                        // Longer than anybody spins.
                        charge(Duration::from_micros(5));
                        drop(guard);
                    }
                });
            }
        });
        worst.into_inner()
    })
    .value
}

/// A task is overtaken by few: while it spins, before it stands in the queue, and once by each
/// that was in front of it.
#[test]
fn sim_waiting_is_bounded() {
    for policy in Policy::ALL {
        for tasks in [4, 8, 16] {
            let worst = seeds(10)
                .map(|seed| overtaken(policy, tasks, seed))
                .max()
                .unwrap();
            assert!(
                worst <= 4 * tasks,
                "{policy}: {worst} of {tasks} tasks got in before"
            );
        }
    }
}

/// Four cores use neighbouring ranges of one file, each its own, `rounds` times.
fn private_ranges(policy: Policy, rounds: u64, pages_each: u64, access: Access) -> Report {
    run(Config::min_clock(4), move || {
        let lock = Arc::new(Lock::new(LockConfig::new(policy)));
        // The first touch of each range makes its words.
        drop(lock.write(pages(0, 4 * pages_each)));
        let tasks = [0, 1, 2, 3].map(|core| {
            let lock = Arc::clone(&lock);
            thread::spawn_on("owner", CoreId::new(core), move || {
                let own = pages(u64::from(core) * pages_each, pages_each);
                for _ in 0..rounds {
                    drop(match access {
                        Access::Shared => lock.read(own),
                        Access::Exclusive => lock.write(own),
                    });
                }
            })
        });
        tasks.into_iter().for_each(|task| task.join().unwrap());
    })
    .report
}

/// Lines moved by 1,000 rounds of each core, beside the starting and ending of the threads, which
/// is a few transfers more or less.
fn transfers_of_1000_rounds(policy: Policy, pages_each: u64, access: Access) -> u64 {
    let few = private_ranges(policy, 50, pages_each, access);
    let many = private_ranges(policy, 1_050, pages_each, access);
    many.transfers.saturating_sub(few.transfers)
}

const THREAD_ENDS: u64 = 8;

#[test]
fn sim_private_ranges_share_no_lines() {
    for access in [Access::Shared, Access::Exclusive] {
        for pages_each in [1, 2, 4, 7, 16, 33] {
            let more = transfers_of_1000_rounds(Policy::Segment, pages_each, access);
            assert!(
                more <= THREAD_ENDS,
                "{more} transfers, {pages_each} pages each, {access:?}"
            );
        }
    }
}

#[test]
fn sim_canary_the_other_policies_share_lines() {
    for policy in [Policy::Inode, Policy::Tree, Policy::Bitmap] {
        let more = transfers_of_1000_rounds(policy, 1, Access::Exclusive);
        assert!(more > 1_000, "{policy}: {more}");
    }
    let readers = transfers_of_1000_rounds(Policy::Inode, 1, Access::Shared);
    assert!(readers > 1_000, "the one counter of readers: {readers}");
}

#[test]
fn sim_a_memory_bound_keeps_private_ranges_apart_once_they_have_words() {
    let done = run(Config::min_clock(4), || {
        let lock = Lock::new(LockConfig::new(Policy::Segment).with_chunks_max(4));
        thread::scope(|scope| {
            for core in 0..4_u16 {
                let lock = &lock;
                scope.spawn_on(CoreId::new(core), move || {
                    for _ in 0..100 {
                        drop(lock.read(pages(u64::from(core) * 1_000, 1)));
                    }
                });
            }
        });
        lock.footprint()
    });
    assert_eq!(done.value.chunks, 4);
    assert!(done.report.transfers < 150, "{}", done.report.transfers);
}

/// Whether a task that wants a range gets it by trying, of one that holds it for this long.
fn is_had_soon(config: Config, held: Duration) -> bool {
    let program = move || {
        let lock = Lock::new(LockConfig::new(Policy::Segment));
        let is_held = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn_on(CoreId::new(0), || {
                let range = lock.write(pages(0, 1));
                is_held.store(true, Ordering::Release);
                charge(held);
                drop(range);
            });
            let other = scope.spawn_on(CoreId::new(1), || {
                while !is_held.load(Ordering::Acquire) {
                    thread::spin_hint();
                }
                lock.write_soon(pages(0, 1)).is_some()
            });
            other.join().unwrap()
        })
    };
    run(config, program).value
}

/// What a measurement finds is what the machine would do; schedules get to what comes after.
#[test]
fn sim_a_measurement_tries_as_long_as_the_machine() {
    let copy = Duration::from_micros(5);
    assert!(is_had_soon(Config::min_clock(2), copy));
    let (every, ns) = (1 << 20, 1);
    let stalls = Schedule::Stall { every, ns };
    assert!(!is_had_soon(Config::new(2, 1, stalls), copy));
}

/// The alternative keeps all cores out of the file.
#[test]
fn sim_the_more_cores_the_longer_a_task_tries() {
    let copies = Duration::from_micros(100);
    assert!(!is_had_soon(Config::min_clock(2), copies));
    assert!(is_had_soon(Config::min_clock(64), copies));
}
