//! Kills of the mount server under writers that acknowledge.
//!
//! **Problem.** The loss of an acknowledged byte by a kill is the worst a file system can do, and
//! which writer, policy and moment reveals it is not known beforehand. **Structure.** Seven
//! writers, each a process: appends, renames, shared mappings, O_DIRECT, SQLite, LMDB, LevelDB. A
//! round mounts with drawn policies, verifies what earlier rounds acknowledged, lets all of them
//! write, lets the volume grow, and kills the server after a drawn time: before, while or after it
//! grows. **Invariants.** `dure check` is clean after
//! every kill; every acknowledgement holds. The canary acknowledges without a sync, and every
//! writer's loss must be detected. **Crash.** SIGKILL to the server.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use dure_sync::thread;
use rustix::process::Signal;

use super::Cx;
use super::draw::Draw;
use super::mount::Volume;
use super::python::{PYTHON, Programs, word};
use super::report::Report;
use super::step::Running;
use super::tools::Needs;

pub(crate) const NEEDS: Needs = Needs {
    mount: true,
    crates: &[],
    programs: &[
        (PYTHON, "python3"),
        (
            "/usr/lib/python3/dist-packages/lmdb/__init__.py",
            "python3-lmdb",
        ),
        (
            "/usr/lib/python3/dist-packages/plyvel/__init__.py",
            "python3-plyvel",
        ),
    ],
};

const KINDS: [&str; 7] = [
    "append", "rename", "mmap", "direct", "sqlite", "lmdb", "leveldb",
];
const SIZE_MIB: u64 = 512;
/// How much the volume grows in each round.
const GROWTH_MIB: u64 = 64;
const LIMIT: Duration = Duration::from_secs(120);
/// How long a writer may take to see that the server is gone; a mapping never does.
const NOTICED: Duration = Duration::from_secs(3);
/// Kills of a volume before the next one is made.
const KILLS_PER_VOLUME: u64 = 6;

pub(crate) fn run(cx: &Cx, report: &mut Report) -> Result<()> {
    if cx.profile.loses_what_is_not_synced() {
        report.case("canary: without syncs, every loss is noticed", canary(cx));
    }
    let volumes = if cx.quick { 1 } else { 10 };
    for number in 0..volumes {
        // A failure on one volume does not keep the next from being tested.
        if let Err(error) = volume(cx, report, number) {
            report.case(&format!("volume {number}"), Err(error));
        }
    }
    Ok(())
}

/// A volume's rounds; the first that fails ends it.
fn volume(cx: &Cx, report: &mut Report, number: u64) -> Result<()> {
    let mut writers = Writers::new(cx, cx.seed + number)?;
    for kill in 0..KILLS_PER_VOLUME {
        let mut draw = Draw::new(cx.seed, number * KILLS_PER_VOLUME + kill);
        let (policies, after) = (draw.policies(cx.profile), draw.between(200, 2500));
        let growth = Growth {
            mib: SIZE_MIB + (kill + 1) * GROWTH_MIB,
            head_start: Duration::from_millis(draw.between(0, 400)),
        };
        let growth = cx.profile.grows().then_some(growth);
        let grows = growth.as_ref().map_or(String::new(), |growth| {
            format!(", growing for {:?}", growth.head_start)
        });
        let name = format!(
            "volume {number}, kill {kill} after {after} ms{grows} ({})",
            policies.join(",")
        );
        let after = Duration::from_millis(after);
        let went = writers.round(&policies, after, growth.as_ref());
        if !report.case(&name, went) {
            report.note(writers.volume.keep());
            return Ok(());
        }
    }
    report.case(&format!("volume {number}, the end"), writers.end());
    Ok(())
}

/// A growth, and how long before the kill it begins.
struct Growth {
    mib: u64,
    head_start: Duration,
}

struct Writers {
    volume: Volume,
    programs: Programs,
    seed: String,
}

impl Writers {
    fn new(cx: &Cx, seed: u64) -> Result<Writers> {
        let volume = Volume::sized(cx, "kill", &format!("{SIZE_MIB}M"))?;
        Ok(Writers {
            programs: Programs::new(volume.scratch())?,
            volume,
            seed: seed.to_string(),
        })
    }

    fn log(&self, kind: &str) -> PathBuf {
        self.volume.scratch().join(format!("{kind}.acknowledged"))
    }

    fn command(&self, what: &str, kind: &str) -> std::process::Command {
        let (root, log) = (self.volume.root(), self.log(kind));
        let arguments = [what, kind, word(&root), word(&log), &self.seed];
        self.programs.command("kill.py", &arguments)
    }

    /// Verifies on the mounted volume that everything acknowledged is there.
    fn verify(&self, kind: &str) -> Result<()> {
        let done = self
            .volume
            .steps
            .finish(self.command("verify", kind), LIMIT)?;
        ensure!(
            done.status.success(),
            "{}{}",
            done.out.trim_end(),
            done.err()
        );
        Ok(())
    }

    /// Mounts, verifies, writes, kills, checks.
    fn round(&mut self, policies: &[&str], after: Duration, growth: Option<&Growth>) -> Result<()> {
        self.volume.mount_with(policies)?;
        for kind in KINDS {
            self.verify(kind)?;
        }
        let unordered = policies.contains(&"data=writeback");
        let manner = if unordered { "sync-all" } else { "honest" };
        self.cut_off(manner, after, growth)?;
        self.volume.check().context("after the kill")
    }

    /// Runs all writers, until the server is killed under them; a growth ends as it may.
    fn cut_off(&mut self, manner: &str, after: Duration, growth: Option<&Growth>) -> Result<()> {
        let start = |kind: &&str| {
            let mut command = self.command("run", kind);
            command.arg(manner);
            self.volume.steps.start(command, None)
        };
        let started: Result<Vec<Running>> = KINDS.iter().map(start).collect();
        let mut started = started?;
        thread::sleep(after);
        let mut grows = None;
        if let Some(growth) = growth {
            grows = Some(
                self.volume
                    .steps
                    .start(self.volume.growth(growth.mib), None)?,
            );
            thread::sleep(growth.head_start);
        }
        for (running, kind) in started.iter_mut().zip(KINDS) {
            running.expect_running(kind)?;
        }
        self.volume.kill()?;
        for running in started.into_iter().chain(grows) {
            running.end(NOTICED, Signal::KILL)?;
        }
        Ok(())
    }

    /// Verifies what the last kill left, and unmounts it cleanly.
    fn end(&mut self) -> Result<()> {
        self.volume.mount()?;
        for kind in KINDS {
            self.verify(kind)?;
            let log = std::fs::read_to_string(self.log(kind)).unwrap_or_default();
            let count = log.lines().filter(|line| line.starts_with('A')).count();
            ensure!(count > 0, "{kind} acknowledged nothing in all rounds");
        }
        self.volume.close()
    }
}

/// Writers that acknowledge what they did not sync, and a server that commits rarely.
fn canary(cx: &Cx) -> Result<()> {
    let mut writers = Writers::new(cx, cx.seed)?;
    writers.volume.mount_with(&["commit=3600"])?;
    writers.cut_off("lie", Duration::from_millis(1500), None)?;
    writers.volume.check()?;
    writers.volume.mount()?;
    let unnoticed: Vec<&str> = KINDS
        .into_iter()
        .filter(|kind| writers.verify(kind).is_ok())
        .collect();
    if !unnoticed.is_empty() {
        bail!(
            "nothing was synced, and no loss was seen by: {}",
            unnoticed.join(", ")
        );
    }
    writers.volume.close()
}
