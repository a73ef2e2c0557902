//! Random sequences of a few operations, on two cores, with everything in between.

use super::call::{At, Call, Step, Workload};
use super::cores::start;
use super::workload::operations;

/// Numbers from a seed.
#[derive(Debug)]
struct Dice {
    seed: u64,
    thrown: u64,
}

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.thrown += 1;
        let word = xxhash_rust::xxh3::xxh3_64_with_seed(&self.thrown.to_le_bytes(), self.seed);
        let limit = u64::try_from(limit).expect("64 bits");
        usize::try_from(word % limit).expect("below a usize")
    }
}

/// A workload of `calls` calls that succeed, each perhaps on another core, with persistence points,
/// background work and checkpoints between them.
#[must_use]
pub fn random(seed: u64, calls: usize) -> Workload {
    let mut dice = Dice { seed, thrown: 0 };
    let pool: Vec<(Call, Vec<At>)> = pool();
    let mut history = start();
    let mut steps: Vec<Step> = Vec::new();
    let mut done = 0;
    while done < calls {
        let (call, concerned) = &pool[dice.below(pool.len())];
        let step = Step::Call(*call);
        if !history.possible(&step) {
            continue;
        }
        if dice.below(3) == 0 {
            steps.push(Step::Core(dice.below(2)));
        }
        history.step(steps.len(), &step);
        steps.push(step);
        done += 1;
        let Some(next) = between(&mut dice, concerned, done == calls) else {
            continue;
        };
        if history.possible(&next) {
            history.step(steps.len(), &next);
            steps.push(next);
        }
    }
    Workload { setup: 1, steps }
}

fn pool() -> Vec<(Call, Vec<At>)> {
    let of_one = operations().into_iter().flat_map(|operation| {
        let mut concerned = operation.files.clone();
        concerned.extend(operation.directories.iter().map(|path| At::Path(path)));
        let calls = operation.steps.into_iter().filter_map(|step| match step {
            Step::Call(call) => Some(call),
            _ => None,
        });
        calls
            .map(|call| (call, concerned.clone()))
            .collect::<Vec<_>>()
    });
    let on_cores = super::cores::operations().into_iter();
    of_one
        .chain(on_cores.map(|(call, at)| (call, vec![at])))
        .collect()
}

/// What happens after a call; behind the last one something always does.
fn between(dice: &mut Dice, concerned: &[At], is_last: bool) -> Option<Step> {
    let at = |dice: &mut Dice| match concerned.len() {
        0 => At::Path(""),
        len => concerned[dice.below(len)],
    };
    let number = |dice: &mut Dice| u8::try_from(dice.below(3)).expect("below 3");
    Some(match dice.below(if is_last { 9 } else { 18 }) {
        0 => Step::Fsync(at(dice)),
        1 => Step::Fdatasync(at(dice)),
        2 => Step::Sync,
        3 | 4 => Step::WriteBack,
        5 => Step::Checkpoint,
        6 => Step::Fsync(at(dice)),
        7 => Step::Snapshot(number(dice)),
        8 => Step::DropSnapshot(number(dice)),
        _ => return None,
    })
}
