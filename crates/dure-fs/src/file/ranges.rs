//! The range lock of a file.
//!
//! **Problem.** With one lock per file, writers of different pages wait for each other.
//! **Structure.** [`Ranges`] holds the file's [`RangeLock`], of the policy the mount says, from the
//! moment two tasks have met in the file, or have taken turns in it (`Turns`): a file of one task
//! has none and pays nothing. Calls take their range first, then what they need of the locks below.
//! Who has a range alone and finds its pages dirty copies into them under the *shared* inode lock;
//! new pages, and the size they bring, he puts beside the state ([`super::added`]). Everything else
//! (clean pages, map) needs the inode alone, if only for a moment. Readers take no range: they copy
//! under the shared inode lock, and look at the version of each page before and after; only who
//! meets writers again and again shares the range for once, which keeps them out for a copy.
//!
//! | call | range |
//! |---|---|
//! | read | none; its bytes, shared, if a few copies met writers |
//! | write within the file, punch, allocation within the file | its bytes, alone |
//! | append, write or allocation past the end, truncate | [the old or the new end, infinity), alone |
//!
//! Nobody *waits in line* for a range: who finds it taken tries for some microseconds, in which a
//! copy ends, and then has the inode alone instead, as if the file had no range lock. Ranges are
//! handed over in order of arrival, and where threads outnumber cores each hand-over is a sleep:
//! two threads on one page got 27 to 51 thousand calls a second by waiting, 3.8 million by the
//! inode's lock, which whoever runs may take.
//!
//! **Invariants.** A range is taken before any other lock of the file, and one per task. The lock
//! is made by a task that has the inode alone, and stays as long as the inode is in memory. Bytes
//! of cached pages change under the inode lock, exclusive, or shared with the range held alone and
//! the page's version odd; they are read under the exclusive inode lock, or shared with a look at
//! the version, or shared in a file without a range lock: while the inode lock is held none can be
//! made. So a call without a range excludes the others by having the inode alone. **On a crash**
//! nothing remains.

use dure_store::units::to_u64;
use dure_sync::canary::LeftOut;
use dure_sync::range_lock::{ByteRange, Config, Policy, RangeGuard, RangeLock};
use dure_sync::{OnceLock, current_core};

use super::FILE_BYTES_MAX;
use crate::inode::{Inode, InodeState};
use crate::ranks::RANGE;

/// A range of a file, held by this task.
pub(super) type Range<'i> = RangeGuard<'i, RANGE>;

/// The range lock of a file, if two tasks have met in it; see the module.
#[derive(Debug, Default)]
pub(crate) struct Ranges(OnceLock<Box<RangeLock<RANGE>>>);

/// `len` bytes from `offset` on; what cannot be counted reaches to infinity. None: no bytes.
fn bytes(offset: u64, len: usize) -> Option<ByteRange> {
    let endless = || ByteRange::from_offset(offset);
    (len > 0).then(|| ByteRange::new(offset, to_u64(len)).unwrap_or_else(endless))
}

impl Ranges {
    /// Whether calls have to take ranges.
    #[inline]
    pub(crate) fn are_locked(&self) -> bool {
        self.0.get().is_some()
    }

    /// Whether a range was ever taken, endless ones aside.
    pub(crate) fn were_taken(&self) -> bool {
        self.0.get().is_some_and(|lock| lock.footprint().bytes > 0)
    }

    /// Two tasks have met in the file. The caller has the inode alone.
    #[cold]
    pub(super) fn make(&self, _alone: &mut InodeState, config: Config) {
        if config.policy() != Policy::Inode {
            self.0.get_or_init(|| Box::new(RangeLock::new(config)));
        }
    }

    /// The bytes of a read that met writers, if none of them stays there.
    pub(super) fn share(&self, offset: u64, len: usize) -> Option<Range<'_>> {
        self.0.get()?.read_soon(bytes(offset, len)?)
    }

    /// The bytes of a write within the file, if the file has a range lock and nobody else stays
    /// there: a copy is waited for.
    #[inline]
    pub(super) fn take(&self, offset: u64, len: usize) -> Option<Range<'_>> {
        self.0.get()?.write_soon(bytes(offset, len)?)
    }

    /// A range behind the end of all files, of this core alone, that keeps nobody out.
    pub(super) fn take_elsewhere(&self, _canary: LeftOut) -> Option<Range<'_>> {
        const CORE_BYTES: u64 = 1 << 47;
        const _: () = assert!(FILE_BYTES_MAX <= CORE_BYTES);
        let core = u64::from(current_core().number());
        self.take((core + 1) * CORE_BYTES, 1)
    }
}

impl Inode {
    /// Everything from the end of the file on, or from `offset` on if that comes first: for calls
    /// that move the end. None: the file has no range lock, or somebody is there.
    pub(super) fn take_end(&self, offset: u64) -> Option<Range<'_>> {
        let lock = self.ranges.0.get()?;
        let first = offset.min(self.outline.size());
        let held = lock.write_soon(ByteRange::from_offset(first))?;
        // The file may have become shorter before the range was ours.
        (self.outline.size() >= first).then_some(held)
    }

    /// The range of a write that turned out to need more than a copy: the same, or, if it reaches
    /// past the end, everything from the end on.
    pub(super) fn widen<'i>(&'i self, held: Range<'i>) -> Option<Range<'i>> {
        let range = held.range();
        if range.last() < self.outline.size() {
            return Some(held);
        }
        drop(held);
        self.take_end(range.first())
    }

    /// What a call that changes bytes `offset..end` takes: its range, or, if that reaches past the
    /// end, everything from the end on.
    pub(super) fn take_span(&self, offset: u64, end: u64) -> Option<Range<'_>> {
        let lock = self.ranges.0.get()?;
        self.widen(lock.try_write(ByteRange::new(offset, end.checked_sub(offset)?)?)?)
    }
}
