//! Where the time of measured tasks goes.
//!
//! **Problem.** That calls slow down as cores are added says nothing of why. **Structure.** Each
//! advance of a core's clock has a [`Cause`]; while a task waits for a lock, a condition or a device
//! ([`Waiting`]), all its time has that cause. Of the moves of cache lines a sample keeps the stack
//! of the task that asked for the line. **Invariants.** Only tasks that asked to be measured count;
//! causes add up to the time between their two calls. Counting costs no virtual time. **Crash.**
//! Nothing is kept.

use std::collections::BTreeMap;

use crate::watch::Stack;

/// Moves that are kept at most.
const MOVES_MAX: usize = 2048;

/// What a core's time was used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    Compute,
    Lines,
    Copies,
    Kernel,
    Asleep,
}

/// What a task waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Waiting {
    /// A lock of this rank.
    Lock(u8),
    /// A condition under a lock of this rank.
    Condition(u8),
    /// A device.
    Device,
}

impl std::fmt::Display for Waiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Waiting::Lock(rank) => write!(f, "a lock of rank {rank}"),
            Waiting::Condition(rank) => write!(f, "a condition under a lock of rank {rank}"),
            Waiting::Device => write!(f, "a device"),
        }
    }
}

/// A move of a cache line that was kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    /// The address asked for.
    pub address: usize,
    /// How long the core waited for it.
    pub ns: u64,
    /// Whether the task waited for something else at that time.
    pub is_in_wait: bool,
    /// Who asked.
    pub stack: Stack,
}

/// What was counted of the measured tasks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Account {
    /// Work that touches nothing shared, hits included.
    pub compute_ns: u64,
    /// Moves of cache lines outside waits.
    pub lines_ns: u64,
    /// Copies.
    pub copies_ns: u64,
    /// Calls of the kernel and changes of task.
    pub kernel_ns: u64,
    /// Sleep that has no other cause.
    pub asleep_ns: u64,
    /// Waits.
    pub waits_ns: BTreeMap<Waiting, u64>,
    /// Moves of cache lines.
    pub transfers: u64,
    /// Operations that count as a share of a call's work: loops that spin do not.
    pub steps: u64,
    /// One move in `every`, those at even distances.
    pub moves: Vec<Move>,
    /// See `moves`.
    pub every: u64,
}

impl Account {
    pub(crate) fn add(&mut self, cause: Cause, waiting: Option<Waiting>, ns: u64) {
        let place = match (waiting, cause) {
            (Some(what), _) => self.waits_ns.entry(what).or_default(),
            (None, Cause::Compute) => &mut self.compute_ns,
            (None, Cause::Lines) => &mut self.lines_ns,
            (None, Cause::Copies) => &mut self.copies_ns,
            (None, Cause::Kernel) => &mut self.kernel_ns,
            (None, Cause::Asleep) => &mut self.asleep_ns,
        };
        *place += ns;
    }

    /// A line was moved for a measured task.
    pub(crate) fn moved(&mut self, address: usize, ns: u64, is_in_wait: bool) {
        let every = self.every.max(1);
        if self.transfers.is_multiple_of(every) {
            self.moves.push(Move {
                address,
                ns,
                is_in_wait,
                stack: Stack::here(),
            });
        }
        self.transfers += 1;
        if self.moves.len() >= MOVES_MAX {
            // Those at even places are the multiples of twice the distance.
            let mut keep = false;
            self.moves.retain(|_| {
                keep = !keep;
                keep
            });
            self.every = every * 2;
        }
    }

    /// All of it.
    #[must_use]
    pub fn total_ns(&self) -> u64 {
        let waits: u64 = self.waits_ns.values().sum();
        self.compute_ns + self.lines_ns + self.copies_ns + self.kernel_ns + self.asleep_ns + waits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sample_stays_even_however_many_moves_there_are() {
        let mut account = Account::default();
        for number in 0..20_000 {
            account.moved(number, 1, false);
        }
        assert_eq!(account.transfers, 20_000);
        assert_eq!(account.every, 16);
        assert!(account.moves.len() < MOVES_MAX);
        let wanted = (0..20_000).step_by(16);
        assert!(account.moves.iter().map(|one| one.address).eq(wanted));
    }

    #[test]
    fn time_in_a_wait_is_of_the_wait() {
        let mut account = Account::default();
        account.add(Cause::Compute, None, 5);
        account.add(Cause::Lines, Some(Waiting::Lock(60)), 7);
        assert_eq!((account.compute_ns, account.lines_ns), (5, 0));
        assert_eq!(account.waits_ns[&Waiting::Lock(60)], 7);
        assert_eq!(account.total_ns(), 12);
    }
}
