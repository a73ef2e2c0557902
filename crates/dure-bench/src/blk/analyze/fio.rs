//! A measurement by fio, where it is installed.
//!
//! **Structure.** One run with its JSON. **Invariants.** It reads, or writes what it was allowed to
//! (`--overwrite`); it uses the blocks that a run of our own would. A failure is an error with what
//! fio said. **On a crash** nothing stays behind.

use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::blk::choices::{Engine, Pattern};
use crate::blk::load::Load;

/// What fio measured.
#[derive(Debug, Clone, Copy)]
pub(super) struct Measured {
    pub(super) iops: f64,
    pub(super) p50_ns: u64,
    pub(super) p99_ns: u64,
    /// The share of the jobs' time in which they had a core.
    pub(super) cpu_share: f64,
}

#[derive(Deserialize)]
struct Answer {
    jobs: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    read: Direction,
    write: Direction,
    usr_cpu: f64,
    sys_cpu: f64,
}

#[derive(Deserialize)]
struct Direction {
    iops: f64,
    lat_ns: Latency,
}

#[derive(Deserialize)]
struct Latency {
    #[serde(default)]
    percentile: std::collections::BTreeMap<String, u64>,
}

/// Whether there is one.
pub(super) fn is_installed() -> bool {
    let version = Command::new("fio").arg("--version").output();
    version.is_ok_and(|output| output.status.success())
}

/// The name of an engine, and what it needs more.
pub(super) fn engine(engine: Engine) -> (&'static str, &'static [&'static str]) {
    match engine {
        Engine::Auto | Engine::Uring => ("io_uring", &[]),
        Engine::Psync => ("psync", &[]),
        Engine::Pvsync2 => ("pvsync2", &["--hipri"]),
        Engine::Libaio => ("libaio", &[]),
    }
}

/// Puts the load on the device.
///
/// # Errors
/// fio failed, or said what is not understood.
pub(super) fn measure(load: &Load) -> Result<Measured> {
    let work = &load.work;
    let rw = match work.rw {
        Pattern::Read => "read",
        Pattern::Write => "write",
        Pattern::RandRead => "randread",
        Pattern::RandWrite => "randwrite",
        Pattern::RandRw => "randrw",
    };
    let (name, more) = engine(work.engine);
    let mut command = Command::new("fio");
    command
        .args([
            "--name=dure",
            "--direct=1",
            "--time_based",
            "--group_reporting",
        ])
        .args(["--output-format=json", "--lat_percentiles=1", "--thread"])
        .arg(format!("--filename={}", work.device))
        .arg(format!("--rw={rw}"))
        .arg(format!("--bs={}", work.bs))
        .arg(format!("--iodepth={}", work.iodepth))
        .arg(format!("--numjobs={}", load.jobs))
        .arg(format!("--runtime={}ms", (work.seconds * 1e3).ceil()))
        .arg(format!("--ioengine={name}"))
        .args(more);
    if !work.rw.writes() {
        command.arg("--readonly");
    }
    if let Some(size) = work.size {
        command.arg(format!("--size={size}"));
    }
    let output = command.output().context("cannot start fio")?;
    let said = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!(
            "fio --ioengine={name} on {} failed: {}",
            work.device,
            errors.trim()
        );
    }
    // Warnings may come before the object.
    let object = said.find('{').map_or("", |at| &said[at..]);
    let answer: Answer = serde_json::from_str(object).context("what fio said is not understood")?;
    let group = answer.jobs.first().context("fio told of no job")?;
    let latency = match work.rw.reads() {
        true => &group.read.lat_ns,
        false => &group.write.lat_ns,
    };
    let percentile = |key: &str| latency.percentile.get(key).copied().unwrap_or(0);
    Ok(Measured {
        iops: group.read.iops + group.write.iops,
        p50_ns: percentile("50.000000"),
        p99_ns: percentile("99.000000"),
        cpu_share: (group.usr_cpu + group.sys_cpu) / 100.0,
    })
}
