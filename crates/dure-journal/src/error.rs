//! Errors, one enum per kind of caller.
//!
//! **Problem.** A full log is an ordinary event, a failed write is the end of the volume, and
//! garbage on the medium is neither. **Structure.** [`BeginError`] and [`CommitError`] for the two
//! calls on the hot path, [`Error`] for everything else, [`StopReason`] for why a journal stopped.
//! **Invariants.** Nothing that failed is retried. **Crash.** A stopped journal has lost nothing
//! that it acknowledged: its medium is as after a crash.

use std::fmt;

use dure_block::Lba;

use crate::ids::JournalId;

/// What the journal was doing when it had to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopCause {
    /// Writing a transaction.
    LogWrite,
    /// Flushing the device.
    Flush,
    /// Writing a journal header.
    HeaderWrite,
    /// The file system stopped it.
    FileSystem,
}

impl fmt::Display for StopCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LogWrite => "writing a transaction failed",
            Self::Flush => "flushing the device failed",
            Self::HeaderWrite => "writing a journal header failed",
            Self::FileSystem => "the file system stopped the journal",
        })
    }
}

/// Why a journal takes no more handles and commits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{cause}{}{}: {detail}; the volume is read-only until it is mounted again",
    .journal.map(|id| format!(", journal {id}")).unwrap_or_default(),
    .at.map(|at| format!(", at block {at}")).unwrap_or_default())]
pub struct StopReason {
    /// What it was doing.
    pub cause: StopCause,
    /// In which journal, if in one.
    pub journal: Option<JournalId>,
    /// At which block, if at one.
    pub at: Option<Lba>,
    /// The message of the device or the file system.
    pub detail: String,
}

/// Why `begin` failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BeginError {
    /// No log space for that many bytes; a checkpoint makes room.
    #[error("log full; checkpoint and begin again")]
    LogFull,
    /// The journal has stopped.
    #[error(transparent)]
    Stopped(StopReason),
}

/// Why a commit did not make its handles durable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CommitError {
    /// Writing so little now would take space that joined handles have reserved.
    #[error("log of journal {0} full; checkpoint and commit again")]
    LogFull(JournalId),
    /// The journal has stopped; whether the handles are durable is not known.
    #[error(transparent)]
    Stopped(StopReason),
}

/// Everything else.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(clippy::error_impl_error, reason = "users write dure_journal::Error")]
pub enum Error {
    /// The medium holds an impossible value.
    #[error("corrupt {what} at block {at}: expected {want}, found {got}; run the check")]
    Corrupt {
        /// Which structure and field.
        what: &'static str,
        /// Where.
        at: Lba,
        /// What it should be.
        want: u64,
        /// What it is.
        got: u64,
    },
    /// The device failed.
    #[error("device error at block {at}: {source}")]
    Device {
        /// Where.
        at: Lba,
        /// The device's error.
        source: dure_block::Error,
    },
    /// The configuration cannot work.
    #[error("journal configuration: {what} is {got}, must be {must}")]
    Config {
        /// Which setting.
        what: &'static str,
        /// Its value.
        got: u64,
        /// What it must be.
        must: &'static str,
    },
    /// The ring has as many segments as its header can list.
    #[error("the ring of journal {0} cannot grow further; checkpoint instead")]
    RingFull(JournalId),
    /// The journal has stopped.
    #[error(transparent)]
    Stopped(StopReason),
}

/// Result of everything but `begin` and `commit`.
pub type Result<T> = std::result::Result<T, Error>;
