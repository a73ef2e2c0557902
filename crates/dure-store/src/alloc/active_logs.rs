//! `active_logs=`: how many segments a partition writes to at once.
//!
//! **Problem.** A segment is free again when all in it is dead. Pages that are overwritten soon
//! next to pages that stay leave segments half dead, and the cleaner moves what stays, again and
//! again. **Structure.** A page's [`Temperature`] says which open segment it goes to, as in F2FS
//! (Lee and others, FAST 2015; its mount option has this name): overwritten pages are hot, new ones
//! warm, those that outlived a segment and were moved by the cleaner cold. With `two` all are warm:
//! one segment for data and one for nodes, the baseline. **Invariants.** Only *where* differs. **On
//! a crash** nothing of this is remembered.

/// How long data is likely to live.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Temperature {
    /// It replaces data: it will be replaced soon.
    Hot,
    /// Nothing is known.
    Warm,
    /// It has outlived what was written next to it.
    Cold,
}

/// Open segments of a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ActiveLogs {
    /// One of data and one of nodes.
    Two,
    /// Three of data, by temperature, and one of nodes.
    #[default]
    Four,
}

impl ActiveLogs {
    /// Where data of this temperature goes.
    pub(crate) fn place(self, temperature: Temperature) -> Temperature {
        match self {
            ActiveLogs::Two => Temperature::Warm,
            ActiveLogs::Four => temperature,
        }
    }
}
