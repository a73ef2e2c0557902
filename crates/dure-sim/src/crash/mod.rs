//! The proof that nothing is lost: small workloads, every crash, every legal outcome.
//!
//! **Problem.** The contract of docs/design/durability.md speaks of any crash at any instant.
//! **Structure.** `call` is a workload as data and `workload` makes them (all of one operation, as
//! ACE does); `perform` carries one out on dure-fs; `history` splits it into atomic changes and
//! `state` applies them; `run` records the writes on a copy of `base`, cuts the power after every
//! step with subsets of what was not flushed, and recovers, or finds in `memo` what recovery makes
//! of it; `legal` says whether the tree is one that the contract allows; `tree` reads it; `options`
//! say how much of this is done. **Invariants.** A failure
//! prints workload, step and subset, which replay it (docs/testing/crashes.md). **Crash.** The
//! model of it is `dure_block::crash`.

pub mod ace;
mod base;
mod call;
pub mod campaign;
pub mod chipmunk;
mod content;
pub mod cores;
pub mod faults;
mod gate;
mod history;
mod legal;
mod memo;
mod options;
mod pairs;
mod parse;
mod perform;
mod possible;
mod recover;
mod run;
pub mod sequence;
mod state;
mod suite;
mod tree;
pub mod workload;

pub use crate::media::On;
pub use base::{Base, VOLUME_BLOCKS};
pub use call::{At, Call, Path, Step, Workload, pattern};
pub use gate::{Gate, GateDevice};
pub use history::{Atom, History, Version};
pub use legal::{CrashMoment, check};
pub use memo::Memo;
pub use options::{CrashFrom, CrashSteps, Options, Times, mount_options};
pub use perform::{Performer, Stage};
pub(crate) use recover::caught;
pub use run::{Counts, Recording, Violation};
pub use state::{Effect, Id, Name, Node, ROOT, State};
pub use suite::{Outcome, run_all, run_all_with};
pub use tree::{Item, Tree};
