//! The facade on whatever backend is built, from plain threads.

use std::time::Duration;

use dure_sync::atomic::{AtomicU32, AtomicU64, Ordering};
use dure_sync::futex::{self, WaitOutcome};
use dure_sync::{
    Arc, Condvar, CoreId, Counter, Histogram, LazyLock, Mutex, Once, OnceLock, PerCore, RwLock,
    Tally, clock, core_count, current_core, random, thread,
};

const THREADS: u64 = 4;
const TURNS: u64 = 20_000;

#[test]
fn mutex_excludes() {
    let lock: Mutex<10, u64> = Mutex::new(0);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| (0..TURNS).for_each(|_| *lock.lock() += 1));
        }
    });
    assert_eq!(lock.into_inner(), THREADS * TURNS);
}

#[test]
fn mutex_try_lock_refuses_while_held() {
    let lock: Mutex<10, u64> = Mutex::new(0);
    let guard = lock.lock();
    assert!(lock.try_lock().is_none());
    drop(guard);
    assert!(lock.try_lock().is_some());
}

#[test]
fn rwlock_excludes_writers_from_readers() {
    let lock: RwLock<10, (u64, u64)> = RwLock::new((0, 0));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..TURNS {
                    let mut pair = lock.write();
                    pair.0 += 1;
                    pair.1 += 1;
                }
            });
            scope.spawn(|| {
                for _ in 0..TURNS {
                    let pair = lock.read();
                    assert_eq!(pair.0, pair.1);
                }
            });
        }
    });
    assert_eq!(lock.into_inner(), (2 * TURNS, 2 * TURNS));
}

#[test]
fn rwlock_admits_readers_together_and_writers_alone() {
    let lock: RwLock<10, u64> = RwLock::new(7);
    let first = lock.read();
    let second = lock.try_read().expect("readers share");
    assert_eq!(*first + *second, 14);
    assert!(lock.try_write().is_none());
    drop((first, second));
    let writer = lock.try_write().expect("free");
    assert!(lock.try_read().is_none());
    drop(writer);
}

#[test]
fn condvar_hands_over() {
    let slot: Mutex<10, Option<u64>> = Mutex::new(None);
    let changed = Condvar::new();
    let mut sum = 0;
    thread::scope(|scope| {
        scope.spawn(|| {
            for value in 1..=1000_u64 {
                let mut guard = slot.lock();
                while guard.is_some() {
                    guard = changed.wait(guard);
                }
                *guard = Some(value);
                drop(guard);
                changed.notify_all();
            }
        });
        for _ in 0..1000 {
            let mut guard = slot.lock();
            while guard.is_none() {
                guard = changed.wait(guard);
            }
            sum += guard.take().unwrap();
            drop(guard);
            changed.notify_one();
        }
    });
    assert_eq!(sum, 500_500);
}

#[test]
fn condvar_times_out() {
    let lock: Mutex<10, ()> = Mutex::new(());
    let never = Condvar::new();
    let start = clock::monotonic_ns();
    let mut guard = lock.lock();
    let mut timed_out = false;
    while !timed_out {
        (guard, timed_out) = never.wait_timeout(guard, Duration::from_millis(5));
    }
    drop(guard);
    assert!(clock::monotonic_ns() - start >= 5_000_000);
}

#[test]
fn futex_sees_changed_word_and_deadline() {
    let word = AtomicU32::new(1);
    assert_eq!(futex::wait(&word, 0, None), WaitOutcome::Changed);
    let outcome = futex::wait(&word, 1, Some(Duration::from_millis(1)));
    assert_eq!(outcome, WaitOutcome::TimedOut);
    assert_eq!(futex::wake(&word, 1), 0);
}

#[test]
fn once_runs_one_maker() {
    let made = AtomicU64::new(0);
    let slot = OnceLock::new();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let value = slot.get_or_init(|| {
                    thread::sleep(Duration::from_millis(2));
                    made.fetch_add(1, Ordering::Relaxed) + 41
                });
                assert_eq!(*value, 41);
            });
        }
    });
    assert_eq!(made.load(Ordering::Relaxed), 1);
    assert_eq!(slot.set(3), Err(3));
    let once = Once::new();
    once.call_once(|| ());
    once.call_once(|| unreachable!("done already"));
    assert!(once.is_completed());
}

#[test]
fn lazy_static_is_made_at_first_use() {
    static LAZY: LazyLock<Vec<u32>> = LazyLock::new(|| vec![1, 2, 3]);
    assert_eq!(LAZY.len(), 3);
}

#[test]
fn once_stays_empty_after_panic() {
    let slot: OnceLock<u32> = OnceLock::new();
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        slot.get_or_init(|| panic!("planned"));
    }));
    assert!(panic.is_err());
    assert_eq!(*slot.get_or_init(|| 5), 5);
}

#[test]
fn per_core_wraps_and_pads() {
    let slots = PerCore::new(3, CoreId::index);
    assert_eq!(*slots.get(CoreId::new(4)), 1);
    assert_eq!(slots.iter().copied().collect::<Vec<_>>(), [0, 1, 2]);
    let first = std::ptr::from_ref(slots.get(CoreId::new(0))).addr();
    let second = std::ptr::from_ref(slots.get(CoreId::new(1))).addr();
    assert!(second - first >= 128);
}

#[test]
fn counter_sums() {
    let counter = Counter::new();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| (0..TURNS).for_each(|_| counter.add(1)));
        }
    });
    assert_eq!(counter.sum(), i64::try_from(THREADS * TURNS).unwrap());
}

#[test]
fn tallies_of_several_writers_add_up() {
    let (shared, highest) = (Tally::new(0), Tally::new(7));
    thread::scope(|scope| {
        for n in 0..THREADS {
            let (shared, highest) = (&shared, &highest);
            scope.spawn(move || {
                (0..TURNS).for_each(|_| shared.add_shared(1));
                highest.raise(n * 10);
            });
        }
    });
    assert_eq!(shared.get(), THREADS * TURNS);
    assert_eq!(highest.raise(3), (THREADS - 1) * 10);
}

#[test]
fn histograms_have_buckets_of_powers_of_two() {
    let histogram = Histogram::new();
    assert_eq!(histogram.get().percentile(50), None);
    assert_eq!(histogram.get().mean(), None);
    for value in [0, 1, 2, 3, 1000, u64::MAX / 2] {
        histogram.count(value);
    }
    histogram.count_shared(1023);
    let counts = histogram.get();
    assert_eq!(counts.buckets[..3], [1, 1, 2]);
    assert_eq!((counts.buckets[10], counts.buckets[39]), (2, 1));
    assert_eq!(counts.count(), 7);
    assert_eq!(counts.sum, u64::MAX / 2 + 2029);
    assert_eq!(counts.percentile(50), Some(4));
    assert_eq!(
        (counts.percentile(80), counts.percentile(100)),
        (Some(1024), Some(1 << 39))
    );
    let mut twice = counts;
    twice.add(&counts);
    assert_eq!((twice.count(), twice.percentile(50)), (14, Some(4)));
}

#[test]
fn current_core_is_a_possible_core() {
    assert!(core_count() >= 1);
    assert!(current_core().index() < core_count());
}

#[test]
fn pinned_thread_runs_on_its_core() {
    let last = CoreId::new(u16::try_from(core_count() - 1).unwrap());
    let worker = thread::spawn("pinned", move || {
        if !thread::pin_to(last) {
            return last;
        }
        current_core()
    });
    assert_eq!(worker.join().unwrap(), last);
}

#[test]
fn join_reports_a_panic() {
    let worker = thread::spawn("panics", || -> () { panic!("planned") });
    let panic = worker.join().unwrap_err();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"planned"));
}

#[test]
fn thread_ids_differ() {
    let other = thread::spawn("id", thread::current_id).join().unwrap();
    assert_ne!(other, thread::current_id());
}

#[test]
fn clocks_and_random_numbers_move() {
    let before = clock::monotonic_ns();
    assert!(clock::monotonic_ns() >= before);
    assert!(clock::wall().nanos < 1_000_000_000);
    assert!(clock::wall() >= clock::wall_coarse() || cfg!(dure_backend = "sim"));
    let mut bytes = [0; 64];
    random::fill(&mut bytes);
    assert!(bytes.iter().any(|byte| *byte != 0));
    assert_ne!(random::u64(), random::u64());
}

#[test]
fn arc_counts_and_upgrades() {
    let arc = Arc::new(5);
    let weak = Arc::downgrade(&arc);
    let second = Arc::clone(&arc);
    assert_eq!(Arc::strong_count(&arc), 2);
    drop(arc);
    assert_eq!(weak.upgrade().as_deref(), Some(&5));
    assert_eq!(Arc::into_inner(second), Some(5));
    assert!(weak.upgrade().is_none());
}

#[cfg(debug_assertions)]
mod ranks {
    use super::*;

    #[test]
    #[should_panic(expected = "taking rank 10 (Rising) while holding rank 20")]
    fn falling_rank_panics() {
        let low: Mutex<10, ()> = Mutex::new(());
        let high: RwLock<20, ()> = RwLock::new(());
        let _high = high.read();
        let _low = low.lock();
    }

    #[test]
    #[should_panic(expected = "taking rank 10 (Rising) while holding rank 10")]
    fn equal_rank_panics() {
        let first: Mutex<10, ()> = Mutex::new(());
        let second: Mutex<10, ()> = Mutex::new(());
        let _first = first.lock();
        let _second = second.lock();
    }

    #[test]
    fn promised_order_and_rising_rank_pass() {
        let locks: [Mutex<10, ()>; 2] = [Mutex::new(()), Mutex::new(())];
        let high: RwLock<20, ()> = RwLock::new(());
        let guards = [locks[0].lock(), locks[1].lock_ordered()];
        drop(high.write());
        drop(guards);
        drop(locks[1].lock());
    }
}
