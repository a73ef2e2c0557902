//! What is measured: programs that walk trees, and reads and writes as fio makes them.
//!
//! **Invariants.** Each workload checks that it did what it claims. Reads find nothing in the
//! kernel's cache. **Crash.** The directory of the target stays behind.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use dure_sync::random::Seeded;
use dure_sync::{clock, thread};

use crate::interrupt;
use crate::measure::f64_of;

/// Bytes of a small read or write.
const SMALL: usize = 4096;
/// Bytes of a large one.
const LARGE: usize = 1 << 20;
/// Bytes of a record that a database appends to its log.
const RECORD: usize = 250;
/// Tasks that make small ones.
const JOBS: usize = 2;
/// Is in one file of the tree.
const NEEDLE: &[u8] = b"sown-and-reaped";

/// A workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Workload {
    Extract,
    Find,
    Grep,
    GrepAgain,
    Remove,
    WriteLarge,
    ReadLarge,
    ReadSmall,
    WriteSmall,
    WriteSync,
    Append,
    AppendSync,
}

/// In this order: some need what those before have made.
pub(super) const ALL: [Workload; 12] = [
    Workload::Extract,
    Workload::Find,
    Workload::Grep,
    Workload::GrepAgain,
    Workload::Remove,
    Workload::WriteLarge,
    Workload::ReadLarge,
    Workload::ReadSmall,
    Workload::WriteSmall,
    Workload::WriteSync,
    Workload::Append,
    Workload::AppendSync,
];

impl Workload {
    pub(super) fn name(self) -> &'static str {
        match self {
            Workload::Extract => "tar x",
            Workload::Find => "find -size +0",
            Workload::Grep => "grep -r, second",
            Workload::GrepAgain => "grep -r, third",
            Workload::Remove => "rm -rf",
            Workload::WriteLarge => "write 1 MiB",
            Workload::ReadLarge => "read 1 MiB",
            Workload::ReadSmall => "randread 4 KiB, 2 jobs",
            Workload::WriteSmall => "randwrite 4 KiB, 2 jobs",
            Workload::WriteSync => "randwrite + fsync, 2 jobs",
            Workload::Append => "append 250 B",
            Workload::AppendSync => "append 250 B + fdatasync",
        }
    }

    /// Whether it does with one file that is there, as the empty server's is.
    pub(super) fn needs_one_file(self) -> bool {
        !self.is_time() && !matches!(self, Workload::Append | Workload::AppendSync)
    }

    /// Whether its figure is the time of all of it, in milliseconds, rather than a rate.
    pub(super) fn is_time(self) -> bool {
        matches!(
            self,
            Workload::Extract
                | Workload::Find
                | Workload::Grep
                | Workload::GrepAgain
                | Workload::Remove
        )
    }
}

/// What all targets get: an archive, and how large the file is.
#[derive(Debug)]
pub(super) struct Stuff {
    pub(super) archive: std::path::PathBuf,
    pub(super) files: u32,
    pub(super) directories: u32,
    pub(super) file_bytes: u64,
    pub(super) seconds: f64,
}

impl Stuff {
    pub(super) fn entries(&self) -> u64 {
        u64::from(self.files) + u64::from(self.directories)
    }

    /// Makes the archive in `place`: `files` files of 12 KiB on average, a dozen in a directory.
    pub(super) fn make(place: &Path, files: u32, (mib, seconds): (u64, f64)) -> Result<Stuff> {
        const IN_DIRECTORY: u32 = 12;
        let tree = place.join("tree");
        let mut random = Seeded::new(16);
        let directories = files.div_ceil(IN_DIRECTORY);
        for directory in 0..directories {
            let at = tree.join(format!("d{}/e{directory}", directory % 16));
            fs::create_dir_all(&at)?;
            let first = directory * IN_DIRECTORY;
            for file in first..files.min(first + IN_DIRECTORY) {
                let len = crate::random::gamma(&mut random, 12 << 10).clamp(1, 1 << 18);
                let len = usize::try_from(len).expect("at most 256 KiB");
                let mut bytes = vec![b'a'; len];
                bytes.iter_mut().step_by(61).for_each(|byte| *byte = b'\n');
                if file == files / 2 {
                    bytes.extend_from_slice(NEEDLE);
                }
                fs::write(at.join(format!("file{file}")), bytes)?;
            }
        }
        let archive = place.join("tree.tar");
        program(
            Command::new("tar")
                .arg("-cf")
                .arg(&archive)
                .arg("-C")
                .arg(place)
                .arg("tree"),
        )?;
        fs::remove_dir_all(tree)?;
        Ok(Stuff {
            archive,
            files,
            directories: 1 + directories.min(16) + directories,
            file_bytes: mib << 20,
            seconds,
        })
    }

    /// Does it in `directory`: milliseconds, or a rate.
    pub(super) fn run(&self, workload: Workload, directory: &Path) -> Result<f64> {
        interrupt::check()?;
        let tree = directory.join("tree");
        let file = directory.join("file");
        match workload {
            Workload::Extract => timed(|| {
                let mut tar = Command::new("tar");
                program(tar.arg("-xf").arg(&self.archive).arg("-C").arg(directory)).map(drop)
            }),
            Workload::Find => timed(|| {
                let mut find = Command::new("find");
                let found = program(find.arg(&tree).args(["-type", "f", "-size", "+0"]))?;
                let count = found.iter().filter(|byte| **byte == b'\n').count();
                ensure!(u32::try_from(count) == Ok(self.files), "find found {count}");
                Ok(())
            }),
            // The first reads: its access times are what the second asks for.
            Workload::Grep => {
                grep(&tree)?;
                timed(|| grep(&tree))
            }
            Workload::GrepAgain => timed(|| grep(&tree)),
            Workload::Remove => {
                timed(|| program(Command::new("rm").arg("-rf").arg(&tree)).map(drop))
            }
            Workload::WriteLarge => {
                self.large(&file, |file, bytes, at| file.write_all_at(bytes, at))
            }
            Workload::ReadLarge => {
                uncache(&file)?;
                self.large(&file, |file, bytes, at| {
                    bytes[0] = 0;
                    file.read_exact_at(bytes, at)?;
                    // What the write before left there.
                    match bytes[0] {
                        7 => Ok(()),
                        _ => Err(std::io::Error::other("read what was not written")),
                    }
                })
            }
            Workload::ReadSmall => {
                uncache(&file)?;
                self.small(&file, false, |file, bytes, at| {
                    file.read_exact_at(bytes, at)
                })
            }
            Workload::WriteSmall => {
                self.small(&file, true, |file, bytes, at| file.write_all_at(bytes, at))
            }
            Workload::WriteSync => self.small(&file, true, |file, bytes, at| {
                file.write_all_at(bytes, at)?;
                file.sync_data()
            }),
            Workload::Append => self.append(&directory.join("log"), |mut file, bytes| {
                file.write_all(bytes)
            }),
            Workload::AppendSync => self.append(&directory.join("log"), |mut file, bytes| {
                file.write_all(bytes)?;
                file.sync_data()
            }),
        }
    }

    /// One task, at the end of a new file until the time is up; calls a second.
    fn append(
        &self,
        path: &Path,
        one: impl Fn(&File, &[u8]) -> std::io::Result<()>,
    ) -> Result<f64> {
        let file = File::create_new(path).with_context(|| path.display().to_string())?;
        let limit = self.seconds * 1e9;
        let begin = clock::monotonic_ns();
        let mut count = 0_u64;
        while f64_of(clock::monotonic_ns() - begin) < limit {
            one(&file, &[7; RECORD]).with_context(|| path.display().to_string())?;
            count += 1;
        }
        let ns = clock::monotonic_ns() - begin;
        let bytes = u64::try_from(RECORD).expect("a few") * count;
        ensure!(
            file.metadata()?.len() == bytes,
            "the log is not {bytes} bytes"
        );
        drop(file);
        fs::remove_file(path)?;
        Ok(f64_of(count) / f64_of(ns.max(1)) * 1e9)
    }

    /// One task, from the beginning to the end; bytes a second.
    fn large(
        &self,
        path: &Path,
        one: impl Fn(&File, &mut [u8], u64) -> std::io::Result<()>,
    ) -> Result<f64> {
        let file = open(path)?;
        let mut bytes = vec![7; LARGE];
        let begin = clock::monotonic_ns();
        for at in (0..self.file_bytes).step_by(LARGE) {
            one(&file, &mut bytes, at).with_context(|| path.display().to_string())?;
        }
        let ns = clock::monotonic_ns() - begin;
        Ok(f64_of(self.file_bytes) / f64_of(ns.max(1)) * 1e9)
    }

    /// Tasks with a part of the file each, whose pages they take in a random order, each once, and
    /// with `again` from the first again, until the time is up; calls a second.
    fn small(
        &self,
        path: &Path,
        again: bool,
        one: impl Fn(&File, &mut [u8], u64) -> std::io::Result<()> + Sync,
    ) -> Result<f64> {
        let pages = self.file_bytes / 4096 / u64::try_from(JOBS).expect("a few");
        let pages = usize::try_from(pages).context("a file that fits in memory")?;
        let limit = self.seconds * 1e9;
        let task = |job: usize| -> Result<f64> {
            let file = open(path)?;
            let order = shuffled(pages, u64::try_from(job).expect("a few"));
            let mut bytes = vec![7; SMALL];
            let begin = clock::monotonic_ns();
            let mut count = 0_u64;
            'all: loop {
                for page in &order {
                    let page = u64::try_from(job * pages + page).expect("a page of a file");
                    one(&file, &mut bytes, page * 4096)?;
                    count += 1;
                    if f64_of(clock::monotonic_ns() - begin) > limit {
                        break 'all;
                    }
                }
                if !again {
                    break;
                }
            }
            Ok(f64_of(count) / f64_of(clock::monotonic_ns() - begin) * 1e9)
        };
        thread::scope(|scope| {
            let task = &task;
            let tasks: Vec<_> = (0..JOBS)
                .map(|job| scope.spawn(move || task(job)))
                .collect();
            let rates = tasks
                .into_iter()
                .map(|task| task.join().expect("a task ends"));
            rates.sum()
        })
    }
}

fn open(path: &Path) -> Result<File> {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false);
    options
        .open(path)
        .with_context(|| path.display().to_string())
}

/// Leaves nothing of the file in the kernel's cache.
fn uncache(path: &Path) -> Result<()> {
    let file = open(path)?;
    file.sync_all()?;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    Ok(())
}

fn shuffled(count: usize, seed: u64) -> Vec<usize> {
    let mut random = Seeded::new(seed);
    let mut order: Vec<usize> = (0..count).collect();
    for last in (1..count).rev() {
        let bound = u64::try_from(last + 1).expect("a count");
        let other = usize::try_from(random.next_u64() % bound).expect("below a count");
        order.swap(last, other);
    }
    order
}

fn grep(tree: &Path) -> Result<()> {
    let needle = std::str::from_utf8(NEEDLE).expect("it is plain");
    let found = program(Command::new("grep").args(["-rl", needle]).arg(tree))?;
    let count = found.iter().filter(|byte| **byte == b'\n').count();
    ensure!(count == 1, "grep found {count}");
    Ok(())
}

fn timed(work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let begin = clock::monotonic_ns();
    work()?;
    Ok(f64_of(clock::monotonic_ns() - begin) / 1e6)
}

/// Runs a program; what it prints.
fn program(command: &mut Command) -> Result<Vec<u8>> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).env("LC_ALL", "C").output();
    let output = output.with_context(|| format!("{name} cannot be run"))?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{name}: {}", complaint.trim());
    Ok(output.stdout)
}
