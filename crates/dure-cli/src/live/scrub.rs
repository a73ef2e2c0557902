//! The scrub of a mounted volume, in the server of the mount.
//!
//! **Structure.** A thread calls [`FileSystem::scrub`], and notes in a [`ScrubReport`] what that
//! tells. The report is also a file in the state directory of the server, which the next mount goes on
//! from. **Invariants.** One scrub at a time. The thread has the volume only while it runs, and its end
//! is waited for before the volume grows, and before it is closed. A file that
//! cannot be written or read costs the place where the scrub goes on, and nothing else. **Crash.** The
//! file is replaced whole, at the start and every [`EVERY_NS`]: a scrub goes on from a place that it was at.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use dure_fs::{FileSystem, ScrubOptions, ScrubProgress};
use dure_fuse::MountedVolume;
use dure_sync::atomic::{AtomicBool, Ordering};
use dure_sync::{Arc, Mutex, clock, thread};
use serde::{Deserialize, Serialize};

use super::wire::{BadRow, ScrubNumbers, ScrubReport, ScrubState};
use crate::log::{self, Level};

/// Rank of the report; no other lock is taken while it is held.
const REPORT: u8 = 15;
/// Rank of the thread's handle, held while its end is waited for, and while the volume grows.
const THREAD: u8 = 9;
/// Damaged blocks of a report, and of the log.
const BAD_MAX: usize = 1000;
/// Between two writes of the file.
const EVERY_NS: u64 = 10_000_000_000;

/// The scrub of one volume.
#[derive(Debug, Default)]
pub(crate) struct Scrubs {
    runner: Mutex<THREAD, Runner>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Runner {
    thread: Option<thread::JoinHandle<()>>,
    /// The volume is being closed.
    is_closed: bool,
}

#[derive(Debug, Default)]
struct Shared {
    report: Mutex<REPORT, ScrubReport>,
    /// Relaxed: it asks a thread, which is joined.
    is_ending: AtomicBool,
    place: Option<Place>,
}

/// The file of a report.
#[derive(Debug)]
struct Place {
    file: PathBuf,
    /// The volume, as its path.
    volume: String,
}

/// What the file has.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    volume: String,
    report: ScrubReport,
}

impl Scrubs {
    /// That of the volume with this path and uuid: as its last mount left it.
    pub(crate) fn of(volume: &str, uuid: &str) -> Scrubs {
        let place = state_directory().map(|directory| Place {
            file: directory.join(format!("scrub-{uuid}.json")),
            volume: volume.to_owned(),
        });
        let report = place.as_ref().and_then(Place::read).unwrap_or_default();
        Scrubs {
            runner: Mutex::default(),
            shared: Arc::new(Shared {
                report: Mutex::new(report),
                is_ending: AtomicBool::new(false),
                place,
            }),
        }
    }

    /// How it is.
    pub(crate) fn report(&self) -> ScrubReport {
        self.shared.report.lock().clone()
    }

    /// The counts, once there was a scrub.
    pub(crate) fn numbers(&self) -> Option<ScrubNumbers> {
        let report = self.shared.report.lock();
        (report.state != ScrubState::Never).then_some(report.counts)
    }

    /// Lets a scrub that ran when the last mount ended go on.
    pub(crate) fn go_on(&self, volume: &MountedVolume) {
        let mut runner = self.runner.lock();
        if self.report().state == ScrubState::Running {
            self.spawn(&mut runner, volume);
        }
    }

    /// Starts a scrub, or lets one go on that is not complete, at this rate; none while the volume is
    /// being closed.
    pub(crate) fn start(&self, volume: &MountedVolume, rate: Option<u64>) {
        let mut runner = self.runner.lock();
        if runner.is_closed {
            return;
        }
        self.end(&mut runner);
        {
            let mut report = self.shared.report.lock();
            if !matches!(report.state, ScrubState::Running | ScrubState::Paused) {
                *report = ScrubReport {
                    started: clock::wall_coarse().secs,
                    ..ScrubReport::default()
                };
            }
            (report.state, report.rate, report.error) = (ScrubState::Running, rate, None);
        }
        // A server that is killed soon would leave no sign of it.
        self.shared.keep();
        self.spawn(&mut runner, volume);
    }

    /// Ends the thread of a scrub that runs; `start` goes on from there.
    pub(crate) fn pause(&self) {
        self.end(&mut self.runner.lock());
        {
            let mut report = self.shared.report.lock();
            if report.state == ScrubState::Running {
                report.state = ScrubState::Paused;
            }
        }
        self.shared.keep();
    }

    /// Does something to the volume while no scrub has it and none is started.
    pub(crate) fn apart<R>(&self, volume: &MountedVolume, body: impl FnOnce() -> R) -> R {
        let mut runner = self.runner.lock();
        self.end(&mut runner);
        let result = body();
        if self.report().state == ScrubState::Running {
            self.spawn(&mut runner, volume);
        }
        result
    }

    /// Ends the thread before the volume is closed. A scrub that ran goes on at the next mount.
    pub(crate) fn suspend(&self) {
        let mut runner = self.runner.lock();
        self.end(&mut runner);
        runner.is_closed = true;
        self.shared.keep();
    }

    fn spawn(&self, runner: &mut Runner, volume: &MountedVolume) {
        self.shared.is_ending.store(false, Ordering::Relaxed);
        let (shared, fs) = (Arc::clone(&self.shared), volume.file_system());
        runner.thread = Some(thread::spawn("dure-scrub", move || shared.run(&fs)));
    }

    fn end(&self, runner: &mut Runner) {
        if let Some(thread) = runner.thread.take() {
            self.shared.is_ending.store(true, Ordering::Relaxed);
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// Scrubs from the cursor of the report on, to the end or until it is to pause.
    fn run(&self, fs: &FileSystem) {
        let (options, before) = {
            let report = self.report.lock();
            let options = ScrubOptions {
                from: report.cursor.parse().unwrap_or_default(),
                rate: report.rate,
            };
            (options, report.counts)
        };
        let mut kept_ns = clock::monotonic_ns();
        let mut again = ScrubNumbers::default();
        let ended = fs.scrub(&options, &mut |now| {
            self.note(now, &before, &mut again);
            if clock::monotonic_ns().saturating_sub(kept_ns) > EVERY_NS {
                self.keep();
                kept_ns = clock::monotonic_ns();
            }
            match self.is_ending.load(Ordering::Relaxed) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        if let Err(error) = ended {
            let mut report = self.report.lock();
            (report.state, report.error) = (ScrubState::Failed, Some(error.to_string()));
        }
        self.keep();
    }

    /// Takes over how far it is. What a scrub that went on has found a second time, in the segment
    /// that it was paused in, is left out, and counted in `again`.
    fn note(&self, now: &ScrubProgress<'_>, before: &ScrubNumbers, again: &mut ScrubNumbers) {
        let mut rows: Vec<BadRow> = now.found.iter().map(BadRow::of).collect();
        let is_known = |row: &BadRow| {
            let report = self.report.lock();
            report.bad.iter().any(|bad| bad.block == row.block)
        };
        rows.retain(|row| {
            let known = is_known(row);
            again.bad_blocks += u64::from(known);
            again.mended += u64::from(known && row.mended);
            !known
        });
        let room = BAD_MAX.saturating_sub(self.report.lock().bad.len());
        let left_out = rows.split_off(room.min(rows.len())).len();
        for row in &rows {
            log::write(Level::Error, &format!("scrub: {row}"));
        }
        let mut report = self.report.lock();
        report.counts = before.and(&now.counts);
        report.counts.bad_blocks -= again.bad_blocks.min(report.counts.bad_blocks);
        report.counts.mended -= again.mended.min(report.counts.mended);
        report.bad_left_out += u64::try_from(left_out).unwrap_or(0);
        report.bad.extend(rows);
        match now.cursor {
            Some(cursor) => report.cursor = cursor.to_string(),
            None => {
                report.state = ScrubState::Complete;
                report.ended = clock::wall_coarse().secs;
                report.cursor.clear();
            }
        }
        if report.state == ScrubState::Complete {
            let (bad, mended) = (report.counts.bad_blocks, report.counts.mended);
            drop(report);
            log::write(
                Level::Info,
                &format!("scrub: complete, {bad} damaged, {mended} of them mended"),
            );
        }
    }

    /// Writes the report to its file.
    fn keep(&self) {
        let Some(place) = &self.place else { return };
        let report = self.report.lock().clone();
        if report.state == ScrubState::Never {
            return;
        }
        if let Err(error) = place.write(report) {
            let lost = "the next mount will not know how far the scrub is";
            log::write(Level::Warning, &format!("scrub: {lost}: {error:#}"));
        }
    }
}

impl Place {
    /// The report, if the file is one of this volume.
    fn read(&self) -> Option<ScrubReport> {
        let kept: Kept = serde_json::from_slice(&fs::read(&self.file).ok()?).ok()?;
        (kept.volume == self.volume).then_some(kept.report)
    }

    fn write(&self, report: ScrubReport) -> Result<()> {
        let directory = self.file.parent().unwrap_or(Path::new("/"));
        let at = || self.file.display().to_string();
        fs::create_dir_all(directory).with_context(at)?;
        let mut file = tempfile::NamedTempFile::new_in(directory).with_context(at)?;
        let volume = self.volume.clone();
        serde_json::to_writer(&mut file, &Kept { volume, report })?;
        file.persist(&self.file).with_context(at)?;
        Ok(())
    }
}

/// Where a server keeps what it knows: what systemd says, or else `/var/lib/dure` for root, and the
/// state directory of another user.
fn state_directory() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(all) = set("STATE_DIRECTORY") {
        return std::env::split_paths(&all).next();
    }
    if rustix::process::geteuid().is_root() {
        return Some(PathBuf::from("/var/lib/dure"));
    }
    let home = || Some(PathBuf::from(set("HOME")?).join(".local/state"));
    let state = set("XDG_STATE_HOME").map(PathBuf::from).or_else(home)?;
    Some(state.join("dure"))
}
