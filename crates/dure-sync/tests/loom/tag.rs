//! The tags of the block layer, whose source this compiles as it is.
//!
//! The owner of the only tag adds to a word by a load and a store; a count is lost if a next owner
//! does not see what the last one did, and the model never ends if a waiter is not handed a tag.

use dure_sync::atomic::{AtomicU32, Ordering};
use dure_sync::{Arc, thread};

use super::{BOTH, check, explore_with};

#[path = "../../../dure-block/src/queue/tag.rs"]
#[expect(dead_code, reason = "the model needs a part of it")]
mod tag_set;

use tag_set::TagSet;

/// Takes the only tag and adds 1 as its owner.
fn add(tags: &TagSet, count: &AtomicU32) {
    let tag = tags.take_now(0).unwrap_or_else(|| tags.wait(0, || 0));
    // Relaxed: the tag orders its owners; that is what the model is about.
    let now = count.load(Ordering::Relaxed);
    count.store(now + 1, Ordering::Relaxed);
    tags.release(tag);
}

fn owners(tasks: u32) {
    let (tags, count) = (Arc::new(TagSet::new(1, 1)), Arc::new(AtomicU32::new(0)));
    let others: Vec<_> = (1..tasks)
        .map(|_| {
            let (tags, count) = (Arc::clone(&tags), Arc::clone(&count));
            thread::spawn("owner", move || add(&tags, &count))
        })
        .collect();
    add(&tags, &count);
    for other in others {
        other.join().unwrap();
    }
    assert_eq!(count.load(Ordering::Relaxed), tasks);
    assert_eq!(tags.in_flight(), 0);
    assert!(tags.take_now(0).is_some(), "nobody waits any more");
}

#[test]
fn owners_of_a_tag_follow_each_other() {
    check(|| owners(2), BOTH);
}

#[test]
fn two_waiters_each_get_the_tag() {
    explore_with(1, || owners(3));
}
