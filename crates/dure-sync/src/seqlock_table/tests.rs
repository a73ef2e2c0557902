use super::*;

/// The value under `key`, with hashes chosen by the test.
fn find<const WAYS: usize>(table: &SeqLockTable<3, WAYS>, hash: u64, key: u64) -> Option<u64> {
    table.find(hash, |record| {
        (record.get(1) == key).then_some(record.get(2))
    })
}

#[test]
fn records_are_found_until_they_are_removed() {
    let table: SeqLockTable<3, 4> = SeqLockTable::new(64);
    assert_eq!(find(&table, 7, 1), None);
    table.insert(&[7, 1, 10]);
    table.insert(&[8, 2, 20]);
    assert_eq!(find(&table, 7, 1), Some(10));
    assert_eq!(find(&table, 7, 2), None, "the key is compared");
    table.insert(&[7, 1, 11]);
    assert_eq!(find(&table, 7, 1), Some(11));
    table.remove(7, |record| record.get(1) == 3);
    assert_eq!(find(&table, 7, 1), Some(11), "another key was removed");
    table.remove(7, |record| record.get(1) == 1);
    assert_eq!(find(&table, 7, 1), None);
    assert_eq!(find(&table, 8, 2), Some(20));
    table.remove(9, |_| true);
}

#[test]
fn a_full_set_gives_way_in_turn() {
    let table: SeqLockTable<3, 2> = SeqLockTable::new(1);
    let hashes: Vec<u64> = (1..)
        .filter(|hash| table.place(*hash).1 == 1)
        .take(6)
        .collect();
    for hash in &hashes {
        table.insert(&[*hash, *hash, 1]);
    }
    let there = |hash: &&u64| find(&table, **hash, **hash).is_some();
    assert_eq!(hashes.iter().filter(there).count(), 2);
    assert!(there(&&hashes[5]), "the last one in is there");
}

#[test]
fn what_has_changed_before_it_was_in_is_not_kept() {
    let table: SeqLockTable<3, 2> = SeqLockTable::new(8);
    table.insert_while(&[5, 1, 10], || true);
    assert_eq!(find(&table, 5, 1), Some(10));
    table.insert_while(&[5, 1, 11], || false);
    assert_eq!(find(&table, 5, 1), None);
}

#[test]
#[should_panic(expected = "empty slot")]
fn hash_zero_is_refused() {
    SeqLockTable::<3, 2>::new(8).insert(&[0, 1, 2]);
}

#[test]
fn readers_see_whole_records_beside_writers() {
    const ROUNDS: u64 = 20_000;
    let table: SeqLockTable<3, 1> = SeqLockTable::new(1);
    crate::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 1..ROUNDS {
                table.insert(&[5, n, n]);
                if n % 7 == 0 {
                    table.remove(5, |_| true);
                }
            }
        });
        for _ in 0..ROUNDS {
            let found = table.find(5, |record| Some((record.get(1), record.get(2))));
            assert!(found.is_none_or(|(key, value)| key == value), "{found:?}");
        }
    });
}
