use std::collections::BTreeMap;

use dure_store::format::bucket::LEVELS_MAX;
use dure_store::format::inode::Time;
use dure_store::op::Draft;
use proptest::prelude::*;
use zerocopy::little_endian::U32;

use super::change::{NewEntry, append};
use super::*;

const SEED: u64 = 42;

fn empty() -> Draft {
    Draft::copy_of(vec![0; BUCKET_BYTES].into())
}

fn enter(draft: &mut Draft, ino: u64, kind: u8, name: &[u8]) -> Inserted {
    let hash = trie::name_hash(SEED, name);
    add(draft, None, (SEED, hash), (Ino(ino), kind), name).unwrap()
}

fn leave(draft: &mut Draft, name: &[u8]) {
    let hash = trie::name_hash(SEED, name);
    let Ok(Search::Entry(entry, hole)) = search(draft, (SEED, hash), name) else {
        panic!("the name is not there");
    };
    let kind = entry.kind;
    remove(draft, kind, hole).unwrap();
}

fn names(payload: &[u8]) -> BTreeMap<Vec<u8>, (u64, u8)> {
    entries(payload)
        .unwrap()
        .map(|entry| entry.map(|e| (e.name.to_vec(), (e.ino.0, e.kind))).unwrap())
        .collect()
}

#[test]
fn the_longest_name_fits_an_empty_bucket() {
    let mut payload = empty();
    assert_eq!(enter(&mut payload, 9, 8, &[b'x'; 255]), Inserted::Done);
    assert_eq!(enter(&mut payload, 10, 8, &[b'y'; 255]), Inserted::Overflow);
    assert_eq!(find(&payload, &[b'x'; 255]).unwrap().unwrap().ino, Ino(9));
    assert_eq!(find(&payload, b"x").unwrap(), None);
}

#[test]
fn a_name_that_cannot_be_one_is_never_listed() {
    for hostile in [&b"../../x"[..], b"/abs", b".", b"..", b"a\0b"] {
        let mut payload = empty();
        assert_eq!(enter(&mut payload, 9, 8, b"sound"), Inserted::Done);
        let new = NewEntry {
            ino: Ino(10),
            kind: 8,
            ordinal: 1,
            name: hostile,
        };
        assert_eq!(append(&mut payload, &new), Ok(Inserted::Done));
        let listed: Result<Vec<_>> = entries(&payload).unwrap().collect();
        assert!(listed.is_err(), "{}", hostile.escape_ascii());
        assert_eq!(find(&payload, b"sound").unwrap().unwrap().ino, Ino(9));
    }
    let mut payload = empty();
    enter(&mut payload, 9, 8, b"x");
    payload.all()[HEADER_BYTES + ENTRY_HEADER_BYTES - 1] = 0;
    assert!(entries(&payload).unwrap().any(|entry| entry.is_err()));
}

#[test]
fn removing_everything_leaves_no_bytes_in_use() {
    let mut payload = empty();
    for number in 0..10_u8 {
        enter(
            &mut payload,
            u64::from(number) + 1,
            KIND_DIRECTORY,
            &[b'a' + number; 7],
        );
    }
    assert_eq!(header(&payload).subdirectories.get(), 10);
    for number in [3, 5, 4, 0, 9, 8, 1, 2, 7, 6_u8] {
        leave(&mut payload, &[b'a' + number; 7]);
    }
    let header = header(&payload);
    assert_eq!((header.entries.get(), header.used.get()), (0, 0));
    assert_eq!(header.subdirectories.get(), 0);
}

#[test]
fn holes_are_merged_and_used_first() {
    let mut payload = empty();
    for number in 0..6_u8 {
        enter(&mut payload, u64::from(number) + 1, 8, &[b'a' + number; 20]);
    }
    let used = header(&payload).used.get();
    for number in [1, 3, 2_u8] {
        leave(&mut payload, &[b'a' + number; 20]);
    }
    assert_eq!(enter(&mut payload, 77, 8, &[b'z'; 80]), Inserted::Done);
    assert_eq!(header(&payload).used.get(), used, "the merged hole took it");
    assert_eq!(names(&payload).len(), 4);
}

#[test]
fn retarget_counts_directories() {
    let mut payload = empty();
    enter(&mut payload, 5, 8, b"name");
    let at = find(&payload, b"name").unwrap().unwrap().at;
    retarget(&mut payload, at, Ino(6), KIND_DIRECTORY).unwrap();
    assert_eq!(header(&payload).subdirectories.get(), 1);
    assert_eq!(header(&payload).entries.get(), 1);
    assert_eq!(find(&payload, b"name").unwrap().unwrap().ino, Ino(6));
}

#[test]
fn stamps_do_not_go_back_unless_the_set_number_rises() {
    let mut payload = empty();
    let time = |secs: i64| Time {
        secs: secs.into(),
        nanos: U32::ZERO,
    };
    set_stamps(&mut payload, time(100), 0);
    set_stamps(&mut payload, time(50), 0);
    assert_eq!(header(&payload).mtime, time(100));
    set_stamps(&mut payload, time(50), 1);
    assert_eq!(header(&payload).mtime, time(50));
}

#[test]
fn ordinals_of_equal_hashes_differ_until_they_run_out() {
    let mut payload = empty();
    // Sixteen entries of one name have one hash; the search is for another name of that hash.
    let hash = trie::name_hash(SEED, b"A");
    let again = |payload: &mut Draft| {
        let Ok(Search::Room(room)) = search(payload, (SEED, hash), b"?") else {
            panic!("a name that nobody entered is there");
        };
        add(payload, Some(room), (SEED, hash), (Ino(1), 8), b"A").unwrap()
    };
    for other in 1..=ORDINALS {
        assert_eq!(again(&mut payload), Inserted::Done);
        // One of another hash takes no ordinal away.
        assert_eq!(enter(&mut payload, 2, 8, &[b'a' + other]), Inserted::Done);
    }
    let of_one = entries(&payload).unwrap().map(Result::unwrap);
    let of_one = of_one.filter(|entry| entry.name == b"A");
    let ordinals: std::collections::BTreeSet<u8> = of_one.map(|entry| entry.ordinal).collect();
    assert_eq!(ordinals.len(), usize::from(ORDINALS));
    assert_eq!(again(&mut payload), Inserted::Crowded);
    assert_eq!(enter(&mut payload, 1, 8, b"new"), Inserted::Done);
}

proptest! {
    #[test]
    fn a_bucket_is_a_map(ops in proptest::collection::vec((0..40_u8, 0..3_u8, 1..60_usize), 1..120)) {
        let mut payload = empty();
        let mut model = BTreeMap::new();
        for (number, what, len) in ops {
            let mut name = vec![b'-'; len];
            name[0] = b'0' + number;
            match find(&payload, &name).unwrap() {
                Some(_) => {
                    prop_assert!(model.contains_key(&name));
                    if what == 0 {
                        leave(&mut payload, &name);
                        model.remove(&name);
                    }
                }
                None => {
                    prop_assert!(!model.contains_key(&name));
                    let live: usize =
                        model.keys().map(|n: &Vec<u8>| n.len() + ENTRY_HEADER_BYTES).sum();
                    let ino = u64::from(number) + 1;
                    match enter(&mut payload, ino, 8, &name) {
                        Inserted::Done => { model.insert(name, (ino, 8)); }
                        Inserted::Overflow => {
                            prop_assert!(live + len + ENTRY_HEADER_BYTES > ENTRY_BYTES);
                        }
                        Inserted::Crowded => prop_assert!(false, "hashes differ"),
                    }
                }
            }
            prop_assert_eq!(&names(&payload), &model);
            prop_assert_eq!(usize::from(header(&payload).entries.get()), model.len());
        }
    }

    #[test]
    fn a_split_keeps_all_entries_in_their_places(count in 1..18_u8, level in 0..LEVELS_MAX) {
        let mut payload = empty();
        for number in 0..count {
            enter(&mut payload, u64::from(number) + 1, KIND_DIRECTORY, format!("n{number}").as_bytes());
        }
        let before = names(&payload);
        let children = split(&mut payload, SEED, level).unwrap();
        set_child(&mut payload, 99);
        prop_assert_eq!(header(&payload).entries.get(), 0);
        prop_assert!(entries(&payload).unwrap().next().is_none());
        let mut after = BTreeMap::new();
        for (slot, child) in children.iter().enumerate() {
            for (name, value) in names(child) {
                prop_assert_eq!(usize::from(trie::slot(trie::name_hash(SEED, &name), level)), slot);
                after.insert(name, value);
            }
        }
        prop_assert_eq!(before, after);
    }

    #[test]
    fn arbitrary_bytes_never_panic(mut payload in proptest::collection::vec(any::<u8>(), BUCKET_BYTES)) {
        let _ = entries(&payload).map(|all| all.count());
        let _ = find(&payload, b"x");
        payload[32..48].fill(0);
        let mut draft = Draft::copy_of(payload.into());
        let hash = trie::name_hash(SEED, b"abc");
        let _ = add(&mut draft, None, (SEED, hash), (Ino(1), 8), b"abc");
    }
}
