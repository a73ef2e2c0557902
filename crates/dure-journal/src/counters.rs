//! Sums of the counters of all journals, for tests and humans.
//!
//! **Problem.** Most questions are about all journals at once. **Structure.** Sums over
//! [`LogStatistics`]. **Crash.** They start at zero.

use std::fmt;

use crate::statistics::LogStatistics;

/// Sums over all journals since the start.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Handles that joined.
    pub handles: u64,
    /// Handles that were dropped.
    pub dropped: u64,
    /// Times that `begin` found the log full.
    pub begin_log_full: u64,
    /// Times that `commit` found the log full.
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
    /// Images of buffers logged (policy `image`).
    pub images: u64,
    /// Images frozen for a transaction that was committing (policy `image`).
    pub frozen: u64,
    /// Changes of a buffer that another journal's running transaction had (policy `image`).
    pub two_way: u64,
    /// Commits that closed all journals at one moment, since their rounds did not end (policy
    /// `image`).
    pub commits_at_once: u64,
}

impl Counters {
    pub(crate) fn add(&mut self, log: &LogStatistics) {
        self.handles += log.joined;
        self.dropped += log.dropped;
        self.begin_log_full += log.begin_log_full;
        self.commit_log_full += log.commit_log_full;
        self.effects += log.effects;
        self.transactions += log.writes;
        self.blocks += log.blocks;
        self.record_bytes += log.record_bytes;
        self.marks += log.marks_written;
        self.marks_dropped += log.marks_dropped;
        self.gap_blocks += log.gap_blocks;
        self.headers += log.headers;
        self.commits += log.commits;
        self.commit_journals += log.commit_journals;
        self.flushes += log.flushes;
        self.images += log.images;
        self.frozen += log.frozen;
        self.two_way += log.two_way;
        self.commits_at_once += log.commits_at_once;
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
        writeln!(
            f,
            "images {} frozen {} two-way marks {}; commits at once {}",
            self.images, self.frozen, self.two_way, self.commits_at_once
        )?;
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
