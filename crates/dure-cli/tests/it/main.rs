//! The program `dure`, as a user runs it.

mod bench;
mod documents;
mod full;
mod log;
mod memory;
mod messages;
mod mount_options;
mod program;
mod rescue;
mod top;
mod trust;
