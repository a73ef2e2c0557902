//! Names of nodes, granules, journals and handles.
//!
//! **Problem.** Four kinds of number travel between the file system, the journal and the medium.
//! **Structure.** One newtype each. **Invariants.** A [`Mark`] is only built from parts that fit,
//! so its 64 bits are the same on the medium and in memory. **Crash.** All of them keep their
//! meaning over a crash; handle numbers never restart.

use std::fmt;

/// A node id: an index into the node address table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Nid(pub u64);

impl fmt::Display for Nid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// One granule of a node: the unit of locking, versions and deltas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GranuleId {
    /// The node.
    pub nid: Nid,
    /// Which granule of it.
    pub index: u8,
}

impl fmt::Display for GranuleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.nid, self.index)
    }
}

/// Which per-core journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JournalId(u16);

impl JournalId {
    /// Journals a volume may have: the journal takes ten bits of a [`Mark`].
    pub const COUNT_MAX: u16 = 1 << (64 - Mark::NUMBER_BITS);

    /// Journal `number`, if a volume may have so many.
    #[must_use]
    pub const fn new(number: u16) -> Option<Self> {
        if number < Self::COUNT_MAX {
            Some(Self(number))
        } else {
            None
        }
    }

    pub(crate) fn from_index(index: usize) -> Self {
        let number = u16::try_from(index).expect("journals are counted by ten bits");
        Self::new(number).expect("journals are counted by ten bits")
    }

    /// The number, for storing.
    #[must_use]
    pub const fn number(self) -> u16 {
        self.0
    }

    /// The number, for indexing.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl fmt::Display for JournalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A handle, named by its journal (upper 10 bits) and its number there (lower 54 bits).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Mark(u64);

impl Mark {
    const NUMBER_BITS: u32 = 54;
    /// No handle. It counts as valid.
    pub const NONE: Self = Self(0);
    /// The greatest handle number.
    pub const NUMBER_MAX: u64 = (1 << Self::NUMBER_BITS) - 1;

    /// Handle `number` of `journal`.
    ///
    /// # Panics
    /// If the number is 0 or does not fit in 54 bits: a billion handles a second use them up in
    /// half a year, and reusing one would forge dependencies.
    #[must_use]
    pub const fn new(journal: JournalId, number: u64) -> Self {
        assert!(number > 0, "handle numbers start at 1");
        assert!(number <= Self::NUMBER_MAX, "handle numbers are exhausted");
        Self(Self::journal_bits(journal) | number)
    }

    const fn journal_bits(journal: JournalId) -> u64 {
        // u64::from is not const yet; widening by bytes is.
        let low = journal.0.to_le_bytes();
        u64::from_le_bytes([low[0], low[1], 0, 0, 0, 0, 0, 0]) << Self::NUMBER_BITS
    }

    /// The journal it is in. Journal 0 for [`Mark::NONE`].
    #[must_use]
    pub fn journal(self) -> JournalId {
        let number =
            u16::try_from(self.0 >> Self::NUMBER_BITS).expect("ten bits of a mark are its journal");
        JournalId(number)
    }

    /// Its number in that journal; 0 for [`Mark::NONE`].
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0 & Self::NUMBER_MAX
    }

    /// Whether it names no handle.
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.number() == 0
    }

    /// For storing in an atomic or on the medium.
    #[must_use]
    pub const fn as_u64(self) -> u64 {
        self.0
    }

    /// The inverse of [`Mark::as_u64`].
    #[must_use]
    pub const fn from_u64(bits: u64) -> Self {
        Self(bits)
    }
}

impl fmt::Debug for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_none() {
            write!(f, "none")
        } else {
            write!(f, "({}, {})", self.journal(), self.number())
        }
    }
}
