//! The file system under many schedules, and the cache lines that its calls share.
//!
//! `cargo xtask sim` builds it for simulated cores; elsewhere it is empty.

#![cfg(dure_backend = "sim")]

mod attributes;
mod checkpoint_waits;
mod conflicts;
mod crowd_lines;
mod depth;
mod directories;
mod dirty_limit;
mod fs;
mod growth;
mod journal_lines;
mod lines;
mod many_cores;
mod media;
mod names;
mod orders;
mod paths;

mod pins;
mod position;
mod profiles;
mod range_lines;
mod ranges;
mod room;
mod room_figures;
mod scrub;
mod seek;
mod snapshots;
mod trim;
