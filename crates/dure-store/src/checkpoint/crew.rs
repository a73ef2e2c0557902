//! The tasks that make a checkpoint together.
//!
//! **Problem.** One task that copies, seals and writes every dirty node bounds what all cores
//! change, and puts all images where it allocates. **Structure.** A checkpoint has steps; a step
//! has a [`Share`] for each partition with something to do. The task that makes the checkpoint
//! [runs](Crew::run) a step; workers in the background, and tasks that would only wait for the
//! checkpoint, [help](Crew::help): each takes shares, those of its own partitions first.
//!
//! # Invariants
//! A share is in one task's hands. A step is over when no share is waiting and none is in any
//! task's hands; only then does its runner go on, so what one step wrote all of the next one finds.
//! No task waits for a task that has not taken a share: the runner does what no helper takes. A
//! helper leaves when the checkpoint is over, however that came.
//!
//! **Crash.** Nothing is kept.

use dure_sync::{Condvar, CoreId, Mutex, MutexGuard};

use super::Written;
use crate::error::Result;
use crate::format::nat::NatEntry;
use crate::node::NodeRef;
use crate::ranks::CREW;
use crate::units::Nid;

/// What a checkpoint does, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Asks the space map about the images that are replaced.
    Check,
    /// Copies the dirty nodes and writes their images.
    Images,
    /// Writes the NAT pairs that name these.
    Nat,
    /// Writes what has changed in SIT and summaries.
    Space,
    /// The checkpoint is durable: frees what it held.
    End,
}

/// What a partition has in a checkpoint.
#[derive(Debug)]
pub(crate) struct Share {
    /// Images go to its segments.
    pub(crate) partition: CoreId,
    /// Its dirty nodes.
    pub(crate) nodes: Vec<NodeRef>,
    /// What the NAT is to say of them, until it does.
    pub(crate) entries: Vec<(Nid, NatEntry)>,
    /// SIT pairs to write.
    pub(crate) sit_pairs: Vec<u32>,
    /// What was written.
    pub(crate) written: Written,
}

impl Share {
    pub(crate) fn new(partition: CoreId) -> Share {
        Share {
            partition,
            nodes: Vec::new(),
            entries: Vec::new(),
            sit_pairs: Vec::new(),
            written: Written::default(),
        }
    }
}

/// Shares of the step that runs.
#[derive(Debug, Default)]
struct State {
    /// A checkpoint is being made: helpers stay.
    open: bool,
    step: Option<Step>,
    waiting: Vec<Share>,
    /// Shares in the hands of a task.
    taken: usize,
    done: Vec<Share>,
    failed: Option<crate::error::Error>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Crew {
    state: Mutex<CREW, State>,
    /// Told when shares wait, when a step is over, and when the checkpoint is.
    changed: Condvar,
}

/// While it lives helpers stay.
pub(crate) struct Session<'c>(&'c Crew);

impl Drop for Session<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.open = false;
        drop(state);
        self.0.changed.notify_all();
    }
}

impl Crew {
    /// A checkpoint begins. The caller holds the lock of checkpoints.
    pub(crate) fn open(&self) -> Session<'_> {
        let mut state = self.state.lock();
        assert!(!state.open, "one checkpoint at a time");
        state.open = true;
        Session(self)
    }

    /// Does `step` for all shares. Returns when each is done, by whomever, with the first failure.
    pub(crate) fn run(
        &self,
        step: Step,
        shares: &mut Vec<Share>,
        work: &dyn Fn(Step, &mut Share) -> Result<()>,
    ) -> Result<()> {
        let count = shares.len();
        let mut state = self.state.lock();
        assert!(
            state.taken == 0 && state.waiting.is_empty() && state.done.is_empty(),
            "one step at a time"
        );
        state.step = Some(step);
        state.waiting = std::mem::take(shares);
        drop(state);
        self.changed.notify_all();
        while self.do_one(self.state.lock(), &[], work) {}
        let mut state = self.state.lock();
        while state.taken > 0 {
            state = self.changed.wait(state);
        }
        state.step = None;
        *shares = std::mem::take(&mut state.done);
        assert_eq!(shares.len(), count, "a share was lost in a panic");
        state.failed.take().map_or(Ok(()), Err)
    }

    /// Takes shares until the checkpoint that runs now is over; returns at once if there is none.
    pub(crate) fn help(&self, own: &[CoreId], work: &dyn Fn(Step, &mut Share) -> Result<()>) {
        loop {
            let state = self.state.lock();
            if !state.open {
                return;
            }
            if state.waiting.is_empty() {
                drop(self.changed.wait(state));
            } else {
                self.do_one(state, own, work);
            }
        }
    }

    /// Does one share, of a partition in `own` if there is such a one. False if none waits.
    fn do_one(
        &self,
        mut state: MutexGuard<'_, CREW, State>,
        own: &[CoreId],
        work: &dyn Fn(Step, &mut Share) -> Result<()>,
    ) -> bool {
        let mine = |share: &Share| own.contains(&share.partition);
        let at = state.waiting.iter().position(mine).unwrap_or(0);
        if state.waiting.is_empty() {
            return false;
        }
        let mut share = state.waiting.swap_remove(at);
        let step = state.step.expect("shares wait in a step");
        state.taken += 1;
        // After a failure the rest is only handed back.
        let failed = state.failed.is_some();
        drop(state);
        let hands = Hands(self);
        let result = if failed {
            Ok(())
        } else {
            work(step, &mut share)
        };
        let mut state = self.state.lock();
        state.done.push(share);
        if let Err(error) = result {
            state.failed.get_or_insert(error);
        }
        drop(state);
        drop(hands);
        true
    }
}

/// A share in the hands of a task; given up also by a panic, so that no task waits for it for ever.
struct Hands<'c>(&'c Crew);

impl Drop for Hands<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.taken -= 1;
        let over = state.taken == 0;
        drop(state);
        if over {
            self.0.changed.notify_all();
        }
    }
}

#[cfg(all(test, not(dure_backend = "loom")))]
mod tests {
    use dure_sync::atomic::{AtomicUsize, Ordering};
    use dure_sync::{Arc, thread};

    use super::*;

    fn shares(count: u16) -> Vec<Share> {
        (0..count).map(|n| Share::new(CoreId::new(n))).collect()
    }

    /// Also in simulation: helpers of other cores, and a runner that must not go on early.
    fn each_share_is_done_once_before_the_next_step() {
        let (crew, begun) = (Arc::new(Crew::default()), Arc::new(AtomicUsize::new(0)));
        let done = [0, 1].map(|_| Arc::new(AtomicUsize::new(0)));
        let work = {
            let done = done.clone();
            move |step: Step, share: &mut Share| {
                let first = step == Step::Check;
                if !first {
                    assert_eq!(
                        done[0].load(Ordering::Acquire),
                        6,
                        "the step before is over"
                    );
                }
                thread::yield_now();
                share.sit_pairs.push(u32::from(share.partition.number()));
                done[usize::from(!first)].fetch_add(1, Ordering::AcqRel);
                Ok(())
            }
        };
        thread::scope(|scope| {
            for core in 0..2 {
                let (crew, work, begun) = (crew.clone(), work.clone(), begun.clone());
                scope.spawn_on(CoreId::new(core + 1), move || {
                    begun.fetch_add(1, Ordering::AcqRel);
                    // Before the checkpoint it returns at once.
                    crew.help(&[CoreId::new(core)], &work);
                    crew.help(&[CoreId::new(core)], &work);
                });
            }
            let session = crew.open();
            let mut all = shares(6);
            let ran = crew.run(Step::Check, &mut all, &work);
            ran.expect("no share fails");
            let ran = crew.run(Step::Images, &mut all, &work);
            ran.expect("no share fails");
            drop(session);
            assert!(all.iter().all(|share| share.sit_pairs.len() == 2));
        });
        assert_eq!(done.map(|count| count.load(Ordering::Acquire)), [6, 6]);
    }

    #[cfg(not(dure_backend = "sim"))]
    #[test]
    fn a_step_is_over_when_all_shares_are_done() {
        each_share_is_done_once_before_the_next_step();
    }

    #[cfg(dure_backend = "sim")]
    #[test]
    fn sim_a_step_is_over_when_all_shares_are_done() {
        use dure_sync::sim::{Config, run, seeds};
        for seed in seeds(1000) {
            for config in [Config::random(3, seed), Config::stall(3, seed)] {
                run(config, each_share_is_done_once_before_the_next_step);
            }
        }
    }

    #[test]
    fn a_failure_ends_the_step_and_no_share_is_lost() {
        let crew = Crew::default();
        let _session = crew.open();
        let mut all = shares(5);
        let calls = AtomicUsize::new(0);
        let failing = |_, _: &mut Share| {
            calls.fetch_add(1, Ordering::Relaxed);
            Err(crate::error::Error::NoSpace { what: "a test" })
        };
        assert!(crew.run(Step::Images, &mut all, &failing).is_err());
        assert_eq!((all.len(), calls.load(Ordering::Relaxed)), (5, 1));
        crew.run(Step::End, &mut all, &|_, _| Ok(())).unwrap();
    }
}
