//! The range lock of a file.
//!
//! **Problem.** With one lock per file, writers of different pages wait for each other.
//!
//! **Structure.** [`Ranges`] holds the file's [`RangeLock`], of the policy the mount says, from the
//! moment two tasks contend for the file, or have taken turns in it (`Turns`): a file of one task
//! has none and pays nothing. Calls take their range first, then what they need of the locks below.
//! A writer that holds a range exclusively and finds its pages dirty copies into them under the
//! *shared* inode lock; new pages it puts in under it, too, and the size they bring next to the
//! state ([`super::Growth`]). Everything else (the map) needs the exclusive inode lock, if only for
//! a moment. Readers take no range: they copy under the shared inode lock, and check
//! the sequence count of each page before and after; a reader whose copies are torn again and again
//! takes the range shared for once, which keeps writers out for a copy.
//!
//! | call | range |
//! |---|---|
//! | read | none; its bytes, shared, if a few copies were torn, or with `range_lock_wait=queue` |
//! | write within the file, punch, allocation within the file | its bytes, exclusive |
//! | append, write or allocation past the end, truncate | [the old or the new end, ..), exclusive |
//!
//! **Waiting.** With `range_lock_wait=try` no task *queues* for a range: one that finds it taken
//! tries for some microseconds, in which a copy ends, on many cores for longer, and then takes the
//! exclusive inode lock instead, as if the file had no range lock. Ranges are handed over in order
//! of arrival, and where threads outnumber cores each hand-over is a sleep: two threads on one page
//! got 27 to 51 thousand calls a second by waiting, 3.8 million by the inode's lock, which any
//! running thread may take. With `range_lock_wait=queue` all wait, as in hybridF2FS and pNOVA, here
//! in order of arrival, and readers hold their range shared from the beginning of the call to its
//! end, so that a read is one moment too. There each file has a range lock from the first call on,
//! as the originals have: what a figure shows would otherwise depend on whether tasks had contended
//! before. No tasks wait in a circle: a task takes one range, before all locks of higher rank, and
//! a task that waits for a range holds none of these.
//!
//! # Invariants
//! A range is taken before any other lock of the file, and one per task. The range lock is made
//! under the exclusive inode lock, and stays as long as the inode is in memory. Bytes of cached
//! pages change under the exclusive inode lock, or under the shared one with the range held
//! exclusively and the page's sequence count odd; they are read under the exclusive inode lock, or
//! under the shared one with a check of the sequence count, or under the shared one in a file
//! without a range lock: while the inode lock is held none can be made. So a call without a range
//! excludes the others by holding the inode exclusively.
//!
//! **On a crash** nothing remains.

use dure_store::units::to_u64;
use dure_sync::canary::LeftOut;
use dure_sync::current_core;
use dure_sync::range_lock::{ByteRange, RangeGuard, RangeLock, Waits};

use super::FILE_BYTES_MAX;
use super::body::Body;
use crate::file::Files;
use crate::inode::Inode;
use crate::ranks::RANGE;
use crate::volume::RangeWait;

/// A range of a file, held by this task.
pub(super) type Range<'i> = RangeGuard<'i, RANGE>;

/// The range lock of a file, if it has been contended; see the module.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ranges<'i> {
    lock: Option<&'i RangeLock<RANGE>>,
    wait: RangeWait,
}

/// How often a call that moves the end looks for it while truncates move it: then it takes all.
const LOOKS_MAX: u32 = 4;

/// `len` bytes from `offset` on; what cannot be counted reaches to infinity. None: no bytes.
fn bytes(offset: u64, len: usize) -> Option<ByteRange> {
    let endless = || ByteRange::from_offset(offset);
    (len > 0).then(|| ByteRange::new(offset, to_u64(len)).unwrap_or_else(endless))
}

impl<'i> Ranges<'i> {
    /// Whether calls have to take ranges.
    #[inline]
    pub(crate) fn are_locked(self) -> bool {
        self.lock.is_some()
    }

    /// Bytes of its words: of ranges that were taken, endless ones aside.
    pub(crate) fn bytes(self) -> usize {
        self.lock.map_or(0, |lock| lock.footprint().bytes)
    }

    /// How often tasks waited for ranges.
    pub(crate) fn waits(self) -> Waits {
        self.lock.map(RangeLock::waits).unwrap_or_default()
    }

    /// The bytes of a read, shared: of one whose copies were torn, if they come free within some
    /// microseconds; or of any one, in its turn.
    pub(super) fn share(self, offset: u64, len: usize) -> Option<Range<'i>> {
        let (lock, bytes) = (self.lock?, bytes(offset, len)?);
        match self.wait {
            RangeWait::Try => lock.read_soon(bytes),
            RangeWait::InTurn => Some(lock.read(bytes)),
        }
    }

    /// The bytes of a write within the file, exclusive, if the file has a range lock and they come
    /// free within some microseconds, in which a copy ends; or in its turn.
    #[inline]
    pub(super) fn take(self, offset: u64, len: usize) -> Option<Range<'i>> {
        let (lock, bytes) = (self.lock?, bytes(offset, len)?);
        match self.wait {
            RangeWait::Try => lock.write_soon(bytes),
            RangeWait::InTurn => Some(lock.write(bytes)),
        }
    }

    /// A range beyond the largest file that no other core takes, so that it excludes no writer.
    pub(super) fn take_elsewhere(self, _canary: LeftOut) -> Option<Range<'i>> {
        const CORE_BYTES: u64 = 1 << 47;
        const _: () = assert!(FILE_BYTES_MAX <= CORE_BYTES);
        let core = u64::from(current_core().number());
        self.take((core + 1) * CORE_BYTES, 1)
    }
}

impl Inode {
    /// The range lock, if the file has one.
    #[inline]
    pub(crate) fn ranges(&self) -> Ranges<'_> {
        let (lock, wait) = match self.sharing.get().and_then(|sharing| sharing.ranges()) {
            Some((lock, wait)) => (Some(lock), wait),
            None => (None, RangeWait::Try),
        };
        Ranges { lock, wait }
    }

    /// Like `ranges`, for a call that is about to take a range: where tasks queue, the file has a
    /// lock.
    #[inline]
    pub(super) fn ranges_in(&self, files: &Files) -> Ranges<'_> {
        let ranges = self.ranges();
        if ranges.are_locked() || !files.options.ranges_queue {
            return ranges;
        }
        self.make_ranges(files)
    }

    #[cold]
    fn make_ranges(&self, files: &Files) -> Ranges<'_> {
        let _held = (files.body == Body::Direct).then(|| self.lock_writeback());
        let mut state = self.state().write_keep_cached();
        self.make_contended(&mut state, files);
        drop(state);
        self.ranges()
    }

    /// Everything from the end of the file on, or from `offset` on if that comes first: for calls
    /// that move the end. None: the file has no range lock, the range stays taken, or the file
    /// became shorter meanwhile.
    pub(super) fn take_end(&self, offset: u64) -> Option<Range<'_>> {
        let Ranges { lock, wait } = self.ranges();
        let lock = lock?;
        if wait == RangeWait::InTurn {
            return Some(self.await_end(lock, offset));
        }
        let first = offset.min(self.state().seek_hint().size());
        let held = lock.write_soon(ByteRange::from_offset(first))?;
        // The file may have become shorter before this task got the range.
        (self.state().seek_hint().size() >= first).then_some(held)
    }

    /// Like `take_end`, in the task's turn: looks again where the file became shorter meanwhile.
    fn await_end<'i>(&self, lock: &'i RangeLock<RANGE>, offset: u64) -> Range<'i> {
        for _ in 0..LOOKS_MAX {
            let first = offset.min(self.state().seek_hint().size());
            let held = lock.write(ByteRange::from_offset(first));
            if self.state().seek_hint().size() >= first {
                return held;
            }
        }
        lock.write(ByteRange::ALL)
    }

    /// The range of a write that turned out to need more than a copy: the same, or, if it reaches
    /// past the end, everything from the end on.
    pub(super) fn widen<'i>(&'i self, held: Range<'i>) -> Option<Range<'i>> {
        let range = held.range();
        if range.last() < self.state().seek_hint().size() {
            return Some(held);
        }
        drop(held);
        self.take_end(range.first())
    }

    /// What a call that changes bytes `offset..end` takes: its range, or, if that reaches past the
    /// end, everything from the end on.
    pub(super) fn take_span(&self, offset: u64, end: u64) -> Option<Range<'_>> {
        let Ranges { lock, wait } = self.ranges();
        let (lock, bytes) = (lock?, ByteRange::new(offset, end.checked_sub(offset)?)?);
        self.widen(match wait {
            RangeWait::Try => lock.try_write(bytes)?,
            RangeWait::InTurn => lock.write(bytes),
        })
    }
}
