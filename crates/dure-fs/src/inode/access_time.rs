//! Access times, kept in memory until something writes the inode: a read costs no operation.
//!
//! **Structure.** A read notes its time in the inode ([`AccessTimeCell`]) and sets the core's flag
//! in [`AccessTimes`]. Any operation that writes the inode takes the time along. The remaining
//! times are written by sync, background work and unmount, which search the inode cache only if
//! some flag is set; and, when a shard of the inode cache is crowded, by a task that drops the last
//! pin of an inode. **Invariants.** An inode with a pending time is not evicted. A time that finds
//! no space at once is given up: a read must neither fail nor wait for that. **On a crash** reads
//! since the last sync may have left no trace.

use dure_store::OpKind;
use dure_store::format::inode::{DataHead, Time};
use dure_store::space::OpClass;
use dure_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use dure_sync::{CoreId, PerCore};

use super::times::{SECOND_NANOS, nanos, time};
use super::{Inode, StateChange};
use crate::inode::Inodes;
use crate::volume::AccessTime;

const DAY_NANOS: u64 = 24 * 3600 * SECOND_NANOS;

/// What decides whether a read is to be noted: a read of a cached page looks at nothing else. Times
/// in ns since 1970. Relaxed: a task that changes a time holds the inode exclusively, but for
/// readers and overwrites, which publish nothing else by it.
#[derive(Debug)]
pub(crate) struct AccessTimeCell {
    /// The latest read that the inode's data lacks; 0: none. Written by readers under the inode's
    /// shared lock.
    pending: AtomicU64,
    /// The access time, as the data has it.
    stored: AtomicU64,
    /// The later one of mtime and ctime, as the data has them.
    changed: AtomicU64,
}

impl AccessTime {
    /// Whether a read at `now` of an inode with these times is to be noted.
    pub(crate) fn wants(self, atime: Time, (mtime, ctime): (Time, Time), now: Time) -> bool {
        self.wants_at(nanos(atime), nanos(mtime).max(nanos(ctime)), nanos(now))
    }

    /// Like `wants`, in ns since 1970; `changed`: the later one of mtime and ctime.
    #[inline]
    fn wants_at(self, atime: u64, changed: u64, now: u64) -> bool {
        match self {
            AccessTime::Never => false,
            AccessTime::Always => true,
            AccessTime::Relative => atime <= changed || now.saturating_sub(atime) >= DAY_NANOS,
        }
    }
}

impl AccessTimeCell {
    /// The times of an inode whose data begins with `data`.
    pub(super) fn new(data: &DataHead) -> AccessTimeCell {
        AccessTimeCell {
            pending: AtomicU64::new(0),
            stored: AtomicU64::new(nanos(data.atime)),
            changed: AtomicU64::new(nanos(data.mtime).max(nanos(data.ctime))),
        }
    }

    /// The data was stored, with the time that was pending, or one that was set. The caller holds
    /// the inode exclusively.
    pub(super) fn data_stored(&self, data: &DataHead) {
        self.clear();
        let changed = nanos(data.mtime).max(nanos(data.ctime));
        for (there, time) in [(&self.stored, nanos(data.atime)), (&self.changed, changed)] {
            // As in `clear`: of calls within a tick of the clock one writes it.
            if there.load(Ordering::Relaxed) != time {
                there.store(time, Ordering::Relaxed);
            }
        }
    }

    /// An overwrite has stored this time of a change. The caller holds the inode shared, and no other
    /// task stores times.
    pub(crate) fn change_stored(&self, now: Time) {
        self.changed.store(nanos(now), Ordering::Relaxed);
    }

    /// Notes a read at `now`, if the mount option wants it. Returns whether that changed the time.
    /// `changed` is the last change of the inode, if the data lacks it.
    #[inline]
    pub(crate) fn touch(&self, policy: AccessTime, changed: Option<Time>, now: Time) -> bool {
        let current = match self.pending.load(Ordering::Relaxed) {
            0 => self.stored.load(Ordering::Relaxed),
            pending => pending,
        };
        let changed = match changed {
            Some(changed) => nanos(changed),
            None => self.changed.load(Ordering::Relaxed),
        };
        let now = nanos(now);
        // Within a tick of the clock nothing is written and the line stays shared, also when the
        // data got the time meanwhile.
        let differs = current != now && policy.wants_at(current, changed, now);
        // A later time stays: of two readers the slower one may come last.
        differs && self.pending.fetch_max(now, Ordering::Relaxed) < now
    }

    /// The access time that stat shows.
    pub(crate) fn current(&self, data: &DataHead) -> Time {
        match self.pending.load(Ordering::Relaxed) {
            0 => data.atime,
            pending => time(pending),
        }
    }

    /// Merges it into data that is about to be written.
    pub(crate) fn merge(&self, data: &mut DataHead) {
        data.atime = self.current(data);
    }

    /// The pending time is in the data, or given up.
    pub(crate) fn clear(&self) {
        // Unchanged, the line is not written: other cores read it.
        if self.is_pending() {
            // A read noted meanwhile may be lost, which is harmless.
            self.pending.store(0, Ordering::Relaxed);
        }
    }

    /// Checks that what a read looks at is what the data says.
    #[cfg(test)]
    pub(crate) fn check(&self, data: &DataHead) {
        let there = [&self.stored, &self.changed].map(|time| time.load(Ordering::Relaxed));
        let changed = nanos(data.mtime).max(nanos(data.ctime));
        assert_eq!(there, [nanos(data.atime), changed], "access and change");
    }

    /// Whether the time of a read is pending.
    pub(crate) fn is_pending(&self) -> bool {
        self.pending.load(Ordering::Relaxed) != 0
    }
}

/// Whether any inode has a pending access time.
#[derive(Debug)]
pub(crate) struct AccessTimes {
    /// Set by readers on their core, after the time itself; cleared by a task that is about to
    /// write all of them.
    waiting: PerCore<AtomicBool>,
}

impl AccessTimes {
    /// Nothing waits.
    pub(crate) fn new(cores: usize) -> AccessTimes {
        AccessTimes {
            waiting: PerCore::new(cores, |_| AtomicBool::new(false)),
        }
    }

    /// A time was noted by a reader on `core`.
    pub(crate) fn note(&self, core: CoreId) {
        // Release, and a swap where a store would do: either it comes before the swap in `take`,
        // which then sees the time, or after it, and the flag stays set for the next call.
        self.waiting.get(core).swap(true, Ordering::Release);
    }

    /// Whether times were noted since the last call. The caller writes them all.
    pub(crate) fn take(&self) -> bool {
        // Acquire: pairs with the Release in `note`; publishes the time in the inode.
        let taken = self
            .waiting
            .iter()
            .map(|flag| flag.swap(false, Ordering::Acquire));
        taken.fold(false, |any, one| any | one)
    }
}

impl Inodes {
    /// Writes all pending access times, an operation each. The caller holds no inode lock.
    pub(crate) fn write_access_times(&self) {
        if !self.access_times.take() {
            return;
        }
        for inode in self.cache.collect(|inode| inode.access_time().is_pending()) {
            self.write_access_time(inode.inode());
        }
    }

    /// Writes the inode's access time by an operation, if one is pending. It is given up if there
    /// is no space.
    pub(crate) fn write_access_time(&self, inode: &Inode) {
        if !inode.access_time().is_pending() {
            return;
        }
        let Some(mut op) = self
            .store
            .op_at_hand(OpKind::Attributes, OpClass::Delete, 1)
        else {
            inode.access_time().clear();
            inode.state().changed_shared(StateChange::Made);
            return;
        };
        let state = inode.state().write_keep_cached();
        let shown = inode.data_part(&state);
        // The inode may have been deleted meanwhile, and its granule may hold the next one.
        if !state.gone {
            let mut data = inode.data();
            inode.access_time().merge(&mut data);
            inode.store_data(&mut op, &data);
            // No mark is noted: the inode may be evicted before the operation is valid, and an
            // fsync finds it as the granule's last writer.
            inode.data_granule_stored(op.finish());
            inode.access_time().data_stored(&data);
        }
        inode.access_time().clear();
        inode.hide_unless(&state, &shown);
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros;

    use super::*;

    fn at(secs: i64) -> Time {
        Time {
            secs: secs.into(),
            nanos: 5.into(),
        }
    }

    fn data(atime: i64) -> DataHead {
        let mut data = DataHead::new_zeroed();
        data.atime = at(atime);
        data
    }

    fn after_touch(policy: AccessTime, atime: i64, mtime: i64, now: i64) -> Time {
        let mut data = data(atime);
        data.mtime = at(mtime);
        let cell = AccessTimeCell::new(&data);
        cell.touch(policy, None, at(now));
        cell.current(&data)
    }

    #[test]
    fn relative_updates_after_a_change_and_once_a_day() {
        assert_eq!(after_touch(AccessTime::Relative, 100, 50, 200), at(100));
        assert_eq!(after_touch(AccessTime::Relative, 100, 100, 200), at(200));
        assert_eq!(after_touch(AccessTime::Relative, 100, 150, 200), at(200));
        assert_eq!(
            after_touch(AccessTime::Relative, 100, 50, 100 + 86400),
            at(100 + 86400)
        );
        assert_eq!(after_touch(AccessTime::Relative, -5, -9, 100), at(100));
    }

    #[test]
    fn a_change_that_is_not_stored_yet_counts() {
        let cell = AccessTimeCell::new(&data(100));
        assert!(!cell.touch(AccessTime::Relative, None, at(200)));
        assert!(cell.touch(AccessTime::Relative, Some(at(150)), at(200)));
        assert!(!cell.touch(AccessTime::Relative, Some(at(150)), at(201)));
    }

    #[test]
    fn never_and_always() {
        assert_eq!(after_touch(AccessTime::Never, 100, 150, 200), at(100));
        assert_eq!(after_touch(AccessTime::Always, 100, 50, 200), at(200));
    }

    #[test]
    fn merging_takes_the_pending_time() {
        let mut data = data(7);
        let cell = AccessTimeCell::new(&data);
        assert!(cell.touch(AccessTime::Always, None, at(99)));
        assert!(!cell.touch(AccessTime::Always, None, at(99)));
        assert!(cell.is_pending());
        cell.merge(&mut data);
        cell.data_stored(&data);
        assert_eq!(data.atime, at(99));
        assert!(!cell.is_pending());
        assert!(!cell.touch(AccessTime::Always, None, at(99)));
        assert!(!cell.is_pending(), "the data has this time");
    }
}
