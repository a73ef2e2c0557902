//! Configuration of a run.
//!
//! **Problem.** Finding races needs unfair schedules, measuring needs fair ones. **Structure.**
//! [`Config`] names the cores, the seed, the [`Schedule`] and the costs. **Invariants.** A
//! config and a program determine the run entirely. **Crash.** Nothing is kept.

use crate::models::{CostModel, GENERIC};

/// The most cores a run can have: each line has a bit for each.
pub const CORES_MAX: usize = 1024;

/// Which task runs next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Schedule {
    /// Any task that can run, drawn at random at every visible operation (in some runs less
    /// often, by seed). Sleepers wake without reason now and then, timers may fire early with
    /// respect to other cores. Finds races; times mean little.
    Random,
    /// The ready task with the highest priority, drawn at its start; at one operation in
    /// `change_every` the running task falls below all others, as does one that spins or yields.
    /// Finds races that need few but particular switches (probabilistic concurrency testing).
    Priority {
        /// Operations per change of priority, on average.
        change_every: u64,
    },
    /// The core with the smallest clock; but at one operation in `every` the core loses up to
    /// `ns`, as if it were interrupted there. Finds races that need one long pause.
    Stall {
        /// Operations per stall, on average.
        every: u64,
        /// The longest stall.
        ns: u64,
    },
    /// The core with the smallest clock, all costs varied by up to `percent`. For error bars.
    Jitter {
        /// The largest deviation, at most 100.
        percent: u64,
    },
    /// The core with the smallest clock. For measurements.
    MinClock {
        /// How far cache hits may run ahead of the slowest core without a switch: 0 is exact,
        /// 100 is faster and shows no difference.
        ahead_ns: u64,
    },
}

impl Schedule {
    /// Whether any ready task may run next, whatever its core's clock says.
    pub(crate) const fn ignores_clocks(self) -> bool {
        matches!(self, Self::Random | Self::Priority { .. })
    }

    /// Whether times are those of the modelled machine.
    pub(crate) const fn is_measurement(self) -> bool {
        matches!(self, Self::MinClock { .. } | Self::Jitter { .. })
    }
}

/// Configuration of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Virtual cores, 1 to [`CORES_MAX`].
    pub cores: usize,
    /// The source of every choice and random number.
    pub seed: u64,
    /// Which task runs next.
    pub schedule: Schedule,
    /// Stack of each task. Overflow hits a guard page: the program ends with SIGSEGV.
    pub stack_bytes: usize,
    /// Visible operations after which a run counts as hanging.
    pub steps_max: u64,
    /// What operations cost.
    pub model: CostModel,
}

impl Config {
    /// `cores` cores under `schedule` with `seed`, generic costs.
    #[must_use]
    pub const fn new(cores: usize, seed: u64, schedule: Schedule) -> Self {
        Self {
            cores,
            seed,
            schedule,
            stack_bytes: 256 * 1024,
            steps_max: 50_000_000,
            model: GENERIC,
        }
    }

    /// A random schedule on `cores` cores.
    #[must_use]
    pub const fn random(cores: usize, seed: u64) -> Self {
        Self::new(cores, seed, Schedule::Random)
    }

    /// A fair schedule with a stall of up to 50 us at one operation in 50.
    #[must_use]
    pub const fn stall(cores: usize, seed: u64) -> Self {
        Self::new(
            cores,
            seed,
            Schedule::Stall {
                every: 50,
                ns: 50_000,
            },
        )
    }

    /// The exact fair schedule on `cores` cores.
    #[must_use]
    pub const fn min_clock(cores: usize) -> Self {
        Self::new(cores, 0, Schedule::MinClock { ahead_ns: 0 })
    }

    /// This configuration with another bound of steps.
    #[must_use]
    pub const fn with_steps_max(mut self, steps_max: u64) -> Self {
        self.steps_max = steps_max;
        self
    }

    /// This configuration with other costs.
    #[must_use]
    pub fn with_model(mut self, model: CostModel) -> Self {
        self.model = model;
        self
    }

    /// A priority schedule that changes a priority at one operation in 100.
    #[must_use]
    pub const fn priority(cores: usize, seed: u64) -> Self {
        Self::new(cores, seed, Schedule::Priority { change_every: 100 })
    }

    pub(crate) fn validate(&self) {
        assert!(
            (1..=CORES_MAX).contains(&self.cores),
            "1 to {CORES_MAX} cores, not {}",
            self.cores
        );
        assert!(
            self.model.cores_per_socket > 0,
            "a socket has at least a core"
        );
        assert!(self.steps_max > 0, "a run may take at least one step");
        if let Schedule::Jitter { percent } = self.schedule {
            assert!(percent <= 100, "costs cannot vary by {percent} %");
        }
    }
}
