//! Recovery: which transactions survive a crash.
//!
//! **Problem.** After a crash each log holds a prefix of its journal, and the prefixes may not be
//! consistent with each other. **Structure.** [`scan`] reads all logs, in parallel; [`Scan::holes`]
//! returns what was durable and is missing, which no crash explains; [`Scan::survivors`] is the
//! greatest set of complete transactions that is closed under marks; [`Scan::discard`] removes one,
//! when the file system finds that its data is missing (one-flush rule), and the caller computes
//! the survivors again until nothing changes.
//!
//! **Invariants.** Nothing is written. The result depends on nothing but the medium: neither on the
//! number of threads nor on how often recovery was cut off before. **Crash.** A crash during
//! recovery changes nothing here; the file system's last write, a volume header with a new epoch,
//! empties all logs at once.

mod beyond;
mod durable;
mod headers;
mod reader;
mod scan;
mod survivors;
mod walk;

#[cfg(test)]
mod tests;

pub use durable::Hole;
pub use headers::{
    COUNT_MAX, NUMBER_START_MAX, check_counts, write_fresh_header, write_fresh_headers,
};
pub use scan::{LogLayout, LoggedTransaction, Scan, ScannedRing, scan};

pub use crate::format::{LoggedRecords, Record};
