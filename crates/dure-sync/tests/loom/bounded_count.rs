//! A count with a bound. Nothing is published, so there is no ordering whose lack must fail: the canary
//! is a bound that is one lower than what the tasks expect.

use std::panic::{AssertUnwindSafe, catch_unwind};

use dure_sync::atomic::{AtomicI64, Ordering};
use dure_sync::{Arc, BoundedCount, CoreId, thread};

use super::explore_with;

const CORES: usize = 2;

fn at(core: u16) -> (CoreId, usize) {
    (CoreId::new(core), CORES)
}

/// A count of `used` for which cores have contended.
fn contended(used: i64) -> BoundedCount {
    let count = BoundedCount::default();
    for turn in 0..6 {
        assert!(count.take(at(turn % 2), 1, 1 << 20));
        count.give(at(turn % 2), 1, 1 << 20);
    }
    count.settle();
    assert!(count.take(at(0), used, 1 << 20));
    count
}

/// Two take near the bound, where the first still has a share aside; one of them gives something back.
/// At no instant more is in use than the bound, and what is left can be had.
fn near_the_bound(bound: i64, expected: i64) {
    let count = Arc::new(contended(expected - 3));
    let used = Arc::new(AtomicI64::new(expected - 3));
    let other = (Arc::clone(&count), Arc::clone(&used));
    let take = move |count: &BoundedCount, used: &AtomicI64, core: u16| {
        let is_taken = count.take(at(core), 1, bound);
        if is_taken {
            let now = used.fetch_add(1, Ordering::Relaxed) + 1;
            assert!(now <= bound);
        }
        is_taken
    };
    let task = thread::spawn("taker", move || {
        let (count, used) = other;
        let first = take(&count, &used, 1);
        let second = take(&count, &used, 1);
        if first {
            used.fetch_sub(1, Ordering::Relaxed);
            count.give(at(1), 1, bound);
        }
        i64::from(second)
    });
    let own = i64::from(take(&count, &used, 0)) + i64::from(take(&count, &used, 0));
    let kept = own + task.join().unwrap();
    let mut left = 0;
    while count.take(at(0), 1, bound) {
        left += 1;
    }
    assert_eq!(expected - 3 + kept + left, expected, "all of it can be had");
    assert_eq!(count.sum(), expected);
}

#[test]
fn a_bound_is_never_exceeded_and_can_be_reached() {
    explore_with(2, || near_the_bound(6, 6));
    explore_with(2, || near_the_bound(12, 12));
}

/// Two tasks take, and give, what there is room for in any order: neither is refused, however near the
/// bound and whatever is on its way between the word and what is aside.
fn room_for_both(bound: i64, gives: bool) {
    let count = contended(bound - 1);
    // All that is left is aside, of a core that neither works for.
    count.give(at(0), 1, 1 << 20);
    let count = Arc::new(count);
    let other = Arc::clone(&count);
    let task = thread::spawn("taker", move || {
        assert!(other.take(at(1), 1, bound), "there is room");
        if gives {
            other.give(at(1), 1, bound);
            assert!(other.take(at(1), 1, bound), "there is room again");
        }
    });
    assert!(count.take(at(1), 1, bound), "there is room");
    task.join().unwrap();
    assert_eq!(count.sum(), bound);
    assert!(!count.take(at(0), 1, bound));
}

#[test]
fn no_task_is_refused_while_there_is_room() {
    explore_with(2, || room_for_both(6, true));
    explore_with(2, || room_for_both(3, true));
    explore_with(3, || room_for_both(6, false));
}

#[test]
fn a_bound_that_is_another_is_noticed() {
    let explored = AssertUnwindSafe(|| explore_with(1, || near_the_bound(5, 6)));
    assert!(catch_unwind(explored).is_err());
}
