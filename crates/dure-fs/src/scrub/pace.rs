//! How fast a scrub goes.
//!
//! **Problem.** It is to be as fast as the device while nobody else uses that, and not to be noticed
//! by those who do; and calls may write nothing for it. **Structure.** Before each request it reads
//! the counters of requests that the queues keep per core. What they have more than its own requests
//! is of others. Then it is *busy*: requests are small, one at a time, and after each it sleeps for
//! [`SLEEP_TIMES`] times as long as that took. So at most one in 200 requests of others finds the
//! device with a small request of the scrub: the slowest hundredth of them stays as it is. When
//! others were quiet for [`QUIET_NS`], requests are large, and several are under way.
//! A rate takes the place of all this.
//!
//! **Invariants.** Requests that are under way may be counted already or not: only what is more than
//! these is taken for others'. So no request of the scrub is, and one of others is noticed when the
//! scrub has waited for those that it had under way. **Crash.** Memory only.

use std::time::Duration;

use dure_block::Counters;
use dure_store::units::BLOCK_BYTES_U64;
use dure_sync::{clock, thread};

/// Blocks of a request while others are quiet: 512 KiB. The pages of its memory lie anywhere, and a device
/// that takes 254 pieces (virtio) or 128 has a longer request cut in two.
pub(super) const BLOCKS_MAX: usize = 128;
/// Requests under way then.
const DEPTH: usize = 4;
/// Blocks of a request while others are not.
const BLOCKS_BUSY: usize = 16;
/// Others count as busy for so long after a request.
const QUIET_NS: u64 = 100_000_000;
/// How much longer than a request the pause after it is.
const SLEEP_TIMES: u64 = 200;
/// The pause, at least and at most.
const SLEEP_NS: std::ops::RangeInclusive<u64> = 5_000_000..=1_000_000_000;
/// Between two looks at others during a pause; and before the first long request.
const LOOK_NS: u64 = 10_000_000;
/// Requests a second at a rate, at least: it shows in progress, and a pause is not long.
const RATE_REQUESTS: u64 = 20;

/// What the next request may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Turn {
    /// Blocks, at most.
    pub(super) blocks: usize,
    /// Requests under way, this one included.
    pub(super) depth: usize,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Pace {
    rate: Option<u64>,
    started_ns: u64,
    /// Bytes asked for.
    bytes: u64,
    /// Requests of the scrub that are complete.
    own: u64,
    /// Requests of others that are known of.
    others: u64,
    busy_until_ns: u64,
}

impl Pace {
    /// The pace of a scrub that begins now.
    pub(super) fn new(rate: Option<u64>, counters: &Counters) -> Pace {
        let now = clock::monotonic_ns();
        Pace {
            rate,
            started_ns: now,
            bytes: 0,
            own: 0,
            others: requests(counters),
            // It does not know yet what others do, and looks for so long.
            busy_until_ns: now + LOOK_NS,
        }
    }

    /// What the next request may be, as others are now. `under_way` are requests of the scrub.
    pub(super) fn turn(&mut self, counters: &Counters, under_way: usize) -> Turn {
        if let Some(rate) = self.rate {
            let blocks = usize::try_from(rate / RATE_REQUESTS / BLOCK_BYTES_U64);
            return Turn {
                blocks: blocks.unwrap_or(BLOCKS_MAX).clamp(1, BLOCKS_MAX),
                depth: DEPTH,
            };
        }
        match self.is_busy(counters, under_way) {
            true => Turn {
                blocks: BLOCKS_BUSY,
                depth: 1,
            },
            false => Turn {
                blocks: BLOCKS_MAX,
                depth: DEPTH,
            },
        }
    }

    /// Whether others have made a request in the last [`QUIET_NS`].
    fn is_busy(&mut self, counters: &Counters, under_way: usize) -> bool {
        let own = self.own + dure_store::units::to_u64(under_way);
        let others = requests(counters).saturating_sub(own);
        let now = clock::monotonic_ns();
        if others > self.others {
            self.others = others;
            self.busy_until_ns = now + QUIET_NS;
        }
        now < self.busy_until_ns
    }

    /// The scrub made so many other requests.
    pub(super) fn note_own(&mut self, requests: u64) {
        self.own += requests;
    }

    /// Requests of the scrub that are complete.
    #[cfg(test)]
    pub(super) fn own(&self) -> u64 {
        self.own
    }

    /// Sleeps after a request of so many blocks that took `took_ns`, if it has to; when others are
    /// found to be quiet, no longer. `look` gives what [`Pace::turn`] is told.
    pub(super) fn rest(&mut self, blocks: u64, took_ns: u64, look: impl Fn() -> (Counters, usize)) {
        self.bytes += blocks * BLOCK_BYTES_U64;
        let now = clock::monotonic_ns();
        if let Some(rate) = self.rate {
            let due = u128::from(self.bytes) * 1_000_000_000 / u128::from(rate.max(1));
            let due = u64::try_from(due).unwrap_or(u64::MAX);
            let pause_ns = self.started_ns.saturating_add(due).saturating_sub(now);
            if pause_ns > 0 {
                thread::sleep(Duration::from_nanos(pause_ns));
            }
            return;
        }
        let pause_ns = took_ns.saturating_mul(SLEEP_TIMES);
        let end = now + pause_ns.clamp(*SLEEP_NS.start(), *SLEEP_NS.end());
        loop {
            let (counters, under_way) = look();
            let left = end.saturating_sub(clock::monotonic_ns());
            if left == 0 || !self.is_busy(&counters, under_way) {
                return;
            }
            thread::sleep(Duration::from_nanos(left.min(LOOK_NS)));
        }
    }
}

/// Requests that the device was asked for.
pub(super) fn requests(counters: &Counters) -> u64 {
    counters.reads + counters.writes + counters.discards + counters.device_flushes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(reads: u64) -> Counters {
        Counters {
            reads,
            ..Counters::default()
        }
    }

    #[test]
    fn only_requests_of_others_make_it_slow() {
        let mut pace = Pace::new(None, &counted(100));
        let busy = pace.turn(&counted(100), 0);
        assert_eq!((busy.blocks, busy.depth), (BLOCKS_BUSY, 1), "not known yet");
        pace.busy_until_ns = 0;
        // Two are under way, of which one is counted already; one is complete.
        pace.note_own(1);
        assert_eq!(pace.turn(&counted(102), 2).blocks, BLOCKS_MAX);
        assert_eq!(pace.turn(&counted(103), 2).blocks, BLOCKS_MAX);
        assert_eq!(pace.turn(&counted(104), 2).blocks, BLOCKS_BUSY);
        pace.busy_until_ns = 0;
        assert_eq!(pace.turn(&counted(104), 2).blocks, BLOCKS_MAX, "seen");
    }

    #[test]
    fn a_pause_ends_when_others_are_quiet() {
        let mut pace = Pace::new(None, &counted(0));
        let start = clock::monotonic_ns();
        pace.busy_until_ns = start + QUIET_NS;
        // It would be a second.
        pace.rest(1, 1_000_000_000, || (counted(0), 0));
        let passed = clock::monotonic_ns() - start;
        assert!((50_000_000..900_000_000).contains(&passed), "{passed} ns");
    }

    #[test]
    fn a_rate_is_kept_whatever_others_do() {
        let mut pace = Pace::new(Some(8 << 20), &counted(0));
        let turn = pace.turn(&counted(1000), 0);
        assert_eq!((turn.blocks, turn.depth), (102, DEPTH));
        let start = clock::monotonic_ns();
        pace.rest(512, 0, || (counted(1000), 0));
        let passed = clock::monotonic_ns() - start;
        assert!(passed >= 200_000_000, "2 MiB in {passed} ns");
    }
}
