//! Switches that leave one rule of the journal out, so that tests can show they would notice.
//!
//! **Problem.** A crash test that never fails proves nothing. **Structure.** One field per rule;
//! the default has all of them on, and nothing but tests turns one off. **Invariants.** With the
//! default, no code path depends on this type. **Crash.** With a rule off, data is lost: that is
//! the purpose.

/// Which rules hold. Test-only: every product build uses [`Rules::default`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(hidden)]
pub struct Rules {
    /// Transactions carry their marks.
    pub marks: bool,
    /// Marks into the own journal are kept.
    pub self_marks: bool,
    /// A mark is kept until its handle is valid, not only until it is written.
    pub marks_until_valid: bool,
    /// A commit takes the closure over marks along.
    pub closure: bool,
    /// A commit looks at its closure again when its prefixes are written.
    pub recheck: bool,
    /// Running transactions that share a buffer mark each other, not only one the other (`image`).
    pub two_way: bool,
    /// A buffer is copied for the transaction that is committing before it is changed (`image`).
    pub freeze: bool,
    /// The pieces of a compound transaction mark each other (`image`).
    pub whole: bool,
    /// A commit ends with a flush.
    pub flush: bool,
    /// A header without a segment is durable before another ring takes the segment.
    pub flush_shrunk: bool,
    /// The scan verifies checksums.
    pub checksum: bool,
    /// The scan ignores transactions of another epoch.
    pub epoch: bool,
    /// Recovery skips an invalid transaction and goes on behind it.
    pub skip_invalid: bool,
    /// Recovery looks at marks, not at each journal on its own.
    pub recover_marks: bool,
    /// What a mark names must survive itself, not only be complete.
    pub transitive: bool,
    /// Replay applies changes in the order of versions, not of the logs.
    pub by_version: bool,
    /// The version of a freed node outlives it.
    pub tombstones: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            marks: true,
            self_marks: true,
            marks_until_valid: true,
            closure: true,
            recheck: true,
            two_way: true,
            freeze: true,
            whole: true,
            flush: true,
            flush_shrunk: true,
            checksum: true,
            epoch: true,
            skip_invalid: true,
            recover_marks: true,
            transitive: true,
            by_version: true,
            tombstones: true,
        }
    }
}
