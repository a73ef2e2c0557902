//! What came out of a run.
//!
//! **Problem.** A failed run must be replayable, a good one measurable. **Structure.**
//! [`Report`] for runs that ended, [`Failure`] for those that did not. **Invariants.** The text of
//! a failure begins with the seed. **Crash.** Nothing is kept.

use std::fmt;

use crate::config::Config;
use crate::lines::HotLine;

/// The figures of a finished run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// A digest of every scheduling decision and clock: equal for equal runs.
    pub schedule_hash: u64,
    /// Visible operations.
    pub steps: u64,
    /// Changes of task.
    pub switches: u64,
    /// The latest clock of any core at the end.
    pub virtual_ns: u64,
    /// Moves of cache lines between cores.
    pub transfers: u64,
    /// The lines that moved most, hottest first, at most 16.
    pub hot_lines: Vec<HotLine>,
}

/// Why a run could not go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FailureKind {
    /// A task panicked.
    Panic {
        /// The task, its core and clock.
        task: String,
        /// The message of the panic.
        message: String,
    },
    /// No task can ever run again.
    Deadlock {
        /// Each blocked task, its core and clock, and what it waits for.
        tasks: Vec<String>,
    },
    /// The run took more steps than its config allows.
    StepLimit {
        /// The bound.
        steps_max: u64,
        /// Each unfinished task, its core and clock.
        tasks: Vec<String>,
    },
}

/// A run that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The run, for doing it again.
    pub config: Config,
    /// The name of the thread it ran on, which is the name of the test if it was one.
    pub test: String,
    /// What happened.
    pub kind: FailureKind,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Config {
            seed,
            cores,
            schedule,
            ..
        } = &self.config;
        write!(f, "seed={seed} cores={cores} schedule={schedule:?}: ")?;
        match &self.kind {
            FailureKind::Panic { task, message } => write!(f, "{task} panicked: {message}")?,
            FailureKind::Deadlock { tasks } => {
                write!(f, "deadlock:")?;
                tasks.iter().try_for_each(|task| write!(f, "\n  {task}"))?;
            }
            FailureKind::StepLimit { steps_max, tasks } => {
                write!(f, "no end after {steps_max} steps:")?;
                tasks.iter().try_for_each(|task| write!(f, "\n  {task}"))?;
            }
        }
        write!(
            f,
            "\nreplay: cargo xtask sim --seed {seed} -- {}",
            self.test
        )
    }
}

impl std::error::Error for Failure {}
