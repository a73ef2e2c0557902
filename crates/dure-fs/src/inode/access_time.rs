//! Access times, kept in memory until something writes the inode: a read costs no operation.
//!
//! **Structure.** A read notes its time in the inode ([`AccessTimeCell`]) and the core's flag in
//! [`AccessTimes`]. Any operation that writes the inode takes the time along. What is left is
//! written by sync, background work and unmount, which look through the inode cache only if some
//! flag is set; and by whoever drops the last pin of an inode that the cache would like to evict.
//! **Invariants.** An inode whose time waits is not evicted. A time that finds no room at once is
//! given up: a read must neither fail nor wait for that. **On a crash** reads since the last sync
//! have left no trace.

use dure_store::OpKind;
use dure_store::format::inode::{InodeRecord, Time};
use dure_store::space::OpClass;
use dure_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use dure_sync::{CoreId, PerCore};

use super::{Inode, ShownChange};
use crate::volume::{AccessTime, Volume};
const NANOS: u64 = 1_000_000_000;
const DAY_NANOS: u64 = 24 * 3600 * NANOS;

/// The latest read that the record does not know of, in ns since 1970; 0: none.
#[derive(Debug, Default)]
pub(crate) struct AccessTimeCell(
    /// Written by readers under the inode's shared lock; nothing else is published by it.
    AtomicU64,
);

/// Nanoseconds since 1970 of a clock reading; 0 before 1970 and after 2554, which no clock shows.
pub(crate) fn nanos(time: Time) -> u64 {
    u64::try_from(time.secs.get())
        .ok()
        .and_then(|secs| secs.checked_mul(NANOS))
        .and_then(|nanos| nanos.checked_add(u64::from(time.nanos.get())))
        .unwrap_or(0)
}

/// The time of so many nanoseconds since 1970.
pub(crate) fn time(nanos: u64) -> Time {
    let secs = i64::try_from(nanos / NANOS).expect("below 2^34");
    Time {
        secs: secs.into(),
        nanos: u32::try_from(nanos % NANOS).expect("below a second").into(),
    }
}

impl AccessTime {
    /// Whether a read at `now` is to be noted of an inode with these times.
    pub(crate) fn wants(self, atime: Time, (mtime, ctime): (Time, Time), now: Time) -> bool {
        match self {
            AccessTime::Never => false,
            AccessTime::Always => true,
            AccessTime::Relative => {
                let atime = nanos(atime);
                atime <= nanos(mtime)
                    || atime <= nanos(ctime)
                    || nanos(now).saturating_sub(atime) >= DAY_NANOS
            }
        }
    }
}

impl AccessTimeCell {
    /// Notes a read at `now`, if the mount option wants it; says whether that changed the time.
    /// `mtime` and `ctime` are the inode's.
    pub(crate) fn touch(
        &self,
        policy: AccessTime,
        record: &InodeRecord,
        (mtime, ctime): (Time, Time),
        now: Time,
    ) -> bool {
        let current = self.current(record);
        let wanted = policy.wants(current, (mtime, ctime), now);
        // Within a tick of the clock the line stays shared, also when the record has got the time
        // meanwhile.
        let differs = wanted && nanos(current) != nanos(now);
        // Relaxed: a time of its own. A later one stays: of two readers the slower one may come
        // last.
        differs && self.0.fetch_max(nanos(now), Ordering::Relaxed) < nanos(now)
    }

    /// The access time to show.
    pub(crate) fn current(&self, record: &InodeRecord) -> Time {
        // Relaxed: a time of its own.
        match self.0.load(Ordering::Relaxed) {
            0 => record.atime,
            pending => time(pending),
        }
    }

    /// Moves it into a record that is about to be written.
    pub(crate) fn merge(&self, record: &mut InodeRecord) {
        record.atime = self.current(record);
    }

    /// The record has it now, or it was set explicitly.
    pub(crate) fn clear(&self) {
        // Nothing is written where nothing changes: others read the line.
        if self.is_pending() {
            // Relaxed: a time of its own; a read that is noted meanwhile may be lost, which is
            // harmless.
            self.0.store(0, Ordering::Relaxed);
        }
    }

    /// Whether a read waits to be written.
    pub(crate) fn is_pending(&self) -> bool {
        // Relaxed: a time of its own.
        self.0.load(Ordering::Relaxed) != 0
    }
}

/// Whether some inode has a time that waits.
#[derive(Debug)]
pub(crate) struct AccessTimes {
    /// Set by readers on their core, after the time itself; cleared by whoever is about to write
    /// all.
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
        // Release, and a swap where a store would do: it comes either before the swap in `take`,
        // which then sees the time, or after it, and the flag stays for the next one.
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

impl Volume {
    /// Makes operations of all access times that wait in memory. The caller holds no inode lock.
    pub(crate) fn write_access_times(&self) {
        if !self.access_times.take() {
            return;
        }
        for inode in self.inodes.collect(|inode| inode.access_time.is_pending()) {
            self.write_access_time(inode.inode());
        }
    }

    /// Makes an operation of the inode's access time, if one waits. One that finds no room is given
    /// up.
    pub(crate) fn write_access_time(&self, inode: &Inode) {
        if !inode.access_time.is_pending() {
            return;
        }
        let Some(mut op) = self.op_at_hand(OpKind::Attributes, OpClass::Delete, 1) else {
            inode.access_time.clear();
            inode.state.changed_shared(ShownChange::Made);
            return;
        };
        let mut state = inode.state.write_unseen();
        let shown = inode.data_part(&state);
        // It may have been deleted meanwhile, and its granule may hold the next inode.
        if state.is_alive() {
            let mut record = state.record;
            inode.access_time.merge(&mut record);
            inode.store(&mut op, &record);
            // No mark is noted: the inode may be evicted before the operation is valid, and an
            // fsync finds it as the granule's last writer.
            op.finish();
            state.record = record;
        }
        inode.access_time.clear();
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

    fn record(atime: i64) -> InodeRecord {
        let mut record = InodeRecord::new_zeroed();
        record.atime = at(atime);
        record
    }

    fn after_touch(policy: AccessTime, atime: i64, mtime: i64, now: i64) -> Time {
        let cell = AccessTimeCell::default();
        cell.touch(policy, &record(atime), (at(mtime), at(mtime)), at(now));
        cell.current(&record(atime))
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
    fn never_and_always() {
        assert_eq!(after_touch(AccessTime::Never, 100, 150, 200), at(100));
        assert_eq!(after_touch(AccessTime::Always, 100, 50, 200), at(200));
    }

    #[test]
    fn merging_takes_the_pending_time() {
        let cell = AccessTimeCell::default();
        let mut record = record(7);
        assert!(cell.touch(AccessTime::Always, &record, (at(0), at(0)), at(99)));
        assert!(!cell.touch(AccessTime::Always, &record, (at(0), at(0)), at(99)));
        assert!(cell.is_pending());
        cell.merge(&mut record);
        cell.clear();
        assert_eq!(record.atime, at(99));
        assert!(!cell.is_pending());
        assert!(!cell.touch(AccessTime::Always, &record, (at(0), at(0)), at(99)));
        assert!(!cell.is_pending(), "the record has this time");
    }
}
