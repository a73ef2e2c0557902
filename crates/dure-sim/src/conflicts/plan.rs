//! Whether a pair commutes, and the steps to play it.
//!
//! Two calls commute in a state if both orders give each call the same answer and leave the same
//! state, according to the model. Inode numbers do not count as state. Times count where a call
//! returns them: `stat` does not commute with a call that changes the times of its argument; two
//! calls that change the times of one inode do. What `fsync` promises counts as its answer, so it
//! does not commute with a change of its file.

use super::act::{Act, JOINT, LAST, Side};
use super::scene;
use crate::model::{ModelFs, Node, Operation, Outcome, Step, Who};

/// A call and what it must give.
#[derive(Debug, Clone)]
pub(super) struct Planned {
    pub(super) step: Step,
    pub(super) answer: Outcome,
}

/// What both cores do before the next stage begins.
#[derive(Debug, Clone)]
pub(super) enum Stage {
    /// One core does something, the other waits.
    Alone(Side, Vec<Planned>),
    /// The second core gets the descriptor that both have.
    Share,
    /// Both do one call at the same time.
    Together(Box<[Planned; 2]>),
}

/// How a pair is played: the last stage is the one that counts.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) stages: Vec<Stage>,
}

fn step(operation: Operation) -> Step {
    let who = Who::Root;
    Step { who, operation }
}

/// The visible result of a call: its answer, and what it promised.
fn told(model: &mut ModelFs, step: &Step) -> (Outcome, Option<Node>) {
    let answer = model.apply_marking(step);
    let promise = match step.operation {
        Operation::Fsync { slot, .. } => model.promise(slot),
        _ => None,
    };
    (answer, promise)
}

/// Whether the two calls commute in the state of `model`.
pub(super) fn commute(model: &ModelFs, first: &Step, second: &Step) -> bool {
    let mut forward = model.clone();
    forward.age();
    let mut backward = forward.clone();
    let ahead = (told(&mut forward, first), told(&mut forward, second));
    let behind = told(&mut backward, second);
    ahead == (told(&mut backward, first), behind) && forward.normal() == backward.normal()
}

struct Planner<'a> {
    model: ModelFs,
    acts: [&'a Act; 2],
    stages: Vec<Stage>,
}

/// Rehearsals of calls that can be repeated: enough that adaptive structures have reached a steady
/// state. On simulated cores they do after two meetings of cores ([`dure_sync::CONTENDED_AFTER`]).
pub const REPEATS: u64 = 16;
/// Meetings after which they do so on real cores: each pair would take hundreds of rehearsals.
pub const REAL_MEETINGS: u32 = 32;
#[cfg(not(any(dure_backend = "sim", dure_backend = "loom")))]
const _: () = assert!(REAL_MEETINGS == dure_sync::CONTENDED_AFTER);

const SIDES: [Side; 2] = [Side::First, Side::Second];

impl Planner<'_> {
    fn act(&self, side: Side) -> &Act {
        self.acts[side.index()]
    }

    fn planned(&mut self, step: Step) -> Planned {
        let answer = self.model.apply(&step);
        Planned { step, answer }
    }

    /// One core does `operations`.
    fn alone(&mut self, side: Side, operations: impl IntoIterator<Item = Operation>) {
        let planned: Vec<Planned> = operations
            .into_iter()
            .map(|operation| self.planned(step(operation)))
            .collect();
        if !planned.is_empty() {
            self.stages.push(Stage::Alone(side, planned));
        }
    }

    fn open(&mut self) {
        let joint = SIDES.map(|side| self.act(side).slot(side) == JOINT);
        for side in SIDES {
            // Both cores share one descriptor, which the first side opens.
            if joint == [true, true] && side == Side::Second {
                continue;
            }
            let opening = self.act(side).opening(side);
            self.alone(side, opening);
        }
        if joint == [true, true] {
            self.stages.push(Stage::Share);
        }
    }

    /// A round, up to its two calls.
    fn prepare(&mut self, round: u64) -> [Step; 2] {
        for side in SIDES {
            let preparation = self.act(side).preparation(side, round);
            self.alone(side, preparation);
        }
        SIDES.map(|side| step(self.act(side).at(side, round)))
    }

    /// Fills the caches: each core looks a few times at what its call will name.
    fn look(&mut self, round: u64) {
        for _ in 0..3 {
            for side in SIDES {
                let paths = self.act(side).paths(round);
                let looks = paths.into_iter().map(|path| Operation::Stat {
                    path,
                    follow: false,
                });
                self.alone(side, looks.collect::<Vec<_>>());
            }
        }
    }

    fn rehearse(&mut self, round: u64) {
        let steps = self.prepare(round);
        self.look(round);
        // And at what only the round that counts will use up: it is no first contact then.
        self.look(LAST);
        let together = commute(&self.model, &steps[0], &steps[1]);
        let both = steps.map(|step| self.planned(step));
        if together {
            self.stages.push(Stage::Together(Box::new(both)));
        } else {
            let [first, second] = both;
            self.stages.push(Stage::Alone(Side::First, vec![first]));
            self.stages.push(Stage::Alone(Side::Second, vec![second]));
        }
        for side in SIDES {
            let clearing = self.act(side).clearing(side);
            // Closes what the call opened; if the open failed, the model expects an error here.
            self.alone(side, clearing);
        }
    }
}

/// How `first` on core 0 and `second` on core 1 are played; nothing if they do not commute.
pub(super) fn plan(made: &Made, first: &Act, second: &Act) -> Option<Plan> {
    let mut planner = Planner {
        model: made.model.clone(),
        acts: [first, second],
        stages: made.stages.clone(),
    };
    planner.open();
    let again = SIDES
        .iter()
        .all(|side| planner.act(*side).uses_nothing_up(*side));
    for turn in 0..if again { REPEATS } else { LAST } {
        planner.rehearse(turn % LAST);
    }
    let steps = planner.prepare(LAST);
    planner.look(LAST);
    if !commute(&planner.model, &steps[0], &steps[1]) {
        return None;
    }
    let both = steps.map(|step| planner.planned(step));
    planner.stages.push(Stage::Together(Box::new(both)));
    Some(Plan {
        stages: planner.stages,
    })
}

/// The tree before the pair does anything.
#[derive(Debug)]
pub(super) struct Made {
    model: ModelFs,
    stages: Vec<Stage>,
}

impl Made {
    pub(super) fn new() -> Made {
        let act = super::acts(Side::First);
        let mut planner = Planner {
            model: ModelFs::new(),
            acts: [&act[0], &act[0]],
            stages: Vec::new(),
        };
        for side in SIDES {
            planner.alone(side, scene::making(side));
        }
        Made {
            model: planner.model,
            stages: planner.stages,
        }
    }
}
