//! The kinds of bugs that Chipmunk found in file systems for persistent memory, each looked for on
//! a volume without a page cache, where calls are durable when they return, and beside a disk.
//!
//! On other media: `dure sim crash --suite chipmunk --mount ... --media ...`.

use dure_block::record::LostStores;
use dure_fs::NodeLog;
use dure_sim::crash::campaign::{Campaign, Tally};
use dure_sim::crash::chipmunk::{self, Class};
use dure_sim::crash::{On, Options};
use dure_sync::canary::Rule;

fn run(class: &'static Class, options: Options) -> Tally {
    let campaign = Campaign::chipmunk(&[class], 1, options);
    let mut tally = Tally::default();
    while campaign.batch(&mut tally) {}
    tally
}

fn beside_a_disk() -> Options {
    Options {
        media: On::Hybrid(NodeLog::Nvm),
        ..Options::default()
    }
}

#[track_caller]
fn never(class: &'static Class) {
    for options in [Options::direct(), beside_a_disk()] {
        let tally = run(class, options);
        let first = tally.violations.first().map(ToString::to_string);
        let first = first.or(tally.failures.first().cloned());
        assert_eq!(first, None, "{}", class.name);
        assert!(tally.counts.states > 10 * tally.counts.workloads);
    }
}

#[test]
fn chipmunk_a_new_inode_can_be_read() {
    never(&chipmunk::NEW_INODE);
}

#[test]
fn chipmunk_a_rename_leaves_one_name() {
    never(&chipmunk::RENAME);
}

#[test]
fn chipmunk_link_counts_are_right() {
    never(&chipmunk::LINK_COUNT);
}

#[test]
fn chipmunk_a_removal_leaves_nothing() {
    never(&chipmunk::REMOVAL);
}

#[test]
fn chipmunk_two_descriptors_of_one_file() {
    never(&chipmunk::TWO_DESCRIPTORS);
}

#[test]
fn chipmunk_truncates_mixed_with_allocations() {
    never(&chipmunk::CUT_AND_ALLOCATE);
}

#[test]
fn chipmunk_writes_that_are_not_aligned_to_words() {
    never(&chipmunk::UNALIGNED);
}

#[test]
fn chipmunk_a_write_is_there_wholly_or_not_at_all() {
    never(&chipmunk::ATOMIC);
}

/// A class finds nothing with all rules, as the tests above say, and something after `change`.
#[track_caller]
fn must_notice(class: &'static Class, change: impl FnOnce(&mut Options)) {
    let mut options = Options::direct();
    change(&mut options);
    assert!(!run(class, options).is_clean(), "{}", class.name);
}

#[test]
fn canary_chipmunk_without_fences() {
    for class in chipmunk::CLASSES {
        must_notice(class, |options| {
            options.lost_stores = LostStores::Fences;
        });
    }
}

#[test]
fn canary_chipmunk_without_write_backs() {
    must_notice(&chipmunk::NEW_INODE, |options| {
        options.lost_stores = LostStores::WriteBacks;
    });
}

#[test]
fn canary_chipmunk_operations_that_are_not_committed() {
    for class in chipmunk::CLASSES {
        must_notice(class, |options| {
            options.mount.volume_rules.store.strict_joins = Rule::LEFT_OUT;
        });
    }
}
