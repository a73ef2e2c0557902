//! `dure bench checkpoint`: how long a checkpoint of many dirty nodes takes, made by one task and by
//! several; and what an fsync takes meanwhile.
//!
//! **Structure.** A volume in memory for each number of tasks: with one there are no workers, with
//! more a worker less than tasks, since the caller that asks for a checkpoint makes it together
//! with the workers. A thread on each core writes pages so far from each other that each has a leaf
//! of its own, and syncs them: the leaves are dirty then. The checkpoint is timed. The volumes take
//! turns. For the times of fsyncs one more thread overwrites a page and syncs it, first without a
//! checkpoint, then while checkpoints run.
//!
//! **Invariants.** A run counts only if exactly its checkpoint was made, of at least so many nodes.
//! **On a crash** nothing is left behind.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use comfy_table::Table;
use dure_block::delay::DelayDevice;
use dure_block::overlay::OverlayRam;
use dure_block::ram::Image;
use dure_block::{Device, share};
use dure_fs::{
    Background, FileSystem, FormatOptions, InodeRef, MountOptions, NewInode, Stall, Stamp,
    SyncScope,
};
use dure_sync::atomic::{AtomicBool, Ordering};
use dure_sync::{Arc, CoreId, clock, thread};
use serde::Serialize;

use crate::micro::{content, or_default};
use crate::report::{self, Columns};
use crate::target::options_of;

/// `dure bench checkpoint`.
#[derive(Debug, clap::Args)]
pub struct Checkpoint {
    /// Dirty nodes of each checkpoint.
    #[arg(long, default_value_t = 100_000, value_name = "N", value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    pub nodes: u32,
    /// Tasks that make it [default: 1, and one for each core].
    #[arg(long, value_delimiter = ',', value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub tasks: Vec<u16>,
    /// Policies of dure, as mount options.
    #[arg(long, default_value = "", value_name = "OPTION[,OPTION...]")]
    pub policy: String,
    /// Microseconds of a write and of a flush of the device [default: memory, which takes none].
    #[arg(long, value_delimiter = ',', value_name = "WRITE,FLUSH")]
    pub delay: Vec<u64>,
    /// Checkpoints of each point; their median counts.
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: u32,
    /// Print a list of JSON objects.
    #[arg(long)]
    pub json: bool,
}

/// Bytes from one page to the next: more than a leaf maps.
const STRIDE: u64 = 320 * 4096;
/// Syncs that are timed while no checkpoint runs.
const SYNCS_BEFORE: usize = 20_000;
/// Syncs that are timed while no checkpoint runs on a slow device.
const SYNCS_BEFORE_SLOW: usize = 500;

#[derive(Debug, Serialize)]
struct Row {
    bench: &'static str,
    tasks: u16,
    nodes: u64,
    n: usize,
    milliseconds: f64,
    min: f64,
    max: f64,
    /// Images that workers wrote, of all.
    by_workers: f64,
    fsyncs: usize,
    fsync_p50_us: f64,
    fsync_p99_us: f64,
    before_p50_us: f64,
    before_p99_us: f64,
    /// What commits waited for while checkpoints ran, that of the checkpoints too.
    waits: Vec<Waits>,
}

/// Waits of one cause.
#[derive(Debug, Serialize)]
struct Waits {
    cause: &'static str,
    n: u64,
    us: u64,
}

/// A volume, and what was measured on it.
struct Subject {
    tasks: u16,
    fs: FileSystem,
    files: Vec<InodeRef>,
    synced: InodeRef,
    ns: Vec<u64>,
    images: u64,
    before: Vec<u64>,
    syncs_before: usize,
    meanwhile: Vec<u64>,
    /// By cause: count and ns.
    waits: [(u64, u64); Stall::ALL.len()],
}

/// Measures and prints the report.
///
/// # Errors
/// An operation, or a checkpoint, that fails.
pub(crate) fn run(args: &Checkpoint) -> Result<()> {
    let cores = u16::try_from(dure_sync::core_count()).unwrap_or(u16::MAX);
    let all = [1, cores];
    let default = if cores == 1 { &all[..1] } else { &all[..] };
    let tasks = or_default(&args.tasks, default);
    let rows = measure(args, tasks, cores)?;
    if args.json {
        report::print(&serde_json::to_string_pretty(&rows).context("writing JSON")?);
    } else {
        report::print(&table(&rows).to_string());
        for row in &rows {
            let waits = row.waits.iter().filter(|waits| waits.n > 0);
            let waits = waits.map(|waits| {
                let mean = waits.us / waits.n;
                format!("{} {} times, {mean} us each", waits.cause, waits.n)
            });
            let waits: Vec<String> = waits.collect();
            report::say(&format!(
                "tasks {}: commits waited for {}",
                row.tasks,
                waits.join("; ")
            ));
        }
    }
    Ok(())
}

fn measure(args: &Checkpoint, tasks: &[u16], cores: u16) -> Result<Vec<Row>> {
    let subjects = tasks.iter().map(|tasks| Subject::new(args, *tasks, cores));
    let mut subjects: Vec<Subject> = subjects.collect::<Result<_>>()?;
    // The first round makes the nodes, and is not counted.
    for round in 0..=args.repeat {
        for subject in &mut subjects {
            let (ns, images) = subject.checkpoint(args.nodes)?;
            if round > 0 {
                subject.ns.push(ns);
                subject.images = images;
            }
        }
    }
    for round in 0..args.repeat {
        for subject in &mut subjects {
            if round == 0 {
                let mut times = Vec::new();
                let (fs, file) = (&subject.fs, &subject.synced);
                (0..subject.syncs_before).try_for_each(|_| sync_once(fs, file, &mut times))?;
                subject.before = times;
            }
            subject.checkpoint_and_sync(args.nodes)?;
        }
    }
    Ok(subjects.into_iter().map(row).collect())
}

/// A device of so many blocks, in memory.
fn medium(blocks: u64, delay: &[u64]) -> Result<Arc<dyn Device>> {
    let ram = OverlayRam::new("checkpoints", Arc::new(Image::zeroed(blocks)));
    Ok(match *delay {
        [] => share(ram),
        [write, flush] => {
            let (write, flush) = (Duration::from_micros(write), Duration::from_micros(flush));
            share(DelayDevice::new(share(ram), write, flush))
        }
        _ => bail!("--delay: two numbers, for writes and for flushes"),
    })
}

impl Subject {
    fn new(args: &Checkpoint, tasks: u16, cores: u16) -> Result<Subject> {
        let nodes = u64::from(args.nodes);
        // Twice each page and each image, their tables, and the logs.
        let blocks = (nodes * 6).max(1 << 16);
        let medium = medium(blocks, &args.delay)?;
        let format = FormatOptions {
            journals: Some(u32::from(cores)),
            ..FormatOptions::default()
        };
        FileSystem::format(medium.clone(), &format)?;
        let mount = MountOptions {
            background: match tasks {
                1 => Background::None,
                _ => Background::Workers,
            },
            workers: (tasks > 1).then(|| usize::from(tasks - 1)),
            // A quarter is for nodes and their copies; half of these may be dirty.
            cache_bytes: (nodes * 10240 * 16).max(64 << 20),
            commit_interval: Duration::from_secs(3600),
            ..options_of("dure", &args.policy)?
        };
        let fs = FileSystem::open(medium, mount)?;
        let root = fs.root()?;
        let create = |name: String| {
            let new = NewInode {
                mode: 0o100_644,
                ..NewInode::default()
            };
            fs.create(&root, name.as_bytes(), &new)
        };
        let files = (0..cores).map(|core| create(format!("file{core}")));
        let files = files.collect::<dure_fs::Result<_>>()?;
        let synced = create("synced".into())?;
        // No log gets half full while nodes become dirty, which would be a checkpoint.
        fs.grow_logs((blocks / 10).max(2048))?;
        Ok(Subject {
            tasks,
            fs,
            files,
            synced,
            ns: Vec::new(),
            images: 0,
            before: Vec::new(),
            syncs_before: match args.delay[..] {
                [] => SYNCS_BEFORE,
                _ => SYNCS_BEFORE_SLOW,
            },
            meanwhile: Vec::new(),
            waits: Default::default(),
        })
    }

    /// Makes so many nodes dirty, by the files' cores.
    fn dirty(&self, nodes: u32) -> Result<()> {
        let count = u64::try_from(self.files.len()).context("cores are few")?;
        let each = u64::from(nodes).div_ceil(count);
        let threads: Vec<_> = (0..)
            .zip(&self.files)
            .map(|(core, file)| {
                let (fs, file) = (self.fs.clone(), file.clone());
                thread::spawn_on("dirty", CoreId::new(core), move || -> Result<()> {
                    let page = content(usize::from(core));
                    // From 1 on: the first pages of a file have their slots in its inode.
                    for n in 1..=each {
                        fs.write(&file, n * STRIDE, &page, Stamp::Set)?;
                    }
                    Ok(fs.fsync(&file, SyncScope::All)?)
                })
            })
            .collect();
        for thread in threads {
            thread.join().expect("writing does not panic")?;
        }
        Ok(())
    }

    /// One checkpoint: its time, and the images it wrote.
    fn checkpoint(&self, nodes: u32) -> Result<(u64, u64)> {
        let before = self.fs.activity().checkpoints;
        self.dirty(nodes)?;
        let images = self.fs.activity().images;
        let begin = clock::monotonic_ns();
        self.fs.checkpoint_now()?;
        let ns = clock::monotonic_ns() - begin;
        let images = self.fs.activity().images - images;
        ensure!(
            self.fs.activity().checkpoints - before == 1 && images >= u64::from(nodes),
            "a checkpoint on the way took some of the nodes: {images} of {nodes} are left"
        );
        Ok((ns, images))
    }

    /// One checkpoint, while a thread syncs.
    fn checkpoint_and_sync(&mut self, nodes: u32) -> Result<()> {
        self.dirty(nodes)?;
        let before = waits(&self.fs);
        let (ready, over) = (AtomicBool::new(false), AtomicBool::new(false));
        let (fs, file) = (&self.fs, &self.synced);
        let times = thread::scope(|scope| {
            let syncs = scope.spawn(|| -> Result<Vec<u64>> {
                let mut times = Vec::new();
                sync_once(fs, file, &mut Vec::new())?;
                ready.store(true, Ordering::Release);
                while !over.load(Ordering::Acquire) {
                    sync_once(fs, file, &mut times)?;
                }
                Ok(times)
            });
            while !ready.load(Ordering::Acquire) {
                thread::yield_now();
            }
            let made = fs.checkpoint_now();
            over.store(true, Ordering::Release);
            let times = syncs.join().expect("syncing does not panic");
            made.map_err(anyhow::Error::from).and(times)
        })?;
        self.meanwhile.extend(times);
        for ((sum, now), then) in self.waits.iter_mut().zip(waits(&self.fs)).zip(before) {
            sum.0 += now.0 - then.0;
            sum.1 += now.1 - then.1;
        }
        Ok(())
    }
}

/// Waits of all journals since the mount: count and ns, by cause.
fn waits(fs: &FileSystem) -> [(u64, u64); Stall::ALL.len()] {
    let journals = fs.activity().journals;
    Stall::ALL.map(|stall| {
        let of = journals.iter().map(|log| log.stall(stall));
        of.fold((0, 0), |sum, counts| {
            (sum.0 + counts.count(), sum.1 + counts.sum)
        })
    })
}

fn sync_once(fs: &FileSystem, file: &InodeRef, times: &mut Vec<u64>) -> Result<()> {
    let page = [7; 4096];
    let begin = clock::monotonic_ns();
    fs.write(file, 0, &page, Stamp::Set)?;
    fs.fsync(file, SyncScope::All)?;
    times.push(clock::monotonic_ns() - begin);
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "shown with a few digits")]
fn row(mut subject: Subject) -> Row {
    let milliseconds = |ns: u64| ns as f64 / 1e6;
    let at = |times: &mut Vec<u64>, percent: usize| {
        times.sort_unstable();
        let ns = times.get(times.len() * percent / 100);
        ns.map_or(0.0, |ns| *ns as f64 / 1e3)
    };
    subject.ns.sort_unstable();
    let ns = &subject.ns;
    let activity = subject.fs.activity();
    let by_workers: u64 = activity.workers.iter().map(|worker| worker.images).sum();
    let all = activity.images.max(1);
    Row {
        bench: "checkpoint",
        tasks: subject.tasks,
        nodes: subject.images,
        n: ns.len(),
        milliseconds: milliseconds(ns[(ns.len() - 1) / 2]),
        min: ns.first().map_or(0.0, |ns| milliseconds(*ns)),
        max: ns.last().map_or(0.0, |ns| milliseconds(*ns)),
        by_workers: by_workers as f64 / all as f64,
        fsyncs: subject.meanwhile.len(),
        fsync_p50_us: at(&mut subject.meanwhile, 50),
        fsync_p99_us: at(&mut subject.meanwhile, 99),
        before_p50_us: at(&mut subject.before, 50),
        before_p99_us: at(&mut subject.before, 99),
        waits: Stall::ALL
            .iter()
            .zip(subject.waits)
            .map(|(stall, (n, ns))| Waits {
                cause: stall.name(),
                n,
                us: ns / 1000,
            })
            .collect(),
    }
}

fn table(rows: &[Row]) -> Table {
    let header = [
        "tasks",
        "nodes",
        "n",
        "ms",
        "min",
        "max",
        "by workers",
        "fsyncs meanwhile",
        "p50 us",
        "p99",
        "before: p50",
        "p99",
    ];
    let mut table = report::plain_table(&header, &[], Columns::Usual);
    for row in rows {
        let short = |value: f64| format!("{value:.1}");
        table.add_row([
            row.tasks.to_string(),
            row.nodes.to_string(),
            row.n.to_string(),
            short(row.milliseconds),
            short(row.min),
            short(row.max),
            format!("{:.0} %", row.by_workers * 100.0),
            row.fsyncs.to_string(),
            short(row.fsync_p50_us),
            short(row.fsync_p99_us),
            short(row.before_p50_us),
            short(row.before_p99_us),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_write_images_of_checkpoints() {
        let args = Checkpoint {
            nodes: 2000,
            tasks: Vec::new(),
            policy: String::new(),
            delay: Vec::new(),
            repeat: 3,
            json: false,
        };
        let rows = measure(&args, &[1, 3], 2).unwrap();
        assert!(rows.iter().all(|row| row.nodes >= 2000 && row.fsyncs > 0));
        let shares = rows.iter().map(|row| row.by_workers);
        let shares: Vec<f64> = shares.collect();
        assert!(shares[0] == 0.0 && shares[1] > 0.1, "{shares:?}");
    }
}
