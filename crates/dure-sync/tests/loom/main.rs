//! Orderings of the locks, explored by loom: `cargo xtask loom`.
//!
//! Each test has canaries: the same model with every Acquire, or every Release, taken away must
//! fail, or the model does not see what it is there for. Three-way contention and lost wake-ups
//! are left to the simulation (`tests/sim/locks.rs`): here a sleep is a turn of a yield loop.
#![cfg(dure_backend = "loom")]
#![expect(clippy::unwrap_used, reason = "a panic is how a model fails")]

mod bounded_count;
mod page_slab;
mod per_core_ref;
mod per_core_rwlock;
mod range_lock;
mod ring;
mod seqlock_table;
mod sequence_count;
mod tag;

/// What the sources of the block layer name.
mod rank {
    pub(crate) const REAPING_RANK: u8 = 210;
    pub(crate) const SUBMITTING_RANK: u8 = 212;
    pub(crate) const TAG_RANK: u8 = 229;
}

use std::panic::{AssertUnwindSafe, catch_unwind};

use dure_sync::atomic::{AtomicU32, Ordering};
use dure_sync::{Arc, Condvar, Mutex, OnceLock, RwLock, RwLockWriteGuard, Weaken, thread, weaken};

fn explore(model: fn()) {
    explore_with(3, model);
}

fn explore_with(preemptions: usize, model: fn()) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    builder.check(model);
}

/// Runs the model as it is, and then with each of `weaker` taken away, which must fail.
fn check(model: fn(), weaker: &[Weaken]) {
    explore(model);
    canaries(|| explore(model), weaker);
}

/// Runs the exploration with each of `weaker` taken away, which must fail.
fn canaries(exploration: impl Fn(), weaker: &[Weaken]) {
    for what in weaker {
        weaken(*what);
        let outcome = catch_unwind(AssertUnwindSafe(&exploration));
        weaken(Weaken::Nothing);
        assert!(outcome.is_err(), "the model passes without {what:?}");
    }
}

const BOTH: &[Weaken] = &[Weaken::Acquire, Weaken::Release];

fn mutex_counts() {
    let lock: Arc<Mutex<10, u32>> = Arc::new(Mutex::new(0));
    let other = Arc::clone(&lock);
    let worker = thread::spawn("worker", move || *other.lock() += 1);
    *lock.lock() += 1;
    worker.join().unwrap();
    assert_eq!(*lock.lock(), 2);
}

#[test]
fn mutex_publishes_its_data() {
    check(mutex_counts, BOTH);
}

fn mutex_of_three() {
    let lock: Arc<Mutex<10, u32>> = Arc::new(Mutex::new(0));
    let workers = [0, 1].map(|_| {
        let other = Arc::clone(&lock);
        thread::spawn("worker", move || *other.lock() += 1)
    });
    *lock.lock() += 1;
    workers
        .into_iter()
        .for_each(|worker| worker.join().unwrap());
    assert_eq!(*lock.lock(), 3);
}

#[test]
fn mutex_hands_over_among_three() {
    explore_with(1, mutex_of_three);
}

/// A writer that goes on as a reader, beside somebody else.
fn downgraded(other: fn(&RwLock<10, u32>)) {
    let lock: Arc<RwLock<10, u32>> = Arc::new(RwLock::new(0));
    let theirs = Arc::clone(&lock);
    let other = thread::spawn("other", move || other(&theirs));
    let mut guard = lock.write();
    let seen = *guard;
    *guard += 1;
    let guard = RwLockWriteGuard::downgrade(guard);
    assert_eq!(*guard, seen + 1, "nobody writes in between");
    drop(guard);
    other.join().unwrap();
}

#[test]
fn rwlock_downgrades_beside_a_reader() {
    fn model() {
        downgraded(|lock| assert!(*lock.read() <= 1));
    }
    check(model, BOTH);
}

#[test]
fn rwlock_downgrades_beside_a_writer() {
    fn model() {
        downgraded(|lock| *lock.write() += 2);
    }
    check(model, BOTH);
}

fn mutex_tried() {
    let lock: Arc<Mutex<10, u32>> = Arc::new(Mutex::new(0));
    let other = Arc::clone(&lock);
    let worker = thread::spawn("worker", move || *other.lock() += 1);
    if let Some(mut guard) = lock.try_lock() {
        *guard += 1;
    }
    worker.join().unwrap();
}

#[test]
fn mutex_try_lock_publishes_too() {
    check(mutex_tried, BOTH);
}

fn rwlock_reader_meets_writer() {
    let lock: Arc<RwLock<10, (u32, u32)>> = Arc::new(RwLock::new((0, 0)));
    let other = Arc::clone(&lock);
    let writer = thread::spawn("writer", move || {
        let mut pair = other.write();
        pair.0 += 1;
        pair.1 += 1;
    });
    let pair = lock.read();
    assert_eq!(pair.0, pair.1);
    drop(pair);
    writer.join().unwrap();
}

#[test]
fn rwlock_orders_readers_and_writers() {
    check(rwlock_reader_meets_writer, BOTH);
}

fn rwlock_two_writers() {
    let lock: Arc<RwLock<10, u32>> = Arc::new(RwLock::new(0));
    let other = Arc::clone(&lock);
    let writer = thread::spawn("writer", move || *other.write() += 1);
    *lock.write() += 1;
    writer.join().unwrap();
    assert_eq!(*lock.read(), 2);
}

#[test]
fn rwlock_orders_writers() {
    check(rwlock_two_writers, BOTH);
}

fn condvar_hands_over() {
    let pair = Arc::new((Mutex::<10, bool>::new(false), Condvar::new()));
    let other = Arc::clone(&pair);
    let setter = thread::spawn("setter", move || {
        *other.0.lock() = true;
        other.1.notify_one();
    });
    let mut ready = pair.0.lock();
    while !*ready {
        ready = pair.1.wait(ready);
    }
    drop(ready);
    setter.join().unwrap();
}

#[test]
fn condvar_wakes_its_waiter() {
    check(condvar_hands_over, BOTH);
}

fn condvar_wakes_both() {
    let pair = Arc::new((Mutex::<10, bool>::new(false), Condvar::new()));
    let other = Arc::clone(&pair);
    let waiter = thread::spawn("waiter", move || {
        let mut ready = other.0.lock();
        while !*ready {
            ready = other.1.wait(ready);
        }
    });
    *pair.0.lock() = true;
    pair.1.notify_all();
    waiter.join().unwrap();
}

#[test]
fn condvar_notify_all_reaches_a_late_sleeper() {
    check(condvar_wakes_both, BOTH);
}

fn once_made_by_one() {
    let slot: Arc<OnceLock<u32>> = Arc::new(OnceLock::new());
    let other = Arc::clone(&slot);
    let worker = thread::spawn("worker", move || *other.get_or_init(|| 1));
    let here = *slot.get_or_init(|| 2);
    assert_eq!(worker.join().unwrap(), here);
}

#[test]
fn once_publishes_its_value() {
    check(once_made_by_one, BOTH);
}

fn once_looked_at() {
    let slot: Arc<OnceLock<u32>> = Arc::new(OnceLock::new());
    let other = Arc::clone(&slot);
    // loom backtracks to the last access of a word only; with the maker in the other thread, its
    // own first load would hide the reader's.
    let reader = thread::spawn("reader", move || other.get().copied());
    assert_eq!(slot.set(1), Ok(()));
    assert!(matches!(reader.join().unwrap(), None | Some(1)));
}

#[test]
fn once_get_sees_a_whole_value() {
    check(once_looked_at, BOTH);
}

/// Plain data that loom watches.
struct Watched(loom::cell::UnsafeCell<u32>);

// SAFETY: loom reports every access that is not ordered after the others.
unsafe impl Sync for Watched {}

fn scope_lends() {
    let data = Watched(loom::cell::UnsafeCell::new(0));
    let lent = &data;
    thread::scope(|scope| {
        // SAFETY: loom checks that nobody else accesses the cell meanwhile.
        scope.spawn(move || lent.0.with_mut(|value| unsafe { *value += 1 }));
    });
    // SAFETY: loom checks that the thread's access comes before.
    data.0.with(|value| assert_eq!(unsafe { *value }, 1));
}

#[test]
fn scope_ends_after_its_threads() {
    check(scope_lends, BOTH);
}

fn message_passed() {
    let data = Arc::new((Watched(loom::cell::UnsafeCell::new(0)), AtomicU32::new(0)));
    let other = Arc::clone(&data);
    let sender = thread::spawn("sender", move || {
        // SAFETY: loom checks that nobody else accesses the cell meanwhile.
        other.0.0.with_mut(|value| unsafe { *value = 7 });
        // Release: pairs with the Acquire below; publishes the cell.
        other.1.store(1, Ordering::Release);
    });
    // Acquire: pairs with the Release above.
    if data.1.load(Ordering::Acquire) == 1 {
        // SAFETY: loom checks that the sender's access comes before.
        data.0.0.with(|value| assert_eq!(unsafe { *value }, 7));
    }
    sender.join().unwrap();
}

#[test]
fn covered_atomics_keep_their_orderings() {
    check(message_passed, BOTH);
}
