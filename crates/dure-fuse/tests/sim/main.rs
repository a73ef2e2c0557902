//! A ring transport under many schedules.
//!
//! `cargo xtask sim` builds it for simulated cores; elsewhere it is empty.

#![cfg(dure_backend = "sim")]

mod rings;
