//! Scripts: sequences of steps, made by hand or from a seed.

use dure_block::crash::Selection;
use dure_journal::{CommitError, JournalId};

use super::buffers::{Buffers, Change, Checkpoint, TestRules};
use super::disk::{format, segment_at};
use super::power::{Effort, cut_everywhere, reboot};
use super::recover::mount;
use dure_sync::amount;
use dure_sync::random::Seeded;

/// One step.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step {
    Change(Change),
    /// fsync of a set of granules.
    Commit(u8),
    CommitAll,
    /// What a timer does: the commit of one journal, which promises nothing.
    Timer(u16),
    /// Somebody else's flush.
    Flush,
    /// The cut and the copies of a checkpoint.
    CheckpointCopy,
    /// So many of its other steps.
    CheckpointFinish(u8),
    /// The ring of a journal gets another segment.
    Grow(u16),
    /// A free segment of the first ring goes to the second.
    Move(u16, u16),
    /// A crash, a recovery, the next epoch.
    Reboot(u64),
}

/// A change.
pub(crate) fn change(core: u16, writes: u8, reads: u8) -> Step {
    Step::Change(Change {
        core,
        writes,
        reads,
        note: 0,
    })
}

/// A volume on which a script runs.
pub(crate) struct Run {
    pub(crate) buffers: Buffers,
    effort: Effort,
    checkpoint: Option<Checkpoint>,
    grown: u64,
    pub(crate) moved: usize,
    pub(crate) states: usize,
    pub(crate) steps: Vec<Step>,
    pub(crate) log_full: usize,
}

impl Run {
    pub(crate) fn new(journals: usize, segments: u64, rules: TestRules, effort: Effort) -> Self {
        Self {
            buffers: mount(format(journals, segments), rules),
            effort,
            checkpoint: None,
            grown: 0,
            moved: 0,
            states: 0,
            steps: Vec::new(),
            log_full: 0,
        }
    }

    /// Does one step. A full log is answered with a checkpoint, as the file system would.
    ///
    /// # Errors
    /// A violation found by a reboot.
    pub(crate) fn step(&mut self, step: Step) -> Result<(), String> {
        self.steps.push(step);
        match step {
            Step::Change(change) => {
                if self.buffers.change(change).is_none() {
                    self.log_full();
                    self.buffers
                        .change(change)
                        .expect("a checkpoint makes room");
                }
            }
            Step::Commit(mask) => {
                while let Err(error) = self.buffers.commit(mask) {
                    assert!(matches!(error, CommitError::LogFull(_)), "{error}");
                    self.log_full();
                }
            }
            Step::CommitAll => {
                while let Err(error) = self.buffers.commit_all() {
                    assert!(matches!(error, CommitError::LogFull(_)), "{error}");
                    self.log_full();
                }
            }
            Step::Timer(journal) => {
                let id = [JournalId::new(journal).unwrap()];
                while let Err(error) = self.buffers.journal.commit_joined(&id) {
                    assert!(matches!(error, CommitError::LogFull(_)), "{error}");
                    self.log_full();
                }
            }
            Step::Flush => self.buffers.queue.flush().unwrap(),
            Step::CheckpointCopy => self.checkpoint = Some(self.buffers.checkpoint_copy()),
            Step::CheckpointFinish(steps) => {
                if let Some(checkpoint) = self.checkpoint.take() {
                    self.buffers
                        .checkpoint_finish(&checkpoint, steps)
                        .expect("it has its space");
                }
            }
            Step::Grow(journal) => {
                let id = JournalId::new(journal).unwrap();
                let segment = segment_at(64 + self.grown);
                self.grown += 1;
                self.buffers.journal.grow(id, segment).unwrap();
            }
            Step::Move(from, to) => {
                let [from, to] = [from, to].map(|id| JournalId::new(id).unwrap());
                let journal = &self.buffers.journal;
                for segment in journal.shrink(from, 1).unwrap() {
                    journal.grow(to, segment).unwrap();
                    self.moved += 1;
                }
            }
            Step::Reboot(draw) => {
                self.states += cut_everywhere(&self.buffers, self.effort)?;
                self.checkpoint = None;
                self.buffers = reboot(&self.buffers, draw)?;
            }
        }
        Ok(())
    }

    fn log_full(&mut self) {
        self.log_full += 1;
        // One checkpoint at a time: the half-done one is given up.
        self.checkpoint = None;
        self.buffers.checkpoint();
    }

    /// Cuts the power everywhere in the last epoch.
    ///
    /// # Errors
    /// The first violation.
    pub(crate) fn finish(&mut self) -> Result<usize, String> {
        self.buffers.check_settled();
        self.states += cut_everywhere(&self.buffers, self.effort)?;
        Ok(self.states)
    }
}

/// What random scripts are made of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mix {
    pub(crate) steps: usize,
    pub(crate) note_max: u16,
    pub(crate) checkpoints: bool,
    pub(crate) reboots: bool,
    pub(crate) grow: bool,
}

impl Mix {
    /// Some of everything.
    pub(crate) const ALL: Mix = Mix {
        steps: 60,
        note_max: 1500,
        checkpoints: true,
        reboots: true,
        grow: true,
    };
    /// Fills the log again and again.
    pub(crate) const FULL_LOG: Mix = Mix {
        steps: 200,
        note_max: 3000,
        checkpoints: false,
        reboots: false,
        grow: false,
    };
}

/// How many seeds: `DURE_CRASH_SEEDS`, or a number fit for every day.
pub(crate) fn seeds(every_day: u64) -> u64 {
    std::env::var("DURE_CRASH_SEEDS").map_or(every_day, |text| text.parse().expect("a number"))
}

/// Seeded scripts on one to three journals, cut everywhere. Gives the number of crash states.
pub(crate) fn random_scripts(rules: TestRules) -> usize {
    let (mut states, mut moved) = (0, 0);
    for seed in 0..seeds(amount::either(90, 200)) {
        let journals = 1 + usize::try_from(seed % 3).unwrap();
        let run = run_random(seed, journals, Mix::ALL, rules).unwrap();
        states += run.states;
        moved += run.moved;
    }
    assert!(moved > 5, "segments go from ring to ring, not {moved}");
    states
}

/// Scripts long enough to wrap around the log. Gives the number of crash states.
pub(crate) fn long_scripts(rules: TestRules) -> usize {
    let (mut states, mut full) = (0, 0);
    for seed in 0..seeds(amount::either(20, 60)) {
        let run = run_random(seed, 2, Mix::FULL_LOG, rules).unwrap();
        states += run.states;
        full += run.log_full;
    }
    assert!(
        full > 100,
        "the log must wrap around for this test to mean anything, not {full} times"
    );
    states
}

/// A random step.
pub(crate) fn random_step(random: &mut Seeded, journals: usize, mix: Mix) -> Step {
    let core = u16::try_from(random.index(journals)).unwrap();
    let mask = |random: &mut Seeded| {
        let one = 1_u8 << random.below(4);
        let two = 1_u8 << random.below(4);
        if random.below(3) == 0 { one | two } else { one }
    };
    match random.below(100) {
        0..60 => {
            let writes = mask(random);
            let reads = if random.below(3) == 0 {
                mask(random) & !writes
            } else {
                0
            };
            let long = mix.note_max > 5 && random.below(3) == 0;
            let note = if long {
                5 + u16::try_from(random.below(mix.note_max.into())).unwrap()
            } else {
                0
            };
            Step::Change(Change {
                core,
                writes,
                reads,
                note,
            })
        }
        60..70 => Step::Commit(mask(random)),
        70..76 => Step::Timer(core),
        76..79 => Step::CommitAll,
        79..82 => Step::Flush,
        82..88 if mix.checkpoints => Step::CheckpointCopy,
        88..95 if mix.checkpoints => Step::CheckpointFinish([1, 2, 3, 4, 4, 4][random.index(6)]),
        95 if mix.grow => Step::Grow(core),
        96 if mix.grow => Step::Move(core, (core + 1) % u16::try_from(journals).unwrap()),
        97..100 if mix.reboots => Step::Reboot(random.next_u64()),
        _ => Step::Commit(15),
    }
}

/// Runs the script of `seed`.
///
/// # Errors
/// The first violation, with the seed and the steps.
pub(crate) fn run_random(
    seed: u64,
    journals: usize,
    mix: Mix,
    rules: TestRules,
) -> Result<Run, String> {
    let mut random = Seeded::new(seed);
    let effort = Effort {
        selection: Selection {
            seed,
            exhaustive_max: 6,
            random: 12,
            ..Effort::default().selection
        },
        ..Effort::default()
    };
    let mut run = Run::new(journals, 2, rules, effort);
    let mut play = || {
        for _ in 0..mix.steps {
            run.step(random_step(&mut random, journals, mix))?;
        }
        run.finish()
    };
    let result = play();
    result.map_err(|what| format!("seed={seed} {what}\n{:?}", run.steps))?;
    Ok(run)
}
