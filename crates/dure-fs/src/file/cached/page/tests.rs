use std::collections::BTreeMap;

use dure_store::frames::{Fill, Frame, FramePool};
use dure_sync::CoreId;
use proptest::prelude::*;

use super::{CacheBudget, Origin, Page, PageStore};

fn byte(page: &Page, at: usize) -> u8 {
    let mut byte = [0];
    page.load(at, &mut byte);
    byte[0]
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u64, u8),
    Dirty(u64),
    Begin(u64),
    End(u64),
    Fail(u64),
    Remove(u64, u64),
    Evict(usize),
}

const FAR: u64 = 1 << 33;

/// Pages near the edges of chunks and groups, and far away.
fn page() -> impl Strategy<Value = u64> {
    prop_oneof![0..8_u64, 60..70_u64, 4090..4100_u64, FAR..FAR + 130]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (page(), any::<u8>()).prop_map(|(page, fill)| Step::Insert(page, fill)),
        4 => page().prop_map(Step::Dirty),
        2 => page().prop_map(Step::Begin),
        2 => page().prop_map(Step::End),
        1 => page().prop_map(Step::Fail),
        1 => (page(), page()).prop_map(|(a, b)| Step::Remove(a.min(b), a.max(b))),
        1 => (0..20_usize).prop_map(Step::Evict),
    ]
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct ModelPage {
    fill: u8,
    dirty: bool,
    writing: bool,
    /// It may have no block.
    new: bool,
}

type Model = BTreeMap<u64, ModelPage>;

/// A page of even content was written, another one read.
fn insert(store: &mut PageStore, model: &mut Model, page: u64, fill: u8) {
    let mut frame = Frame::zeroed();
    frame.bytes_mut().fill(fill);
    let new = fill.is_multiple_of(2);
    if new {
        store.insert_new(page, frame);
        assert!(store.set_dirty(page));
    } else {
        store.make_place(page);
        let inserted = store.insert(page, frame, Origin::Block);
        assert!(inserted.is_ok());
    }
    let known = ModelPage {
        fill,
        dirty: new,
        writing: false,
        new,
    };
    model.insert(page, known);
}

fn apply(store: &mut PageStore, model: &mut Model, step: &Step) {
    match *step {
        Step::Insert(page, fill) if !model.contains_key(&page) => {
            insert(store, model, page, fill);
        }
        Step::Dirty(page) => {
            if let Some(known) = model.get_mut(&page) {
                assert_eq!(store.set_dirty(page), !known.dirty);
                known.dirty = true;
            }
        }
        Step::Begin(page) => {
            if let Some(known) = model.get_mut(&page).filter(|p| p.dirty && !p.writing) {
                store.begin_writing(page);
                assert_eq!(byte(store.taken(page), 17), known.fill);
                (known.dirty, known.writing) = (false, true);
            }
        }
        Step::End(page) => {
            if let Some(known) = model.get_mut(&page).filter(|page| page.writing) {
                store.end_writing(page);
                (known.writing, known.new) = (false, false);
            }
        }
        Step::Fail(page) => {
            if let Some(known) = model.get_mut(&page).filter(|page| page.writing) {
                assert_eq!(store.fail_writing(page), !known.dirty);
                (known.dirty, known.writing) = (true, false);
            }
        }
        Step::Remove(from, to) => {
            if model.range(from..to).all(|(_, page)| !page.writing) {
                let mut removed = Vec::new();
                store.remove_range(from..to, |frame, dirty| {
                    removed.push((frame.bytes()[9], dirty))
                });
                let want: Vec<_> = model
                    .range(from..to)
                    .map(|(_, p)| (p.fill, p.dirty))
                    .collect();
                assert_eq!(removed, want);
                model.retain(|page, _| !(from..to).contains(page));
            }
        }
        Step::Evict(want) => {
            let mut evicted = 0;
            assert_eq!(store.evict(want, |_| evicted += 1), evicted);
            assert!(evicted <= want);
            let before = model.len();
            model.retain(|&page, known| {
                let there = store.contains(page);
                assert!(
                    there || (!known.dirty && !known.writing),
                    "evicted an unclean page"
                );
                there
            });
            assert_eq!(before - model.len(), evicted);
        }
        Step::Insert(..) => {}
    }
}

fn compare(store: &PageStore, model: &Model) {
    assert_eq!(store.present(), model.len() as u64);
    assert_eq!(
        store.dirty(),
        model.values().filter(|page| page.dirty).count() as u64
    );
    let new = model.values().filter(|page| page.new).count();
    assert_eq!(store.new_pages(), new as u64);
    assert_eq!(
        store.is_clean(),
        model.values().all(|page| !page.dirty && !page.writing)
    );
    for (&page, known) in model {
        assert_eq!(byte(store.get(page).expect("present"), 4095), known.fill);
        assert_eq!(store.is_unclean(page), known.dirty || known.writing);
        let first = |from: u64, test: fn(&ModelPage) -> bool| {
            model
                .range(from..)
                .find(|(_, known)| test(known))
                .map(|(&page, _)| page)
        };
        assert_eq!(
            store.next_present(page + 1..u64::MAX),
            first(page + 1, |_| true)
        );
        assert_eq!(
            store.next_dirty(page..u64::MAX),
            first(page, |known| known.dirty)
        );
        let unclean = first(page, |known| known.dirty || known.writing);
        assert_eq!(store.next_unclean(page..u64::MAX), unclean);
        assert_eq!(store.next_present(page..page), None);
    }
    for range in [0..8, 62..68, 4094..4099] {
        let missing = store.missing(range.clone());
        let absent = range
            .clone()
            .filter(|page| !model.contains_key(page))
            .count();
        let not_dirty = range
            .filter(|page| !model.get(page).is_some_and(|p| p.dirty))
            .count();
        assert_eq!(
            (missing.frames as usize, missing.blocks as usize),
            (absent, not_dirty)
        );
    }
}

proptest! {
    #[test]
    fn a_store_behaves_like_an_ordered_map(steps in prop::collection::vec(step(), 1..120)) {
        let mut store = PageStore::default();
        let mut model = Model::new();
        for step in &steps {
            apply(&mut store, &mut model, step);
            compare(&store, &model);
        }
    }

    #[test]
    fn a_budget_is_never_exceeded_nor_lost(
        pages_max in 1..400_u64,
        steps in prop::collection::vec((0..4_u16, 0..30_u64, any::<bool>()), 1..200),
    ) {
        let budget = CacheBudget::new(4, pages_max);
        let mut held = 0;
        for (core, pages, take) in steps {
            let core = CoreId::new(core);
            if take {
                let fits = held + pages <= pages_max;
                prop_assert_eq!(budget.take(core, pages), fits, "all that is free can be had");
                held += if fits { pages } else { 0 };
            } else {
                let back = pages.min(held);
                budget.give(core, back);
                held -= back;
            }
            prop_assert_eq!(budget.used(), held);
        }
    }
}

#[test]
fn pages_that_are_cheap_to_read_again_are_evicted_although_they_are_in_use() {
    let mut store = PageStore::default();
    for page in (0..8).chain(200..208) {
        store.insert_new(page, Frame::zeroed());
        store.set_cheap(page, [3, 5, 202].contains(&page));
        store.get(page);
    }
    store.set_cheap(5, false);
    assert_eq!(store.evict_cheap(1, |_| ()), 1);
    assert!(!store.contains(3));
    // A dirty page stays.
    store.set_cheap(7, true);
    assert!(store.set_dirty(7));
    assert_eq!(store.evict_cheap(9, |_| ()), 1);
    assert!(!store.contains(202));
    assert_eq!(store.evict_cheap(9, |_| ()), 0);
    assert_eq!(store.present(), 14);
    // All at once, near and far.
    store.insert_new(9000, Frame::zeroed());
    for page in [0, 4, 201, 9000] {
        store.set_cheap(page, true);
    }
    assert_eq!(store.remove_cheap(|_| ()), 4);
    assert!(store.contains(7) && !store.contains(9000) && !store.contains(4));
    assert_eq!(store.remove_cheap(|_| ()), 0);
}

/// Also when they are wanted one at a time: a page that was used is spared until all others are gone.
#[test]
fn eviction_takes_pages_that_were_used_once_first() {
    let mut store = PageStore::default();
    for page in 0..128 {
        store.insert_new(page, Frame::zeroed());
    }
    for page in (0..128).step_by(2) {
        store.get(page);
    }
    for _ in 0..64 {
        assert_eq!(store.evict(1, |_| ()), 1);
    }
    let left = (0..128).filter(|page| store.contains(*page));
    assert!(left.eq((0..128).step_by(2)));
}

#[test]
fn eviction_spares_a_page_that_is_in_use() {
    let mut store = PageStore::default();
    for page in 0..64 {
        store.insert_new(page, Frame::zeroed());
    }
    let mut evicted = store.evict(1, |_| ());
    assert!(evicted == 1 && !store.contains(0));
    while evicted < 63 {
        store.get(7);
        let now = store.evict(8.min(63 - evicted), |_| ());
        evicted += now;
    }
    assert!(store.contains(7));
    assert_eq!(store.present(), 1);
}

#[test]
fn a_recycled_frame_can_be_had_zeroed() {
    let pool = FramePool::new(1, 2, 64);
    let core = CoreId::new(0);
    for _ in 0..4 {
        let mut frame = Frame::zeroed();
        frame.bytes_mut().fill(7);
        pool.give(core, frame);
    }
    assert_eq!(pool.take(core, Fill::Any).bytes()[0], 7);
    assert!(
        pool.take(core, Fill::Zero)
            .bytes()
            .iter()
            .all(|&byte| byte == 0)
    );
    assert_eq!(
        pool.take(core, Fill::Any).bytes()[0],
        0,
        "the pool kept two"
    );
}

proptest! {}

#[cfg(dure_backend = "sim")]
mod schedules {
    use dure_sync::sim::{Config, seeds, try_run};
    use dure_sync::thread;

    use super::*;

    /// Two tasks write to different parts of a clean page under the shared inode lock. A task that
    /// finds it dirty may return from its write, and its fsync must not find the file clean.
    #[test]
    fn sim_a_page_that_is_seen_dirty_is_counted() {
        for seed in seeds(300) {
            let run = try_run(Config::random(2, seed), || {
                let mut store = PageStore::default();
                store.insert_new(3, Frame::zeroed());
                let write = || {
                    let newly = store.get_dirty(3).is_none() && store.set_dirty(3);
                    assert!(!store.is_clean(), "a write that an fsync would miss");
                    u64::from(newly)
                };
                let blocks = thread::scope(|scope| {
                    let other = scope.spawn(write);
                    write() + other.join().unwrap()
                });
                assert_eq!((blocks, store.dirty()), (1, 1), "one block for the page");
            });
            assert!(run.is_ok(), "{run:?}");
        }
    }

    /// Tasks put the same and neighbouring pages in under the shared inode lock, into chunks and
    /// rows that are there and others: each page is there once, with the bytes of one of them, and
    /// a task that came too late has its frame back and finds the page.
    #[test]
    fn sim_pages_that_several_tasks_put_in_are_there_once() {
        const PLACES: [u64; 5] = [3, 4, 11, 70, 4200];
        for seed in seeds(300) {
            let run = try_run(Config::random(3, seed), || {
                let mut store = PageStore::default();
                PLACES.iter().for_each(|&page| store.make_place(page));
                store.insert_new(5, Frame::zeroed());
                let put_in = |fill: u8| {
                    let mut came = 0;
                    for page in PLACES {
                        let mut frame = Frame::zeroed();
                        frame.bytes_mut().fill(fill);
                        match store.insert(page, frame, Origin::Block) {
                            Ok(()) => came += 1,
                            Err(frame) => assert_eq!(frame.bytes()[7], fill, "another frame"),
                        }
                        let there = store.get(page).expect("it is there for who put it in");
                        assert!((1..=3).contains(&byte(there, 100)));
                    }
                    came
                };
                let came: usize = thread::scope(|scope| {
                    let put_in = &put_in;
                    let others = [1, 2].map(|fill| scope.spawn(move || put_in(fill)));
                    let own = put_in(3);
                    let others = others.into_iter().map(|other| other.join().unwrap());
                    others.sum::<usize>() + own
                });
                assert_eq!(came, PLACES.len(), "each page came once");
                assert_eq!(store.present(), 1 + dure_store::units::to_u64(PLACES.len()));
                let found: Vec<_> =
                    std::iter::successors(store.next_present(0..u64::MAX), |&page| {
                        store.next_present(page + 1..u64::MAX)
                    })
                    .collect();
                assert_eq!(found, [3, 4, 5, 11, 70, 4200]);
                let mut frames = 0;
                store.remove_range(0..u64::MAX, |_, _| frames += 1);
                assert_eq!((frames, store.present()), (6, 0));
            });
            assert!(run.is_ok(), "{run:?}");
        }
    }
}
