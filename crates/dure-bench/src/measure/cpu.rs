//! The CPU time of one thread, apart for the program and for the kernel.
//!
//! From /proc/thread-self/stat, which gives what getrusage(2) gives (RUSAGE_THREAD), in hundredths
//! of a second.

use serde::{Deserialize, Serialize};

/// Linux counts in these for programs, whatever its own clock does (`USER_HZ`).
const NS_PER_TICK: u64 = 10_000_000;

/// CPU time used.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpu {
    /// In the program.
    pub user_ns: u64,
    /// In the kernel.
    pub system_ns: u64,
}

impl Cpu {
    /// The CPU time of this thread so far; zeros where /proc is not mounted.
    pub(crate) fn of_this_thread() -> Cpu {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap_or_default();
        parse(&stat).unwrap_or_default()
    }

    /// What was used since `before`.
    pub(crate) fn since(self, before: Cpu) -> Cpu {
        Cpu {
            user_ns: self.user_ns.saturating_sub(before.user_ns),
            system_ns: self.system_ns.saturating_sub(before.system_ns),
        }
    }
}

/// See proc_pid_stat(5): the times are fields 14 and 15; the name before them may contain anything.
fn parse(stat: &str) -> Option<Cpu> {
    let (_, behind_name) = stat.rsplit_once(')')?;
    let mut ticks = behind_name.split_ascii_whitespace().skip(11);
    let mut next = || Some(ticks.next()?.parse::<u64>().ok()? * NS_PER_TICK);
    Some(Cpu {
        user_ns: next()?,
        system_ns: next()?,
    })
}

#[cfg(test)]
mod tests {
    use super::{Cpu, NS_PER_TICK, parse};
    use dure_sync::thread;

    #[test]
    fn times_are_found_behind_any_name() {
        let stat = "7 (a) b 1 2) R 1 7 7 0 -1 4194560 1 0 0 0 12 34 0 0 20 0 1 0 9 9 9";
        let found = Cpu {
            user_ns: 120_000_000,
            system_ns: 340_000_000,
        };
        assert_eq!(parse(stat), Some(found));
        assert_eq!(parse("7 (a"), None);
    }

    #[test]
    fn a_thread_is_charged_for_its_own_work() {
        let before = Cpu::of_this_thread();
        let all = |cpu: Cpu| cpu.user_ns + cpu.system_ns;
        let spin = || {
            // On a busy machine this takes a while; it ends only if the time is charged.
            while all(Cpu::of_this_thread()) < 3 * NS_PER_TICK {}
        };
        thread::scope(|scope| scope.spawn(spin).join().unwrap());
        let own = Cpu::of_this_thread().since(before);
        assert!(all(own) < 3 * NS_PER_TICK, "{own:?}: the other's");
    }
}
