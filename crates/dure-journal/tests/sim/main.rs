//! The journal under many schedules.
//!
//! `cargo xtask sim` builds it for simulated cores; elsewhere it is empty.

#![cfg(dure_backend = "sim")]

mod journal;
#[expect(dead_code, reason = "shared by two test programs")]
#[path = "../support/mod.rs"]
mod support;
mod turn;
