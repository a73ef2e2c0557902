//! Instructions of the calls that workloads make.
//!
//! **Problem.** The simulation sees the operations on memory that cores may share, not the work
//! between them; the time which that takes on the host says nothing of the machine. **Structure.**
//! [`CALLS`] are counts of `cargo xtask cost`; a workload is a sum of them. **Invariants.** The counts
//! are those of docs/performance/cost.md, which a test compares. **Crash.** Nothing is kept.

use super::{Machine, Policy, Work as Doing, Workload};

/// A call and its count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counted {
    /// Its row in docs/performance/cost.md.
    pub call: &'static str,
    /// The caller's instructions, in a directory of 100 names.
    pub instructions: u64,
    /// How many of them are copies, which the machine's bandwidth is charged for, and the device in
    /// memory: `rep movsb` counts one for each byte.
    pub copied: u64,
}

const fn counted(call: &'static str, instructions: u64, copied: u64) -> Counted {
    Counted {
        call,
        instructions,
        copied,
    }
}

/// The counts that are used.
pub const CALLS: [Counted; 12] = [
    counted("read", 4_648, 4_096),
    counted("create", 11_152, 0),
    counted("unlink", 11_693, 0),
    counted("rename", 15_457, 0),
    counted("stat-again", 1_141, 0),
    counted("append", 5_882, 4_096),
    counted("overwrite", 4_752, 4_096),
    counted("overwrite-direct", 17_740, 0),
    counted("read-direct", 5_406, 4_096),
    // The page's copy into the cache, its copy for write-back, and 8,206 of the device.
    counted("overwrite-fsync", 40_561, 16_398),
    counted("readdir", 353, 0),
    counted("request", 2_144, 0),
];

/// Instructions without copies.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Work {
    /// On memory that the core has in its caches.
    hot: u64,
    /// In calls that make or remove something.
    new: u64,
}

impl Work {
    /// How long they take on a machine, in picoseconds.
    #[cfg_attr(
        not(dure_backend = "sim"),
        expect(dead_code, reason = "real cores take their own time")
    )]
    pub(super) fn ps(self, machine: &Machine) -> u64 {
        self.hot * machine.instruction_ps + self.new * machine.instruction_new_ps
    }

    /// All of them.
    pub(super) fn instructions(self) -> u64 {
        self.hot + self.new
    }

    /// Shares of two works in four.
    fn mixed(self, other: Work, own: u64) -> Work {
        let mix = |a: u64, b: u64| (a * own + b * (4 - own)) / 4;
        Work {
            hot: mix(self.hot, other.hot),
            new: mix(self.new, other.new),
        }
    }
}

fn of(call: &str) -> u64 {
    let found = CALLS.iter().find(|counted| counted.call == call);
    let found = found.expect("a call of the table");
    found.instructions - found.copied
}

fn hot(call: &str) -> Work {
    Work {
        hot: of(call),
        new: 0,
    }
}

fn new(call: &str) -> Work {
    Work {
        hot: 0,
        new: of(call),
    }
}

/// One work; `None` if no count is of its call.
pub(super) fn of_work(work: &Doing) -> Option<Work> {
    match work {
        Doing::Calls(workload, policy) => of_calls(*workload, policy),
        Doing::Requests(_) => Some(hot("request")),
    }
}

fn of_calls(workload: Workload, policy: &Policy) -> Option<Work> {
    let direct = policy.is_direct();
    let read = hot(if direct { "read-direct" } else { "read" });
    let write = hot(if direct {
        "overwrite-direct"
    } else {
        "overwrite"
    });
    Some(match workload {
        Workload::Drbl
        | Workload::Drbm
        | Workload::Drbh
        | Workload::DrblBg
        | Workload::DrbmBg
        | Workload::DrbhBg => read,
        Workload::Dwol | Workload::Dwom => write,
        Workload::Dwom75 => write.mixed(read, 3),
        Workload::Dwom25 => write.mixed(read, 1),
        Workload::Dwal => new("append"),
        Workload::Dwsl => new("overwrite-fsync"),
        Workload::Mrpl | Workload::Mrpm | Workload::Mrph | Workload::MrpmBg => hot("stat-again"),
        Workload::Mrdl | Workload::Mrdm | Workload::MrdlBg | Workload::MrdmBg => hot("readdir"),
        Workload::Mwcl => new("create"),
        Workload::Mwcm => Work {
            new: of("create") + of("append"),
            hot: 0,
        },
        Workload::Mwul | Workload::Mwum => new("unlink"),
        Workload::Mwrl | Workload::Mwrm => hot("rename"),
        Workload::Dwtl => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_those_of_the_page() {
        let page = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../docs/performance/cost.md"
        );
        let page = std::fs::read_to_string(page).unwrap();
        for counted in CALLS {
            let start = format!("| {} |", counted.call);
            let row = page.lines().find(|line| line.starts_with(&start)).unwrap();
            let cell = row.split('|').nth(3).unwrap().trim().replace(',', "");
            assert_eq!(cell, counted.instructions.to_string(), "{row}");
            assert!(counted.copied < counted.instructions);
        }
    }

    #[test]
    fn every_workload_but_one_has_a_count() {
        let policy = Policy::default();
        let none = Workload::ALL
            .into_iter()
            .filter(|workload| of_calls(*workload, &policy).is_none());
        assert_eq!(none.collect::<Vec<_>>(), [Workload::Dwtl]);
    }
}
