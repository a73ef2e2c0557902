//! A count of blocks or inodes, and its soft and hard limit.
//!
//! **Structure.** Below the soft limit, or the hard one if there is no soft one, tasks count in the
//! [`BoundedCount`], whose bound it is. A task that finds no room there locks the limits: it exceeds the
//! soft limit if the grace time is not over and the hard limit allows it. While the soft limit is
//! exceeded each task that counts locks the limits, so the one that goes below it again is noticed.
//!
//! **Invariants.** No task that takes raises the count above the hard limit. `since` is 0 unless the
//! soft limit was exceeded; it changes under the lock.

use dure_store::format::quota::Bounds;
use dure_sync::atomic::{AtomicI64, Ordering};
use dure_sync::{BoundedCount, CoreId, Mutex, clock};

use crate::ranks::QUOTA_LIMITS;

/// Who counts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spender {
    pub(super) core: CoreId,
    pub(super) cores: usize,
}

impl Spender {
    fn place(self) -> (CoreId, usize) {
        (self.core, self.cores)
    }
}

/// Limits as they are counted with; `i64::MAX` is none.
#[derive(Debug, Clone, Copy)]
struct Bound {
    soft: i64,
    hard: i64,
    grace: i64,
}

const NONE: Bound = Bound {
    soft: i64::MAX,
    hard: i64::MAX,
    grace: 0,
};

/// See the module.
#[derive(Debug)]
pub(super) struct Amount {
    count: BoundedCount,
    /// The lower one of the limits. Written under `limits`; Relaxed: a task that sees it late counts
    /// as if it had come earlier.
    bound: AtomicI64,
    /// When the soft limit was exceeded. Written under `limits`; Relaxed: as above.
    since: AtomicI64,
    limits: Mutex<QUOTA_LIMITS, Bound>,
}

impl Default for Amount {
    fn default() -> Amount {
        Amount {
            count: BoundedCount::default(),
            bound: AtomicI64::new(i64::MAX),
            since: AtomicI64::new(0),
            limits: Mutex::new(NONE),
        }
    }
}

/// Seconds since 1970, at least 1.
pub(super) fn now() -> i64 {
    clock::wall_coarse().secs.max(1)
}

fn limit(limit: u64) -> i64 {
    match i64::try_from(limit) {
        Ok(0) | Err(_) => i64::MAX,
        Ok(limit) => limit,
    }
}

impl Amount {
    /// Counts `more`. False: the limits do not allow it, and nothing was counted.
    pub(super) fn take(&self, by: Spender, more: i64) -> bool {
        let bound = self.bound.load(Ordering::Relaxed);
        let is_below = self.since.load(Ordering::Relaxed) == 0;
        (is_below && self.count.take(by.place(), more, bound)) || self.take_above(by, more)
    }

    /// Counts `more` where the lower limit is in the way, or was exceeded before.
    #[cold]
    fn take_above(&self, by: Spender, more: i64) -> bool {
        let limits = self.limits.lock();
        let take = |bound| self.count.take(by.place(), more, bound);
        self.count.settle();
        if take(limits.soft.min(limits.hard)) {
            return true;
        }
        let since = self.since.load(Ordering::Relaxed);
        let now = now();
        let is_over = since != 0 && now.saturating_sub(since) > limits.grace;
        if limits.soft == i64::MAX || is_over || !take(limits.hard) {
            return false;
        }
        // What others have aside from before counts for the hard limit, too.
        self.count.settle();
        if since == 0 {
            self.since.store(now, Ordering::Relaxed);
        }
        true
    }

    /// Takes back what was counted.
    pub(super) fn give(&self, by: Spender, less: i64) {
        let bound = self.bound.load(Ordering::Relaxed);
        self.count.give(by.place(), less, bound);
        if self.since.load(Ordering::Relaxed) != 0 {
            self.look_below();
        }
    }

    /// Notices that the soft limit is no longer exceeded.
    #[cold]
    fn look_below(&self) {
        let limits = self.limits.lock();
        if self.count.sum() <= limits.soft {
            self.since.store(0, Ordering::Relaxed);
        }
    }

    /// Counts `more` whatever the limits are.
    pub(super) fn add(&self, more: i64) {
        self.count.add(more);
    }

    pub(super) fn sum(&self) -> u64 {
        u64::try_from(self.count.sum()).unwrap_or(0)
    }

    /// The limits; 0 is none.
    pub(super) fn bounds(&self) -> (Bounds, u32) {
        let limits = *self.limits.lock();
        let told = |limit: i64| match limit {
            i64::MAX => 0,
            limit => u64::try_from(limit).unwrap_or(0),
        };
        let bounds = Bounds {
            soft: told(limits.soft),
            hard: told(limits.hard),
            since: self.since.load(Ordering::Relaxed),
        };
        (bounds, u32::try_from(limits.grace).unwrap_or(u32::MAX))
    }

    /// Sets them. `now`: when the soft limit was exceeded, if it is and `bounds` does not say; 0: the
    /// usage is not known yet.
    pub(super) fn set(&self, bounds: Bounds, grace: u32, now: i64) {
        let mut limits = self.limits.lock();
        *limits = Bound {
            soft: limit(bounds.soft),
            hard: limit(bounds.hard),
            grace: grace.into(),
        };
        let bound = limits.soft.min(limits.hard);
        self.bound.store(bound, Ordering::Relaxed);
        self.count.settle();
        let is_known = now != 0;
        let since = match (is_known && self.count.sum() <= limits.soft, bounds.since) {
            (true, _) => 0,
            (false, 0) => now,
            (false, since) => since,
        };
        let since = if limits.soft == i64::MAX { 0 } else { since };
        self.since.store(since, Ordering::Relaxed);
    }
}
