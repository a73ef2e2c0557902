//! Volumes that are too small for what is written to them.
//!
//! **Problem.** A full volume tests promises that nothing else tests: a short write, a block that
//! was given away, a rewrite that finds no block. **Structure.** 12 processes fill a volume of 256
//! MiB, 2 more through mappings, 4 rewrite blocks of their own (synced or allocated before), 3 delete;
//! the server is killed under them. Then `room.py`: one promise after another, each on a fresh volume.
//! All of it with either cache for the pages of a write(2). **Invariants.** Every file whose fsync
//! returned 0 is whole after kill and remount, and every one whose close(2) did after an unmount; a
//! rewrite is never refused; programs that copy more than fits fail.
//! The canary acknowledges without a sync. **Crash.** SIGKILL to the server.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use dure_sync::thread;
use rustix::process::Signal;

use super::Cx;
use super::draw::Draw;
use super::mount::Volume;
use super::python::{PYTHON, Programs, word};
use super::report::Report;
use super::step::{Done, Running};
use super::tools::Needs;

pub(crate) const NEEDS: Needs = Needs {
    mount: true,
    crates: &[],
    programs: &[(PYTHON, "python3")],
};

const SIZE: &str = "256M";
const LIMIT: Duration = Duration::from_secs(240);
const NOTICED: Duration = Duration::from_secs(10);
/// Which cache takes the pages of a write(2): the kernel's, or the server's.
const MODES: [&str; 2] = ["writeback", "writethrough"];
/// Roles and how many processes have each. Those that own blocks begin first.
const OWNERS: [(&str, usize); 2] = [("write", 2), ("preallocate", 2)];
const OTHERS: [(&str, usize); 3] = [("fill", 12), ("map", 2), ("delete", 3)];
const CASES: [&str; 7] = [
    "short-write-2",
    "short-write-7",
    "fallocate",
    "full",
    "failed-fallocate",
    "promise",
    "apparent-size",
];
const MORE_CASES: [&str; 7] = [
    "short-write-3",
    "short-write-4",
    "short-write-5",
    "short-write-6",
    "short-write-8",
    "short-write-9",
    "short-write-10",
];

pub(crate) fn run(cx: &Cx, report: &mut Report) -> Result<()> {
    if cx.profile.loses_what_is_not_synced() {
        report.case("canary: without syncs, the loss is noticed", canary(cx));
    }
    let rounds = if cx.quick { 2 } else { 24 };
    for number in 0..rounds {
        let mut draw = Draw::new(cx.seed, 1000 + number);
        let mut options = draw.policies(cx.profile);
        options.push(MODES[usize::from(number % 2 == 1)]);
        options.retain(|option| !option.is_empty());
        let after = draw.between(3000, if cx.quick { 6000 } else { 15_000 });
        let name = format!(
            "volume {number}, kill after {after} ms ({})",
            options.join(",")
        );
        let went = crowd(cx, number, &options, Duration::from_millis(after));
        report.case(&name, went);
    }
    let more = if cx.quick { &[][..] } else { &MORE_CASES };
    for mode in MODES {
        for case in CASES.iter().chain(more) {
            // Those that do not write much depend on no cache, and --quick has few minutes.
            let writes = case.starts_with("short") || *case == "apparent-size";
            if mode == "writethrough" && cx.quick && !writes {
                continue;
            }
            report.case(&format!("{case} {mode}"), room(cx, case, mode));
        }
        let rounds = if cx.quick { 4 } else { 70 };
        let name = format!("programs-{rounds}");
        report.case(&format!("{name} {mode}"), room(cx, &name, mode));
        report.case(&format!("closed {mode}"), closed(cx, mode));
        report.case(&format!("replace {mode}"), replace(cx, mode));
    }
    Ok(())
}

struct Crowd {
    volume: Volume,
    programs: Programs,
    seed: String,
    running: Vec<(String, Running)>,
}

impl Crowd {
    fn new(cx: &Cx, seed: u64) -> Result<Crowd> {
        let volume = Volume::sized(cx, "enospc", SIZE)?;
        fs::create_dir(volume.scratch().join("acknowledged"))?;
        Ok(Crowd {
            programs: Programs::new(volume.scratch())?,
            volume,
            seed: seed.to_string(),
            running: Vec::new(),
        })
    }

    fn logs(&self) -> PathBuf {
        self.volume.scratch().join("acknowledged")
    }

    fn start(&mut self, roles: &[(&str, usize)], manner: &str) -> Result<()> {
        for (role, count) in roles {
            for number in 0..*count {
                let name = format!("{role}-{number}");
                let (root, log) = (self.volume.root(), self.logs().join(format!("{name}.log")));
                let arguments = [*role, word(&root), word(&log), &self.seed, manner];
                let command = self.programs.command("enospc.py", &arguments);
                self.running
                    .push((name, self.volume.steps.start(command, None)?));
            }
        }
        Ok(())
    }

    /// Waits until the owners have their blocks.
    fn await_owners(&mut self) -> Result<()> {
        for _ in 0..1200 {
            let logs = self
                .running
                .iter()
                .map(|(name, _)| self.logs().join(format!("{name}.log")));
            let ready = |log: PathBuf| fs::read_to_string(log).is_ok_and(|log| !log.is_empty());
            if logs.into_iter().all(ready) {
                return Ok(());
            }
            self.expect_running()?;
            thread::sleep(Duration::from_millis(50));
        }
        anyhow::bail!("4 files of 4 MiB take longer than a minute")
    }

    fn expect_running(&mut self) -> Result<()> {
        for (name, running) in &mut self.running {
            running.expect_running(name)?;
        }
        Ok(())
    }

    /// Owners, then the others, then the kill.
    fn cut_off(&mut self, manner: &str, after: Duration) -> Result<()> {
        self.start(&OWNERS, manner)?;
        self.await_owners()?;
        self.start(&OTHERS, manner)?;
        thread::sleep(after);
        self.expect_running()?;
        self.volume.kill()?;
        for (_, running) in self.running.drain(..) {
            running.end(NOTICED, Signal::KILL)?;
        }
        Ok(())
    }

    fn verify(&self) -> Result<Done> {
        let (root, logs) = (self.volume.root(), self.logs());
        let command = self
            .programs
            .command("enospc.py", &["verify", word(&root), word(&logs)]);
        self.volume.steps.finish(command, LIMIT)
    }
}

/// One volume, filled, killed, verified.
fn crowd(cx: &Cx, number: u64, options: &[&str], after: Duration) -> Result<()> {
    let mut crowd = Crowd::new(cx, cx.seed + number)?;
    crowd.volume.mount_with(options)?;
    crowd.cut_off("honest", after)?;
    crowd.volume.check().context("after the kill")?;
    crowd.volume.mount()?;
    let done = crowd.verify()?;
    ensure!(
        done.status.success(),
        "{}{}",
        done.out.trim_end(),
        done.err()
    );
    eprintln!("          {}", done.out.trim_end());
    crowd.volume.close()
}

/// The crowd without syncs: a loss must be seen.
fn canary(cx: &Cx) -> Result<()> {
    let mut crowd = Crowd::new(cx, cx.seed)?;
    crowd.volume.mount_with(&["commit=3600"])?;
    crowd.cut_off("lie", Duration::from_millis(1000))?;
    crowd.volume.mount()?;
    let done = crowd.verify()?;
    ensure!(
        done.status.code() == Some(1) && done.out.contains("were lost"),
        "nothing was synced, and no loss was seen: {}{}",
        done.out,
        done.tail()
    );
    crowd.volume.close()
}

/// One promise, on a volume of its own.
fn room(cx: &Cx, case: &str, mode: &str) -> Result<()> {
    let mut volume = Volume::sized(cx, "room", SIZE)?;
    let programs = Programs::new(volume.scratch())?;
    volume.mount_with(&[mode])?;
    promise(&volume, &programs, case)?;
    volume.close()
}

fn promise(volume: &Volume, programs: &Programs, case: &str) -> Result<()> {
    let root = volume.root();
    let command = programs.command("room.py", &[case, word(&root)]);
    let done = volume.steps.finish(command, LIMIT)?;
    ensure!(
        done.status.success(),
        "{}{}",
        done.out.trim_end(),
        done.err()
    );
    Ok(())
}

/// Files that are written and closed, until the volume is full; not synced.
fn closed(cx: &Cx, mode: &str) -> Result<()> {
    let mut volume = Volume::sized(cx, "room", SIZE)?;
    let programs = Programs::new(volume.scratch())?;
    volume.mount_with(&[mode])?;
    promise(&volume, &programs, "closed-write")?;
    volume.remount()?;
    promise(&volume, &programs, "closed-verify")?;
    volume.close()
}

/// Files that replace others, themselves unsynced, and a kill after a sync of their directory.
fn replace(cx: &Cx, mode: &str) -> Result<()> {
    let mut volume = Volume::sized(cx, "room", SIZE)?;
    let programs = Programs::new(volume.scratch())?;
    volume.mount_with(&[mode])?;
    promise(&volume, &programs, "replace-old")?;
    promise(&volume, &programs, "replace-new")?;
    volume.kill()?;
    volume.check()?;
    volume.mount()?;
    promise(&volume, &programs, "replace-verify")?;
    volume.close()
}
