//! The two functions that callgrind counts, and the rounds around them.
//!
//! **Problem.** A call needs things (a name to remove) whose making must not be counted, and a
//! directory of 100 names must not grow to thousands. **Structure.** Calls come in rounds:
//! `prepare`, some counted calls, `undo`. The volume has no background thread: its work is done
//! here, after a longer round of calls, and counted separately.
//! **Invariants.** The first rounds, which find everything cold, are not counted.

use anyhow::Result;

use crate::scene::Scene;

/// Calls of a round, if the operation does not say otherwise.
pub(crate) const ROUND_CALLS: usize = 50;
/// Rounds that are counted, and before them some that are not.
const ROUNDS: usize = 20;
const WARM_ROUNDS: usize = 4;
/// Calls that one round of background work follows.
pub(crate) const BACKGROUND_CALLS: usize = 1000;

/// One kind of call.
pub(crate) trait Operation {
    /// Prepares what the next `count` calls need.
    fn prepare(&mut self, count: usize) -> Result<()>;
    /// The call `index` since `prepare`.
    fn call(&mut self, index: usize) -> Result<()>;
    /// Makes the volume as it was before the last `count` calls.
    fn undo(&mut self, count: usize) -> Result<()>;
    /// The volume.
    fn scene(&self) -> &Scene;
    /// Whether a call leaves something to be written.
    fn changes(&self) -> bool;
    /// Calls of a round.
    fn round(&self) -> usize {
        ROUND_CALLS
    }
    /// What is counted of one call: itself, or the entries it lists.
    fn units(&self) -> usize {
        1
    }
}

/// How many calls the counted instructions are of.
pub(crate) struct Totals {
    pub(crate) calls: usize,
    /// 0: there was no background work.
    pub(crate) background: usize,
}

fn calls(operation: &mut dyn Operation, count: usize) -> Result<()> {
    (0..count).try_for_each(|index| operation.call(index))
}

#[inline(never)]
fn counted_calls(operation: &mut dyn Operation, count: usize) -> Result<()> {
    calls(operation, count)
}

#[inline(never)]
fn counted_background(scene: &Scene) -> Result<()> {
    scene.background()
}

/// Makes the calls, and then the background's share of others.
pub(crate) fn run(operation: &mut dyn Operation) -> Result<Totals> {
    let count = operation.round();
    for _ in 0..WARM_ROUNDS {
        operation.prepare(count)?;
        calls(operation, count)?;
        operation.undo(count)?;
        operation.scene().commit()?;
    }
    for _ in 0..ROUNDS {
        operation.prepare(count)?;
        counted_calls(operation, count)?;
        operation.undo(count)?;
        operation.scene().commit()?;
    }
    let mut background = 0;
    if operation.changes() {
        background = BACKGROUND_CALLS;
        operation.prepare(background)?;
        operation.scene().background()?;
        calls(operation, background)?;
        counted_background(operation.scene())?;
    }
    Ok(Totals {
        calls: ROUNDS * count * operation.units(),
        background,
    })
}
