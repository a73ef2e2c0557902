//! Many small files of which nothing is in memory.
//!
//! **Structure.** A tree is made once for each target. Before each measurement the target is made
//! cold; then threads do all of the work, each with its part of the directories. Targets take turns.
//! **Invariants.** The time is from the moment when all threads begin to the end of the last.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use dure_sync::{clock, thread};

use super::Workload;
use super::worker::{FILES, make_files};
use crate::interrupt;
use crate::measure::{Cpu, Plan, Point, Share, WorkerKind, bar, histogram};
use crate::micro::content;
use crate::options::core_of;
use crate::target::{How, Target, Tree};

/// A buffer that holds a file.
const BUFFER_BYTES: usize = 16 << 10;

/// Measures these workloads on all targets that have directories.
pub(super) fn measure(
    files: u64,
    workloads: &[Workload],
    targets: &mut [Target],
    plan: &Plan,
) -> Result<Vec<Point>> {
    let mut points = Vec::new();
    if workloads.is_empty() {
        return Ok(points);
    }
    let mut field = Vec::new();
    for target in targets {
        if let Some(tree) = target.tree()? {
            make(&tree, files)?;
            field.push((tree.root().to_owned(), target));
        }
    }
    let bar = bar(workloads.len() * plan.cores.len(), plan.repeat);
    for &workload in workloads {
        for &threads in &plan.cores {
            let whose = |target: &Target| (target.label().to_owned(), target.policies().to_owned());
            let mut of_targets = Vec::new();
            for (_, target) in &field {
                let (label, policies) = whose(target);
                let whose = (&label[..], &policies[..]);
                let workers = (threads, WorkerKind::Threads);
                of_targets.push(Point::new(workload.name(), threads, whose, workers)?);
            }
            for _ in 0..plan.repeat {
                for (point, (root, target)) in of_targets.iter_mut().zip(&mut field) {
                    interrupt::check()?;
                    let shares = once(workload, (root, target), files, threads);
                    point.add(&shares.with_context(|| target.label().to_owned())?)?;
                }
                bar.inc(1);
            }
            points.append(&mut of_targets);
        }
    }
    bar.finish_and_clear();
    Ok(points)
}

fn directory(tree: &Tree, number: u64) -> PathBuf {
    tree.path(&format!("d{number}"))
}

fn make(tree: &Tree, files: u64) -> Result<()> {
    let bytes = content(0);
    for number in 0..files / FILES {
        interrupt::check()?;
        make_files(tree, &directory(tree, number), &bytes)?;
    }
    tree.sync()
}

/// One measurement.
fn once(
    workload: Workload,
    (root, target): (&Path, &mut Target),
    files: u64,
    threads: usize,
) -> Result<Vec<Share>> {
    target.make_cold()?;
    let tree = target.tree_at(root.to_owned()).context("it has one")?;
    let cores = threads.min(dure_sync::core_count());
    let start_ns = clock::monotonic_ns();
    let shares: Result<Vec<Share>> = thread::scope(|scope| {
        let tree = &tree;
        let work = |number: usize| {
            scope.spawn_on(core_of(number, cores), move || {
                part(workload, tree, files, (number, threads), start_ns)
            })
        };
        let workers: Vec<_> = (0..threads).map(work).collect();
        let workers = workers.into_iter();
        workers
            .map(|worker| worker.join().expect("workers return errors"))
            .collect()
    });
    let shares = shares?;
    if workload == Workload::RemoveCold {
        for number in 0..files / FILES {
            tree.below(&format!("d{number}")).remove()?;
        }
        make(&tree, files)?;
    }
    Ok(shares)
}

/// What thread `number` does of it.
fn part(
    workload: Workload,
    tree: &Tree,
    files: u64,
    (number, threads): (usize, usize),
    start_ns: u64,
) -> Result<Share> {
    let cpu = Cpu::of_this_thread();
    let (mut works, mut buffer) = (0, vec![0; BUFFER_BYTES]);
    let directories = (0..files / FILES).skip(number).step_by(threads);
    for directory in directories.map(|number| directory(tree, number)) {
        works += visit(workload, tree, &directory, &mut buffer)?;
    }
    if workload == Workload::RemoveCold {
        tree.sync()?;
    }
    let ns = clock::monotonic_ns() - start_ns;
    let mut latencies = histogram()?;
    latencies.record(ns / u64::max(works, 1))?;
    Ok(Share {
        works,
        ns,
        works_in_all: works,
        cpu: Cpu::of_this_thread().since(cpu),
        latencies,
    })
}

/// Does the work of a directory; returns its files.
fn visit(workload: Workload, tree: &Tree, directory: &Path, buffer: &mut [u8]) -> Result<u64> {
    let mut names = Vec::new();
    let mut listing = tree.list(directory)?;
    let mut count = 0;
    while listing
        .read(|name| names.push(String::from_utf8_lossy(name).into_owned()))?
        .is_some()
    {
        // As they come, as ls does it.
        for name in names.drain(..) {
            let path = directory.join(name);
            match workload {
                Workload::ReadCold => {
                    let file = tree.open(&path, How::Read)?;
                    file.read_some_at(buffer, 0)?;
                }
                Workload::RemoveCold => tree.remove_file(&path)?,
                _ => drop(tree.stat(&path)?),
            }
            count += 1;
        }
    }
    Ok(count)
}
