//! Rings whose threads give way to their callers.
//!
//! **Problem.** A reply wakes its caller while the ring's thread runs on their core. The scheduler
//! looks for an idle core for a task that wakes up, and moves the caller there; its next request
//! comes from there, wakes the ring of that core, and so on: two wake-ups of another core for each
//! request, on a machine that has idle cores. **Structure.** A core that runs nothing but threads
//! of `SCHED_IDLE` counts as idle. So a ring's thread takes that policy: the caller stays, runs at
//! once, and the ring's thread goes on when the caller waits for its next reply.
//!
//! Its price: behind busy threads of the same control group (or session, where the kernel groups by
//! session) such a thread gets a three-hundredth of its core. So it asks the kernel how long it has
//! waited for its core (`Waited`), and `Rule` has it return to `SCHED_OTHER` for a while when
//! that is too long.
//!
//! **Invariants.** A thread that could not return never leaves: a user needs `RLIMIT_NICE` for it,
//! which `may_return` tries. Threads that a ring's thread starts do not inherit the policy.
//! **Crash.** Nothing is kept.

use std::fs::File;
use std::os::unix::fs::FileExt;

use dure_sync::{clock, thread};

use super::schedule::{Policy, policy, set_policy};

/// How the threads of rings run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RingPolicy {
    /// After their callers, with `SCHED_IDLE`, as long as they hardly wait for it.
    #[default]
    Idle,
    /// As all threads, with `SCHED_OTHER`.
    Other,
}

/// After so many times that the thread was woken it asks how long it waited for its core: few when
/// it has just taken `SCHED_IDLE`, twice as many each time, and at most. Asking takes half a
/// microsecond; behind two busy threads each wait is some 60 ms.
const WINDOW: (u32, u32) = (2, 8);
/// A wait for the core that is too long, in the mean of a window: many times the wake-ups of another
/// core that are saved. It may be the caller that computes: then a wake-up more matters little.
const LONG_NS: u64 = 200_000;
/// How long the thread stays with `SCHED_OTHER` the first time, and at most: twice as long each time
/// that it returns before as much time has passed again.
const STAY_NS: (u64, u64) = (1_000_000_000, 64_000_000_000);

/// Whether a thread of this process may leave `SCHED_IDLE` again.
pub(super) fn may_return() -> bool {
    let tries = thread::spawn("dure-policy", || {
        let there_and_back = set_policy(Policy::Idle).and_then(|()| set_policy(Policy::Other));
        there_and_back.is_ok()
    });
    tries.join().unwrap_or(false)
}

/// The policy of a ring's thread.
#[derive(Debug)]
pub(super) struct Idle {
    waited: Waited,
    rule: Rule,
    /// How often in this window.
    woken: u32,
}

impl Idle {
    /// For the calling thread, which may return. None, and nothing is changed, if its policy was
    /// chosen (it is not `SCHED_OTHER`), or if the kernel does not count its waits.
    pub(super) fn begin() -> Option<Idle> {
        if policy().ok()? != Some(Policy::Other) {
            return None;
        }
        let waited = Waited::open()?;
        let rule = Rule::begin(clock::monotonic_ns(), waited.ns()?);
        set_policy(Policy::Idle).ok()?;
        Some(Idle {
            waited,
            rule,
            woken: 0,
        })
    }

    /// It was woken, by requests.
    pub(super) fn woken(&mut self) {
        self.woken += 1;
        if self.woken < self.rule.window {
            return;
        }
        self.woken = 0;
        let waited = || self.waited.ns().unwrap_or(u64::MAX);
        if let Some(policy) = self.rule.end_window(clock::monotonic_ns(), waited) {
            // If the limits were changed meanwhile it stays as it is.
            let _ = set_policy(policy);
        }
    }
}

/// When a ring's thread changes its policy.
#[derive(Debug)]
struct Rule {
    policy: Policy,
    /// When it took that policy.
    since_ns: u64,
    /// How long it had waited for its core when this window began.
    waited_ns: u64,
    /// How long it stays with `SCHED_OTHER` the next time, or this time.
    stay_ns: u64,
    /// How often the thread is woken in this window.
    window: u32,
}

impl Rule {
    /// With `SCHED_IDLE`, after so long a wait in the thread's life.
    fn begin(now_ns: u64, waited_ns: u64) -> Rule {
        Rule {
            policy: Policy::Idle,
            since_ns: now_ns,
            waited_ns,
            stay_ns: STAY_NS.0,
            window: WINDOW.0,
        }
    }

    /// A window has ended: the policy to take, if it is another. `waited` says how long the thread
    /// has waited in its life.
    fn end_window(&mut self, now_ns: u64, waited: impl FnOnce() -> u64) -> Option<Policy> {
        let passed_ns = now_ns.saturating_sub(self.since_ns);
        let next = match self.policy {
            Policy::Idle => {
                let before_ns = std::mem::replace(&mut self.waited_ns, waited());
                let ns = self.waited_ns.saturating_sub(before_ns);
                if ns <= LONG_NS * u64::from(self.window) {
                    self.window = (self.window * 2).min(WINDOW.1);
                    return None;
                }
                self.stay_ns = match passed_ns > self.stay_ns {
                    true => STAY_NS.0,
                    false => (self.stay_ns * 2).min(STAY_NS.1),
                };
                Policy::Other
            }
            Policy::Other => {
                if passed_ns < self.stay_ns {
                    return None;
                }
                self.waited_ns = waited();
                self.window = WINDOW.0;
                Policy::Idle
            }
        };
        (self.policy, self.since_ns) = (next, now_ns);
        Some(next)
    }
}

/// How long a thread has been ready to run, and did not.
#[derive(Debug)]
struct Waited(File);

impl Waited {
    /// Opens the statistics of the calling thread.
    fn open() -> Option<Waited> {
        File::open("/proc/thread-self/schedstat").ok().map(Waited)
    }

    /// Nanoseconds in its life. None if the kernel does not count them.
    fn ns(&self) -> Option<u64> {
        // Nanoseconds that it ran, that it waited, and how often it ran.
        let mut text = [0; 64];
        let len = self.0.read_at(&mut text, 0).ok()?;
        let mut numbers = std::str::from_utf8(&text[..len]).ok()?.split_whitespace();
        let waited = numbers.nth(1)?.parse().ok()?;
        let ran: u64 = numbers.next()?.parse().ok()?;
        (ran > 0).then_some(waited)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_thread_that_waits_returns_and_tries_again_less_and_less_often() {
        let mut rule = Rule::begin(0, 0);
        let (mut now, mut waited) = (0, 0);
        let mut stays = Vec::new();
        let mut since = None;
        while stays.len() < 8 {
            now += SECOND / 10;
            waited += LONG_NS * 20;
            match rule.end_window(now, || waited) {
                Some(Policy::Other) => since = Some(now),
                Some(Policy::Idle) => stays.extend(since.map(|since| (now - since) / SECOND)),
                None => {}
            }
        }
        assert_eq!(stays, [2, 4, 8, 16, 32, 64, 64, 64]);
    }

    #[test]
    fn a_thread_that_hardly_waits_stays_and_what_was_long_ago_is_forgotten() {
        let mut rule = Rule::begin(0, 7);
        let mut waited = 7;
        for window in 1..1_000 {
            waited += LONG_NS * u64::from(rule.window);
            assert_eq!(rule.end_window(window * SECOND, || waited), None);
        }
        waited += LONG_NS * 20;
        let now = 1_000 * SECOND;
        assert_eq!(rule.end_window(now, || waited), Some(Policy::Other));
        // What it waits meanwhile does not count.
        let asked = || panic!("it is not asked");
        assert_eq!(rule.end_window(now + SECOND - 1, asked), None);
        waited += SECOND;
        let back = now + SECOND;
        assert_eq!(rule.end_window(back, || waited), Some(Policy::Idle));
        assert_eq!(rule.end_window(back + 1, || waited), None);
    }

    /// Where it does not, no ring gives way.
    #[test]
    fn the_kernel_counts_waits_of_this_thread() {
        let Some(waited) = Waited::open() else {
            return;
        };
        let before = waited.ns().expect("the kernel counts them");
        assert!(waited.ns().is_some_and(|after| after >= before));
    }

    #[test]
    fn a_thread_with_a_policy_of_its_own_keeps_it() {
        let asked = thread::spawn("idle", || {
            set_policy(Policy::Idle).unwrap();
            assert!(Idle::begin().is_none());
            assert_eq!(policy().unwrap(), Some(Policy::Idle));
        });
        asked.join().unwrap();
    }
}
