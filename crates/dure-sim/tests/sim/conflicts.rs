//! The report of conflicts: it counts what it should, and the share of pairs that have none does
//! not fall.
//!
//! Runs with the sim backend only: `cargo xtask sim -p dure-sim -- sim_conflicts`. All pairs:
//! `cargo xtask sim conflicts`.

use dure_sim::conflicts::{Call, Options, Side, Survey, acts, survey};
use dure_sync::atomic::{AtomicU64, Ordering};

/// Conflict-free pairs of 10 000 in the sample: what docs/design/scaling.md has reached.
const SHARE_MIN: u64 = 9_700;

fn run(options: &Options) -> Survey {
    survey(options, |_, _| ())
}

/// The survey of the one pair with this text.
fn one(pair: &str, beside: Option<fn()>) -> Survey {
    let options = Options {
        only: pair.to_owned(),
        beside,
        ..Options::default()
    };
    let found = run(&options);
    assert_eq!(found.pairs + found.ordered, 1, "{pair}");
    assert_eq!(found.wrong, Vec::<String>::new());
    found
}

#[test]
fn sim_conflicts_a_sample_of_all_pairs_is_as_free_as_it_was() {
    let every = 29;
    let options = Options {
        every,
        threads: 2,
        ..Options::default()
    };
    let found = run(&options);
    assert_eq!(found.wrong, Vec::<String>::new());
    let every = u64::try_from(every).expect("small");
    assert!(found.pairs * every >= 2_000, "{} pairs", found.pairs);
    let pairs: Vec<&String> = found.exceptions.iter().map(|one| &one.pair).collect();
    assert!(
        found.share() >= SHARE_MIN,
        "{} of 10000 pairs are free, were {SHARE_MIN}; these are not: {pairs:#?}",
        found.share()
    );
}

#[test]
fn sim_conflicts_every_call_is_there_on_both_sides() {
    for side in [Side::First, Side::Second] {
        let acts = acts(side);
        let missing = |call: &&Call| !acts.iter().any(|act| act.call == **call);
        assert_eq!(Call::ALL.iter().find(missing), None);
        for (index, act) in acts.iter().enumerate() {
            let same = |other: &&dure_sim::conflicts::Act| other.text == act.text;
            assert_eq!(acts[index + 1..].iter().find(same), None, "named twice");
        }
    }
}

#[test]
fn sim_conflicts_the_model_says_what_commutes() {
    let commutes = |pair: &str| one(pair, None).pairs == 1;
    assert!(commutes(
        "open /a/x O_CREAT|O_EXCL | open /a/y O_CREAT|O_EXCL"
    ));
    assert!(!commutes(
        "open /a/x O_CREAT|O_EXCL | open /a/x O_CREAT|O_EXCL"
    ));
    assert!(commutes("mkdir /a/f | mkdir /a/f"), "both fail");
    assert!(!commutes("unlink /a/k | unlink /a/k"));
    assert!(!commutes("unlink /a/k | stat /b/h"), "the count of links");
    assert!(commutes("unlink /a/f | stat /a/g"));
    assert!(
        !commutes("stat /a/f | chmod /a/f same mode"),
        "the time of the change"
    );
    assert!(commutes("pwrite /a/f page 1 | pwrite /a/f page 2"));
    assert!(!commutes("pwrite /a/f page 1 | pwrite /a/f page 1"));
    assert!(
        !commutes("pwrite /a/f page 1 | fsync /a/f clean"),
        "what is promised"
    );
    assert!(commutes("pwrite /a/f page 1 | fsync /a/g clean"));
    assert!(!commutes("append /a/f | append /a/f"));
    assert!(
        !commutes("read /a/f of both | read /a/f of both"),
        "the position"
    );
}

#[test]
fn sim_conflicts_what_changes_nothing_or_only_memory_shares_nothing() {
    for pair in [
        "chmod /a/f same mode | chmod /a/f same mode",
        "chmod /a/f same mode | fallocate /a/f zero",
        "truncate /a/f shorter | setxattr /a/f n",
        "link /a/f /a/x | fallocate /a/f punch",
        "getxattr /a/f a | setxattr /a/f a",
        "chmod /a/f other mode | fallocate /a/f in a hole",
        "rename /a/f /a/g | fallocate /a/g behind the end",
        "lseek /a/f of both SEEK_END | lseek /a/f of both SEEK_END",
    ] {
        let found = one(pair, None);
        assert_eq!(found.conflict_free, 1, "{pair}: {:#?}", found.exceptions);
    }
}

fn nothing() {}

/// What the canary writes.
static SHARED: AtomicU64 = AtomicU64::new(0);

fn count_together() {
    // Relaxed: a count.
    SHARED.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn sim_conflicts_canary_a_shared_counter_is_seen() {
    let pair = "pread /a/f page 1 | pread /b/f page 1";
    assert_eq!(one(pair, None).conflict_free, 1);
    assert_eq!(one(pair, Some(nothing)).conflict_free, 1);
    let found = one(pair, Some(count_together));
    assert_eq!((found.pairs, found.conflict_free), (1, 0));
    let lines = &found.exceptions[0].lines;
    assert_eq!(lines.len(), 1, "{lines:#?}");
    assert!(lines[0].class.ends_with("count_together"), "{lines:#?}");
    assert!(lines[0].uses.iter().all(|one| one.access == "Update"));
}

#[test]
fn sim_conflicts_a_pair_gives_the_same_twice() {
    let pair = "mkdir /a/x | mkdir /a/y";
    assert!(one(pair, None) == one(pair, None), "not the same lines");
}
