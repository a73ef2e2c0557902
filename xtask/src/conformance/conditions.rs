//! What a mount may meet: io_uring that is forbidden or switched off, little memory to lock, a CPU
//! that goes and comes, a server that is stopped, a detached mount.
//!
//! **Problem.** These are states of the machine, which no test within a process can make.
//! **Structure.** A case each, with a volume of its own. [`Writers`] append and rename, and note
//! outside of the volume what is durable. **Invariants.** Rings that cannot be had are named, with
//! the reason, and `/dev/fuse` serves; nothing hangs; what was acknowledged is there afterwards, and
//! `dure check` finds nothing. **Crash.** A switch of the kernel that was changed stays so: the
//! sysctl, `fuse.enable_uring`, a CPU that is offline.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use dure_sync::thread;
use rustix::process::{Pid, Signal, kill_process};

use super::mount::{Volume, detach};
use super::python::{PYTHON, Programs, word};
use super::report::Report;
use super::step::Running;
use super::tools::Needs;
use super::{Cx, Transport};

pub(crate) const NEEDS: Needs = Needs {
    mount: true,
    crates: &[],
    programs: &[
        (PYTHON, "python3"),
        ("setpriv", "util-linux"),
        ("prlimit", "util-linux"),
        ("taskset", "util-linux"),
    ],
};

const LIMIT: Duration = Duration::from_secs(60);
/// How long writers write before something happens, and go on afterwards.
const WHILE: Duration = Duration::from_millis(1500);

const IO_URING: &str = "/proc/sys/kernel/io_uring_disabled";
const RINGS: &str = "/sys/module/fuse/parameters/enable_uring";
const CPUS: &str = "/sys/devices/system/cpu";

pub(crate) fn run(cx: &Cx, report: &mut Report) -> Result<()> {
    let switched = [
        ("io_uring is forbidden", IO_URING, "2", "io_uring_disabled"),
        ("rings are switched off", RINGS, "N", "switched off"),
    ];
    for (name, switch, value, reason) in switched {
        if Path::new(switch).exists() {
            let case = Switch::set(switch, value).and_then(|_set| falls_back(cx, reason));
            report.case(name, case);
        } else {
            report.note(format!("{name}: not tried, there is no {switch}"));
        }
    }
    report.case("no memory to lock", no_locked_memory(cx));
    let transports = match cx.transport {
        Some(transport) => vec![transport],
        None => vec![Transport::Device, Transport::Uring],
    };
    for transport in transports {
        let named = |name: &str| format!("{name} ({})", transport.option());
        report.case(&named("a server is stopped"), stopped(cx, transport));
        report.case(&named("umount -l under writers"), detached(cx, transport));
        match last_cpu() {
            Some(cpu) => {
                let case = cpu_goes(cx, transport, cpu);
                report.case(&named("a CPU goes offline and comes back"), case);
                let case = cpu_comes(cx, transport, cpu);
                report.case(&named("a CPU comes after the mount"), case);
            }
            None => report.note("no CPU can go offline here: not tried".to_owned()),
        }
    }
    Ok(())
}

/// A file of the kernel that holds another value until it is dropped.
struct Switch {
    path: PathBuf,
    before: String,
}

impl Switch {
    fn set(path: impl Into<PathBuf>, value: &str) -> Result<Switch> {
        let path = path.into();
        let before = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        fs::write(&path, value).with_context(|| path.display().to_string())?;
        Ok(Switch { path, before })
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        if let Err(error) = fs::write(&self.path, self.before.trim()) {
            eprintln!("  {} stays changed: {error}", self.path.display());
        }
    }
}

/// The last CPU, if it may go offline.
fn last_cpu() -> Option<usize> {
    let last = dure_sync::core_count().checked_sub(1)?;
    let state = fs::read_to_string(online(last)).ok()?;
    (state.trim() == "1").then_some(last)
}

fn online(cpu: usize) -> PathBuf {
    Path::new(CPUS).join(format!("cpu{cpu}/online"))
}

/// A volume that asks for no transport but by the options of each mount.
fn volume(cx: &Cx) -> Result<Volume> {
    let mut volume = Volume::sized(cx, "conditions", "256M")?;
    volume.transport = None;
    Ok(volume)
}

/// Rings that are asked for cannot be had: that is said, with the reason, and the mount serves.
fn falls_back(cx: &Cx, reason: &str) -> Result<()> {
    let mut volume = volume(cx)?;
    match volume.mount_with(&[Transport::Uring.option()]) {
        Ok(()) => bail!("rings were used all the same"),
        Err(said) => {
            let said = format!("{said:#}");
            ensure!(said.contains(reason), "no reason is named: {said}");
        }
    }
    for cpu in [0, dure_sync::core_count() - 1] {
        work_on(&volume, cpu)?;
    }
    volume.close()
}

/// A server that may lock nothing, without the capability to do so all the same: with rings or
/// without, it serves.
fn no_locked_memory(cx: &Cx) -> Result<()> {
    let mut volume = volume(cx)?;
    let starter = [
        "setpriv",
        "--bounding-set=-ipc_lock",
        "prlimit",
        "--memlock=0",
    ];
    if let Err(said) = volume.mount_under(&starter, &[Transport::Uring.option()]) {
        let said = format!("{said:#}");
        ensure!(said.contains("memory"), "no reason is named: {said}");
    }
    let limits = fs::read_to_string(format!("/proc/{}/limits", volume.server_id()))?;
    let limit = limits.lines().find(|line| line.contains("locked memory"));
    let limit = limit.context("no limit of locked memory")?;
    ensure!(limit.contains(" 0 "), "the limit was not set: {limit}");
    for cpu in [0, dure_sync::core_count() - 1] {
        work_on(&volume, cpu)?;
    }
    volume.close()
}

/// A program on one CPU writes a file, makes it durable and reads it back.
fn work_on(volume: &Volume, cpu: usize) -> Result<()> {
    let number = cpu.to_string();
    let script = "seq 1 50000 >\"$1\" && sync \"$1\" && seq 1 50000 | cmp - \"$1\" && rm \"$1\"";
    let mut work = Command::new("taskset");
    work.args(["-c", &number, "sh", "-c", script, "sh"]);
    work.arg(volume.root().join(format!("on-{number}")));
    volume.steps.run(work, LIMIT).map(drop)
}

/// Writers that acknowledge, and what they did.
struct Writers {
    programs: Programs,
    log: PathBuf,
}

impl Writers {
    fn new(volume: &Volume) -> Result<Writers> {
        Ok(Writers {
            programs: Programs::new(volume.scratch())?,
            log: volume.scratch().to_owned(),
        })
    }

    fn command(&self, what: &str, kind: &str, volume: &Volume) -> Command {
        let (root, log) = (volume.root(), self.log.join(kind));
        let arguments = [what, kind, word(&root), word(&log), "1"];
        self.programs.command("kill.py", &arguments)
    }

    fn start(&self, kind: &str, volume: &Volume) -> Result<Running> {
        volume.steps.start(self.command("run", kind, volume), None)
    }

    /// How much was acknowledged.
    fn count(&self, kind: &str) -> usize {
        let log = fs::read_to_string(self.log.join(kind)).unwrap_or_default();
        log.lines().filter(|line| line.starts_with('A')).count()
    }

    fn verify(&self, kind: &str, volume: &Volume) -> Result<()> {
        let done = volume
            .steps
            .finish(self.command("verify", kind, volume), LIMIT)?;
        ensure!(done.status.success(), "{}{}", done.out.trim(), done.err());
        Ok(())
    }
}

/// SIGSTOP: callers wait. SIGCONT: they go on. Then a kill.
fn stopped(cx: &Cx, transport: Transport) -> Result<()> {
    let mut volume = volume(cx)?;
    volume.mount_with(&[transport.option()])?;
    let writers = Writers::new(&volume)?;
    let kinds = ["append", "rename"];
    let mut running = Vec::new();
    for kind in kinds {
        running.push(writers.start(kind, &volume)?);
    }
    thread::sleep(WHILE);
    let server = i32::try_from(volume.server_id())?;
    let server = Pid::from_raw(server).context("a server has a number")?;
    kill_process(server, Signal::STOP)?;
    // What was answered before may still be noted.
    thread::sleep(Duration::from_millis(300));
    let before = kinds.map(|kind| writers.count(kind));
    thread::sleep(WHILE);
    let meanwhile = kinds.map(|kind| writers.count(kind));
    kill_process(server, Signal::CONT)?;
    ensure!(before == meanwhile, "a stopped server acknowledged");
    thread::sleep(WHILE);
    for (number, kind) in kinds.into_iter().enumerate() {
        running[number].expect_running(kind)?;
        let (then, now) = (before[number], writers.count(kind));
        ensure!(
            then > 0 && now > then,
            "{kind}: {then} before the stop, {now} after it"
        );
    }
    volume.kill()?;
    for one in running {
        one.end(LIMIT, Signal::KILL)?;
    }
    volume.check()?;
    volume.mount()?;
    for kind in kinds {
        writers.verify(kind, &volume)?;
    }
    volume.close()
}

/// A program that has files open when the mount is detached goes on; the server ends with the last
/// of them.
fn detached(cx: &Cx, transport: Transport) -> Result<()> {
    let mut volume = volume(cx)?;
    volume.mount_with(&[transport.option()])?;
    let writers = Writers::new(&volume)?;
    let mut running = writers.start("append", &volume)?;
    thread::sleep(WHILE);
    detach(&volume.root())?;
    let before = writers.count("append");
    thread::sleep(WHILE);
    running.expect_running("append")?;
    let after = writers.count("append");
    ensure!(
        after > before,
        "{before} before umount -l, {after} after it"
    );
    running.signal(Signal::KILL);
    running.end(LIMIT, Signal::KILL)?;
    volume.served()?;
    volume.check()?;
    volume.mount()?;
    writers.verify("append", &volume)?;
    volume.close()
}

/// Offline under callers, one of them on that CPU; and again in use.
fn cpu_goes(cx: &Cx, transport: Transport, cpu: usize) -> Result<()> {
    let mut volume = volume(cx)?;
    volume.mount_with(&[transport.option()])?;
    let writers = Writers::new(&volume)?;
    work_on(&volume, cpu)?;
    let mut running = writers.start("append", &volume)?;
    thread::sleep(WHILE);
    let offline = Switch::set(online(cpu), "0")?;
    let before = writers.count("append");
    work_on(&volume, 0)?;
    thread::sleep(WHILE);
    drop(offline);
    running.expect_running("append")?;
    let after = writers.count("append");
    ensure!(
        after > before,
        "{before} before the CPU went, {after} after it"
    );
    work_on(&volume, cpu)?;
    running.signal(Signal::KILL);
    running.end(LIMIT, Signal::KILL)?;
    writers.verify("append", &volume)?;
    volume.close()
}

/// Mounted without it, used on it.
fn cpu_comes(cx: &Cx, transport: Transport, cpu: usize) -> Result<()> {
    let mut volume = volume(cx)?;
    let offline = Switch::set(online(cpu), "0")?;
    volume.mount_with(&[transport.option()])?;
    work_on(&volume, 0)?;
    drop(offline);
    work_on(&volume, cpu)?;
    work_on(&volume, 0)?;
    volume.close()
}
