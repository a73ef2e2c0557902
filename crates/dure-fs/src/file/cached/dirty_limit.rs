//! How many pages may be dirty, and how writers slow down before that.
//!
//! **Problem.** A writer is faster than the device. Without a limit it fills memory with dirty
//! pages, and then waits in one call for a whole file to be written. **Structure.** The dirty pages
//! of each partition are counted ([`DirtyCounts`]). Three marks, for all partitions together and
//! for each its part:
//!
//! | dirty pages | the partition's worker | a writer |
//! |---|---|---|
//! | up to *background*, half of the limit | writes back when the commit interval is over | is free |
//! | up to *free*, three quarters | writes back until it is below | is free |
//! | more | the same | pays for each page it makes dirty, and sleeps when it owes a millisecond |
//!
//! The price of a page is what writing back one takes the partition (measured), times x / (1 - x),
//! where x is the part of *free* .. *limit* that is used: half way a writer is as fast as
//! write-back, so the number stays there; and nearer to the limit if write-back becomes slower than
//! measured. What tasks of a partition owe is one sum, so their number does not matter.
//! Both marks count, the partition's and that of all: a partition may use what others leave, and
//! one that is below its own mark never pays for others. (Linux: `balance_dirty_pages`, with a
//! limit per device; its pauses are not longer than [`PAUSE_MAX_NS`], too.)
//!
//! # Lines
//! A step that makes pages dirty counts them on a line of its partition, which it shares with the
//! partition's worker only. Above its mark it looks at the counts of the others, once in some dozen
//! pages.
//!
//! **Invariants.** No lock of an inode is held while a writer sleeps. **On a crash** nothing
//! remains.

use std::time::Duration;

use dure_store::units::to_u64;
use dure_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use dure_sync::{CoreId, Mutex, PerCore, clock, thread};

use super::dirty_count::DirtyCounts;
use crate::file::Files;
use crate::file::state::FileState;
use crate::ranks::DIRTY_METER;

/// Smallest limit for which writers slow down, in pages.
const LIMIT_MIN: u64 = 256;
/// Each partition may have so many dirty pages, whatever its part of the limit is.
const PART_MIN: u64 = 64;
/// Pages that tasks of a partition make dirty between two looks at the counts of all.
const STRIDE: u64 = 32;
/// Pages per second that a partition is taken to write before it was measured.
const FIRST_RATE: u64 = 25_600;
/// Rates below count as this: a writer of a device that hangs must not sleep for ever.
const RATE_MIN: u64 = 16;
/// How long write-back is measured for one sample.
const SAMPLE_NS: u64 = 20_000_000;
/// What tasks may owe before one sleeps: shorter sleeps are not exact.
const DEBT_NS: u64 = 1_000_000;
/// The longest sleep of one step.
const PAUSE_MAX_NS: u64 = 200_000_000;
const SECOND_NS: u64 = 1_000_000_000;
/// Thousandths of *free* .. *limit* that count at most.
const USED_MAX: u64 = 999;

/// Marks, in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Marks {
    background: u64,
    free: u64,
    limit: u64,
}

impl Marks {
    fn of(limit: u64) -> Marks {
        let (background, free) = (limit / 2, limit / 4 * 3);
        assert!(background < free && free < limit, "marks are in order");
        Marks {
            background,
            free,
            limit,
        }
    }

    /// Thousandths of *free* .. *limit* that `pages` use.
    fn used(self, pages: u64) -> u64 {
        let over = pages.saturating_sub(self.free);
        (over * 1000 / (self.limit - self.free)).min(USED_MAX)
    }
}

/// Marks of a volume whose writers slow down.
#[derive(Clone, Copy, Debug)]
struct Limits {
    all: Marks,
    part: Marks,
    stride: u64,
}

/// What is measured of a partition's write-back.
#[derive(Debug, Default)]
struct Meter {
    /// Write-back goes on since then, and has written so many pages; `None`: it rests.
    since: Option<(u64, u64)>,
}

#[derive(Debug, Default)]
struct Partition {
    /// Pages made dirty since a task looked at the counts of all. Relaxed: a count that publishes
    /// nothing.
    unpaid: AtomicU64,
    /// When what the tasks owe is paid. Relaxed, as `unpaid`.
    paid_ns: AtomicU64,
    /// The worker was asked to write back, and has not begun. Relaxed: the worker's own lock orders
    /// it; a task that reads an old value asks once more, or at its next look.
    asked: AtomicBool,
    /// Pages per second that write-back does; 0: not measured. Relaxed, as `unpaid`.
    rate: AtomicU64,
    meter: Mutex<DIRTY_METER, Meter>,
}

/// Pages that a step has made dirty.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub(super) struct Dirtied {
    core: CoreId,
    pages: u64,
    /// Dirty pages of the partition, with these, as far as the task's own partition knows.
    now: u64,
}

/// The dirty pages of all partitions.
#[derive(Debug)]
pub(crate) struct DirtyPages {
    counts: DirtyCounts,
    partitions: PerCore<Partition>,
    limits: Option<Limits>,
}

impl DirtyPages {
    /// For `cores` partitions; `limit`: pages of all, `None` if writers do not slow down.
    pub(super) fn new(cores: usize, limit: Option<u64>) -> DirtyPages {
        let cores_u64 = to_u64(cores);
        let limits = limit.filter(|&limit| limit >= LIMIT_MIN).map(|all| Limits {
            all: Marks::of(all),
            part: Marks::of((all / cores_u64).max(PART_MIN)),
            stride: STRIDE.max(cores_u64),
        });
        DirtyPages {
            counts: DirtyCounts::new(cores),
            partitions: PerCore::new(cores, |_| Partition::default()),
            limits,
        }
    }

    /// A step of a task of partition `by` has made `pages` pages of this file dirty. The caller
    /// holds the inode.
    #[inline]
    pub(super) fn charge(&self, by: CoreId, file: &FileState, pages: u32) -> Option<Dirtied> {
        if pages == 0 {
            return None;
        }
        let core = file.dirty_on.expect("an inode with dirty pages is listed");
        let now = self.counts.add(by, core, pages.into());
        let pages = pages.into();
        Some(Dirtied { core, pages, now })
    }

    /// A task of partition `by` has written back `pages` pages of this file, or dropped them. The
    /// caller holds the inode.
    #[inline]
    pub(super) fn release(&self, by: CoreId, file: &FileState, pages: u32) {
        if pages > 0 {
            let core = file.dirty_on.expect("an inode with dirty pages is listed");
            self.counts.add(by, core, -i64::from(pages));
        }
    }

    fn at(&self, core: CoreId) -> &Partition {
        self.partitions.get(core)
    }

    /// Whether the worker of this partition is to write back before the interval is over.
    pub(super) fn is_over(&self, core: CoreId) -> bool {
        self.limits.is_some_and(|limits| {
            self.counts.of(core) > limits.part.background
                && self.counts.all() > limits.all.background
        })
    }

    /// The worker begins to write a partition back, or goes on: it is measured.
    pub(super) fn begin(&self, core: CoreId) {
        let mut meter = self.at(core).meter.lock();
        meter
            .since
            .get_or_insert_with(|| (clock::monotonic_ns(), 0));
    }

    /// The worker has nothing to write back for a partition.
    pub(super) fn end(&self, core: CoreId) {
        self.at(core).meter.lock().since = None;
    }

    /// Write-back has written `pages` pages for a partition.
    pub(super) fn written(&self, core: CoreId, pages: u64) {
        let partition = self.at(core);
        let marks = self.limits.map(|limits| limits.part.background / 2);
        // What is written while there is little to write does not say what could be.
        if marks.is_none_or(|low| self.counts.of(core) <= low) {
            return;
        }
        let mut meter = partition.meter.lock();
        let Some((since, before)) = meter.since else {
            return;
        };
        let (now, pages) = (clock::monotonic_ns(), before + pages);
        meter.since = Some((since, pages));
        let ns = now.saturating_sub(since);
        if ns >= SAMPLE_NS {
            let sample = rate(pages, ns);
            let old = partition.rate.load(Ordering::Relaxed);
            let new = if old == 0 {
                sample
            } else {
                (3 * old + sample) / 4
            };
            partition.rate.store(new.max(RATE_MIN), Ordering::Relaxed);
            meter.since = Some((now, 0));
        }
    }

    /// Nanoseconds that write-back needs for `pages` pages of a partition.
    fn write_back_ns(&self, core: CoreId, pages: u64) -> u64 {
        let rate = match self.at(core).rate.load(Ordering::Relaxed) {
            0 => FIRST_RATE,
            rate => rate,
        };
        pages * SECOND_NS / rate
    }

    /// Nanoseconds that a step owes for `pages` pages at `used` thousandths.
    fn price(&self, core: CoreId, pages: u64, used: u64) -> u64 {
        self.write_back_ns(core, pages) * used / (1000 - used)
    }

    /// Adds `price` to what the partition's tasks owe, which is not more than `most` then; returns
    /// how long to sleep, if that is to be.
    fn owe(&self, core: CoreId, price: u64, most: u64) -> Option<u64> {
        let now = clock::monotonic_ns();
        let most = now + most.min(PAUSE_MAX_NS);
        let owe = |paid: u64| Some((paid.max(now) + price).min(most));
        let before = self
            .at(core)
            .paid_ns
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, owe)
            .expect("the sum is always changed");
        let debt = owe(before).map_or(0, |paid| paid.saturating_sub(now));
        (debt >= DEBT_NS).then_some(debt)
    }
}

/// Pages per second.
fn rate(pages: u64, ns: u64) -> u64 {
    let rate = u128::from(pages) * u128::from(SECOND_NS) / u128::from(ns.max(1));
    u64::try_from(rate).unwrap_or(u64::MAX)
}

impl Files {
    /// Slows down a writer that has made pages dirty, if there are many. The caller holds no lock
    /// of an inode.
    #[inline]
    pub(super) fn pace(&self, dirtied: Option<Dirtied>) {
        if let (Some(dirtied), Some(limits)) = (dirtied, self.pages.dirty_pages.limits)
            && dirtied.now > limits.part.background
        {
            self.pace_above(dirtied, limits);
        }
    }

    /// Whether a writer may have to sleep for the pages that it makes dirty.
    pub(super) fn writers_pause(&self) -> bool {
        let dirty = &self.pages.dirty_pages;
        dirty.limits.is_some_and(|limits| {
            let own = dirty.counts.of(self.store.partition());
            own > limits.part.free && dirty.counts.all() > limits.all.free
        })
    }

    #[cold]
    fn pace_above(&self, dirtied: Dirtied, limits: Limits) {
        let Dirtied { core, pages, .. } = dirtied;
        let dirty = &self.pages.dirty_pages;
        let unpaid = &dirty.at(core).unpaid;
        if unpaid.fetch_add(pages, Ordering::Relaxed) + pages < limits.stride {
            return;
        }
        let pages = unpaid.swap(0, Ordering::Relaxed);
        let (now, all) = (dirty.counts.of(core), dirty.counts.all());
        if now <= limits.part.background || all <= limits.all.background {
            return;
        }
        if !dirty.at(core).asked.swap(true, Ordering::Relaxed) {
            self.workers.want_write_back(core);
        }
        let used = limits.part.used(now).min(limits.all.used(all));
        let price = dirty.price(core, pages, used);
        // By then the partition is below its mark, if nothing else comes.
        let most = dirty.write_back_ns(core, now.saturating_sub(limits.part.free));
        if price > 0
            && let Some(pause) = dirty.owe(core, price, most)
        {
            self.pages.counters.pauses.add(1);
            thread::sleep(Duration::from_nanos(pause));
        }
    }

    /// Dirty pages of a partition, and those in write-back.
    pub(crate) fn dirty_pages(&self, core: CoreId) -> u64 {
        self.pages.dirty_pages.counts.of(core)
    }

    /// [`Body::write_back_over`](crate::file::body::Body::write_back_over).
    pub(in crate::file) fn write_back_over(&self, core: CoreId, pages: &mut u64) -> bool {
        let dirty = &self.pages.dirty_pages;
        // First: a task that asks from now on asks for another look.
        dirty.at(core).asked.store(false, Ordering::Relaxed);
        dirty.counts.gather(core);
        if !dirty.is_over(core) {
            dirty.end(core);
            return false;
        }
        dirty.begin(core);
        // A failure is reported by an fsync of its file.
        let written = self.write_back_some_of(core, dirty.counts.of(core), &mut None);
        *pages += written;
        let more = written > 0 && dirty.is_over(core);
        if !more {
            dirty.end(core);
        }
        more
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_price_grows_with_the_excess_and_has_no_step() {
        let dirty = DirtyPages::new(2, Some(4000));
        let core = CoreId::new(0);
        let marks = dirty.limits.unwrap().part;
        assert_eq!(
            (marks.background, marks.free, marks.limit),
            (1000, 1500, 2000)
        );
        let price = |pages| dirty.price(core, 1, marks.used(pages));
        assert_eq!(price(1500), 0, "free up to the mark");
        assert_eq!(
            price(1750),
            SECOND_NS / FIRST_RATE,
            "half way as fast as write-back"
        );
        assert_eq!(price(1900), 4 * (SECOND_NS / FIRST_RATE));
        let steps = (1500..1900).map(|pages| price(pages + 1) - price(pages));
        assert!(steps.max().unwrap() < SECOND_NS / FIRST_RATE / 10);
        assert!(price(2000) > 100 * price(1750) && price(3000) == price(2000));
        dirty.at(core).rate.store(FIRST_RATE * 4, Ordering::Relaxed);
        assert_eq!(price(1750), SECOND_NS / (4 * FIRST_RATE), "as measured");
        assert!(DirtyPages::new(2, Some(LIMIT_MIN - 1)).limits.is_none());
    }

    #[test]
    fn tasks_of_a_partition_owe_one_sum() {
        let dirty = DirtyPages::new(1, Some(4000));
        let core = CoreId::new(0);
        let owe = |price| dirty.owe(core, price, u64::MAX / 2);
        assert_eq!(owe(DEBT_NS / 4), None, "too short to sleep");
        let second = owe(DEBT_NS).unwrap();
        let third = owe(50 * DEBT_NS).unwrap();
        assert!(third > second + 40 * DEBT_NS, "{second} {third}");
        assert_eq!(owe(1000 * PAUSE_MAX_NS), Some(PAUSE_MAX_NS), "the longest");
        let most = 3 * DEBT_NS;
        assert_eq!(dirty.owe(core, DEBT_NS, most), Some(most), "not for ever");
    }
}
