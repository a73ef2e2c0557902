//! What a seed decides in all suites of schedules: the cores, the schedule, the workers.
//!
//! **Problem.** Races of calls with the background threads are found only where these run, in every
//! suite, under every schedule. **Structure.** A [`Trial`] is one seed of a suite: it makes the
//! machine, and the options that the suite mounts its volumes with; half of the seeds run the
//! product's workers, a third of these so many that each core has two tasks. **Invariants.** The
//! seed decides all of it. **On a crash** nothing of this remains.

use std::time::Duration;

use dure_block::Device;
use dure_fs::{Background, FileSystem, MountOptions, VolumeRules};
use dure_sync::Arc;
use dure_sync::sim::{Config, Rng, seeds, try_run};

/// The commit intervals of workers: a run takes 60 us to 20 ms of virtual time.
const ROUNDS: [Duration; 3] = [
    Duration::from_micros(10),
    Duration::from_micros(40),
    Duration::from_micros(200),
];

/// One seed of a suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trial {
    /// The source of every choice.
    pub seed: u64,
    /// Virtual cores.
    pub cores: u16,
}

impl Trial {
    /// The seed on so many cores.
    #[must_use]
    pub fn new(seed: u64, cores: u16) -> Trial {
        Trial { seed, cores }
    }

    /// The seed on two to four cores.
    ///
    /// # Panics
    /// Never: the remainder is small.
    #[must_use]
    pub fn any(seed: u64) -> Trial {
        let more = u16::try_from(seed / 3 % 3).expect("at most 2");
        Trial::new(seed, 2 + more)
    }

    /// The machine: one of three schedules.
    #[must_use]
    pub fn config(self) -> Config {
        let ways = [Config::random, Config::stall, Config::priority];
        let way = ways[usize::try_from(self.seed % 3).expect("at most 2")];
        way(usize::from(self.cores), self.seed)
    }

    /// A small cache, and the workers of this seed.
    #[must_use]
    pub fn options(self) -> MountOptions {
        self.with_workers(super::quiet())
    }

    /// These options, with workers in half of the seeds: one, two, or one per core.
    #[must_use]
    pub fn with_workers(self, options: MountOptions) -> MountOptions {
        let mut random = Rng::new(self.seed ^ 0x3a0b_c7e5);
        if random.one_in(2) {
            return options;
        }
        MountOptions {
            background: Background::Workers,
            workers: Some([1, 2, self.cores.into()][random.index(3)]),
            commit_interval: ROUNDS[random.index(ROUNDS.len())],
            ..options
        }
    }

    /// Mounts a small volume.
    ///
    /// # Panics
    /// If it cannot be mounted.
    #[must_use]
    pub fn mount(self, device: Arc<dyn Device>, volume_rules: VolumeRules) -> FileSystem {
        let options = MountOptions {
            volume_rules,
            ..self.options()
        };
        FileSystem::open(device, options).expect("a small volume is mounted")
    }

    /// Runs `body` on the machine.
    ///
    /// # Errors
    /// A panic, deadlock or hang, with what replays it.
    pub fn play<T: 'static>(self, body: impl FnOnce() -> T + 'static) -> Result<T, String> {
        match try_run(self.config(), body) {
            Ok(run) => Ok(run.value),
            Err(failure) => Err(failure.to_string()),
        }
    }
}

/// Plays `body` on `cores` cores, with `count` seeds or as many as the environment says.
///
/// # Panics
/// If a seed fails.
pub fn play_each(count: u64, cores: u16, body: impl Fn(Trial) + Copy + 'static) {
    for seed in seeds(count) {
        let trial = Trial::new(seed, cores);
        if let Err(what) = trial.play(move || body(trial)) {
            panic!("{what}");
        }
    }
}

/// Plays `play` under each of the rules, on two to four cores, with `count` seeds or as many as the
/// environment says.
///
/// # Panics
/// If it ends with an error.
pub fn play_under<R: Copy + std::fmt::Debug>(
    rules: &[R],
    count: u64,
    play: impl Fn(R, Trial) -> Result<(), String>,
) {
    for &rule in rules {
        for seed in seeds(count) {
            if let Err(what) = play(rule, Trial::any(seed)) {
                panic!("{rule:?} seed={seed}: {what}");
            }
        }
    }
}
