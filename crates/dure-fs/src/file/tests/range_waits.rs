//! What a task does that finds its range taken: with `range_lock_wait=queue` it waits in order of
//! arrival, with `try` it does not wait for the range.

use std::time::Duration;

use dure_sync::atomic::{AtomicU32, Ordering};
use dure_sync::range_lock::Waits;
use dure_sync::thread;

use super::{World, check, content, file};
use crate::inode::InodeRef;
use crate::volume::{FileSystem, RangeRule};
use crate::{AllocateMode, ReadMode, SetAttributes, Stamp};

const PAGE: u64 = 4096;
/// Policies that lock parts of a file.
const PARTS: [&str; 3] = ["tree", "bitmap", "segment"];

fn world(policy: &str, wait: &str) -> World {
    let mut world = World::new(16384, 8 << 20);
    world.options.volume_rules.ranges = RangeRule::AtOnce;
    for (key, value) in [("range_lock", policy), ("range_lock_wait", wait)] {
        assert_eq!(world.options.set_policy(key, value), Ok(true), "{value}");
    }
    world
}

fn waits(inode: &InodeRef) -> Waits {
    inode.inode().ranges().waits()
}

/// Waits until it holds; gives whether it ever did.
fn soon(holds: impl Fn() -> bool) -> bool {
    let mut rounds = (0..2000).map(|_| thread::sleep(Duration::from_millis(2)));
    holds() || rounds.any(|()| holds())
}

/// A file of 8 pages.
fn shared(fs: &FileSystem) -> InodeRef {
    let inode = file(fs);
    fs.write(&inode, 0, &[1; 8 * 4096], Stamp::Set).unwrap();
    inode
}

fn write(fs: &FileSystem, inode: &InodeRef, value: u8) {
    fs.write(inode, 0, &[value; 4096], Stamp::Set).unwrap();
}

/// A byte of it.
fn read(fs: &FileSystem, inode: &InodeRef, offset: u64) -> u8 {
    let mut byte = [0];
    fs.read(inode, offset, &mut byte, ReadMode::Cached).unwrap();
    byte[0]
}

#[test]
fn a_writer_sleeps_in_the_queue_and_is_woken() {
    for policy in PARTS {
        let world = world(policy, "queue");
        let fs = world.mount();
        let inode = shared(&fs);
        let held = inode.inode().ranges().take(0, 4096).expect("it is free");
        thread::scope(|scope| {
            let writer = scope.spawn(|| write(&fs, &inode, 2));
            assert!(soon(|| waits(&inode).slept == 1), "{policy}: nobody slept");
            let elsewhere = scope.spawn(|| read(&fs, &inode, PAGE));
            assert_eq!(elsewhere.join().unwrap(), 1, "{policy}");
            drop(held);
            writer.join().unwrap();
        });
        assert_eq!(content(&fs, &inode)[..4096], [2; 4096], "{policy}");
        assert_eq!(
            fs.range_waits(),
            Waits {
                queued: 1,
                slept: 1
            },
            "{policy}"
        );
        check(&fs, &inode);
    }
}

#[test]
fn a_writer_that_only_tries_takes_the_inode_instead() {
    for policy in PARTS {
        let world = world(policy, "try");
        let fs = world.mount();
        let inode = shared(&fs);
        let held = inode.inode().ranges().take(0, 4096).expect("it is free");
        thread::scope(|scope| {
            let writer = scope.spawn(|| write(&fs, &inode, 2));
            writer.join().unwrap();
        });
        drop(held);
        assert_eq!(waits(&inode), Waits::default(), "{policy}");
    }
}

#[test]
fn writers_go_in_order_of_arrival() {
    for policy in PARTS {
        let world = world(policy, "queue");
        let fs = world.mount();
        let inode = shared(&fs);
        let held = inode.inode().ranges().take(0, 4096).expect("it is free");
        thread::scope(|scope| {
            for n in 1..=6_u8 {
                let (fs, inode) = (&fs, &inode);
                scope.spawn(move || {
                    if n < 6 {
                        write(fs, inode, n);
                    } else {
                        assert_eq!(read(fs, inode, 0), 5, "{policy}: the reader came last");
                    }
                });
                assert!(soon(|| waits(inode).queued == u64::from(n)), "{policy}");
            }
            drop(held);
        });
        assert_eq!(content(&fs, &inode)[..4096], [5; 4096], "{policy}");
    }
}

/// The words of `segment` and the tree count readers; a bit has one holder.
#[test]
fn readers_hold_their_range_together_and_keep_a_writer_out() {
    for policy in PARTS {
        let world = world(policy, "queue");
        let fs = world.mount();
        let inode = shared(&fs);
        let held = inode.inode().ranges().share(0, 4096).expect("it is free");
        thread::scope(|scope| {
            let reader = scope.spawn(|| read(&fs, &inode, 0));
            if policy == "bitmap" {
                assert!(
                    soon(|| waits(&inode).slept == 1),
                    "{policy}: readers share a bit"
                );
            } else {
                assert_eq!(reader.join().unwrap(), 1);
                assert_eq!(waits(&inode), Waits::default(), "{policy}");
            }
            let before = waits(&inode).slept;
            let writer = scope.spawn(|| write(&fs, &inode, 2));
            assert!(soon(|| waits(&inode).slept == before + 1), "{policy}");
            drop(held);
            writer.join().unwrap();
        });
        assert_eq!(content(&fs, &inode)[..4096], [2; 4096], "{policy}");
    }
}

/// A writer waits for both of two readers: their word counted 2.
#[test]
fn a_writer_waits_for_each_of_two_readers() {
    for policy in ["tree", "segment"] {
        let world = world(policy, "queue");
        let fs = world.mount();
        let inode = shared(&fs);
        let (step, written) = (AtomicU32::new(0), AtomicU32::new(0));
        // Relaxed: the test only waits for it.
        let at = |n| soon(|| step.load(Ordering::Relaxed) >= n);
        let next = || step.fetch_add(1, Ordering::Relaxed);
        thread::scope(|scope| {
            let first = inode.inode().ranges().share(0, 4096).expect("it is free");
            let second = scope.spawn(|| {
                let second = inode
                    .inode()
                    .ranges()
                    .share(0, 4096)
                    .expect("readers share");
                next();
                assert!(at(2));
                drop(second);
            });
            assert!(at(1));
            let writer = scope.spawn(|| {
                write(&fs, &inode, 2);
                written.fetch_add(1, Ordering::Relaxed);
            });
            assert!(soon(|| waits(&inode).slept == 1), "{policy}");
            drop(first);
            thread::sleep(Duration::from_millis(20));
            assert_eq!(
                written.load(Ordering::Relaxed),
                0,
                "{policy}: a reader is left"
            );
            next();
            second.join().unwrap();
            writer.join().unwrap();
        });
        assert_eq!(
            waits(&inode),
            Waits {
                queued: 1,
                slept: 1
            },
            "{policy}"
        );
    }
}

/// Every call that changes or reads data waits for its range.
#[test]
fn all_calls_queue() {
    type Call = fn(&FileSystem, &InodeRef);
    let calls: [Call; 5] = [
        |fs, inode| {
            assert!(
                fs.read(inode, 7 * PAGE, &mut [0; 10], ReadMode::Bypass)
                    .is_ok()
            )
        },
        |fs, inode| assert!(fs.append(inode, &[7]).is_ok()),
        |fs, inode| {
            let size = SetAttributes {
                size: Some(3 * PAGE),
                ..SetAttributes::default()
            };
            assert!(fs.set_attributes(inode, &size).is_ok());
        },
        |fs, inode| {
            let punched = fs.allocate(inode, AllocateMode::Punch, 7 * PAGE, PAGE);
            punched.unwrap();
        },
        |fs, inode| {
            let zeroed = fs.allocate(inode, AllocateMode::Zero, 7 * PAGE + 5, 3 * PAGE);
            zeroed.unwrap();
        },
    ];
    for policy in PARTS {
        for (number, call) in calls.iter().enumerate() {
            let world = world(policy, "queue");
            let fs = world.mount();
            let inode = shared(&fs);
            let held = inode.inode().ranges().take(7 * PAGE, 1 << 20);
            thread::scope(|scope| {
                let caller = scope.spawn(|| call(&fs, &inode));
                let sleeps = soon(|| waits(&inode).slept > 0);
                assert!(sleeps, "{policy}: call {number} does not wait");
                drop(held);
                caller.join().unwrap();
            });
            check(&fs, &inode);
        }
    }
}

#[test]
fn where_tasks_queue_a_file_has_a_range_lock_from_the_first_call_on() {
    for (policy, wait) in PARTS.map(|policy| (policy, "queue")) {
        let mut world = world(policy, wait);
        world.options.volume_rules.ranges = RangeRule::WhenContended;
        let fs = world.mount();
        let inode = file(&fs);
        assert!(!inode.inode().ranges().are_locked());
        fs.read(&inode, 0, &mut [0; 10], ReadMode::Cached).unwrap();
        assert!(inode.inode().ranges().are_locked(), "{policy}");
    }
    for policy in ["inode", "rwsem"] {
        let world = world(policy, "queue");
        let fs = world.mount();
        let inode = shared(&fs);
        fs.read(&inode, 0, &mut [0; 10], ReadMode::Cached).unwrap();
        assert!(!inode.inode().ranges().are_locked(), "{policy}");
    }
}
