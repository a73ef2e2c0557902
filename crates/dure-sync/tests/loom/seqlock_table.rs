//! Orderings of the table that is read without a write.

use std::panic::catch_unwind;

use dure_sync::atomic::{AtomicU64, Ordering, fence};
use dure_sync::{Arc, SeqLockTable, Weaken, thread};

use super::{BOTH, canaries, check, explore, explore_with};

/// One slot in each set, so that everything meets.
type Table = SeqLockTable<3, 1>;

fn find(table: &Table, hash: u64) -> Option<(u64, u64)> {
    table.find(hash, |record| Some((record.get(1), record.get(2))))
}

fn reader_meets_writer() {
    let table = Arc::new(Table::new(1));
    table.insert(&[5, 1, 1]);
    let other = Arc::clone(&table);
    let writer = thread::spawn("writer", move || other.insert(&[5, 2, 2]));
    let found = find(&table, 5);
    assert!(matches!(found, None | Some((1, 1) | (2, 2))), "{found:?}");
    writer.join().unwrap();
    assert_eq!(find(&table, 5), Some((2, 2)));
}

#[test]
fn versioned_reader_sees_whole_records() {
    check(reader_meets_writer, BOTH);
}

/// A writer makes a chunk and fills it while a reader looks. The reader is the other thread, as in
/// `once_looked_at`.
fn reader_meets_first_writer() {
    let table = Arc::new(Table::new(1));
    let other = Arc::clone(&table);
    let reader = thread::spawn("reader", move || find(&other, 5));
    table.insert(&[5, 2, 2]);
    let found = reader.join().unwrap();
    assert!(matches!(found, None | Some((2, 2))), "{found:?}");
}

#[test]
fn versioned_chunk_is_published_with_its_slots() {
    check(reader_meets_first_writer, BOTH);
}

/// A removal, told to another thread: nothing is found behind it, also when another record is on
/// its way into the slot.
fn removal_is_final() {
    let table = Arc::new(Table::new(1));
    let told = Arc::new(AtomicU64::new(0));
    table.insert(&[5, 1, 1]);
    let (remover, tell) = (Arc::clone(&table), Arc::clone(&told));
    let remover = thread::spawn("remover", move || {
        remover.remove(5, |_| true);
        // Release: pairs with the Acquire below.
        tell.store(1, Ordering::Release);
    });
    let (inserter, hash) = (Arc::clone(&table), neighbour(5));
    let inserter = thread::spawn("inserter", move || inserter.insert(&[hash, 2, 2]));
    // Acquire: pairs with the Release above.
    if told.load(Ordering::Acquire) == 1 {
        assert_eq!(find(&table, 5), None);
    }
    remover.join().unwrap();
    inserter.join().unwrap();
    assert_eq!(find(&table, 5), None);
}

/// Another hash whose records go into the slot of `hash`.
fn neighbour(hash: u64) -> u64 {
    let set = |hash: u64| (hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % 4;
    (hash + 1..).find(|other| set(*other) == set(hash)).unwrap()
}

#[test]
fn versioned_removal_is_final() {
    explore_with(2, removal_is_final);
    canaries(|| explore_with(2, removal_is_final), &[Weaken::Release]);
}

/// A fact that changes under a lock which those who insert it share: the way of an access time. The
/// flag says that the record may be in the table.
struct Fact {
    table: Table,
    shown: AtomicU64,
    fact: AtomicU64,
}

fn change_beside_an_insert(change: fn(&Fact), insert: fn(&Fact, u64)) {
    let fact = Arc::new(Fact {
        table: Table::new(1),
        shown: AtomicU64::new(0),
        fact: AtomicU64::new(1),
    });
    let other = Arc::clone(&fact);
    let changer = thread::spawn("changer", move || change(&other));
    // Relaxed, here and below: fences order it.
    fact.shown.store(1, Ordering::Relaxed);
    let seen = fact.fact.load(Ordering::Relaxed);
    insert(&fact, seen);
    changer.join().unwrap();
    let found = find(&fact.table, 5);
    assert!(matches!(found, None | Some((1, 2))), "{found:?}");
}

fn change(fact: &Fact) {
    fact.fact.store(2, Ordering::Relaxed);
    fence(Ordering::SeqCst);
    if fact.shown.load(Ordering::Relaxed) == 1 {
        fact.table.remove(5, |_| true);
    }
}

fn change_without_fence(fact: &Fact) {
    fact.fact.store(2, Ordering::Relaxed);
    if fact.shown.load(Ordering::Relaxed) == 1 {
        fact.table.remove(5, |_| true);
    }
}

fn insert(fact: &Fact, seen: u64) {
    let holds = || fact.fact.load(Ordering::Relaxed) == seen;
    fact.table.insert_while(&[5, 1, seen], holds);
}

fn insert_without_look(fact: &Fact, seen: u64) {
    fact.table.insert_while(&[5, 1, seen], || true);
}

#[test]
fn versioned_insert_meets_a_change_under_the_shared_lock() {
    explore(|| change_beside_an_insert(change, insert));
    let fails = |model: fn()| catch_unwind(move || explore(model)).is_err();
    assert!(fails(|| change_beside_an_insert(
        change_without_fence,
        insert
    )));
    assert!(fails(|| change_beside_an_insert(
        change,
        insert_without_look
    )));
}

/// The same, and the change is told to a reader: he never finds the fact from before it, not even
/// while the insert looks whether it still holds (found by the schedules: an access time went back
/// for a moment).
fn change_is_told(insert: fn(&Fact, u64)) {
    let fact = Arc::new(Fact {
        table: Table::new(1),
        shown: AtomicU64::new(1),
        fact: AtomicU64::new(1),
    });
    // So that the chunk has its memory.
    fact.table.insert(&[5, 1, 1]);
    fact.table.remove(5, |_| true);
    let told = Arc::new(AtomicU64::new(0));
    let (other, tell) = (Arc::clone(&fact), Arc::clone(&told));
    let changer = thread::spawn("changer", move || {
        change(&other);
        // Release: pairs with the Acquire below.
        tell.store(1, Ordering::Release);
    });
    let other = Arc::clone(&fact);
    let inserter = thread::spawn("inserter", move || insert(&other, 1));
    // Acquire: pairs with the Release above.
    if told.load(Ordering::Acquire) == 1 {
        let found = find(&fact.table, 5);
        assert!(matches!(found, None | Some((1, 2))), "{found:?}");
    }
    changer.join().unwrap();
    inserter.join().unwrap();
}

/// Shows the record before it looks.
fn insert_and_look_behind(fact: &Fact, seen: u64) {
    fact.table.insert(&[5, 1, seen]);
    fence(Ordering::SeqCst);
    if fact.fact.load(Ordering::Relaxed) != seen {
        fact.table.remove(5, |_| true);
    }
}

#[test]
fn versioned_insert_shows_nothing_that_was_told_to_be_over() {
    explore_with(3, || change_is_told(insert));
    let late = || explore_with(3, || change_is_told(insert_and_look_behind));
    assert!(catch_unwind(late).is_err());
}

/// Two parts of a fact in tables of their own. The first part ends before the second one changes.
/// The reader is the other thread, as in `once_looked_at`.
fn first_part_ends(look: fn(&[Table; 2]) -> Option<(u64, u64)>) {
    let tables = Arc::new([Table::new(1), Table::new(1)]);
    tables.iter().for_each(|table| table.insert(&[5, 1, 1]));
    let other = Arc::clone(&tables);
    let reader = thread::spawn("reader", move || look(&other));
    tables[0].remove(5, |_| true);
    tables[1].remove(5, |_| true);
    tables[1].insert(&[5, 1, 2]);
    let found = reader.join().unwrap();
    assert!(matches!(found, None | Some((1, 1))), "{found:?}");
}

fn look_within([first, second]: &[Table; 2]) -> Option<(u64, u64)> {
    first.find(5, |record| Some((record.get(2), find(second, 5)?.1)))
}

fn look_one_by_one([first, second]: &[Table; 2]) -> Option<(u64, u64)> {
    Some((find(first, 5)?.1, find(second, 5)?.1))
}

#[test]
fn versioned_parts_found_within_each_other_are_of_one_moment() {
    explore(|| first_part_ends(look_within));
    let apart = || explore(|| first_part_ends(look_one_by_one));
    assert!(catch_unwind(apart).is_err());
}
