//! fsyncs of one file that several tasks make at once.
//!
//! **Problem.** Write-back of a file takes all of its dirty pages, also those of other tasks. If
//! each task took the write-back lock and committed by itself, most would find nothing left to do
//! after they had waited, and each would wake the next. **Structure.** A round is one write-back of
//! the file and the commit of its operations. A task needs a round that begins after its call. One
//! of those that wait makes it as soon as it has the write-back lock; the lock is free again before
//! the commit, so the next round may write while this one is flushed.
//!
//! # Which writes a round covers
//! **Invariants.** A round begins under the write-back lock, before it looks for dirty pages. A task
//! returns without a round of its own only if one that began after its call has succeeded. One that
//! failed tells its own task only: the others make rounds of theirs, and get their own errors.
//!
//! | step | task A | task B |
//! |---|---|---|
//! | 1 | writes page 1, fsync: round 1 begins, takes page 1 | |
//! | 2 | | writes page 2, fsync: needs round 2 |
//! | 3 | round 1 is durable, returns | makes round 2 |
//!
//! **On a crash** after step 3, had B returned with round 1, page 2 would be lost.

use dure_sync::canary::Rule;
use dure_sync::{Condvar, Mutex};

use crate::ranks::SYNC_ROUNDS;

#[derive(Debug, Default)]
struct State {
    /// Number of the last round that began.
    begun: u64,
    /// Greatest number of a round that ended, and of one that succeeded.
    ended: u64,
    succeeded: u64,
    /// A task is about to make round `begun + 1`.
    has_next: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct SyncRounds {
    state: Mutex<SYNC_ROUNDS, State>,
    ended: Condvar,
}

/// What a task that calls fsync has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Nothing: a round of another task has covered the call.
    Covered,
    /// Make a round.
    Make,
}

impl SyncRounds {
    /// Waits until a round has covered this call, unless it is this task that has to make it. With
    /// `later` left out the round that is under way counts.
    pub(super) fn turn(&self, later: Rule) -> Turn {
        let mut state = self.state.lock();
        let mut number = state.begun + u64::from(later.holds() || state.begun == state.ended);
        loop {
            if state.succeeded >= number {
                return Turn::Covered;
            }
            if state.ended >= number {
                number = state.begun + 1;
            }
            if state.begun < number && !state.has_next {
                state.has_next = true;
                return Turn::Make;
            }
            state = self.ended.wait(state);
        }
    }

    /// A round begins, whose number is returned. The caller holds the write-back lock.
    pub(super) fn begin(&self) -> u64 {
        let mut state = self.state.lock();
        assert!(state.has_next, "a round of a task whose turn it is");
        state.has_next = false;
        state.begun += 1;
        state.begun
    }

    /// A round is over; rounds may end in another order than they began.
    pub(super) fn end(&self, number: u64, has_succeeded: bool) {
        let mut state = self.state.lock();
        state.ended = state.ended.max(number);
        if has_succeeded {
            // A later round has taken what an earlier one left.
            state.succeeded = state.succeeded.max(number);
        }
        drop(state);
        self.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use dure_sync::thread;

    use super::*;

    /// A call that comes while round 1 is under way.
    fn call_during_a_round(later: Rule) -> Turn {
        let rounds = SyncRounds::default();
        assert_eq!(rounds.turn(Rule::default()), Turn::Make);
        assert_eq!(rounds.begin(), 1);
        thread::scope(|scope| {
            let second = scope.spawn(|| rounds.turn(later));
            thread::sleep(std::time::Duration::from_millis(20));
            rounds.end(1, true);
            second.join().unwrap()
        })
    }

    #[test]
    fn a_round_covers_no_call_that_came_after_it_began() {
        assert_eq!(call_during_a_round(Rule::default()), Turn::Make);
    }

    #[test]
    fn canary_a_call_that_shares_the_round_under_way_is_noticed() {
        assert_eq!(call_during_a_round(Rule::LEFT_OUT), Turn::Covered);
    }

    /// Two calls wait for a round that a third one makes.
    fn followers(has_succeeded: bool) -> Vec<Turn> {
        let rounds = SyncRounds::default();
        assert_eq!(rounds.turn(Rule::default()), Turn::Make);
        thread::scope(|scope| {
            let follow = || {
                let turn = rounds.turn(Rule::default());
                if turn == Turn::Make {
                    let number = rounds.begin();
                    rounds.end(number, true);
                }
                turn
            };
            let calls = [scope.spawn(follow), scope.spawn(follow)];
            thread::sleep(std::time::Duration::from_millis(20));
            let number = rounds.begin();
            rounds.end(number, has_succeeded);
            calls.map(|call| call.join().unwrap()).into()
        })
    }

    #[test]
    fn a_round_covers_the_calls_before_it() {
        assert_eq!(followers(true), [Turn::Covered, Turn::Covered]);
    }

    #[test]
    fn after_a_round_that_failed_its_followers_make_their_own() {
        assert!(followers(false).contains(&Turn::Make));
    }
}
