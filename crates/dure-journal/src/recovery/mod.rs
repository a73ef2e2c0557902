//! Recovery: which transactions count after a crash.
//!
//! **Problem.** After a crash each log holds a prefix of its journal, and the prefixes do not fit
//! together. **Structure.** [`scan`] reads all logs, in parallel; [`Scan::holes`] says what was
//! durable and is missing, which no crash explains; [`Scan::survivors`] is the greatest set of complete transactions that is closed under marks; [`Scan::discard`] takes one
//! out, when the file system finds that its data is missing (one-flush rule), and the caller asks
//! again until nothing changes.
//!
//! **Invariants.** Nothing is written. The result depends on the medium alone: neither on the
//! number of threads nor on how often recovery was cut off before. **Crash.** A crash during
//! recovery changes nothing here; the file system's last write, a volume header with a new epoch,
//! empties all logs at once.

mod beyond;
mod durable;
mod headers;
mod reader;
mod scan;
mod survivors;

#[cfg(test)]
mod tests;

pub use durable::Hole;
pub use headers::{COUNT_MAX, NUMBER_START_MAX, check_counts, write_fresh_headers};
pub use scan::{LogLayout, LoggedTransaction, Scan, ScannedRing, scan};

pub use crate::format::{LoggedRecords, Record};
