//! Waiting for completions: asleep, looking, or first one and then the other.
//!
//! **Problem.** A wake-up costs more than a fast device takes; a waiter that always looks uses a
//! core. **Structure.** [`Wait`] is the policy of a queue. With [`Wait::Hybrid`] each core keeps
//! what requests took in the current period ([`Times`]), and sleeps a share of what they took in
//! the last one before it looks. **Invariants.** No waiter looks for longer than [`LOOK_MOST_NS`]
//! for one request, then sleeps: a device that is stuck takes no core. Without requests no task
//! looks. **Crash.** Nothing is kept.

use std::time::Duration;

use dure_sync::atomic::{AtomicU64, Ordering};
use dure_sync::{clock, thread};

use super::{Context, Queue};
use crate::device::{Io, Poll};
use crate::{Op, Result, Slot};

/// How long a caller looks for a completion before it sleeps all the same.
const LOOK_MOST_NS: u64 = 1_000_000;
/// Looks between two looks at the clock.
const LOOKS_PER_TIME: u32 = 32;

/// How callers wait for completions.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// They sleep until there is one.
    #[default]
    Sleep,
    /// They look for it all the time.
    Poll,
    /// They sleep for a share of the time that requests take, then look.
    Hybrid(Hybrid),
}

/// The time of the last period of which a waiter sleeps a share.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Typical {
    /// The mean.
    #[default]
    Mean,
    /// The minimum.
    Minimum,
}

/// How long to sleep before looking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hybrid {
    /// This much of the time that requests took, in percent: 0 .. 100.
    pub share_percent: u8,
    /// The time of which the share is taken.
    pub of: Typical,
    /// How often it is found anew.
    pub period: Duration,
}

impl Default for Hybrid {
    fn default() -> Self {
        Self {
            share_percent: 50,
            of: Typical::Mean,
            period: Duration::from_millis(100),
        }
    }
}

/// What requests of one kind took on a core. Written by the core's tasks; an addition that two of
/// them lose changes an estimate only, hence Relaxed loads and stores.
#[derive(Debug, Default)]
pub(super) struct Times {
    began_ns: AtomicU64,
    count: AtomicU64,
    total_ns: AtomicU64,
    least_ns: AtomicU64,
    /// What to sleep in this period.
    sleep_ns: AtomicU64,
}

impl Times {
    pub(super) fn sleep_ns(&self) -> u64 {
        self.sleep_ns.load(Ordering::Relaxed)
    }

    /// A request took `ns` and is complete `now`.
    pub(super) fn note(&self, ns: u64, now: u64, hybrid: Hybrid) {
        let get = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let set = |word: &AtomicU64, value| word.store(value, Ordering::Relaxed);
        let count = get(&self.count) + 1;
        let total = get(&self.total_ns).saturating_add(ns);
        let least = match count {
            1 => ns,
            _ => get(&self.least_ns).min(ns),
        };
        let period = u64::try_from(hybrid.period.as_nanos()).unwrap_or(u64::MAX);
        if now.saturating_sub(get(&self.began_ns)) < period {
            set(&self.count, count);
            set(&self.total_ns, total);
            return set(&self.least_ns, least);
        }
        let typical = match hybrid.of {
            Typical::Mean => total / count,
            Typical::Minimum => least,
        };
        let share = u64::from(hybrid.share_percent.min(100));
        set(&self.sleep_ns, typical.saturating_mul(share) / 100);
        set(&self.began_ns, now);
        set(&self.count, 0);
        set(&self.total_ns, 0);
    }
}

impl Queue {
    /// Executes a request whose caller looks for the completion.
    pub(super) fn execute_looking(&self, context: &Context, io: Io<'_>) -> Result<()> {
        let Wait::Hybrid(hybrid) = self.wait else {
            return self.device.execute_polled(io, 0);
        };
        let times = context.times(io.op());
        let start = clock::monotonic_ns();
        let result = self.device.execute_polled(io, times.sleep_ns());
        let now = clock::monotonic_ns();
        times.note(now.saturating_sub(start), now, hybrid);
        result
    }

    /// Waits for a request of kind `op` that was submitted at `submitted_ns`, as the policy says.
    pub(super) fn wait_for(&self, slot: &Slot, op: Op, submitted_ns: u64) {
        match self.wait {
            Wait::Sleep => {}
            Wait::Poll => drop(self.look(|_| slot.is_done())),
            Wait::Hybrid(hybrid) => {
                let times = self.contexts.local().times(op);
                let asleep = clock::monotonic_ns().saturating_sub(submitted_ns);
                let left = times.sleep_ns().saturating_sub(asleep);
                if left > 0 {
                    thread::sleep(Duration::from_nanos(left));
                }
                self.look(|_| slot.is_done());
                let now = clock::monotonic_ns();
                times.note(now.saturating_sub(submitted_ns), now, hybrid);
            }
        }
        if !slot.is_done() {
            self.device.wait(slot);
        }
    }

    /// Looks for completions of this core's requests until `enough`, which is told how many there
    /// were, or too long; returns how many.
    pub(super) fn look(&self, enough: impl Fn(usize) -> bool) -> usize {
        let (mut count, start) = (0, clock::monotonic_ns());
        loop {
            for _ in 0..LOOKS_PER_TIME {
                if enough(count) {
                    return count;
                }
                match self.device.poll(Poll::OwnReady) {
                    0 => thread::spin_hint(),
                    more => count += more,
                }
            }
            if clock::monotonic_ns().saturating_sub(start) >= LOOK_MOST_NS {
                return count;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeps(of: Typical, share_percent: u8) -> u64 {
        let (times, period) = (Times::default(), Duration::from_millis(1));
        let hybrid = Hybrid {
            share_percent,
            of,
            period,
        };
        // The first request ends a period that began with the clock: only its time counts there.
        times.note(10, 5_000_000, hybrid);
        for ns in [40_000, 20_000, 60_000] {
            times.note(ns, 5_100_000, hybrid);
            assert_eq!(times.sleep_ns(), 10 * u64::from(share_percent) / 100);
        }
        times.note(80_000, 6_000_000, hybrid);
        times.sleep_ns()
    }

    #[test]
    fn a_share_of_the_mean_or_minimum_of_the_last_period_is_slept() {
        assert_eq!(sleeps(Typical::Mean, 50), 25_000);
        assert_eq!(sleeps(Typical::Minimum, 50), 10_000);
        assert_eq!(sleeps(Typical::Mean, 0), 0);
    }
}
