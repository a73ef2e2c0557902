//! Locks on ranges of a file.
//!
//! **Problem.** One lock per file serialises writers of different ranges, and makes readers contend
//! for the word that counts them. **Structure.** A [`RangeLock`] of one of five policies behind one
//! interface: a closed enum and a `match`.
//!
//! | policy | file | what it is | origin |
//! |---|---|---|---|
//! | `inode` | `inode.rs` | one reader/writer lock; dure-fs takes the inode's own, with a count of readers per core | dure |
//! | `rwsem` | `inode.rs` | the same; dure-fs takes the inode's own, with one count | the baseline: ext4, F2FS, NOVA |
//! | `tree` | `tree.rs` | interval tree, a mutex, FIFO, readers share | hybridF2FS, generation 1 |
//! | `bitmap` | `bitmap.rs` | a bit per page, atomic, exclusive | hybridF2FS as published |
//! | `segment` | `segment.rs` | a word per segment: writer bit, 31 bits of readers | pNOVA |
//!
//! Below them: `fair_word` (a lock in a word, FIFO), `words` (words allocated at first use),
//! `intervals` (the tree), `waiter` (spin, then sleep).
//!
//! # What the policies guarantee
//! **Invariants.** Two guards whose ranges share a page are never held together unless both are
//! shared; that includes [offset, infinity), and pages never accessed before. Each wait is FIFO:
//! writers and readers do not starve. A task holds one guard of a lock at a time (rank); guards of
//! several locks of one rank are taken with the `_ordered` calls. There is no upgrade: two readers
//! that upgrade would deadlock. If memory or the allowed words are exhausted, a claim gets slower,
//! not wrong. **Crash.** Nothing is kept.
//!
//! ```
//! use dure_sync::range_lock::{ByteRange, Config, Policy, RangeLock};
//!
//! let file: RangeLock<10> = RangeLock::new(Config::new(Policy::Segment));
//! let first = file.write(ByteRange::new(0, 4096).expect("not empty"));
//! assert!(file.try_write(ByteRange::new(4096, 1).expect("not empty")).is_some());
//! assert!(file.try_read(ByteRange::from_offset(4000)).is_none());
//! drop(first);
//! ```

mod bitmap;
mod fair_word;
mod guard;
mod inode;
mod intervals;
mod range;
mod segment;
#[cfg(all(test, not(dure_backend = "loom")))]
mod tests;
mod tree;
mod waiter;
mod words;

use std::fmt;
use std::str::FromStr;

use crate::rank::{self, Order};
use crate::{Arc, CachePadded, Mutex, backend};

pub use guard::RangeGuard;
pub use range::{Access, ByteRange};
pub use words::WordBudget;

use guard::Hold;
use range::{Claim, Patience, WaitTallies};

/// The mutex of policy `tree`.
const INTERVALS_RANK: u8 = 246;
/// The mutex of the directory of words.
const DIRECTORY_RANK: u8 = 248;
/// The mutex of a queue of waiters for words; taken to release, hence above the others.
const QUEUE_RANK: u8 = 250;

/// A page, the unit of policies `tree` and `bitmap`, is 2^this bytes.
const PAGE_SHIFT: u32 = 12;
/// A segment is at most 2^this bytes: 1 TiB.
const SEGMENT_SHIFT_MAX: u32 = 40;

/// Which range lock.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// One reader/writer lock; that of an inode counts its readers per core.
    Inode,
    /// One reader/writer lock; that of an inode has one count of readers, as the kernel's i_rwsem.
    Rwsem,
    /// Interval tree under a mutex.
    Tree,
    /// One bit per page, exclusive.
    Bitmap,
    /// One word per segment.
    #[default]
    Segment,
}

impl Policy {
    /// All policies, those of whole files first.
    pub const ALL: [Self; 5] = [
        Self::Inode,
        Self::Rwsem,
        Self::Tree,
        Self::Bitmap,
        Self::Segment,
    ];

    /// Whether tasks in different parts of a file exclude each other: it is locked as a whole.
    #[must_use]
    pub const fn is_whole_file(self) -> bool {
        matches!(self, Self::Inode | Self::Rwsem)
    }

    /// The name in mount options.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Inode => "inode",
            Self::Rwsem => "rwsem",
            Self::Tree => "tree",
            Self::Bitmap => "bitmap",
            Self::Segment => "segment",
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An invalid name or number in the configuration of a range lock.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigError {
    /// No policy has this name.
    UnknownPolicy(String),
    /// Segments are powers of two from 4 KiB to 1 TiB.
    SegmentBytes(u64),
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownPolicy(name) => write!(
                f,
                "no range lock is called {name:?}: choose inode, rwsem, tree, bitmap or segment"
            ),
            Self::SegmentBytes(bytes) => write!(
                f,
                "a segment of {bytes} bytes is impossible: choose a power of two from 4096 to 2^40"
            ),
        }
    }
}

impl std::error::Error for ConfigError {}

impl FromStr for Policy {
    type Err = ConfigError;

    fn from_str(name: &str) -> Result<Self, ConfigError> {
        let found = Self::ALL.into_iter().find(|policy| policy.name() == name);
        found.ok_or_else(|| ConfigError::UnknownPolicy(name.to_owned()))
    }
}

/// The configuration of a range lock.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    policy: Policy,
    segment: SegmentShift,
    chunks_max: ChunksMax,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SegmentShift(u32);

impl Default for SegmentShift {
    fn default() -> Self {
        Self(PAGE_SHIFT)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ChunksMax(usize);

impl Default for ChunksMax {
    /// 18 MiB for a file of which 1 GiB is in use.
    fn default() -> Self {
        Self(1 << 14)
    }
}

impl Config {
    /// The policy, with segments of 4 KiB and at most 2^14 chunks of 16 words.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self {
            policy,
            ..Self::default()
        }
    }

    /// This configuration with another policy.
    #[must_use]
    pub fn with_policy(self, policy: Policy) -> Self {
        Self { policy, ..self }
    }

    /// This configuration with segments of `bytes` bytes, for policy `segment`.
    ///
    /// # Errors
    /// A number that is not a power of two from 4 KiB to 1 TiB.
    pub fn with_segment_bytes(self, bytes: u64) -> Result<Self, ConfigError> {
        let shift = bytes.checked_ilog2().unwrap_or(0);
        let possible = PAGE_SHIFT..=SEGMENT_SHIFT_MAX;
        if !bytes.is_power_of_two() || !possible.contains(&shift) {
            return Err(ConfigError::SegmentBytes(bytes));
        }
        Ok(Self {
            segment: SegmentShift(shift),
            ..self
        })
    }

    /// This configuration with at most `chunks` chunks of 16 words, for policies `bitmap` and
    /// `segment`. A range that cannot get words is locked as [offset, infinity) is: more slowly. 0
    /// is possible.
    #[must_use]
    pub fn with_chunks_max(self, chunks: usize) -> Self {
        Self {
            chunks_max: ChunksMax(chunks),
            ..self
        }
    }

    /// The policy.
    #[must_use]
    pub fn policy(&self) -> Policy {
        self.policy
    }
}

/// Cores of a machine on which a task tries twice as long as on the smallest one.
const CORES_TWICE: usize = 4;

/// Calls `take` until it returns something, for some microseconds, and for longer on more cores: the
/// alternative keeps all of them out of the file, and tasks that it keeps from letting go of their
/// ranges make others give up, too.
#[cold]
fn soon<T>(mut take: impl FnMut() -> Option<T>) -> Option<T> {
    for _ in 0..=crate::core_count() / CORES_TWICE {
        for _ in 0..backend::patient_turns() {
            if let Some(taken) = take() {
                return Some(taken);
            }
            backend::spin_hint();
        }
    }
    None
}

/// What a range lock has allocated so far.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Footprint {
    /// Chunks of 16 words.
    pub chunks: usize,
    /// Bytes of chunks and of the tables that find them, or of intervals.
    pub bytes: usize,
}

/// How often tasks waited for a range, in a queue: a task that a few turns of spinning gave its word
/// is not counted.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Waits {
    /// Tasks that entered a queue, once for each word that they waited for.
    pub queued: u64,
    /// Tasks that slept until they were woken.
    pub slept: u64,
}

#[derive(Debug)]
enum Kind {
    Inode(inode::InodeLock),
    Tree(tree::TreeLock),
    Bitmap(bitmap::BitmapLock),
    Segment(segment::SegmentLock),
}

/// A lock of rank `RANK` on the ranges of one file.
pub struct RangeLock<const RANK: u8> {
    policy: Policy,
    kind: Kind,
    /// A unit of a claim is 2^this bytes.
    unit_shift: u32,
    /// On lines apart from the rest, which every task reads.
    waits: CachePadded<WaitTallies>,
}

impl<const RANK: u8> RangeLock<RANK> {
    /// A lock of which no range is held.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self::make(config, None)
    }

    /// A lock whose words are of `budget`, which other locks use too.
    #[must_use]
    pub fn within(config: Config, budget: &Arc<WordBudget>) -> Self {
        Self::make(config, Some(Arc::clone(budget)))
    }

    fn make(config: Config, budget: Option<Arc<WordBudget>>) -> Self {
        let chunks_max = config.chunks_max.0;
        let (kind, unit_shift) = match config.policy {
            Policy::Inode | Policy::Rwsem => (Kind::Inode(inode::InodeLock::new()), PAGE_SHIFT),
            Policy::Tree => (Kind::Tree(tree::TreeLock::new()), PAGE_SHIFT),
            Policy::Bitmap => (
                Kind::Bitmap(bitmap::BitmapLock::new(chunks_max, budget)),
                PAGE_SHIFT,
            ),
            Policy::Segment => (
                Kind::Segment(segment::SegmentLock::new(chunks_max, budget)),
                config.segment.0,
            ),
        };
        Self {
            policy: config.policy,
            kind,
            unit_shift,
            waits: CachePadded::default(),
        }
    }

    /// Which policy this is.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// How often tasks waited so far.
    pub fn waits(&self) -> Waits {
        Waits {
            queued: self.waits.queued.get(),
            slept: self.waits.slept.get(),
        }
    }

    /// What the lock has allocated so far: nothing before a range was taken, and for policy
    /// `inode`.
    pub fn footprint(&self) -> Footprint {
        let (chunks, bytes) = match &self.kind {
            Kind::Inode(_) => (0, 0),
            Kind::Tree(lock) => (0, lock.bytes()),
            Kind::Bitmap(words) => words.footprint(),
            Kind::Segment(words) => words.footprint(),
        };
        Footprint { chunks, bytes }
    }

    /// Takes shared access, sleeping while other tasks hold exclusive access there, or have waited
    /// for it longer.
    ///
    /// # Panics
    /// In debug builds and in the simulation, if this task holds a lock of the same or a higher
    /// rank, such as another range of this file. (In other builds, the task may then wait for
    /// itself.)
    #[inline]
    pub fn read(&self, range: ByteRange) -> RangeGuard<'_, RANK> {
        self.lock(range, Access::Shared, Order::Rising)
    }

    /// Takes exclusive access, sleeping while other tasks hold access there, or have waited for it
    /// longer.
    ///
    /// # Panics
    /// Like [`RangeLock::read`].
    #[inline]
    pub fn write(&self, range: ByteRange) -> RangeGuard<'_, RANK> {
        self.lock(range, Access::Exclusive, Order::Rising)
    }

    /// Takes shared access although ranges of *other* locks of the same rank may be held: the
    /// caller promises that all tasks take locks of this rank in one documented order.
    ///
    /// # Panics
    /// In debug builds and in the simulation, if this task holds a lock of a higher rank.
    #[inline]
    pub fn read_ordered(&self, range: ByteRange) -> RangeGuard<'_, RANK> {
        self.lock(range, Access::Shared, Order::Promised)
    }

    /// Takes exclusive access although ranges of *other* locks of the same rank may be held: the
    /// caller promises that all tasks take locks of this rank in one documented order.
    ///
    /// # Panics
    /// In debug builds and in the simulation, if this task holds a lock of a higher rank.
    #[inline]
    pub fn write_ordered(&self, range: ByteRange) -> RangeGuard<'_, RANK> {
        self.lock(range, Access::Exclusive, Order::Promised)
    }

    /// Takes shared access if that needs no waiting; with policies `inode` and `bitmap`, holders of
    /// other ranges or readers can make it fail.
    #[inline]
    pub fn try_read(&self, range: ByteRange) -> Option<RangeGuard<'_, RANK>> {
        self.take(range, Access::Shared, Patience::Try)
    }

    /// Takes exclusive access if that needs no waiting; with policy `inode`, holders of other
    /// ranges can make it fail, with `bitmap`, tasks that wait for other ranges.
    #[inline]
    pub fn try_write(&self, range: ByteRange) -> Option<RangeGuard<'_, RANK>> {
        self.take(range, Access::Exclusive, Patience::Try)
    }

    /// Like [`RangeLock::try_write`], but tries for some microseconds, more on many cores: for a
    /// caller that shares a file with tasks that hold their ranges only for a copy; in the queue it
    /// would sleep.
    #[inline]
    pub fn write_soon(&self, range: ByteRange) -> Option<RangeGuard<'_, RANK>> {
        self.try_write(range)
            .or_else(|| soon(|| self.try_write(range)))
    }

    /// Like [`RangeLock::try_read`], but tries as long as [`RangeLock::write_soon`].
    #[cold]
    pub fn read_soon(&self, range: ByteRange) -> Option<RangeGuard<'_, RANK>> {
        soon(|| self.try_read(range))
    }

    #[inline]
    fn lock(&self, range: ByteRange, access: Access, order: Order) -> RangeGuard<'_, RANK> {
        rank::check(RANK, order);
        self.take(range, access, Patience::Wait(&self.waits))
            .expect("who waits is given the range")
    }

    #[inline]
    fn claim(&self, range: ByteRange, access: Access) -> Claim {
        Claim {
            units: range.units(self.unit_shift),
            access,
        }
    }

    // Always, as `release`: a guard that is built and taken apart in registers costs a third of one
    // that goes through memory (5 instead of 17 ns for policy `inode`).
    #[inline(always)]
    fn take(
        &self,
        range: ByteRange,
        access: Access,
        patience: Patience<'_>,
    ) -> Option<RangeGuard<'_, RANK>> {
        let claim = self.claim(range, access);
        let hold = match &self.kind {
            Kind::Inode(lock) => lock.acquire(access, patience).then_some(Hold::Whole)?,
            Kind::Tree(lock) => Hold::Interval(lock.acquire(claim, patience)?),
            Kind::Bitmap(lock) => Hold::Bits(lock.acquire(claim, patience)?),
            Kind::Segment(lock) => Hold::Segments(lock.acquire(claim, patience)?),
        };
        rank::acquired(RANK);
        Some(RangeGuard::new(self, range, access, hold))
    }

    #[inline(always)]
    fn release(&self, range: ByteRange, access: Access, hold: &Hold<'_>) {
        rank::released(RANK);
        let claim = self.claim(range, access);
        match (&self.kind, hold) {
            (Kind::Inode(lock), Hold::Whole) => lock.release(access),
            (Kind::Tree(lock), Hold::Interval(node)) => lock.release(*node),
            (Kind::Bitmap(lock), Hold::Bits(hold)) => lock.release(claim, hold),
            (Kind::Segment(lock), Hold::Segments(hold)) => lock.release(claim, hold),
            _ => unreachable!("a guard is released by the lock that gave it"),
        }
    }
}

impl<const RANK: u8> fmt::Debug for RangeLock<RANK> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("RangeLock");
        out.field("rank", &RANK).field("policy", &self.policy());
        match &self.kind {
            Kind::Inode(lock) => out.field("lock", lock).finish(),
            Kind::Tree(lock) => out.field("claims", &lock.claims()).finish(),
            Kind::Bitmap(_) | Kind::Segment(_) => {
                out.field("footprint", &self.footprint()).finish()
            }
        }
    }
}
