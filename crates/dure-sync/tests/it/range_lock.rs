//! Range locks from plain threads: the worked examples of the papers, bounds, and a model.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use dure_sync::range_lock::{
    Access, ByteRange, Config, ConfigError, Policy, RangeLock, WordBudget,
};
use dure_sync::{Arc, clock, thread};
use proptest::prelude::*;

type Lock = RangeLock<10>;

const KIB: u64 = 1024;

fn lock(policy: Policy) -> Lock {
    RangeLock::new(Config::new(policy))
}

fn bytes(first: u64, end: u64) -> ByteRange {
    ByteRange::new(first, end - first).unwrap()
}

/// Waits until `condition`, for at most ten seconds.
fn eventually(condition: impl Fn() -> bool) -> bool {
    let start = clock::monotonic_ns();
    while !condition() {
        if clock::monotonic_ns() - start > 10_000_000_000 {
            return false;
        }
        thread::yield_now();
    }
    true
}

/// hybridF2FS, Fig. 5: T1 [0, 4K), T2 [8K, 24K), T3 [16K, 28K): T3 waits for T2 only.
#[test]
fn three_threads_of_figure_5() {
    for policy in [Policy::Tree, Policy::Bitmap, Policy::Segment] {
        let lock = Arc::new(lock(policy));
        let t1 = lock.write(bytes(0, 4 * KIB));
        let t2 = {
            let (lock, held) = (Arc::clone(&lock), Arc::new(thread_flags()));
            let flags = Arc::clone(&held);
            let thread = thread::spawn("T2", move || {
                let guard = lock.write(bytes(8 * KIB, 24 * KIB));
                flags.0.raise();
                assert!(eventually(|| flags.1.is_raised()));
                drop(guard);
            });
            (thread, held)
        };
        // T2 is not blocked by T1, which holds its range all the time.
        assert!(eventually(|| t2.1.0.is_raised()), "{policy}");
        let t3 = {
            let (lock, held) = (Arc::clone(&lock), Arc::new(thread_flags()));
            let flags = Arc::clone(&held);
            let thread = thread::spawn("T3", move || {
                flags.0.raise();
                drop(lock.write(bytes(16 * KIB, 28 * KIB)));
                flags.1.raise();
            });
            (thread, held)
        };
        assert!(eventually(|| t3.1.0.is_raised()), "{policy}");
        thread::sleep(std::time::Duration::from_millis(5));
        assert!(!t3.1.1.is_raised(), "T3 waits for T2: {policy}");
        t2.1.1.raise();
        // T1 still holds its range: T3 waited for T2 only.
        assert!(eventually(|| t3.1.1.is_raised()), "{policy}");
        drop(t1);
        t2.0.join().unwrap();
        t3.0.join().unwrap();
    }
}

#[derive(Debug, Default)]
struct Flag(dure_sync::atomic::AtomicBool);

impl Flag {
    fn raise(&self) {
        self.0.store(true, dure_sync::atomic::Ordering::Release);
    }

    fn is_raised(&self) -> bool {
        self.0.load(dure_sync::atomic::Ordering::Acquire)
    }
}

fn thread_flags() -> (Flag, Flag) {
    Default::default()
}

/// pNOVA, Fig. 10: two pages make a segment; the words after each step.
#[test]
fn segments_of_two_pages_as_in_figure_10() {
    let config = Config::new(Policy::Segment);
    let lock: Lock = RangeLock::new(config.with_segment_bytes(8 * KIB).unwrap());
    let page = |number: u64| bytes(number * 4 * KIB, (number + 1) * 4 * KIB);
    // The writer bit of segment 0 blocks readers and writers, also of its other page.
    let writer = lock.write(page(0));
    assert!(lock.try_read(page(1)).is_none());
    assert!(lock.try_write(page(1)).is_none());
    // Other segments are not blocked by it.
    let readers = [(); 2].map(|()| lock.try_read(page(2)).expect("readers share"));
    assert!(
        lock.try_read(page(3)).is_some(),
        "a third reader is counted"
    );
    assert!(
        lock.try_write(page(3)).is_none(),
        "a writer is blocked by readers"
    );
    assert!(lock.try_write(page(4)).is_some());
    // A writer over segments 0 to 2 needs all of them.
    assert!(lock.try_write(bytes(0, 24 * KIB)).is_none());
    drop(writer);
    assert!(lock.try_write(bytes(0, 24 * KIB)).is_none());
    drop(readers);
    assert!(lock.try_write(bytes(0, 24 * KIB)).is_some());
}

/// The originals do not exclude truncates from reads and writes.
#[test]
fn infinity_excludes_also_what_nobody_has_touched() {
    for policy in Policy::ALL {
        let lock = lock(policy);
        drop(lock.write(bytes(0, 64 * KIB)));
        let cut = lock.write(ByteRange::from_offset(10_000));
        let before = lock.try_write(bytes(0, 8 * KIB)).is_some();
        assert_eq!(before, !policy.is_whole_file(), "{policy}");
        for first in [8 * KIB, 60 * KIB, 1 << 30, 1 << 50, u64::MAX - 1] {
            let range = bytes(first, first + 1);
            assert!(lock.try_read(range).is_none(), "{policy} {range:?}");
            assert!(lock.try_write(range).is_none(), "{policy} {range:?}");
            let to_infinity = ByteRange::from_offset(first);
            assert!(lock.try_read(to_infinity).is_none(), "{policy}");
        }
        drop(cut);
        for first in [8 * KIB, 60 * KIB, 1 << 30, 1 << 50, u64::MAX - 1] {
            let range = bytes(first, first + 1);
            let guard = lock.try_write(range).expect("the cut has ended");
            assert!(lock.try_write(ByteRange::from_offset(100)).is_none());
            assert!(lock.try_read(ByteRange::ALL).is_none());
            drop(guard);
        }
        assert!(lock.try_write(ByteRange::ALL).is_some(), "{policy}");
    }
}

#[test]
fn a_range_is_neither_empty_nor_behind_the_last_byte() {
    assert_eq!(ByteRange::new(5, 0), None);
    assert_eq!(ByteRange::new(u64::MAX, 2), None);
    assert_eq!(ByteRange::new(2, u64::MAX), None);
    let last = ByteRange::new(u64::MAX, 1).unwrap();
    assert_eq!((last.first(), last.last()), (u64::MAX, u64::MAX));
    assert_eq!(ByteRange::new(0, u64::MAX).unwrap().last(), u64::MAX - 1);
    assert_eq!(format!("{:?}", ByteRange::from_offset(7)), "[7, infinity)");
    assert_eq!(format!("{:?}", bytes(1, 3)), "[1, 3)");
    for policy in Policy::ALL {
        let lock = lock(policy);
        let guard = lock.write(last);
        assert!(lock.try_read(last).is_none());
        assert!(guard.allows(last, Access::Shared) && !guard.allows(bytes(0, 1), Access::Shared));
    }
}

#[test]
fn options_are_checked() {
    for policy in Policy::ALL {
        assert_eq!(policy.name().parse(), Ok(policy));
        assert_eq!(lock(policy).policy(), policy);
    }
    let unknown = "page".parse::<Policy>().unwrap_err();
    assert!(
        unknown.to_string().contains("choose inode, rwsem, tree"),
        "{unknown}"
    );
    for bytes in [0, 1, 2048, 4097, 12_288, 1 << 41, u64::MAX] {
        let config = Config::new(Policy::Segment).with_segment_bytes(bytes);
        assert_eq!(config, Err(ConfigError::SegmentBytes(bytes)));
    }
}

/// The originals make 4 to 200 MB of words for each inode.
#[test]
fn a_huge_sparse_file_costs_what_is_touched() {
    for policy in [Policy::Bitmap, Policy::Segment] {
        let lock = lock(policy);
        assert_eq!(lock.footprint().bytes, 0);
        drop(lock.write(ByteRange::ALL));
        drop(lock.read(bytes(0, 1 << 62)));
        assert_eq!(lock.footprint().bytes, 0, "wide claims make no words");
        for power in 13..63 {
            drop(lock.write(bytes(1 << power, (1 << power) + 1)));
        }
        let footprint = lock.footprint();
        assert!(
            footprint.chunks <= 50 && footprint.bytes < 80_000,
            "{footprint:?}"
        );
    }
}

#[test]
fn idle_words_go_to_where_they_are_needed() {
    let config = Config::new(Policy::Segment).with_chunks_max(4);
    let lock: Lock = RangeLock::new(config);
    let page = |number: u64| bytes(number * 4 * KIB, number * 4 * KIB + 1);
    let held = lock.write(page(7));
    for number in 0..10_000 {
        let guard = lock.try_write(page(100 + 16 * number)).expect("free");
        assert!(lock.try_read(page(100 + 16 * number)).is_none());
        assert!(lock.try_read(page(7)).is_none(), "a held word stays");
        drop(guard);
    }
    assert_eq!(lock.footprint().chunks, 4);
    drop(held);
    // More held ranges than chunks: the rest goes without words.
    let guards: Vec<_> = (0..40)
        .map(|n| lock.try_write(page(16 * n)).expect("free"))
        .collect();
    assert!((0..40).all(|n| lock.try_read(page(16 * n)).is_none()));
    assert!((0..40).all(|n| lock.try_write(page(16 * n + 1)).is_some()));
    assert!(lock.try_write(ByteRange::ALL).is_none());
    assert_eq!(lock.footprint().chunks, 4);
    drop(guards);
    assert!(lock.try_write(ByteRange::ALL).is_some());
}

/// Many files have no more words than one; a file that gets none is locked all the same.
#[test]
fn locks_share_a_budget_of_words() {
    let budget = Arc::new(WordBudget::of_bytes(20_000));
    for policy in [Policy::Bitmap, Policy::Segment] {
        let locks: Vec<Lock> = (0..10)
            .map(|_| RangeLock::within(Config::new(policy), &budget))
            .collect();
        let place = |number: u64| bytes(number << 24, (number << 24) + 1);
        for lock in &locks {
            let held: Vec<_> = (0..8)
                .map(|number| lock.try_write(place(number)).expect("free"))
                .collect();
            assert!((0..8).all(|number| lock.try_read(place(number)).is_none()));
            assert!(lock.try_write(ByteRange::ALL).is_none());
            drop(held);
            assert!(lock.try_write(ByteRange::ALL).is_some());
        }
        let all: usize = locks.iter().map(|lock| lock.footprint().bytes).sum();
        assert!(all <= budget.bytes() && budget.bytes() <= 20_000, "{all}");
        assert!(budget.is_used_up() && all > 10_000, "{all}");
        drop(locks);
        assert_eq!(budget.bytes(), 0, "they are given back");
    }
}

/// A file that was cut off and is appended to again: its old words are not taken with every append.
#[test]
fn a_wide_claim_takes_idle_words_away() {
    for policy in [Policy::Bitmap, Policy::Segment] {
        let lock = lock(policy);
        let chunk = 64 * 16 * 4 * KIB;
        let place = |number: u64| bytes(number * chunk, number * chunk + 1);
        (0..1000).for_each(|number| drop(lock.write(place(number))));
        let made = lock.footprint();
        assert_eq!(made.chunks, 1000);
        let held = lock.write(place(400));
        assert!(lock.try_write(ByteRange::from_offset(0)).is_none());
        let end = lock
            .try_write(ByteRange::from_offset(401 * chunk))
            .expect("free");
        // What it holds it holds without them.
        assert!(lock.try_read(place(400)).is_none());
        assert!((401..1000).all(|number| lock.try_read(place(number)).is_none()));
        assert!(lock.try_write(place(399)).is_some());
        drop((end, held));
        drop(lock.write(ByteRange::ALL));
        let left = lock.footprint();
        assert_eq!(left.chunks, 0, "{left:?}");
        assert_eq!(left.bytes, made.bytes, "kept for the next words");
        (0..1000).for_each(|number| drop(lock.write(place(number))));
        assert_eq!(lock.footprint().bytes, made.bytes);
    }
}

#[test]
fn a_second_lock_of_one_thread_is_refused_or_reported() {
    for policy in Policy::ALL {
        let lock = lock(policy);
        let _guard = lock.write(bytes(0, 10));
        assert!(lock.try_write(bytes(0, 10)).is_none());
        if cfg!(debug_assertions) {
            let twice = std::panic::AssertUnwindSafe(|| drop(lock.read(bytes(0, 10))));
            let panic = std::panic::catch_unwind(twice).unwrap_err();
            let text = panic.downcast_ref::<String>().unwrap();
            assert!(
                text.contains("taking rank 10 (Rising) while holding rank 10"),
                "{text}"
            );
        }
    }
}

#[test]
fn threads_exclude_each_other_on_real_cores() {
    for (policy, chunks_max) in Policy::ALL
        .into_iter()
        .flat_map(|p| [(p, 0), (p, 2), (p, 99)])
    {
        let lock: Lock = RangeLock::new(Config::new(policy).with_chunks_max(chunks_max));
        let pages: Vec<_> = (0..64)
            .map(|_| dure_sync::atomic::AtomicU64::new(0))
            .collect();
        thread::scope(|scope| {
            for seed in 0..4_u64 {
                let (lock, pages) = (&lock, &pages);
                scope.spawn(move || {
                    for turn in 0..2_000_u64 {
                        let first = (seed * 7 + turn * 13) % 60;
                        let count = 1 + (turn + seed) % 4;
                        let range = if turn % 50 == 0 {
                            ByteRange::from_offset(first * 4 * KIB)
                        } else {
                            bytes(first * 4 * KIB, (first + count) * 4 * KIB)
                        };
                        let _guard = lock.write(range);
                        let first = usize::try_from(first).unwrap();
                        let count = usize::try_from(count).unwrap();
                        for page in &pages[first..first + count] {
                            // Not atomic on purpose: a lost update shows two holders.
                            let relaxed = dure_sync::atomic::Ordering::Relaxed;
                            page.store(page.load(relaxed) + 1, relaxed);
                        }
                    }
                });
            }
        });
        let sum: u64 = pages.into_iter().map(|page| page.into_inner()).sum();
        let expected: u64 = (0..4)
            .map(|seed: u64| (0..2_000).map(|turn| 1 + (turn + seed) % 4).sum::<u64>())
            .sum();
        assert_eq!(sum, expected, "{policy}");
    }
}

/// What a single task does with a lock.
#[derive(Debug, Clone)]
enum Step {
    Take(ByteRange, Access),
    /// Gives back the guard of this number, modulo how many there are.
    Give(usize),
}

fn ranges() -> impl Strategy<Value = ByteRange> {
    let near = (0..300_u64 * 4 * KIB, 1..40_u64 * 4 * KIB);
    let near = near.prop_map(|(first, len)| ByteRange::new(first, len).unwrap());
    let any = (any::<u64>(), any::<u64>()).prop_filter_map("empty or too long", |(first, len)| {
        ByteRange::new(first, len >> (len % 64))
    });
    let endless = (0..300_u64 * 4 * KIB).prop_map(ByteRange::from_offset);
    prop_oneof![8 => near, 2 => any, 1 => endless]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let access = prop_oneof![Just(Access::Shared), Just(Access::Exclusive)];
    let take = (ranges(), access).prop_map(|(range, access)| Step::Take(range, access));
    let step = prop_oneof![3 => take, 2 => (0..100_usize).prop_map(Step::Give)];
    prop::collection::vec(step, 1..60)
}

fn configs() -> impl Strategy<Value = (Config, u32)> {
    let policy = prop::sample::select(&Policy::ALL[..]);
    let chunks_max = prop_oneof![Just(0_usize), 1..4_usize, Just(1_000)];
    (policy, chunks_max, 12..24_u32).prop_map(|(policy, chunks_max, shift)| {
        let config = Config::new(policy).with_chunks_max(chunks_max);
        let config = config.with_segment_bytes(1 << shift).unwrap();
        (config, if policy == Policy::Segment { shift } else { 12 })
    })
}

proptest! {
    /// A lock gives a range exactly when a list of what is held says that it is free.
    #[test]
    fn a_list_agrees((config, shift) in configs(), steps in steps()) {
        let lock: Lock = RangeLock::new(config);
        let mut held = Vec::new();
        let conflict = |one: (ByteRange, Access), other: (ByteRange, Access)| {
            let access = config.policy() == Policy::Bitmap || one.1.excludes(other.1);
            let units = |range: ByteRange| (range.first() >> shift, range.last() >> shift);
            let (a, b) = (units(one.0), units(other.0));
            let meet = config.policy().is_whole_file() || (a.0 <= b.1 && b.0 <= a.1);
            access && meet
        };
        for step in steps {
            match step {
                Step::Take(range, access) => {
                    let free = held.iter().all(|(_, r, a)| !conflict((range, access), (*r, *a)));
                    let taken = match access {
                        Access::Shared => lock.try_read(range),
                        Access::Exclusive => lock.try_write(range),
                    };
                    prop_assert_eq!(taken.is_some(), free, "{:?} {:?}", range, access);
                    held.extend(taken.map(|guard| (guard, range, access)));
                }
                Step::Give(number) if !held.is_empty() => {
                    drop(held.swap_remove(number % held.len()));
                }
                Step::Give(_) => {}
            }
        }
        drop(held);
        prop_assert!(lock.try_write(ByteRange::ALL).is_some());
    }
}
