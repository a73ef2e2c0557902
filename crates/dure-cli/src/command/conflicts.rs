//! `dure sim conflicts`: which calls that commute share a written cache line.
//!
//! **Structure.** In a build for simulated cores (cfg `dure_backend="sim"`) `report` plays the
//! pairs; any other build becomes that program. **Invariants.** The exit code is that of the program
//! which ran. **Crash.** Nothing is kept.

use anyhow::Result;

use crate::args::SimConflicts;

#[cfg(dure_backend = "sim")]
mod report;

#[cfg(dure_backend = "sim")]
pub(crate) fn run(args: &SimConflicts) -> Result<u8> {
    report::run(args)
}

#[cfg(not(dure_backend = "sim"))]
pub(crate) fn run(args: &SimConflicts) -> Result<u8> {
    // Report wrong policies before anything is built.
    super::sim::with_policies(dure_fs::MountOptions::default(), &args.mount)?;
    super::simulated::run()
}
