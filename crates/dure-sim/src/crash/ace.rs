//! All workloads of one, two or three operations, as ACE makes them, and spread over cores.
//!
//! **Structure.** A *group* is operations with what follows each but the last; its workloads differ
//! in what follows the last: every persistence point with unsynced work behind it, background work,
//! a checkpoint. Groups without persistence points inside also have their operations spread over 2
//! and 3 cores, with the fsyncs of all begun in every order before one is flushed. Groups have
//! numbers, and a seed gives a permutation of them, so a share of all is a prefix of that
//! permutation. **Invariants.** The same numbers give the same workloads in every run. The power
//! fails from the last operation on: shorter workloads test what was before it.

use super::call::{At, Call, Step, Workload};
use super::cores;
use super::history::History;
use super::workload::{Operation, file, operations, persistence, write};

/// The workloads of so many operations.
#[derive(Debug)]
pub struct Ace {
    operations: u32,
    cores: usize,
    all: Vec<Operation>,
    /// Operations with what follows them inside of a workload.
    inner: Vec<(usize, Vec<Step>)>,
    start: History,
}

/// A workload, and the step from which on the power fails.
#[derive(Debug, Clone)]
pub struct Made {
    /// What runs.
    pub workload: Workload,
    /// Steps before it belong to shorter workloads.
    pub from: usize,
}

impl Ace {
    /// Workloads of `operations` operations on up to `cores` cores.
    ///
    /// # Panics
    /// Unless both are 1 to 3.
    #[must_use]
    pub fn new(operations: u32, cores: usize) -> Ace {
        assert!((1..=3).contains(&operations) && (1..=3).contains(&cores));
        let all = pool();
        let mut inner = Vec::new();
        for (number, operation) in all.iter().enumerate() {
            let after = persistence(operation).into_iter();
            // fdatasync differs from fsync only in times; behind the last operation it is tried.
            let after = after.filter(|steps| !matches!(steps[..], [Step::Fdatasync(_)]));
            inner.extend(after.map(|steps| (number, steps)));
            inner.push((number, vec![Step::Checkpoint]));
            inner.push((number, vec![Step::Snapshot(0), Step::DropSnapshot(0)]));
        }
        Ace {
            operations,
            cores,
            all,
            inner,
            start: cores::start(),
        }
    }

    /// How many groups there are.
    #[must_use]
    pub fn groups(&self) -> u64 {
        let count = |len: usize| u64::try_from(len).expect("64 bits");
        count(self.inner.len()).pow(self.operations - 1) * count(self.all.len())
    }

    /// The workloads of group `number`: none if its operations cannot follow each other.
    ///
    /// # Panics
    /// If there is no such group.
    #[must_use]
    pub fn group(&self, number: u64) -> Vec<Made> {
        assert!(number < self.groups(), "group {number}");
        let mut rest = number;
        let mut digit = |len: usize| {
            let base = u64::try_from(len).expect("64 bits");
            let digit = usize::try_from(rest % base).expect("below a usize");
            rest /= base;
            digit
        };
        let last = &self.all[digit(self.all.len())];
        let before: Vec<&(usize, Vec<Step>)> = (1..self.operations)
            .map(|_| &self.inner[digit(self.inner.len())])
            .collect();
        let mut group = Group {
            parts: Vec::new(),
            made: Vec::new(),
            number,
        };
        for (place, (operation, after)) in before.iter().rev().enumerate() {
            group.part(&self.all[*operation], after, place);
        }
        group.part(last, &[], before.len());
        if !self.is_possible(&group.steps()) {
            return Vec::new();
        }
        group.one_core();
        if group.parts.iter().all(|part| part.after.is_empty()) {
            (2..=self.cores).for_each(|cores| group.spread(cores));
        }
        let possible = |made: &Made| self.is_possible(&made.workload.steps);
        group.made.into_iter().filter(possible).collect()
    }

    fn is_possible(&self, steps: &[Step]) -> bool {
        let mut history = self.start.clone();
        steps.iter().enumerate().all(|(number, step)| {
            let possible = history.possible(step);
            if possible {
                history.step(number, step);
            }
            possible
        })
    }
}

/// Operations on the tree of setup 1, and on what they make of it.
fn pool() -> Vec<Operation> {
    let mut all = operations();
    for (call, at) in cores::operations() {
        let steps = vec![Step::Call(call)];
        if !all.iter().any(|known| known.steps == steps) {
            let (files, directories) = (vec![at], Vec::new());
            all.push(Operation {
                steps,
                files,
                directories,
            });
        }
    }
    all
}

/// One operation of a group, and what follows it.
#[derive(Debug)]
struct Part {
    operation: Operation,
    after: Vec<Step>,
}

#[derive(Debug)]
struct Group {
    parts: Vec<Part>,
    made: Vec<Made>,
    number: u64,
}

impl Group {
    /// Adds an operation as number `place`: with its own descriptor and its own bytes.
    fn part(&mut self, operation: &Operation, after: &[Step], place: usize) {
        let place = u8::try_from(place).expect("three operations");
        let at = |at: &At| own(*at, place);
        let steps = |steps: &[Step]| steps.iter().map(|step| own_step(*step, place)).collect();
        self.parts.push(Part {
            operation: Operation {
                steps: steps(&operation.steps),
                files: operation.files.iter().map(at).collect(),
                directories: operation.directories.clone(),
            },
            after: steps(after),
        });
    }

    /// All operations with what follows them.
    fn steps(&self) -> Vec<Step> {
        let parts = self.parts.iter();
        parts
            .flat_map(|part| part.operation.steps.iter().chain(&part.after).copied())
            .collect()
    }

    fn add(&mut self, steps: Vec<Step>, from: usize) {
        let workload = Workload { setup: 1, steps };
        self.made.push(Made { workload, from });
    }

    /// In order on one core, with everything that may follow the last.
    fn one_core(&mut self) {
        let steps = self.steps();
        let last = self.parts.last().expect("a group has operations");
        let from = steps.len() - last.operation.steps.len();
        for (number, after) in persistence(&last.operation).into_iter().enumerate() {
            if after.is_empty() {
                for end in [Step::WriteBack, Step::Checkpoint] {
                    self.add([&steps[..], &[end]].concat(), from);
                }
                continue;
            }
            // What is in flight after it differs from group to group.
            let kind = self
                .number
                .wrapping_add(u64::try_from(number).expect("64 bits"));
            self.add([steps.clone(), after, unsynced(kind)].concat(), from);
        }
        // What the operations changed since is in no snapshot any more.
        let taken = |step: &&Step| matches!(step, Step::Snapshot(_));
        if let Some(Step::Snapshot(number)) = steps.iter().rfind(taken) {
            let drop = vec![Step::DropSnapshot(*number)];
            self.add([steps.clone(), drop, unsynced(self.number)].concat(), from);
        }
    }

    /// Operation n on core n; the remaining cores make an unsynced file. All fsyncs are in flight
    /// at the same time, begun in every order.
    fn spread(&mut self, cores: usize) {
        let mut steps = Vec::new();
        let mut roots = Vec::new();
        for (place, part) in self.parts.iter().enumerate() {
            steps.push(Step::Core(place % cores));
            steps.extend(&part.operation.steps);
            let directories = part.operation.directories.iter().map(|path| file(path));
            let root = part.operation.files.iter().copied().chain(directories);
            roots.push(root.last().unwrap_or(file("")));
        }
        if self.parts.len() < cores {
            let path = "unsynced";
            steps.push(Step::Core(self.parts.len()));
            steps.push(Step::Call(Call::Create { path }));
            roots.push(file(path));
        }
        let from = steps.len();
        for order in orders(roots.len()) {
            let begun = order.iter().map(|root| Step::FsyncBegin(roots[*root]));
            let steps: Vec<Step> = steps.iter().copied().chain(begun).collect();
            self.add([steps, vec![Step::FsyncEnd]].concat(), from);
        }
    }
}

/// A descriptor of one operation's own.
fn own(at: At, place: u8) -> At {
    match at {
        At::Slot(_) => At::Slot(place),
        At::Path(_) => at,
    }
}

/// A step with a descriptor and bytes of one operation's own.
fn own_step(step: Step, place: u8) -> Step {
    let of = |at| own(at, place);
    match step {
        Step::Call(call) => Step::Call(own_call(call, place)),
        Step::Open(_, path) => Step::Open(place, path),
        Step::Close(_) => Step::Close(place),
        Step::Fsync(at) => Step::Fsync(of(at)),
        Step::Fdatasync(at) => Step::Fdatasync(of(at)),
        Step::Snapshot(_) => Step::Snapshot(place),
        Step::DropSnapshot(_) => Step::DropSnapshot(place),
        other => other,
    }
}

fn own_call(mut call: Call, place: u8) -> Call {
    match &mut call {
        Call::Write { at, fill, .. } => {
            *at = own(*at, place);
            *fill = fill.wrapping_add(61 * place);
        }
        Call::SetXattr { at, fill, .. } => {
            *at = own(*at, place);
            *fill = fill.wrapping_add(61 * place);
        }
        Call::Truncate { at, .. }
        | Call::Allocate { at, .. }
        | Call::Clone { at, .. }
        | Call::RemoveXattr { at, .. }
        | Call::Chmod { at, .. }
        | Call::Chown { at, .. }
        | Call::SetTime { at, .. } => *at = own(*at, place),
        Call::Temporary { slot, .. } | Call::LinkSlot { slot, .. } => *slot = place,
        _ => {}
    }
    call
}

/// Operations after a persistence point that are not synced, so that something is in flight.
fn unsynced(kind: u64) -> Vec<Step> {
    let path = "unsynced";
    let create = Step::Call(Call::Create { path });
    let content = Step::Call(write(path, 0, 6000, 200));
    match kind % 4 {
        0 => vec![create, Step::WriteBack],
        1 => vec![create, content, Step::WriteBack],
        2 => vec![create, Step::Checkpoint],
        _ => vec![create, content, Step::WriteBack, Step::Checkpoint],
    }
}

/// Every order of `count` things.
fn orders(count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let shorter = orders(count - 1);
    let with = |order: &Vec<usize>, at: usize| {
        let mut longer = order.clone();
        longer.insert(at, count - 1);
        longer
    };
    let all = shorter
        .iter()
        .flat_map(|order| (0..count).map(move |at| with(order, at)));
    all.collect()
}

/// The group at `place` of the order that `seed` gives `groups` groups: a permutation.
///
/// # Panics
/// If `place` is not below `groups`.
#[must_use]
pub fn shuffled(groups: u64, seed: u64, place: u64) -> u64 {
    assert!(place < groups, "place {place} of {groups}");
    // A Feistel network permutes the next larger even number of bits; places that leave the range
    // are permuted again until they are back.
    let half = (64 - groups.leading_zeros()).div_ceil(2).max(1);
    let mask = (1 << half) - 1;
    let mut at = place;
    loop {
        let (mut left, mut right) = (at >> half, at & mask);
        for round in 0..4_u64 {
            let text = [right.to_le_bytes(), round.to_le_bytes()].concat();
            let mixed = xxhash_rust::xxh3::xxh3_64_with_seed(&text, seed);
            (left, right) = (right, left ^ (mixed & mask));
        }
        at = left << half | right;
        if at < groups {
            return at;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_group_stands_once_in_an_order() {
        for groups in [1, 2, 3, 64, 65, 1000] {
            let all: BTreeSet<u64> = (0..groups).map(|at| shuffled(groups, 7, at)).collect();
            assert_eq!(all, (0..groups).collect());
        }
        let order = |seed| (0..64).map(|at| shuffled(64, seed, at)).collect::<Vec<_>>();
        assert_ne!(order(1), order(2));
    }

    #[test]
    fn orders_are_all_orders() {
        assert_eq!(orders(2), [[1, 0], [0, 1]]);
        assert_eq!(orders(3).iter().collect::<BTreeSet<_>>().len(), 6);
    }

    #[test]
    fn two_operations_are_spread_over_cores_in_every_order() {
        let ace = Ace::new(2, 3);
        let spread = (0..ace.groups()).step_by(97).filter(|number| {
            let group = ace.group(*number);
            let on = |made: &&Made, core| made.workload.steps.contains(&Step::Core(core));
            let two = group
                .iter()
                .filter(|made| on(made, 1) && !on(made, 2))
                .count();
            let three = group.iter().filter(|made| on(made, 2)).count();
            assert!(
                two == 0 && three == 0 || two == 2 && three == 6,
                "{two} {three}"
            );
            two > 0
        });
        assert!(spread.count() > 10);
    }
}
