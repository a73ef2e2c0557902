//! Access times, kept in memory until something else writes the inode: a read costs no operation.

use dure_sync::atomic::{AtomicU64, Ordering};

use crate::format::inode::{InodeRecord, Time};
use crate::volume::AccessTime;

const NANOS: u64 = 1_000_000_000;
const DAY_NANOS: u64 = 24 * 3600 * NANOS;

/// The latest read that the record does not know of, in ns since 1970; 0: none.
#[derive(Debug, Default)]
pub(crate) struct AccessTimeCell(
    /// Written by readers under the inode's shared lock; nothing else is published by it.
    AtomicU64,
);

/// Nanoseconds since 1970 of a clock reading; 0 before 1970 and after 2554, which no clock shows.
fn nanos(time: Time) -> u64 {
    u64::try_from(time.secs.get())
        .ok()
        .and_then(|secs| secs.checked_mul(NANOS))
        .and_then(|nanos| nanos.checked_add(u64::from(time.nanos.get())))
        .unwrap_or(0)
}

fn time(nanos: u64) -> Time {
    let secs = i64::try_from(nanos / NANOS).expect("below 2^34");
    Time {
        secs: secs.into(),
        nanos: u32::try_from(nanos % NANOS).expect("below a second").into(),
    }
}

impl AccessTimeCell {
    /// Notes a read at `now`, if the mount option wants it. `mtime` and `ctime` are the inode's.
    pub(crate) fn touch(
        &self,
        policy: AccessTime,
        record: &InodeRecord,
        (mtime, ctime): (Time, Time),
        now: Time,
    ) {
        let wanted = match policy {
            AccessTime::Never => false,
            AccessTime::Always => true,
            AccessTime::Relative => {
                let atime = nanos(self.current(record));
                atime <= nanos(mtime)
                    || atime <= nanos(ctime)
                    || nanos(now).saturating_sub(atime) >= DAY_NANOS
            }
        };
        if wanted {
            // Relaxed: a time of its own.
            self.0.store(nanos(now), Ordering::Relaxed);
        }
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
        // Relaxed: a time of its own; a read that is noted meanwhile may be lost, which is harmless.
        self.0.store(0, Ordering::Relaxed);
    }

    /// Whether a read waits to be written.
    pub(crate) fn is_pending(&self) -> bool {
        // Relaxed: a time of its own.
        self.0.load(Ordering::Relaxed) != 0
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
        cell.touch(AccessTime::Always, &record, (at(0), at(0)), at(99));
        assert!(cell.is_pending());
        cell.merge(&mut record);
        cell.clear();
        assert_eq!(record.atime, at(99));
        assert!(!cell.is_pending());
    }
}
