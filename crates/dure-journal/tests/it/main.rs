//! The journal, on devices that crash, fail and lie.

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
