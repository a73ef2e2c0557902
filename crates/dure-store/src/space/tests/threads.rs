//! Real threads.

use super::*;
use crate::units::BlockNo;
use dure_sync::atomic::{AtomicBool, Ordering};
use dure_sync::thread;

/// Each thread takes, places, frees and releases on a core of its own, while another one changes
/// what is promised; at the end nothing is lost and nothing was given twice.
#[test]
fn threads_share_a_volume() {
    let space = empty(2);
    let before = space.statistics();
    let owned = thread::scope(|scope| {
        let work = |number: u16| {
            let space = &space;
            move || {
                let core = core(number);
                let mut owned = Vec::new();
                for round in 0..4000_u32 {
                    let want = 1 + round % 7;
                    if space.reserve(core, want, OpClass::Normal) {
                        let run = space
                            .alloc_data(core, Temperature::Warm, want)
                            .expect("reserved");
                        space.unreserve(core, want - run.count);
                        space.settle([Effect::Live(run)]);
                        owned.push(run);
                    }
                    if round % 3 != 0 && owned.len() > 40 {
                        let index = (round as usize * 31) % owned.len();
                        space.settle([Effect::Free(owned.swap_remove(index))]);
                    }
                }
                owned
            }
        };
        let threads: Vec<_> = (0..3).map(|number| scope.spawn(work(number))).collect();
        for round in 0..2000 {
            space.promise(round % 3 * 50);
        }
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect::<Vec<_>>()
    });
    space.promise(0);
    let mut seen = BTreeSet::new();
    for run in owned.iter().flatten() {
        for block in run.first.0..run.first.0 + u64::from(run.count) {
            assert!(seen.insert(block), "block {block} was given twice");
            assert!(space.is_live(BlockNo(block)));
        }
    }
    let left = space.statistics();
    assert_eq!(
        before.available - left.available,
        u64::try_from(seen.len()).unwrap()
    );
    for run in owned.into_iter().flatten() {
        space.settle([Effect::Free(run)]);
    }
    let after = space.statistics();
    assert_eq!(
        (after.available, after.free),
        (before.available, before.free)
    );
}

/// Two threads race for the last blocks: each block once, and whoever has a reservation gets one.
#[test]
fn the_last_blocks_are_given_out_once() {
    for round in 0..20 {
        let space = empty(2);
        let total = space.statistics().total;
        let taken = thread::scope(|scope| {
            let drain = |number: u16| {
                let space = &space;
                move || {
                    let mut mine = Vec::new();
                    while space.reserve(core(number), 1, OpClass::Delete) {
                        let run = space
                            .alloc_data(core(number), Temperature::Warm, 1)
                            .expect("reserved");
                        mine.push(run.first);
                    }
                    mine
                }
            };
            let threads: Vec<_> = (0..2).map(|number| scope.spawn(drain(number))).collect();
            threads
                .into_iter()
                .flat_map(|thread| thread.join().unwrap())
                .collect::<Vec<_>>()
        });
        let distinct: BTreeSet<_> = taken.iter().collect();
        assert_eq!(distinct.len(), taken.len(), "round {round}");
        assert_eq!(u64::try_from(taken.len()).unwrap(), total, "round {round}");
    }
}

/// A checkpoint collects while others settle: after a last collection the medium has everything.
#[test]
fn collecting_loses_no_change() {
    let space = empty(2);
    let done = AtomicBool::new(false);
    let live = thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let mut live = BTreeSet::new();
            for round in 0..3000 {
                let block = take(&space, 1);
                space.settle([Effect::Live(one(block))]);
                live.insert(block);
                if round % 4 != 0 {
                    let oldest = *live.first().unwrap();
                    live.remove(&oldest);
                    space.settle([Effect::Free(one(oldest))]);
                }
                assert!(live.len() < 1000);
            }
            done.store(true, Ordering::Release);
            live
        });
        let mut checkpoint = 0;
        while !done.load(Ordering::Acquire) {
            checkpoint += 1;
            write(&space, checkpoint);
        }
        worker.join().unwrap()
    });
    write(&space, 1 << 40);
    let loaded = Space::load(
        Arc::clone(&space.region),
        &space.layout,
        space.packs.clone(),
    )
    .unwrap();
    for block in space.layout.main..space.layout.main + space.statistics().total {
        assert_eq!(
            loaded.is_live(BlockNo(block)),
            live.contains(&BlockNo(block))
        );
    }
}
