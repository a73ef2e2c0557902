//! What a journal counts, and how it prints itself.
//!
//! **Problem.** Counters must not become the shared line they are to find. **Structure.** Plain
//! numbers under the two locks of a journal, summed on demand. **Crash.** They start at zero.

use std::fmt;

/// Under `joined`.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct JoinCounters {
    pub(crate) handles: u64,
    pub(crate) dropped: u64,
    pub(crate) log_full: u64,
    pub(crate) effects: u64,
}

/// Under `writer`.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct WriteCounters {
    pub(crate) transactions: u64,
    pub(crate) blocks: u64,
    pub(crate) record_bytes: u64,
    pub(crate) marks: u64,
    pub(crate) marks_dropped: u64,
    pub(crate) gap_blocks: u64,
    pub(crate) log_full: u64,
    pub(crate) headers: u64,
}

/// Sums over all journals since the start.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Handles that joined.
    pub handles: u64,
    /// Handles that were dropped.
    pub dropped: u64,
    /// `begin` said that the log is full.
    pub begin_log_full: u64,
    /// `commit` said that the log is full.
    pub commit_log_full: u64,
    /// Effects given to `settle`.
    pub effects: u64,
    /// Transactions written.
    pub transactions: u64,
    /// Blocks of transactions written.
    pub blocks: u64,
    /// Bytes of records in them.
    pub record_bytes: u64,
    /// Marks in them.
    pub marks: u64,
    /// Marks that needed no writing.
    pub marks_dropped: u64,
    /// Blocks skipped at segment ends.
    pub gap_blocks: u64,
    /// Journal headers written.
    pub headers: u64,
    /// Commits that had something to write or flush.
    pub commits: u64,
    /// Journals that these commits covered.
    pub commit_journals: u64,
    /// Flushes that commits asked for.
    pub flushes: u64,
}

impl Counters {
    pub(crate) fn add_joined(&mut self, joined: &JoinCounters) {
        self.handles += joined.handles;
        self.dropped += joined.dropped;
        self.begin_log_full += joined.log_full;
        self.effects += joined.effects;
    }

    pub(crate) fn add_written(&mut self, written: &WriteCounters) {
        self.transactions += written.transactions;
        self.blocks += written.blocks;
        self.record_bytes += written.record_bytes;
        self.marks += written.marks;
        self.marks_dropped += written.marks_dropped;
        self.gap_blocks += written.gap_blocks;
        self.commit_log_full += written.log_full;
        self.headers += written.headers;
    }
}

impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "handles {} dropped {} effects {}",
            self.handles, self.dropped, self.effects
        )?;
        writeln!(
            f,
            "commits {} over {} journals, {} flushes",
            self.commits, self.commit_journals, self.flushes
        )?;
        writeln!(
            f,
            "transactions {} blocks {} (gaps {}) record bytes {}",
            self.transactions, self.blocks, self.gap_blocks, self.record_bytes
        )?;
        writeln!(f, "marks {} not needed {}", self.marks, self.marks_dropped)?;
        write!(
            f,
            "log full: begin {} commit {}; headers {}",
            self.begin_log_full, self.commit_log_full, self.headers
        )
    }
}

/// How full a ring is, in blocks, and what waits in memory, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Blocks from the start of the tail's segment to the head.
    pub used: u64,
    /// Blocks of the ring.
    pub capacity: u64,
    /// Bytes of handles that have joined and are not written.
    pub pending: u64,
}
