//! How many pages the table takes: as many as pay.
//!
//! **Problem.** A page in the table saves a device write if it is rewritten or freed before a
//! checkpoint writes it to its block. Otherwise it costs one, by a checkpoint that others may wait
//! for: 64 threads that overwrote 64 MiB page by page lost a third of their rate to 4 MiB of table.
//!
//! **Structure.** From checkpoint to checkpoint the table counts the pages that it spared and those
//! that it refused. If it had no room for some, and spared fewer than the checkpoint had to write,
//! it takes half as many until the next one; otherwise twice as many, up to its bound.
//!
//! # Invariants
//! What it does not take is kept out of the room, so callers look at nothing but the room. Where
//! all data has to go into the log (`data=journal`) nothing is refused, and the table stays open.
//!
//! **On a crash** it begins anew.

use dure_sync::Counter;
use dure_sync::atomic::{AtomicI64, Ordering};

/// The table takes at least one part in this many: these pages tell whether more would pay.
const PART_MIN: i64 = 16;

/// What the table has learned. Relaxed everywhere: `learn` runs under the checkpoint lock.
#[derive(Debug)]
pub(super) struct Admission {
    pages_max: i64,
    /// Pages the table takes.
    open: AtomicI64,
    /// Pages that found no room and were written to their blocks.
    pub(super) refused: Counter,
    refused_before: AtomicI64,
    spared_before: AtomicI64,
}

impl Admission {
    /// The admission of a table of at most `pages_max` pages, which takes them all.
    pub(super) fn new(pages_max: i64) -> Admission {
        Admission {
            pages_max,
            open: AtomicI64::new(pages_max),
            refused: Counter::default(),
            refused_before: AtomicI64::new(0),
            spared_before: AtomicI64::new(0),
        }
    }

    /// A checkpoint has found `placed` pages to write, and the table has spared `spared` up to now.
    /// Returns by how many pages the room grows.
    pub(super) fn learn(&self, spared: i64, placed: i64) -> i64 {
        let refused = self.refused.sum();
        let refused_now = refused - self.refused_before.swap(refused, Ordering::Relaxed);
        let spared_now = spared - self.spared_before.swap(spared, Ordering::Relaxed);
        let open = self.open.load(Ordering::Relaxed);
        let next = if refused_now > 0 && spared_now < placed {
            (open / 2).max(self.pages_max / PART_MIN).max(1)
        } else {
            (open * 2).max(1)
        };
        let next = next.min(self.pages_max);
        self.open.store(next, Ordering::Relaxed);
        assert!(
            (0..=self.pages_max).contains(&next),
            "the table takes {next} pages"
        );
        next - open
    }
}
