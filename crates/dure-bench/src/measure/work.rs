//! One worker: a loop over its operation, timed.

use anyhow::{Context, Result};
use dure_sync::clock;
use hdrhistogram::Histogram;

use super::cpu::Cpu;
use crate::interrupt;
use crate::target::is_full;

/// One worker's share of a workload: everything opened, ready to loop.
pub trait Worker: Send {
    /// Before every measurement and outside its time: fills up what the operations use up.
    ///
    /// # Errors
    /// Those of the target.
    fn prepare(&mut self) -> Result<()> {
        Ok(())
    }

    /// What is done until the clock starts: the operation, unless that would use something up.
    /// By default [`Worker::operate`].
    ///
    /// # Errors
    /// Those of the target.
    fn warm(&mut self) -> Result<Option<u64>> {
        self.operate()
    }

    /// Does the operation once. Returns the works it counts as, 0 if it only waited for others;
    /// `None` when nothing is left to work on.
    ///
    /// # Errors
    /// Those of the target.
    fn operate(&mut self) -> Result<Option<u64>>;

    /// Operations between two readings of the clock.
    fn batch(&self) -> u64 {
        64
    }

    /// After the last measurement: whether the operations did what they claim.
    ///
    /// # Errors
    /// What was found instead.
    fn check(&mut self) -> Result<()> {
        Ok(())
    }
}

/// When a measurement begins and ends, on the monotonic clock, which all processes share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// End of the warm-up.
    pub start_ns: u64,
    /// End of the measurement.
    pub stop_ns: u64,
}

/// What one worker did in a measurement.
#[derive(Debug)]
pub struct Share {
    /// Works in the measured time.
    pub works: u64,
    /// From the opening of the window to the end of the last work; shorter than asked for if
    /// nothing was left to work on.
    pub ns: u64,
    /// Works in the measured time and in the warm-up.
    pub works_in_all: u64,
    /// CPU time of the worker in the measured time.
    pub cpu: Cpu,
    /// Time of a work, in ns, sampled.
    pub latencies: Histogram<u64>,
}

/// Latencies from a nanosecond to ten minutes, to three digits.
pub(crate) fn histogram() -> Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, 600_000_000_000, 3).context("a histogram")
}

/// Warms up and works until the window closes, or nothing is left to work on.
pub(crate) fn work(worker: &mut dyn Worker, window: Window) -> Result<Share> {
    let mut latencies = histogram()?;
    let batch = worker.batch();
    let (warm_works, mut works) = warm_up(worker, batch, window.start_ns)?;
    let cpu = Cpu::of_this_thread();
    let mut now = clock::monotonic_ns();
    // At least once, however late this worker gets to run.
    'measured: loop {
        // One operation of each batch is timed by itself; reading the clock costs about 50 ns, a
        // small part of a batch.
        let Some(done) = once(worker, works)? else {
            break;
        };
        works += done;
        let after_one = clock::monotonic_ns();
        if let Some(ns) = (after_one - now).checked_div(done) {
            latencies.saturating_record(ns);
        }
        now = after_one;
        for _ in 1..batch {
            let Some(done) = once(worker, works)? else {
                break 'measured;
            };
            works += done;
        }
        if batch > 1 {
            now = clock::monotonic_ns();
        }
        interrupt::check()?;
        if now >= window.stop_ns {
            break;
        }
    }
    let ns = clock::monotonic_ns() - window.start_ns;
    Ok(Share {
        works,
        ns,
        works_in_all: works + warm_works,
        cpu: Cpu::of_this_thread().since(cpu),
        latencies,
    })
}

/// An operation; `None` if nothing is left to work on, for which a full file system counts once
/// something was done.
#[inline]
fn once(worker: &mut dyn Worker, works: u64) -> Result<Option<u64>> {
    match worker.operate() {
        Ok(None) if works == 0 => {
            anyhow::bail!("nothing to work on: the warm-up or too little room used it up")
        }
        Ok(done) => Ok(done),
        Err(error) if works > 0 && is_full(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Works done before the window opened, and those of an operation that it opened upon: one that
/// takes long would otherwise be time without works.
fn warm_up(worker: &mut dyn Worker, batch: u64, until_ns: u64) -> Result<(u64, u64)> {
    let mut works = 0;
    while clock::monotonic_ns() < until_ns {
        interrupt::check()?;
        let before = works;
        for _ in 0..batch {
            let Some(done) = worker.warm()? else {
                dure_sync::thread::spin_hint();
                break;
            };
            works += done;
        }
        if batch == 1 && clock::monotonic_ns() >= until_ns {
            return Ok((before, works - before));
        }
    }
    Ok((works, 0))
}

#[cfg(test)]
mod tests {
    use super::{Window, Worker, work};
    use dure_sync::clock;

    /// A worker with so many operations left.
    struct Few(u64);

    impl Worker for Few {
        fn operate(&mut self) -> anyhow::Result<Option<u64>> {
            if self.0 == 0 {
                return Ok(None);
            }
            self.0 -= 1;
            Ok(Some(3))
        }
    }

    #[test]
    fn a_late_worker_works_once_and_its_delay_counts() {
        let now = clock::monotonic_ns();
        let window = Window {
            start_ns: now - 50_000_000,
            stop_ns: now - 10_000_000,
        };
        let share = work(&mut Few(1000), window).unwrap();
        assert_eq!(share.works, 3 * 64, "one batch");
        assert!(share.ns >= 50_000_000, "{}", share.ns);
    }

    #[test]
    fn a_worker_ends_when_nothing_is_left() {
        let now = clock::monotonic_ns();
        let window = Window {
            start_ns: now,
            stop_ns: now + 3_600_000_000_000,
        };
        let share = work(&mut Few(100), window).unwrap();
        assert_eq!(share.works, 300);
        assert!(share.ns < 3_600_000_000_000);
        assert!(work(&mut Few(0), window).is_err(), "not once");
    }
}
