//! The C interface: compared with the header and with the library, and used by programs in C.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod header;
mod killed;
mod programs;
mod same;
mod tools;
