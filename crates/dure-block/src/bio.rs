//! A request of an upper layer: operation, address, memory.
//!
//! **Problem.** Numbers of blocks, bytes and sectors are easily mixed. **Structure.** A newtype
//! for the address, an operation, flags, and the asynchronous [`Bio`] that owns its memory.
//! **Invariants.** A bio's blocks are contiguous on the device. **Crash.** Nothing is kept.

use std::fmt;
use std::ops::{BitOr, Range};

use smallvec::{SmallVec, smallvec};

use crate::BlockBuf;

/// The number of a 4 KiB block on a device.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lba(u64);

impl Lba {
    /// Block `number`.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }

    /// The block `blocks` after this one.
    ///
    /// # Panics
    /// If the number does not fit in 64 bits.
    #[must_use]
    pub fn offset(self, blocks: u64) -> Self {
        Self(
            self.0
                .checked_add(blocks)
                .expect("a block number fits in 64 bits"),
        )
    }

    /// The `blocks` blocks from here.
    #[must_use]
    pub fn range(self, blocks: u64) -> Range<Self> {
        self..self.offset(blocks)
    }
}

impl fmt::Display for Lba {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// What a request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Op {
    /// Copies blocks from the device.
    Read,
    /// Copies blocks to the device, where they may stay in a volatile cache.
    Write,
    /// Makes all writes that completed before it durable.
    Flush,
    /// Tells the device that the content of blocks is no longer needed; they read as zeroes.
    Discard,
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Discard => "discard",
        })
    }
}

/// How to do a write: a set of flags.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WriteFlags(u8);

impl WriteFlags {
    /// An ordinary write: durable after the next flush.
    pub const NONE: Self = Self(0);
    /// Forced unit access: durable when the write completes.
    pub const FUA: Self = Self(1);
    /// A flush is done first, so that all earlier completed writes are durable before this one.
    pub const PREFLUSH: Self = Self(2);

    /// Whether all flags of `other` are set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// These flags without those of `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl BitOr for WriteFlags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The memory of a request. Most have one piece, which takes no list of its own.
pub type Segments = SmallVec<[BlockBuf; 1]>;

/// An asynchronous request of an upper layer, with the memory it needs.
#[derive(Debug)]
pub struct Bio {
    pub(crate) op: Op,
    pub(crate) lba: Lba,
    /// Blocks of a discard; other operations take theirs from the segments.
    pub(crate) discard_blocks: u64,
    pub(crate) segments: Segments,
    pub(crate) flags: WriteFlags,
    pub(crate) cookie: u64,
}

impl Bio {
    fn new(op: Op, lba: Lba, segments: Segments) -> Self {
        Self {
            op,
            lba,
            discard_blocks: 0,
            segments,
            flags: WriteFlags::NONE,
            cookie: 0,
        }
    }

    /// Reads blocks into `buf`, which comes back with the completion.
    #[must_use]
    pub fn read(lba: Lba, buf: BlockBuf) -> Self {
        Self::new(Op::Read, lba, smallvec![buf])
    }

    /// Writes `buf`.
    #[must_use]
    pub fn write(lba: Lba, buf: BlockBuf) -> Self {
        Self::new(Op::Write, lba, smallvec![buf])
    }

    /// Writes `segments`, one after the other on the device.
    #[must_use]
    pub fn write_segments(lba: Lba, segments: Vec<BlockBuf>) -> Self {
        Self::new(Op::Write, lba, segments.into())
    }

    /// Flushes the device. Unlike [`crate::Queue::flush`] this flush is not shared.
    #[must_use]
    pub fn flush() -> Self {
        Self::new(Op::Flush, Lba::new(0), Segments::new())
    }

    /// Discards `blocks` blocks.
    #[must_use]
    pub fn discard(lba: Lba, blocks: u64) -> Self {
        Self {
            discard_blocks: blocks,
            ..Self::new(Op::Discard, lba, Segments::new())
        }
    }

    /// Sets the flags of a write.
    #[must_use]
    pub fn with_flags(self, flags: WriteFlags) -> Self {
        Self { flags, ..self }
    }

    /// Attaches a value that the caller gets back with the completion.
    #[must_use]
    pub fn with_cookie(self, cookie: u64) -> Self {
        Self { cookie, ..self }
    }

    /// The operation.
    #[must_use]
    pub fn op(&self) -> Op {
        self.op
    }

    /// The first block.
    #[must_use]
    pub fn lba(&self) -> Lba {
        self.lba
    }

    /// The flags of a write.
    #[must_use]
    pub fn flags(&self) -> WriteFlags {
        self.flags
    }

    /// The memory.
    #[must_use]
    pub fn segments(&self) -> &[BlockBuf] {
        &self.segments
    }

    /// The number of blocks it covers.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.segments
            .iter()
            .map(|segment| u64::try_from(segment.blocks()).expect("a usize fits in 64 bits"))
            .fold(self.discard_blocks, u64::saturating_add)
    }
}
