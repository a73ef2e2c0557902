//! Logs from which the medium has lost one block: recovery refuses what can be proved missing.
//!
//! **Invariant.** Of every transaction that a later one of its journal calls durable, the loss is
//! noticed. Where the logs hold no such proof they end before the lost transaction, and what is
//! recovered is consistent, except that an operation may stay that only read what is lost
//! (docs/design/durability.md, "What the medium loses from a log").

use crate::support::buffers::TestRules;
use crate::support::disk::segment_at;
use crate::support::medium::queue_on;
use crate::support::power::Effort;
use crate::support::recover::{Recovered, read};
use crate::support::script::{Mix, Run, random_step, seeds};
use dure_block::Lba;
use dure_block::ram::{Image, SharedBlock};
use dure_journal::recovery::Scan;
use dure_sync::random::Seeded;

const JOURNALS: usize = 2;
const SEGMENTS: u64 = 12;
const SCRIPT: Mix = Mix {
    steps: 60,
    note_max: 1500,
    checkpoints: false,
    reboots: false,
    grow: false,
};

fn recover(image: &Image) -> Result<Recovered, String> {
    read(&queue_on(image.clone()), TestRules::default(), 1)
}

/// The blocks of the rings that were written.
fn log_blocks(image: &Image) -> Vec<Lba> {
    let rings = (0..).step_by(16).take(JOURNALS);
    let segments = rings.flat_map(|first| first..first + SEGMENTS);
    let blocks = segments.flat_map(|segment| (0..8).map(move |n| segment_at(segment).offset(n)));
    blocks.filter(|at| image.get(*at).is_some()).collect()
}

/// Whether a transaction of `whole` says of an earlier one of its journal, which is not in `left`,
/// that it was durable.
fn is_provably_lost(whole: &Scan, left: &Scan) -> bool {
    let all = whole.transactions();
    (0..JOURNALS).any(|journal| {
        let of = |scan: &Scan| {
            let found = scan.transactions().iter();
            found
                .filter(|found| found.journal.index() == journal)
                .count()
        };
        let kept = of(left);
        let mut log = all.iter().filter(|found| found.journal.index() == journal);
        let lost = log.nth(kept);
        lost.is_some_and(|lost| log.any(|later| later.durable_upto >= lost.first))
    })
}

#[test]
fn a_lost_block_of_a_log_is_refused_or_was_not_known_to_be_durable() {
    let (mut refused, mut gaps, mut shorter, mut same) = (0, 0, 0, 0);
    for seed in 0..seeds(30) {
        let mut random = Seeded::new(seed);
        let mut run = Run::new(JOURNALS, SEGMENTS, TestRules::default(), Effort::default());
        for _ in 0..SCRIPT.steps {
            run.step(random_step(&mut random, JOURNALS, SCRIPT))
                .unwrap();
        }
        let image = run.buffers.faulty_image();
        let mut truth = run.buffers.truth.lock().clone();
        // A reader carries no mark of what was valid when it read.
        let operations = truth.operations.iter_mut();
        operations.for_each(|operation| operation.read_from.clear());
        let whole = recover(&image).unwrap().scan;
        for at in log_blocks(&image) {
            let mut damaged = image.clone();
            let mut bytes = image.get(at).unwrap().bytes().to_vec();
            bytes[random.index(64)] ^= 1 << random.below(8);
            damaged.set(at, SharedBlock::new(&bytes));
            match recover(&damaged) {
                Err(what) => {
                    // Or a granule lacks a version, and the writer of the next one carries no mark,
                    // because the lost one was already valid then.
                    let gap = what.contains("applied to");
                    assert!(
                        what.contains("has a hole") || gap,
                        "seed={seed} {at}: {what}"
                    );
                    refused += 1;
                    gaps += usize::from(gap);
                }
                Ok(left) => {
                    let silent = is_provably_lost(&whole, &left.scan);
                    assert!(!silent, "seed={seed} {at}: lost without a word");
                    // Step 0: nothing was promised then. Consistent it must be.
                    let judged = truth.judge(0, &left);
                    judged.unwrap_or_else(|what| panic!("seed={seed} {at}: {what}"));
                    if left.scan.transactions().len() < whole.transactions().len() {
                        shorter += 1;
                    } else {
                        same += 1;
                    }
                }
            }
        }
    }
    println!(
        "{refused} refused ({gaps} by a gap of versions), {shorter} ended earlier, {same} had nothing to lose"
    );
    assert!(refused > 100 && shorter > 10, "{refused} {shorter}");
}
