//! A room of machines that are not at hand: workloads on virtual cores, with the costs of a machine.
//!
//! **Problem.** Whether dure scales shows on machines of tens of cores. **Structure.** A [`Plan`] is
//! a machine, [`Work`] (a workload of `FxMark` as `dure bench` has it with a [`Policy`], or requests to
//! the block layer) and a number of cores. `play` runs the whole file system with it, in memory or on
//! the machine's drive (`media`), and gives a [`Point`]: the rate, the cache lines that move, and where
//! time goes (`causes`). What a call computes is charged by its counted instructions
//! (`instructions`), so a point depends on the program and the machine's file only, not on where it is
//! simulated. [`calibrate`] writes such a file for the machine at hand; [`experiments`] are the figures
//! of the documents. **Invariants.** Nothing is measured here: every figure is of a model,
//! docs/simulation says of which. **Crash.** Nothing is kept.

pub mod calibrate;
pub mod experiments;
mod instructions;
mod media;
mod plan;
mod policy;
mod ranks;

#[cfg(dure_backend = "sim")]
mod causes;
#[cfg(dure_backend = "sim")]
mod play;
mod probe;
mod stage;
mod validate;
mod work;

pub use dure_bench::fxmark::Workload;
pub use dure_vcpu::models::{FIGURES, Figure, Machine};
pub use instructions::{CALLS, Counted};
pub use plan::{CORES_MAX, Cause, Plan, Planted, Point, machine};
#[cfg(dure_backend = "sim")]
pub use play::point;
pub use policy::Policy;
pub use validate::{Judged, Measured, PREDICTED, WITHIN_PERCENT, judge, measure};
pub use work::{Kind, Requests, Work};
