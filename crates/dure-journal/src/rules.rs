//! The rules of the journal that a test may leave out (`dure_sync::canary`);
//! docs/design/journal-model.md explains each.

use dure_sync::canary::Rule;

/// Which rules hold: all of them, except in tests.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
#[doc(hidden)]
pub struct Rules {
    /// Transactions carry their marks.
    pub marks: Rule,
    /// Marks into the own journal are kept.
    pub self_marks: Rule,
    /// A mark is kept until its handle is valid, not only until it is written.
    pub marks_until_valid: Rule,
    /// A commit includes the closure over marks.
    pub closure: Rule,
    /// A commit checks its closure again when its prefixes are written.
    pub recheck: Rule,
    /// Running transactions that share a buffer mark each other, not only one of them the other
    /// (`image`).
    pub two_way: Rule,
    /// A two-way mark that replaces one of an earlier transaction is passed on (`image`).
    pub pass_on: Rule,
    /// The walk takes for durable what a flush has made so (`image`).
    pub walk_durable: Rule,
    /// A commit returns when its roots are valid, not when all they need was committed (`image`).
    pub wait_valid: Rule,
    /// A commit whose rounds do not end closes all journals at one moment (`image`).
    pub rounds: Rule,
    /// A buffer is copied for the transaction that is committing before it is changed (`image`).
    pub freeze: Rule,
    /// The pieces of a compound transaction mark each other (`image`).
    pub whole: Rule,
    /// A commit ends with a flush.
    pub flush: Rule,
    /// A header without a segment is durable before another ring takes the segment.
    pub flush_shrunk: Rule,
    /// The scan verifies checksums.
    pub checksum: Rule,
    /// The scan ignores transactions of another epoch.
    pub epoch: Rule,
    /// Recovery skips an invalid transaction and goes on after it.
    pub skip_invalid: Rule,
    /// Recovery follows marks, instead of treating each journal on its own.
    pub recover_marks: Rule,
    /// The handle that a mark names must itself survive, not only be complete.
    pub transitive: Rule,
    /// Replay applies changes in the order of versions, not of the logs.
    pub by_version: Rule,
    /// The version of a freed node outlives it.
    pub tombstones: Rule,
}
