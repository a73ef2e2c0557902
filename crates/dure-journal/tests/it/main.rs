//! The journal, on devices that crash, fail and lie.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "tests panic and print"
)]

mod canaries;
mod crash;
mod faults;
mod holes;
mod hostile;
mod images;
mod model;
mod namespace_model;
mod published;
mod statistics;
mod stress;
#[path = "../support/mod.rs"]
mod support;
