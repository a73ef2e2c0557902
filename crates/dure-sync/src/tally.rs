//! Statistics that one task at a time writes and any task reads.
//!
//! **Problem.** Numbers under a lock that is held over I/O cannot be read while the device hangs,
//! which is when people look. A read-modify-write for each of them costs more than the work it
//! counts. **Structure.** [`Tally`]: a word. [`Tally::add`] is a load and a store, for writers that
//! a lock (or running on one core) serializes; [`Tally::add_shared`] is for others. [`Histogram`]:
//! tallies by powers of two. **Invariants.** A tally orders nothing and decides nothing: so all
//! accesses are relaxed, and the backends `loom` and `sim` do not see them (no schedule depends on
//! them), except for the latter's watch, which reports which cores share a line. A read lies
//! between two true values of that one tally; two tallies need not fit each other. **Crash.** They
//! start at zero.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::backend;

/// A number that is only displayed. Relaxed everywhere: a statistic publishes nothing.
#[derive(Debug, Default)]
pub struct Tally(AtomicU64);

impl Tally {
    /// Starts at `value`.
    #[must_use]
    pub const fn new(value: u64) -> Self {
        Self(AtomicU64::new(value))
    }

    /// Adds `count`. Only one task at a time may do so; what another adds concurrently is lost.
    #[inline]
    pub fn add(&self, count: u64) {
        self.changes();
        let sum = self.0.load(Ordering::Relaxed).wrapping_add(count);
        self.0.store(sum, Ordering::Relaxed);
    }

    /// Adds `count`; any number of tasks may do so.
    #[inline]
    pub fn add_shared(&self, count: u64) {
        self.changes();
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// Raises it to `value` if it is lower; returns what it was. Any number of tasks may do so.
    #[inline]
    pub fn raise(&self, value: u64) -> u64 {
        self.changes();
        self.0.fetch_max(value, Ordering::Relaxed)
    }

    /// Replaces it.
    #[inline]
    pub fn set(&self, value: u64) {
        self.changes();
        self.0.store(value, Ordering::Relaxed);
    }

    #[inline]
    fn changes(&self) {
        backend::statistic_changes(std::ptr::from_ref(self).addr());
    }

    /// As it is.
    #[inline]
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Buckets of a histogram: the last one holds everything from 2^38 (4.6 minutes in nanoseconds) on.
pub const HISTOGRAM_BUCKETS: usize = 40;

/// How often a number fell between two powers of two, and the sum of all.
#[derive(Debug)]
pub struct Histogram {
    sum: Tally,
    buckets: [Tally; HISTOGRAM_BUCKETS],
}

impl Histogram {
    /// An empty one.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            sum: Tally::new(0),
            buckets: [const { Tally::new(0) }; HISTOGRAM_BUCKETS],
        }
    }

    /// Counts `value`. Only one task at a time may do so.
    #[inline]
    pub fn count(&self, value: u64) {
        self.sum.add(value);
        self.buckets[bucket_of(value)].add(1);
    }

    /// Counts `value`; any number of tasks may do so.
    #[inline]
    pub fn count_shared(&self, value: u64) {
        self.sum.add_shared(value);
        self.buckets[bucket_of(value)].add_shared(1);
    }

    /// As it is.
    #[must_use]
    pub fn get(&self) -> HistogramCounts {
        let mut counts = HistogramCounts {
            sum: self.sum.get(),
            ..HistogramCounts::default()
        };
        for (out, bucket) in counts.buckets.iter_mut().zip(&self.buckets) {
            *out = bucket.get();
        }
        counts
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

/// Bucket 0 holds 0, bucket n holds 2^(n-1) up to below 2^n.
#[inline]
fn bucket_of(value: u64) -> usize {
    let bits = u64::BITS - value.leading_zeros();
    usize::try_from(bits)
        .expect("a number of bits is at most 64")
        .min(HISTOGRAM_BUCKETS - 1)
}

/// What a histogram held when it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistogramCounts {
    /// The sum of all values.
    pub sum: u64,
    /// Bucket 0 counts zeros, bucket n what is at least 2^(n-1) and below 2^n; the last one all
    /// above.
    pub buckets: [u64; HISTOGRAM_BUCKETS],
}

impl Default for HistogramCounts {
    fn default() -> Self {
        Self {
            sum: 0,
            buckets: [0; HISTOGRAM_BUCKETS],
        }
    }
}

impl HistogramCounts {
    /// How many values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The mean; `None` of nothing.
    #[must_use]
    pub fn mean(&self) -> Option<u64> {
        self.sum.checked_div(self.count())
    }

    /// An upper bound of the smallest value that is not below `percent` of all; `None` of nothing.
    /// A power of two, so within a factor of two of the truth.
    #[must_use]
    pub fn percentile(&self, percent: u32) -> Option<u64> {
        let count = self.count();
        let rank = (u128::from(count) * u128::from(percent)).div_ceil(100);
        let mut seen = 0;
        for (n, bucket) in self.buckets.iter().enumerate() {
            seen += u128::from(*bucket);
            if *bucket > 0 && seen >= rank {
                return Some(if n == 0 { 0 } else { 1 << n });
            }
        }
        None
    }

    /// Adds the counts of another.
    pub fn add(&mut self, other: &Self) {
        self.sum = self.sum.wrapping_add(other.sum);
        for (own, other) in self.buckets.iter_mut().zip(&other.buckets) {
            *own += other;
        }
    }
}
