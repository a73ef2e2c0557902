//! Logs written prefix by prefix, with no closure and no flush of their own.
//!
//! The public API cannot leave a log behind its dependencies; a crash in the middle of a commit
//! can. Here the test writes any prefix of any journal at any time, and flushes when it likes. A
//! handle counts as promised when it is in the greatest set of *durable* transactions that is
//! closed under marks: the definition of valid.

use dure_journal::{JournalId, Mark, Rules};
use dure_sync::canary::Rule;

use super::buffers::{Buffers, Change, TestRules};
use super::disk::format;
use super::power::{Effort, cut_everywhere};
use super::recover::mount;

/// One step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scatter {
    Change {
        core: u16,
        writes: u8,
        reads: u8,
    },
    /// Everything pending in a journal becomes one transaction.
    Prefix(u16),
    Flush,
}

/// The rules of such a run: a test's own, without closure and flush.
pub(crate) fn scattered(rules: TestRules) -> TestRules {
    TestRules {
        journal: Rules {
            closure: Rule::LEFT_OUT,
            flush: Rule::LEFT_OUT,
            ..rules.journal
        },
        ..rules
    }
}

pub(crate) struct ScatterRun {
    pub(crate) buffers: Buffers,
    /// Last joined handle by journal.
    joined: Vec<u64>,
    /// Transactions (journal, first, last) in the order in which they were written.
    written: Vec<(u16, u64, u64)>,
}

impl ScatterRun {
    pub(crate) fn new(journals: usize, rules: TestRules) -> Self {
        let buffers = mount(format(journals, 2), scattered(rules));
        Self {
            buffers,
            joined: vec![0; journals],
            written: Vec::new(),
        }
    }

    fn written_upto(&self, journal: u16) -> u64 {
        let own = self.written.iter().filter(|(id, _, _)| *id == journal);
        own.map(|(_, _, last)| *last).max().unwrap_or(0)
    }

    /// Whether the step changes anything.
    pub(crate) fn is_useful(&self, step: Scatter) -> bool {
        match step {
            Scatter::Prefix(journal) => {
                self.joined[usize::from(journal)] > self.written_upto(journal)
            }
            Scatter::Flush | Scatter::Change { .. } => true,
        }
    }

    pub(crate) fn step(&mut self, step: Scatter) {
        match step {
            Scatter::Change {
                core,
                writes,
                reads,
            } => {
                let change = Change {
                    core,
                    writes,
                    reads,
                    note: 0,
                };
                let mark = self.buffers.change(change).expect("short scripts fit");
                self.joined[usize::from(core)] = mark.number();
            }
            Scatter::Prefix(journal) => {
                let (first, last) = (
                    self.written_upto(journal) + 1,
                    self.joined[usize::from(journal)],
                );
                let mark = Mark::new(JournalId::new(journal).unwrap(), last);
                self.buffers
                    .journal
                    .commit(&[mark])
                    .expect("short scripts fit");
                self.written.push((journal, first, last));
            }
            Scatter::Flush => {
                self.buffers.queue.flush().unwrap();
                let valid = self.valid();
                self.buffers.promise(&valid);
            }
        }
    }

    /// Every handle in the greatest closed set of what is written.
    fn valid(&self) -> Vec<Mark> {
        let truth = self.buffers.truth.lock();
        let mark = |journal: u16, number| Mark::new(JournalId::new(journal).unwrap(), number);
        let mut alive = self.written.clone();
        loop {
            let there = |wanted: &Mark| {
                alive.iter().any(|(journal, first, last)| {
                    wanted.journal().number() == *journal
                        && (*first..=*last).contains(&wanted.number())
                })
            };
            let stands = |(journal, first, last): &(u16, u64, u64)| {
                truth
                    .operations
                    .iter()
                    .filter(|operation| operation.mark.journal().number() == *journal)
                    .filter(|operation| (*first..=*last).contains(&operation.mark.number()))
                    .flat_map(|operation| operation.wrote_after.iter().chain(&operation.read_from))
                    .all(|needed| needed.is_none() || there(needed))
            };
            let next: Vec<_> = alive.iter().copied().filter(stands).collect();
            if next.len() == alive.len() {
                break;
            }
            alive = next;
        }
        let numbers = |(journal, first, last): (u16, u64, u64)| {
            (first..=last).map(move |number| mark(journal, number))
        };
        alive.into_iter().flat_map(numbers).collect()
    }

    /// # Errors
    /// The first violation.
    pub(crate) fn finish(&self, effort: Effort) -> Result<usize, String> {
        cut_everywhere(&self.buffers, effort)
    }
}

/// The steps of exhaustive runs on two journals and two granules.
pub(crate) const ALPHABET: [Scatter; 11] = [
    Scatter::Change {
        core: 0,
        writes: 1,
        reads: 0,
    },
    Scatter::Change {
        core: 0,
        writes: 2,
        reads: 0,
    },
    Scatter::Change {
        core: 0,
        writes: 3,
        reads: 0,
    },
    Scatter::Change {
        core: 0,
        writes: 1,
        reads: 2,
    },
    Scatter::Change {
        core: 1,
        writes: 1,
        reads: 0,
    },
    Scatter::Change {
        core: 1,
        writes: 2,
        reads: 0,
    },
    Scatter::Change {
        core: 1,
        writes: 3,
        reads: 0,
    },
    Scatter::Change {
        core: 1,
        writes: 1,
        reads: 2,
    },
    Scatter::Prefix(0),
    Scatter::Prefix(1),
    Scatter::Flush,
];

/// Every script of `depth` steps over [`ALPHABET`] that ends with a write of a log. Returns how
/// many crash states were tried.
///
/// # Errors
/// The first violation, with its script.
pub(crate) fn exhaust(depth: usize, rules: TestRules, effort: Effort) -> Result<usize, String> {
    let mut states = 0;
    let mut script = vec![0; depth];
    loop {
        let ends_with_write = matches!(ALPHABET[script[depth - 1]], Scatter::Prefix(_));
        if ends_with_write {
            states += play(&script, rules, effort).map_err(|what| {
                format!(
                    "{what}\n{:?}",
                    script
                        .iter()
                        .map(|step| ALPHABET[*step])
                        .collect::<Vec<_>>()
                )
            })?;
        }
        let Some(place) = script.iter().rposition(|step| step + 1 < ALPHABET.len()) else {
            return Ok(states);
        };
        script[place] += 1;
        script[place + 1..].fill(0);
    }
}

fn play(script: &[usize], rules: TestRules, effort: Effort) -> Result<usize, String> {
    // Scripts that start with anything but a change are tried as shorter ones.
    if !matches!(ALPHABET[script[0]], Scatter::Change { .. }) {
        return Ok(0);
    }
    let mut run = ScatterRun::new(2, rules);
    for step in script {
        if !run.is_useful(ALPHABET[*step]) {
            return Ok(0);
        }
        run.step(ALPHABET[*step]);
    }
    run.finish(effort)
}
