//! Orderings of the range locks that are made of words.
//!
//! Under loom a chunk has two words. What is watched are plain cells, one per page, that a holder
//! writes (or reads, as a reader): loom reports two accesses that nothing orders.

use dure_sync::range_lock::{ByteRange, Config, Policy, RangeLock};
use dure_sync::{Arc, thread};

use super::{BOTH, Watched, check, explore_with};

const PAGE: u64 = 4096;

fn page(number: u64) -> ByteRange {
    ByteRange::new(number * PAGE, PAGE).unwrap()
}

/// A file whose page n is cell n, if anybody looks at it.
struct File {
    lock: RangeLock<10>,
    pages: [Watched; 4],
}

impl File {
    fn new(policy: Policy, chunks_max: usize) -> Arc<Self> {
        Arc::new(Self {
            lock: RangeLock::new(Config::new(policy).with_chunks_max(chunks_max)),
            pages: std::array::from_fn(|_| Watched(loom::cell::UnsafeCell::new(0))),
        })
    }

    fn change(&self, page: usize) {
        // SAFETY: loom checks that nobody else accesses the cell meanwhile.
        self.pages[page].0.with_mut(|value| unsafe { *value += 1 });
    }

    fn look(&self, page: usize) -> u32 {
        // SAFETY: loom checks that no change is concurrent.
        self.pages[page].0.with(|value| unsafe { *value })
    }
}

fn two_writers(policy: Policy) {
    let file = File::new(policy, 1);
    let other = Arc::clone(&file);
    let writer = thread::spawn("writer", move || {
        let guard = other.lock.write(page(0));
        other.change(0);
        drop(guard);
    });
    let guard = file.lock.write(page(0));
    file.change(0);
    drop(guard);
    writer.join().unwrap();
    assert_eq!(file.look(0), 2);
}

#[test]
fn range_word_orders_writers() {
    check(|| two_writers(Policy::Segment), BOTH);
}

#[test]
fn range_bit_orders_writers() {
    check(|| two_writers(Policy::Bitmap), BOTH);
}

#[test]
fn range_inode_lock_orders_writers() {
    check(|| two_writers(Policy::Inode), BOTH);
}

#[test]
fn range_tree_orders_writers() {
    check(|| two_writers(Policy::Tree), BOTH);
}

fn reader_meets_writer() {
    let file = File::new(Policy::Segment, 1);
    let other = Arc::clone(&file);
    let reader = thread::spawn("reader", move || {
        let guard = other.lock.read(page(0));
        let seen = other.look(0);
        drop(guard);
        seen
    });
    let guard = file.lock.write(page(0));
    file.change(0);
    drop(guard);
    assert!(reader.join().unwrap() <= 1);
}

#[test]
fn range_word_orders_readers_and_writers() {
    check(reader_meets_writer, BOTH);
}

fn tried() {
    let file = File::new(Policy::Segment, 1);
    let other = Arc::clone(&file);
    let writer = thread::spawn("writer", move || {
        let guard = other.lock.write(page(0));
        other.change(0);
        drop(guard);
    });
    if let Some(guard) = file.lock.try_write(page(0)) {
        file.change(0);
        drop(guard);
    }
    writer.join().unwrap();
}

#[test]
fn range_try_write_publishes_too() {
    check(tried, BOTH);
}

/// One task takes both words of a chunk, the other the second and then the first of the next.
fn over_two_words() {
    let file = File::new(Policy::Segment, 2);
    let other = Arc::clone(&file);
    let writer = thread::spawn("writer", move || {
        let guard = other.lock.write(ByteRange::new(0, 2 * PAGE).unwrap());
        other.change(0);
        other.change(1);
        drop(guard);
    });
    let guard = file.lock.write(page(1));
    file.change(1);
    drop(guard);
    writer.join().unwrap();
    assert_eq!(file.look(1), 2);
}

#[test]
fn range_of_two_words_excludes_one_of_them() {
    check(over_two_words, BOTH);
}

/// There is one chunk for two tasks that need different ones: words move from one part of the file
/// to another, and what their last holder did must be seen by the next, wherever his word is.
fn words_move() {
    let file = File::new(Policy::Segment, 1);
    let other = Arc::clone(&file);
    let writer = thread::spawn("writer", move || {
        let guard = other.lock.write(page(2));
        other.change(2);
        drop(guard);
    });
    let guard = file.lock.write(page(0));
    file.change(0);
    drop(guard);
    let guard = file.lock.write(page(2));
    file.change(2);
    drop(guard);
    writer.join().unwrap();
    assert_eq!(file.look(2), 2);
}

#[test]
fn range_words_that_move_keep_their_order() {
    explore_with(2, words_move);
    super::canaries(|| explore_with(2, words_move), BOTH);
}

/// What a lookup without a lock finds is whole.
fn found_by_another() {
    let file = File::new(Policy::Segment, 2);
    // There is a table already, so that the chunk is published by its link alone.
    drop(file.lock.try_read(page(2)));
    let other = Arc::clone(&file);
    let finder = thread::spawn("finder", move || drop(other.lock.try_read(page(0))));
    drop(file.lock.try_read(page(0)));
    finder.join().unwrap();
}

#[test]
fn range_words_are_found_whole() {
    check(found_by_another, BOTH);
}

/// A truncate holds pages that have no words yet.
fn truncate_meets_writer() {
    let file = File::new(Policy::Segment, 2);
    let other = Arc::clone(&file);
    let cutter = thread::spawn("cutter", move || {
        let guard = other.lock.write(ByteRange::from_offset(PAGE));
        other.change(1);
        other.change(2);
        drop(guard);
    });
    let guard = file.lock.write(page(2));
    file.change(2);
    drop(guard);
    cutter.join().unwrap();
    assert_eq!(file.look(2), 2);
}

#[test]
fn range_without_end_excludes_words_not_yet_made() {
    explore_with(2, truncate_meets_writer);
    super::canaries(|| explore_with(2, truncate_meets_writer), BOTH);
}

/// No words at all: two claims meet in the tree of wide claims.
fn without_words() {
    let file = File::new(Policy::Segment, 0);
    let other = Arc::clone(&file);
    let writer = thread::spawn("writer", move || {
        let guard = other.lock.write(page(1));
        other.change(1);
        drop(guard);
    });
    let guard = file.lock.write(ByteRange::from_offset(0));
    file.change(1);
    drop(guard);
    writer.join().unwrap();
    assert_eq!(file.look(1), 2);
}

#[test]
fn range_without_memory_is_still_a_lock() {
    check(without_words, BOTH);
}
