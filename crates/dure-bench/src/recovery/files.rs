//! Mounts of a volume with many files: after a crash with full logs, and after an unmount.
//!
//! **Structure.** A volume in a file gets the files, made by a thread on each core. It is unmounted
//! and mounted `repeat` times. Then its logs grow to the size wanted and are filled with changes of
//! random files; the file system is dropped as if the process had been killed, and copies of what it
//! left are mounted. **Invariants.** No checkpoint empties the logs on the way; every mount after the
//! crash recovers the same medium. **On a crash** of the run a directory `dure-bench-*` stays behind.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use comfy_table::Table;
use dure_block::file::{OpenOptions, open_file};
use dure_check::{CheckOptions, check};
use dure_fs::{
    Background, FileSystem, FormatOptions, InodeRef, MountOptions, NewInode, RecoveryStatistics,
    Stamp,
};
use dure_sync::random::Seeded;
use dure_sync::{Arc, CoreId, clock, thread};
use rustix::fs::SeekFrom;
use serde::Serialize;
use tempfile::TempDir;

use super::{Mounts, Recovery};
use crate::micro::{content, or_default};
use crate::report::{self, Columns};
use crate::target::{nvm_of, options_of};

const POLICIES: [&str; 2] = [
    "nvm=emulated,page_cache=none",
    "nvm=emulated,page_cache=none,durability=posix",
];
/// Files of a directory.
const FILES: u32 = 1000;
/// One change in so many makes a new file, the others overwrite a page.
const CHANGES: u64 = 4;
/// Bytes copied at once.
const PIECE: usize = 1 << 20;

#[derive(Debug, Serialize)]
pub(super) struct Row {
    bench: &'static str,
    policy: String,
    files: u32,
    pub(super) after: &'static str,
    threads: u64,
    pub(super) log_mib: f64,
    transactions: u64,
    pub(super) nodes: u64,
    #[serde(flatten)]
    mounts: Mounts,
}

/// Mounts of `count` files by each policy.
pub(super) fn measure(args: &Recovery, count: u32, threads: &[u16]) -> Result<Vec<Row>> {
    let policies: Vec<&str> = args.policies.iter().map(String::as_str).collect();
    let mut rows = Vec::new();
    for policy in or_default(&policies, &POLICIES) {
        let subject = Subject::new(args, policy, count).with_context(|| (*policy).to_owned())?;
        rows.push(subject.unmounted(args)?);
        subject.crash(args.size_mib << 20)?;
        rows.extend(subject.crashed(args, threads)?);
    }
    Ok(rows)
}

/// A volume in a file.
struct Subject {
    directory: TempDir,
    policy: String,
    count: u32,
    cores: usize,
}

impl Subject {
    /// Makes the volume and its files, and unmounts it.
    fn new(args: &Recovery, policy: &str, count: u32) -> Result<Subject> {
        let directory = tempfile::Builder::new()
            .prefix("dure-bench-")
            .tempdir_in(&args.place)
            .with_context(|| args.place.display().to_string())?;
        let subject = Subject {
            directory,
            policy: policy.to_owned(),
            count,
            cores: dure_sync::core_count(),
        };
        // A page and a part of a node a file, and as much for images and directories; logs are an
        // eighth of the rest at most, and what they create needs room too.
        let blocks = u64::from(count) * 2 + args.size_mib * 256 * 16;
        File::create(subject.image())?.set_len(blocks.max(1 << 16) * 4096)?;
        let format = FormatOptions {
            journals: Some(u32::try_from(subject.cores).context("cores are few")?),
            ..FormatOptions::default()
        };
        FileSystem::format(subject.device(&subject.image())?, &format)?;
        let fs = subject.mount(&subject.image(), Background::Workers, None)?;
        let root = fs.root()?;
        let each = count.div_ceil(FILES);
        subject.on_cores(|core| {
            let page = content(core);
            let of_core = |number: &u32| *number as usize % subject.cores == core;
            for number in (0..each).filter(of_core) {
                let directory = fs.mkdir(&root, name('d', number).as_bytes(), &mode(0o755))?;
                for file in 0..FILES.min(count - number * FILES) {
                    let file =
                        fs.create(&directory, name('f', file).as_bytes(), &mode(0o100_644))?;
                    fs.write(&file, 0, &page, Stamp::Set)?;
                }
            }
            Ok(())
        })?;
        fs.close()?;
        Ok(subject)
    }

    fn image(&self) -> PathBuf {
        self.directory.path().join("image")
    }

    fn device(&self, path: &Path) -> Result<Arc<dyn dure_block::Device>> {
        let file = open_file(path, OpenOptions::default())?;
        Ok(dure_block::nvm::open(file, nvm_of("dure", &self.policy)?)?)
    }

    fn mount(
        &self,
        path: &Path,
        background: Background,
        threads: Option<u16>,
    ) -> Result<FileSystem> {
        let mut mount = MountOptions {
            background,
            recovery_threads: threads.map(usize::from),
            ..options_of("dure", &self.policy)?
        };
        if background == Background::None {
            // No checkpoint for want of memory: the logs get as full as they can.
            mount.cache_bytes = mount.cache_bytes.saturating_mul(8);
        }
        Ok(FileSystem::open(self.device(path)?, mount)?)
    }

    /// Does something by a thread on each core.
    fn on_cores(&self, work: impl Fn(usize) -> Result<()> + Sync) -> Result<()> {
        let work = &work;
        thread::scope(|scope| {
            let threads: Vec<_> = (0..self.cores)
                .map(|core| {
                    let place = CoreId::new(u16::try_from(core).expect("cores are few"));
                    scope.spawn_on(place, move || work(core))
                })
                .collect();
            let mut joined = threads.into_iter().map(|thread| thread.join());
            joined.try_for_each(|done| done.expect("a bench returns errors"))
        })
    }

    /// Fills logs of so many bytes with changes of random files, and leaves the volume as a kill
    /// would.
    fn crash(&self, log_bytes: u64) -> Result<()> {
        let fs = self.mount(&self.image(), Background::None, None)?;
        let cores = u64::try_from(self.cores).context("cores are few")?;
        // One core may write it all; logs grow by segments.
        let each = log_bytes / 4096 * 3 / 2 + u64::from(fs.layout().segment_blocks);
        fs.grow_logs(each * cores)?;
        let root = fs.root()?;
        let before = fs.activity().checkpoints;
        self.on_cores(|core| {
            let mut random = Seeded::new(u64::try_from(core)?);
            let mut changes = 0;
            while super::logged(&fs) < log_bytes {
                for _ in 0..64 {
                    changes += 1;
                    self.change(&fs, &root, (core, changes), &mut random)?;
                }
                // With `durability=posix` nothing else fills the logs.
                fs.sync()?;
            }
            Ok(())
        })?;
        let after = fs.activity().checkpoints;
        ensure!(before == after, "a checkpoint emptied the logs on the way");
        Ok(())
    }

    /// One change, of which each fourth is a new file.
    fn change(
        &self,
        fs: &FileSystem,
        root: &InodeRef,
        (core, changes): (usize, u64),
        random: &mut Seeded,
    ) -> Result<()> {
        let number = u32::try_from(random.below(u64::from(self.count)))?;
        let directory = fs.lookup(root, name('d', number / FILES).as_bytes())?;
        let directory = directory.context("a directory that was made")?;
        let file = if changes.is_multiple_of(CHANGES) {
            let name = format!("new{core}-{changes}");
            fs.create(&directory, name.as_bytes(), &mode(0o100_644))?
        } else {
            let file = fs.lookup(&directory, name('f', number % FILES).as_bytes())?;
            file.context("a file that was made")?
        };
        fs.write(&file, 0, &content(core), Stamp::Set)?;
        Ok(())
    }

    /// Mounts after a crash, by so many threads each.
    fn crashed(&self, args: &Recovery, threads: &[u16]) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        let copy = self.directory.path().join("copy");
        for &threads in threads {
            let mut runs = Vec::new();
            for _ in 0..args.repeat {
                copy_sparse(&self.image(), &copy)?;
                let begin = clock::monotonic_ns();
                let fs = self.mount(&copy, Background::Workers, Some(threads))?;
                let ns = clock::monotonic_ns() - begin;
                let recovered = fs.recovered().context("the volume was not unmounted")?;
                ensure!(
                    recovered.applied == recovered.transactions,
                    "{} of {} transactions were applied, all were durable",
                    recovered.applied,
                    recovered.transactions
                );
                fs.close()?;
                drop(fs);
                if args.check {
                    let report = check(self.device(&copy)?, &CheckOptions::default())?;
                    let issue = report.issues().first();
                    ensure!(issue.is_none(), "after recovery: {}", issue.expect("one"));
                }
                std::fs::remove_file(&copy)?;
                runs.push((ns, recovered));
            }
            rows.push(self.row("crash", runs));
        }
        Ok(rows)
    }

    /// Mounts after an unmount.
    fn unmounted(&self, args: &Recovery) -> Result<Row> {
        let mut runs = Vec::new();
        for _ in 0..args.repeat {
            let begin = clock::monotonic_ns();
            let fs = self.mount(&self.image(), Background::Workers, None)?;
            let ns = clock::monotonic_ns() - begin;
            ensure!(fs.recovered().is_none(), "the volume was unmounted");
            fs.close()?;
            runs.push((ns, RecoveryStatistics::default()));
        }
        Ok(self.row("unmount", runs))
    }

    #[expect(clippy::cast_precision_loss, reason = "shown with a few digits")]
    fn row(&self, after: &'static str, mut runs: Vec<(u64, RecoveryStatistics)>) -> Row {
        runs.sort_by_key(|(ns, _)| *ns);
        let (mounts, middle) = Mounts::of(&runs);
        Row {
            bench: "recovery",
            policy: self.policy.clone(),
            files: self.count,
            after,
            threads: middle.threads,
            log_mib: middle.log_bytes as f64 / f64::from(1 << 20),
            transactions: middle.transactions,
            nodes: middle.nodes,
            mounts,
        }
    }
}

fn mode(mode: u32) -> NewInode {
    NewInode {
        mode,
        ..NewInode::default()
    }
}

fn name(kind: char, number: u32) -> String {
    format!("{kind}{number}")
}

/// Copies a file and leaves its holes.
fn copy_sparse(from: &Path, to: &Path) -> Result<()> {
    let source = File::open(from)?;
    let target = File::create(to)?;
    let end = source.metadata()?.len();
    target.set_len(end)?;
    let mut piece = vec![0; PIECE];
    let mut at = 0;
    while at < end {
        // Behind the last data there is none.
        let Ok(data) = rustix::fs::seek(&source, SeekFrom::Data(at)) else {
            break;
        };
        let hole = rustix::fs::seek(&source, SeekFrom::Hole(data))?;
        at = data;
        while at < hole {
            let bytes = (hole - at).min(PIECE as u64);
            let bytes = &mut piece[..usize::try_from(bytes)?];
            source.read_exact_at(bytes, at)?;
            target.write_all_at(bytes, at)?;
            at += bytes.len() as u64;
        }
    }
    Ok(())
}

pub(super) fn table(rows: &[Row], columns: Columns) -> Table {
    let mut heads = vec!["policy", "after", "threads", "log MiB"];
    if columns == Columns::All {
        heads.extend(["files", "transactions", "nodes"]);
    }
    heads.extend(Mounts::HEADS);
    let mut table = report::plain_table(&heads, &[0, 1], columns);
    for row in rows {
        let mut cells = vec![
            row.policy.clone(),
            row.after.to_owned(),
            row.threads.to_string(),
            format!("{:.0}", row.log_mib),
        ];
        if columns == Columns::All {
            let counts = [u64::from(row.files), row.transactions, row.nodes];
            cells.extend(counts.map(|count| count.to_string()));
        }
        cells.extend(row.mounts.cells());
        table.add_row(cells);
    }
    table
}
