//! Workloads on two cores, so in two journals that depend on each other.
//!
//! **Structure.** Every ordered pair of a choice of operations that can follow each other, the
//! first on core 0, the second on core 1: [`chained`] with one fsync behind them, and
//! [`overlapped`] with an fsync of each under way at the same time, so that neither journal is
//! durable when the other is written. [`back_and_forth`] returns to core 0 for a third.
//! **Invariants.** As `workload`.

use dure_fs::RenameMode;

use super::call::{At, Call, Path, Step, Workload};
use super::history::History;
use super::workload::{P, SETUPS, file, write};

/// Operations that share names, inodes and directories, with what is synced after each.
#[must_use]
pub fn operations() -> Vec<(Call, At)> {
    let rename = |from: Path, to: Path, mode| (Call::Rename { from, to, mode }, file(to));
    let (replace, exchange) = (RenameMode::Replace, RenameMode::Exchange);
    let link = |from: Path, to: Path| (Call::Link { from, to }, file(from));
    let dir = file;
    vec![
        (Call::Create { path: "A/new" }, file("A/new")),
        (Call::Create { path: "A/C/new" }, dir("A/C")),
        (Call::Create { path: "D/new" }, file("D/new")),
        (Call::Mkdir { path: "D" }, dir("D")),
        (Call::Mkdir { path: "A/new" }, dir("A")),
        (Call::Rmdir { path: "A/C" }, dir("A")),
        (Call::Rmdir { path: "D" }, dir("")),
        (Call::Unlink { path: "A/foo" }, dir("A")),
        (Call::Unlink { path: "A/new" }, dir("A")),
        (Call::Unlink { path: "B/foo" }, dir("B")),
        (Call::Unlink { path: "A/C/new" }, dir("A/C")),
        link("A/foo", "A/new"),
        link("A/foo", "D/new"),
        link("B/foo", "A/C/new"),
        rename("A/foo", "A/new", replace),
        rename("A/new", "B/new", replace),
        rename("B/foo", "A/foo", replace),
        rename("A/foo", "B/foo", replace),
        rename("A/foo", "B/foo", exchange),
        rename("A/C", "D/new", replace),
        rename("A/C", "B/new", replace),
        rename("D", "A/C", replace),
        rename("B", "A/C/new", replace),
        rename("A", "D/new", replace),
        rename("A/C", "B", exchange),
        (write("A/foo", P, 2 * P, 151), file("A/foo")),
        (write("A/foo", 4 * P, 3 * P, 152), file("A/foo")),
        (write("A/new", 0, P + 1, 153), file("A/new")),
        (truncate("A/foo", P + 10), file("A/foo")),
        (truncate("A/foo", 0), file("A/foo")),
        (chmod("A/foo", 0o600), file("A/foo")),
        (chmod("A/C", 0o700), dir("A/C")),
        (xattr("A/foo", 10 << 10), file("A/foo")),
    ]
}

fn truncate(path: Path, size: u64) -> Call {
    let at = file(path);
    Call::Truncate { at, size }
}

fn chmod(path: Path, mode: u32) -> Call {
    let at = file(path);
    Call::Chmod { at, mode }
}

fn xattr(path: Path, len: usize) -> Call {
    let (at, name, fill) = (file(path), "user.large", 7);
    Call::SetXattr {
        at,
        name,
        len,
        fill,
    }
}

/// The history of setup 1.
pub(super) fn start() -> History {
    let mut history = History::default();
    for call in SETUPS[1] {
        history.call(0, call);
    }
    history.settle();
    history
}

/// Keeps the workloads whose every step succeeds.
#[must_use]
pub fn possible(workloads: Vec<Vec<Step>>) -> Vec<Workload> {
    let start = start();
    let is_possible = |steps: &Vec<Step>| {
        let mut history = start.clone();
        steps.iter().enumerate().all(|(number, step)| {
            let possible = history.possible(step);
            if possible {
                history.step(number, step);
            }
            possible
        })
    };
    let workloads = workloads.into_iter().filter(is_possible);
    workloads
        .map(|steps| Workload { setup: 1, steps })
        .collect()
}

fn pairs(with: impl Fn((Call, At), (Call, At)) -> Vec<Step>) -> Vec<Vec<Step>> {
    let all = operations();
    let both = all.iter().flat_map(|a| all.iter().map(move |b| (*a, *b)));
    both.map(|(a, b)| with(a, b)).collect()
}

/// One fsync behind two operations on two cores.
#[must_use]
pub fn chained() -> Vec<Workload> {
    possible(pairs(|(first, _), (second, at)| {
        vec![
            Step::Core(0),
            Step::Call(first),
            Step::Core(1),
            Step::Call(second),
            Step::Fsync(at),
        ]
    }))
}

/// Two fsyncs at the same time.
#[must_use]
pub fn overlapped() -> Vec<Workload> {
    possible(pairs(|(first, at_first), (second, at)| {
        vec![
            Step::Core(0),
            Step::Call(first),
            Step::FsyncBegin(at_first),
            Step::Core(1),
            Step::Call(second),
            Step::FsyncBegin(at),
            Step::FsyncEnd,
        ]
    }))
}

/// Core 1, core 0, core 0 again, with three commits under way.
#[must_use]
pub fn back_and_forth() -> Vec<Workload> {
    possible(pairs(|(first, at_first), (second, at)| {
        let third = Call::Chmod { at, mode: 0o640 };
        vec![
            Step::Core(1),
            Step::Call(first),
            Step::Core(0),
            Step::Call(second),
            Step::FsyncBegin(at_first),
            Step::FsyncBegin(at),
            Step::Core(0),
            Step::Call(third),
            Step::FsyncBegin(at),
            Step::FsyncEnd,
        ]
    }))
}

/// Three directories, the last moved while the first is moved below it: what only marks of reads
/// keep apart (docs/design/journal-model.md, finding 1). Lost is the first rename, kept the second:
/// a loop.
#[must_use]
pub fn directory_loop() -> Vec<Workload> {
    let rename = |from, to| {
        let mode = RenameMode::Replace;
        Step::Call(Call::Rename { from, to, mode })
    };
    let path = "A/C/E/inside";
    possible(vec![vec![
        Step::Call(Call::Mkdir { path: "A/C/E" }),
        Step::Call(Call::Create { path }),
        Step::Call(Call::Create { path: "B/inside" }),
        Step::Sync,
        Step::Checkpoint,
        Step::Core(0),
        rename("A/C", "B/new"),
        Step::Core(1),
        rename("A", "B/new/E/new"),
        Step::Fsync(file("B/new/E")),
    ]])
}
