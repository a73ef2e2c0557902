//! The locks under random and stalling schedules: `cargo xtask sim`.
use std::time::Duration;

use dure_sync::atomic::{AtomicU32, AtomicU64, Ordering};
use dure_sync::sim::{Config, FailureKind, Schedule, run, seeds, transfers, try_run};
use dure_sync::{
    Arc, Condvar, CoreId, Counted, Counter, Mutex, MutexGuard, OnceLock, PerCore, PerCoreCounted,
    PerCoreRefs, PerCoreRwLock, RwLock, clock, core_count, current_core, futex, random, task_local,
    thread,
};

/// The schedules that look for races, on 3 cores.
fn hunts(seed: u64) -> [Config; 3] {
    [
        Config::random(3, seed),
        Config::stall(3, seed),
        Config::priority(3, seed),
    ]
}

fn hunt(count: u64, program: fn()) {
    for seed in seeds(count) {
        for config in hunts(seed) {
            run(config, program);
        }
    }
}

/// Whether some seed makes the program fail; for canaries.
fn some_seed_fails(program: fn()) -> bool {
    (0..500).any(|seed| {
        hunts(seed)
            .into_iter()
            .any(|config| try_run(config, program).is_err())
    })
}

#[test]
fn sim_mutex_excludes() {
    hunt(5_000, || {
        let lock: Mutex<10, (u32, bool)> = Mutex::new((0, false));
        let used = AtomicU32::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..4 {
                        let mut guard = lock.lock();
                        assert!(!std::mem::replace(&mut guard.1, true), "two holders");
                        used.fetch_add(1, Ordering::Relaxed);
                        guard.0 += 1;
                        guard.1 = false;
                    }
                });
            }
        });
        assert_eq!(lock.into_inner(), (16, false));
    });
}

/// A mutex that forgets, after a sleep, that others may sleep too.
struct ForgetfulMutex(AtomicU32);

impl ForgetfulMutex {
    fn lock(&self) {
        let mut seen = self.0.swap(1, Ordering::Acquire);
        while seen != 0 {
            if seen == 2 || self.0.swap(2, Ordering::Acquire) != 0 {
                futex::wait(&self.0, 2, None);
            }
            // The bug: 1 where 2 is needed.
            seen = self.0.swap(1, Ordering::Acquire);
        }
    }

    fn unlock(&self) {
        if self.0.swap(0, Ordering::Release) == 2 {
            futex::wake(&self.0, 1);
        }
    }
}

#[test]
fn sim_canary_forgetful_mutex_loses_a_wake_up() {
    assert!(some_seed_fails(|| {
        let lock = ForgetfulMutex(AtomicU32::new(0));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..4 {
                        lock.lock();
                        thread::yield_now();
                        lock.unlock();
                    }
                });
            }
        });
    }));
}

#[test]
fn sim_rwlock_excludes_and_wakes_everyone() {
    hunt(5_000, || {
        let lock: RwLock<10, (u32, u32)> = RwLock::new((0, 0));
        let inside = AtomicU32::new(0);
        thread::scope(|scope| {
            for task in 0..5 {
                let (lock, inside) = (&lock, &inside);
                scope.spawn(move || {
                    for turn in 0..4 {
                        if (task + turn) % 2 == 0 {
                            let mut pair = lock.write();
                            assert_eq!(inside.swap(100, Ordering::Relaxed), 0, "not alone");
                            pair.0 += 1;
                            thread::yield_now();
                            pair.1 += 1;
                            assert_eq!(inside.swap(0, Ordering::Relaxed), 100, "not alone");
                        } else {
                            let pair = lock.read();
                            assert!(inside.fetch_add(1, Ordering::Relaxed) < 100, "a writer");
                            thread::yield_now();
                            assert_eq!(pair.0, pair.1);
                            inside.fetch_sub(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        assert_eq!(lock.into_inner(), (10, 10));
    });
}

#[test]
fn sim_rwlock_writer_is_not_starved() {
    for seed in seeds(50) {
        for schedule in [Schedule::Random, Schedule::MinClock { ahead_ns: 0 }] {
            let config = Config::new(4, seed, schedule).with_steps_max(2_000_000);
            run(config, || {
                let lock: RwLock<10, ()> = RwLock::new(());
                let written = AtomicU32::new(0);
                thread::scope(|scope| {
                    for _ in 0..3 {
                        // Readers overlap for ever, until the writer got in.
                        scope.spawn(|| {
                            while written.load(Ordering::Relaxed) == 0 {
                                let guard = lock.read();
                                thread::sleep(Duration::from_micros(5));
                                drop(guard);
                            }
                        });
                    }
                    scope.spawn(|| {
                        drop(lock.write());
                        written.store(1, Ordering::Relaxed);
                    });
                });
            });
        }
    }
}

/// What a bounded queue needs of a condition variable.
trait Waiting: Default + Sync {
    fn wait<'a>(&self, guard: MutexGuard<'a, 10, Vec<u32>>) -> MutexGuard<'a, 10, Vec<u32>>;
    fn notify(&self);
}

impl Waiting for Condvar {
    fn wait<'a>(&self, guard: MutexGuard<'a, 10, Vec<u32>>) -> MutexGuard<'a, 10, Vec<u32>> {
        Self::wait(self, guard)
    }

    fn notify(&self) {
        self.notify_one();
    }
}

/// Two producers and two consumers over a queue of two.
fn bounded_queue<C: Waiting>() {
    let queue: Mutex<10, Vec<u32>> = Mutex::new(Vec::new());
    let (room, items) = (C::default(), C::default());
    let sum = AtomicU32::new(0);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for value in 1..=4 {
                    let mut guard = queue.lock();
                    while guard.len() == 2 {
                        guard = room.wait(guard);
                    }
                    guard.push(value);
                    drop(guard);
                    items.notify();
                }
            });
            scope.spawn(|| {
                for _ in 0..4 {
                    let mut guard = queue.lock();
                    while guard.is_empty() {
                        guard = items.wait(guard);
                    }
                    sum.fetch_add(guard.remove(0), Ordering::Relaxed);
                    drop(guard);
                    room.notify();
                }
            });
        }
    });
    assert_eq!(sum.load(Ordering::Relaxed), 20);
}

#[test]
fn sim_condvar_loses_no_wake_up() {
    hunt(5_000, bounded_queue::<Condvar>);
}

/// A condition variable that looks at its word only after giving up the lock.
#[derive(Default)]
struct LateCondvar(AtomicU32);

impl Waiting for LateCondvar {
    fn wait<'a>(&self, guard: MutexGuard<'a, 10, Vec<u32>>) -> MutexGuard<'a, 10, Vec<u32>> {
        let lock = MutexGuard::mutex(&guard);
        drop(guard);
        futex::wait(&self.0, self.0.load(Ordering::Relaxed), None);
        lock.lock()
    }

    fn notify(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
        futex::wake(&self.0, 1);
    }
}

#[test]
fn sim_canary_late_condvar_loses_a_wake_up() {
    assert!(some_seed_fails(bounded_queue::<LateCondvar>));
}

/// The bit "someone may sleep" was once cleared under a waiter that had found it set and fallen
/// asleep between the notifier's wake and the clearing.
#[test]
fn sim_race_condvar_bit_cleared_under_a_sleeper() {
    for seed in 0..500 {
        run(Config::random(3, seed), bounded_queue::<Condvar>);
    }
}

#[test]
fn sim_condvar_notify_all_wakes_everyone() {
    hunt(1_000, || {
        let gate: Mutex<10, u32> = Mutex::new(0);
        let changed = Condvar::new();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut guard = gate.lock();
                    *guard += 1;
                    changed.notify_all();
                    while *guard < 4 {
                        guard = changed.wait(guard);
                    }
                });
            }
        });
    });
}

#[test]
fn sim_condvar_timeout_is_in_virtual_time() {
    for config in [Config::min_clock(2), Config::random(2, 3)] {
        run(config, || {
            let lock: Mutex<10, ()> = Mutex::new(());
            let never = Condvar::new();
            let start = clock::monotonic_ns();
            let mut guard = lock.lock();
            let mut timed_out = false;
            while !timed_out {
                (guard, timed_out) = never.wait_timeout(guard, Duration::from_secs(3600));
            }
            drop(guard);
            assert!(clock::monotonic_ns() - start >= 3_600_000_000_000);
        });
    }
}

#[test]
fn sim_notification_races_with_timeout() {
    hunt(1_000, || {
        let done: Mutex<10, bool> = Mutex::new(false);
        let changed = Condvar::new();
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut guard = done.lock();
                    while !*guard {
                        (guard, _) = changed.wait_timeout(guard, Duration::from_micros(20));
                    }
                });
            }
            thread::sleep(Duration::from_micros(50));
            *done.lock() = true;
            changed.notify_all();
        });
    });
}

#[test]
fn sim_once_is_made_once() {
    hunt(1_000, || {
        let slot: OnceLock<u32> = OnceLock::new();
        let made = AtomicU32::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let value = slot.get_or_init(|| {
                        thread::yield_now();
                        made.fetch_add(1, Ordering::Relaxed) + 7
                    });
                    assert_eq!(*value, 7);
                });
            }
        });
        assert_eq!(made.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn sim_same_seed_same_schedule() {
    for seed in seeds(100) {
        for config in hunts(seed) {
            let first = run(config.clone(), bounded_queue::<Condvar>).report;
            let second = run(config, bounded_queue::<Condvar>).report;
            assert_eq!(first.schedule_hash, second.schedule_hash, "seed={seed}");
            assert_eq!(first.transfers, second.transfers, "seed={seed}");
        }
    }
}

#[test]
fn sim_rank_violation_panics_with_both_ranks() {
    let failure = try_run(Config::random(1, 4), || {
        let (low, high) = (Mutex::<10, ()>::new(()), RwLock::<20, ()>::new(()));
        let _high = high.write();
        let _low = low.lock();
    })
    .unwrap_err();
    let text = failure.to_string();
    assert!(
        text.contains("taking rank 10 (Rising) while holding rank 20"),
        "{text}"
    );
}

#[test]
fn sim_panic_in_a_scope_is_reported_although_others_wait_for_it() {
    let failure = try_run(Config::random(2, 4), || {
        let (lock, never) = (Mutex::<10, ()>::new(()), Condvar::new());
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut guard = lock.lock();
                loop {
                    guard = never.wait(guard);
                }
            });
            scope.spawn(|| panic!("planned"));
        });
    })
    .unwrap_err();
    let FailureKind::Panic { task, message } = &failure.kind else {
        panic!("{failure}")
    };
    assert!(
        task.contains("\"scoped\"") && message == "planned",
        "{failure}"
    );
}

#[test]
fn sim_ranks_are_counted_per_task() {
    hunt(50, || {
        let (low, high) = (Mutex::<10, ()>::new(()), Mutex::<20, ()>::new(()));
        let guard = high.lock();
        // Another task may take the lower rank while this one holds the higher.
        thread::scope(|scope| {
            scope.spawn(|| drop(low.lock())).join().unwrap();
        });
        drop(guard);
    });
}

#[test]
fn sim_opposite_orders_deadlock_and_are_reported() {
    let program = || {
        let locks: [Mutex<10, ()>; 2] = [Mutex::new(()), Mutex::new(())];
        thread::scope(|scope| {
            for first in 0..2 {
                let locks = &locks;
                scope.spawn(move || {
                    let _one = locks[first].lock();
                    // A false promise: the two tasks take them in opposite orders.
                    let _two = locks[1 - first].lock_ordered();
                });
            }
        });
    };
    let failure = (0..200).find_map(|seed| try_run(Config::random(2, seed), program).err());
    let failure = failure.expect("some schedule deadlocks");
    let FailureKind::Deadlock { tasks } = &failure.kind else {
        panic!("{failure}")
    };
    assert_eq!(tasks.len(), 3);
    assert!(
        tasks
            .iter()
            .filter(|task| task.contains("\"scoped\""))
            .count()
            == 2,
        "{failure}"
    );
}

#[test]
fn sim_sharing_is_counted_and_padding_prevents_it() {
    fn moves(share: bool) -> u64 {
        let program = move || {
            let shared = AtomicU64::new(0);
            let private = PerCore::new(core_count(), |_| AtomicU64::new(0));
            let before = transfers().unwrap();
            thread::scope(|scope| {
                for core in 0..4 {
                    let (shared, private) = (&shared, &private);
                    scope.spawn_on(CoreId::new(core), move || {
                        for _ in 0..1_000 {
                            let word = if share { shared } else { private.local() };
                            word.fetch_add(1, Ordering::Relaxed);
                        }
                    });
                }
            });
            transfers().unwrap() - before
        };
        run(Config::min_clock(4), program).value
    }
    let (shared, private) = (moves(true), moves(false));
    assert!(shared > 1_000, "{shared}");
    // What is left is the starting and ending of the threads.
    assert!(private < 100, "{private}");
}

#[test]
fn sim_arc_clones_are_seen() {
    fn moves(clone: bool) -> u64 {
        run(Config::min_clock(2), move || {
            let object = Arc::new(5);
            thread::scope(|scope| {
                for core in 0..2 {
                    let object = &object;
                    scope.spawn_on(CoreId::new(core), move || {
                        for _ in 0..500 {
                            let other = clone.then(|| Arc::clone(object));
                            assert!(other.is_none_or(|other| *other == 5));
                        }
                    });
                }
            });
        })
        .report
        .transfers
    }
    assert!(moves(true) > moves(false) + 400);
}

#[test]
fn sim_facade_is_virtual_inside_and_real_outside() {
    task_local! { static OWN: std::cell::Cell<u32> = std::cell::Cell::new(0); }
    OWN.with(|own| own.set(5));
    let draw = |seed| {
        run(Config::random(2, seed), || {
            assert_eq!(OWN.with(std::cell::Cell::get), 0);
            OWN.with(|own| own.set(9));
            assert_eq!(core_count(), 2);
            assert_eq!(current_core(), CoreId::new(0));
            assert_eq!(thread::current_id(), 1);
            let other = thread::spawn_on("other", CoreId::new(1), || {
                assert_eq!(OWN.with(std::cell::Cell::get), 0);
                assert!(!thread::pin_to(CoreId::new(2)));
                (current_core(), thread::current_id())
            });
            assert_eq!(other.join().unwrap(), (CoreId::new(1), 2));
            let counter = Counter::new();
            counter.add(3);
            assert_eq!(counter.sum(), 3);
            let day = clock::wall();
            thread::sleep(Duration::from_secs(86_400));
            assert_eq!(clock::wall().secs - day.secs, 86_400);
            random::u64()
        })
        .value
    };
    assert_eq!(draw(1), draw(1));
    assert_ne!(draw(1), draw(2));
    assert_eq!(OWN.with(std::cell::Cell::get), 5);
}

/// Readers, writers and those who only try, some behind the gate.
fn spread_lock_is_used() {
    let lock: PerCoreRwLock<10, (u64, u64)> = PerCoreRwLock::default();
    let wrote = AtomicU64::new(0);
    thread::scope(|scope| {
        for task in 0..4_u64 {
            let (lock, wrote) = (&lock, &wrote);
            scope.spawn(move || {
                for turn in 0..12 {
                    let guard = match (task + turn) % 6 {
                        0 => Some(lock.write()),
                        1 if task == 0 => lock.try_write(),
                        _ => None,
                    };
                    if let Some(mut data) = guard {
                        data.0 += 1;
                        thread::yield_now();
                        data.1 += 1;
                        wrote.fetch_add(1, Ordering::Relaxed);
                        continue;
                    }
                    let seen = lock.read();
                    let first = seen.0;
                    thread::yield_now();
                    assert_eq!((seen.0, seen.1), (first, first), "half a write");
                }
            });
        }
    });
    let wrote = wrote.into_inner();
    assert!(wrote >= 8);
    assert_eq!(lock.into_inner(), (wrote, wrote));
}

#[test]
fn sim_spread_lock_excludes_and_wakes_everyone() {
    hunt(2_000, spread_lock_is_used);
}

/// Lines moved by `rounds` uses on each of `cores` cores, of one object that `make` makes.
fn transfers_of<T: Send + Sync + 'static>(
    (cores, rounds): (u16, u32),
    make: fn() -> T,
    used: fn(&T),
) -> u64 {
    let done = run(Config::min_clock(usize::from(cores)), move || {
        let object = make();
        thread::scope(|scope| {
            for core in 0..cores {
                let object = &object;
                scope.spawn_on(CoreId::new(core), move || {
                    for _ in 0..rounds {
                        used(object);
                    }
                });
            }
        });
    });
    done.report.transfers
}

/// Also on more cores than a word has bits: each has a count, or a slot, of its own.
#[test]
fn sim_spread_readers_share_no_line() {
    let read = |lock: &PerCoreRwLock<10, u64>| assert_eq!(*lock.read(), 7);
    for cores in [4, 192] {
        let of = |rounds| transfers_of((cores, rounds), || PerCoreRwLock::new(7), read);
        let more = of(600).saturating_sub(of(100));
        assert!(
            more <= 2 * u64::from(cores),
            "{more} transfers in 500 reads on each of {cores} cores"
        );
    }
}

/// An object that counts per core.
struct Object {
    count: AtomicU32,
    per_core: PerCoreRefs<Object>,
}

impl PerCoreCounted for Object {
    fn per_core(&self) -> &PerCoreRefs<Object> {
        &self.per_core
    }

    fn ended(this: &Arc<Object>) {
        this.count.fetch_sub(1, Ordering::Relaxed);
    }
}

#[test]
fn sim_loans_share_no_line() {
    let make = || {
        let per_core = PerCoreRefs::default();
        let count = AtomicU32::new(0);
        Arc::new(Object { count, per_core })
    };
    let refer = |object: &Arc<Object>| {
        let counted = || {
            object.count.fetch_add(1, Ordering::Relaxed);
            Counted::new(Arc::clone(object))
        };
        let slots = &object.per_core;
        drop(slots.borrow().or_else(|| slots.open(counted)));
    };
    for cores in [4, 192] {
        let of = |rounds| transfers_of((cores, rounds), make, refer);
        let more = of(600).saturating_sub(of(100));
        assert!(
            more <= 2 * u64::from(cores),
            "{more} transfers in 500 references on each of {cores} cores"
        );
    }
}

#[test]
fn sim_spread_writers_that_tell_meet_readers_of_other_cores() {
    let met = run(Config::min_clock(2), move || {
        let lock: PerCoreRwLock<10, u64> = PerCoreRwLock::new(7);
        let at = |core: u16, call: &(dyn Fn() -> bool + Sync)| {
            thread::scope(|scope| scope.spawn_on(CoreId::new(core), call).join().unwrap())
        };
        let write = || {
            let _alone = lock.write();
            lock.note_writer()
        };
        let read = || *lock.read() == 7;
        assert!(!at(0, &write), "the first");
        assert!(!at(0, &write), "the same");
        assert!(at(1, &read));
        assert!(at(0, &write), "behind a reader");
        assert!(at(1, &write), "behind a writer");
        assert!(at(1, &read));
        assert!(!at(1, &write));
        at(0, &read) && lock.readers_contended()
    });
    assert!(met.value, "cores took turns");
}

#[test]
fn sim_spread_readers_meet_also_when_they_come_by_turns() {
    let met_after = |cores: [u16; 6]| {
        run(Config::min_clock(2), move || {
            let lock: PerCoreRwLock<10, u64> = PerCoreRwLock::new(7);
            for core in cores {
                thread::scope(|scope| {
                    let lock = &lock;
                    scope.spawn_on(CoreId::new(core), move || assert_eq!(*lock.read(), 7));
                });
            }
            lock.readers_contended()
        })
        .value
    };
    assert!(met_after([0, 1, 0, 1, 0, 1]));
    assert!(!met_after([1, 1, 1, 1, 1, 1]), "one core's readers");
}
