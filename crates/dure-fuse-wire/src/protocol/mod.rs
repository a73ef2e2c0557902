//! The FUSE protocol, version 7: what lies in a request and in a reply, byte by byte.
//!
//! **Problem.** The kernel and a FUSE server exchange records of the machine's own byte order over
//! `/dev/fuse`, or in memory that they share ([`ring`]). **Structure.** [`opcode`] the numbers;
//! [`request`] and [`reply`] the layouts;
//! [`mod@parse`] makes an [`Operation`] of the bytes of a request without copying any.
//! **Invariants.** The layouts have no padding the compiler chose (`zerocopy` refuses it) and their
//! sizes are asserted. Parsing trusts nothing: a request that is too short, or misses the end of a
//! name, is [`Malformed`], never a panic. **Crash.** Nothing is kept.

pub mod opcode;
pub mod operation;
pub mod parse;
pub mod reply;
pub mod request;
pub mod ring;

#[cfg(test)]
pub(crate) mod tests;

pub use operation::{Operation, Request};
pub use parse::{Malformed, parse};

/// Protocol version, first number.
pub const MAJOR: u32 = 7;
/// Protocol version, second number: 7.39 has STATX, the last thing used here. Layouts of later
/// versions are told apart by flags, not by this number.
pub const MINOR: u32 = 39;
/// The oldest second number that is served (Linux 5.12): from it on, all layouts are as here.
pub const MINOR_MIN: u32 = 33;
/// Node id of the root.
pub const ROOT: u64 = 1;
