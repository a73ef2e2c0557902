//! Volumes on persistent memory in the guest, and cuts of its power.
//!
//! **Problem.** A volume mapped with MAP_SYNC must need nothing of the kernel to be durable; only a
//! kernel that disappears shows it. **Structure.** Two NVDIMMs of two NUMA nodes, files of the host,
//! hold one whole volume, and the metadata of another, whose data is on a disk. Writers that
//! acknowledge run on both; QEMU is killed at a drawn time; the next boot checks, verifies and
//! writes on, with the next of [`PROFILES`]. Then suites of others run with each of them.
//! **Invariants.** `dure check` is clean after each cut, and everything acknowledged is
//! there: what the profile makes durable by itself is acknowledged without a sync. The canary does
//! that where nothing is durable by itself, and every writer's loss must be noticed.
//! **Crash.** SIGKILL to QEMU: the guest's memory is gone, and its page cache. What it stored in
//! the NVDIMMs or gave to the disk stays: of a lost flush or write-back this says nothing.

use std::fs;
use std::io::ErrorKind;
use std::time::Duration;

use anyhow::{Result, ensure};
use dure_sync::thread;

use super::machine::{Hardware, Model};
use super::{Cx, Place};
use crate::conformance::draw::Draw;
use crate::conformance::report::Report;
use crate::conformance::{fsx, pjdfstest};

const SCRIPT: &str = include_str!("../../programs/guest/nvm.sh");
const VOLUMES: [&str; 2] = ["alone", "beside"];
/// How both are mounted, by the words of the script.
const PROFILES: [[&str; 2]; 3] = [
    ["cached", "cached"],
    ["strict", "nvram"],
    ["posix", "nvram-sync"],
];
const KINDS: [&str; 5] = ["append", "rename", "mmap", "direct", "sqlite"];
/// How long the writers may take to begin.
const BEGUN: Duration = Duration::from_secs(180);
const LOOK: Duration = Duration::from_millis(500);

pub(super) fn run(cx: &Cx, report: &mut Report) -> Result<()> {
    canary(cx, report)?;
    let (place, mut hardware) = place(cx)?;
    let rounds = if cx.quick { 1 } else { 3 };
    let cuts = rounds * PROFILES.len();
    for (cut, [alone, beside]) in (0..).zip(PROFILES.iter().cycle().take(cuts)) {
        let after = Duration::from_millis(Draw::new(cx.seed, cut).between(200, 10_000));
        let phase = if cut == 0 { "first" } else { "next" };
        let before = acknowledgements(&place)?;
        hardware.model = if cut % 2 == 1 {
            Model::ClflushOnly
        } else {
            Model::Newest
        };
        let script = format!("nvm.sh {phase} {alone} {beside}");
        let mut machine = place.start(cx, &hardware, &script)?;
        machine.reach(report, "writing")?;
        all_write(&place, &before, 1)?;
        thread::sleep(after);
        let went = machine.cut();
        let name = format!(
            "power cut {cut} ({alone}, {beside}), {} ms after the last writer began",
            after.as_millis()
        );
        if !report.case(&name, went) {
            return Ok(());
        }
    }
    hardware.model = Model::Newest;
    place.start(cx, &hardware, "nvm.sh end")?.finish(report)?;
    suites(cx, report, &place, &hardware)?;
    place
        .start(cx, &hardware, "nvm.sh devdax")?
        .finish(report)?;
    let total: usize = acknowledgements(&place)?.iter().sum();
    report.note(format!(
        "{total} acknowledgements in {cuts} rounds; again: cargo xtask guest nvm --seed {}{}",
        cx.seed,
        if cx.quick { " --quick" } else { "" }
    ));
    Ok(())
}

/// fsx and pjdfstest with each profile, the latter compared with tmpfs of the same guest.
fn suites(cx: &Cx, report: &mut Report, place: &Place, hardware: &Hardware) -> Result<()> {
    let share = place.share();
    for program in ["fsx", "pjdfstest"] {
        fs::copy(cx.tools.program(program), share.join(program))?;
    }
    let (_, _, everything) = fsx::CONFIGURATIONS[0];
    fs::write(share.join("fsx.toml"), everything)?;
    fs::write(share.join("pjdfstest.toml"), pjdfstest::CONFIG)?;
    let operations = if cx.quick { 1000 } else { 10_000 };
    for [alone, beside] in PROFILES {
        let script = format!("nvm.sh suites {alone} {beside} {operations}");
        place.start(cx, hardware, &script)?.finish(report)?;
        let said = |place: &str| fs::read_to_string(share.join(format!("{place}.pjdfstest")));
        for (volume, profile) in [("alone", alone), ("beside", beside)] {
            let name = format!("{volume} ({profile})");
            pjdfstest::judge(&said("tmpfs")?, &name, &said(volume)?, report)?;
        }
    }
    Ok(())
}

/// Writers that acknowledge what they did not sync, on volumes that commit rarely.
fn canary(cx: &Cx, report: &mut Report) -> Result<()> {
    let (place, hardware) = place(cx)?;
    let mut machine = place.start(cx, &hardware, "nvm.sh first lie lie")?;
    machine.reach(report, "writing")?;
    all_write(&place, &acknowledgements(&place)?, 3)?;
    machine.cut()?;
    place.start(cx, &hardware, "nvm.sh noticed")?.finish(report)
}

fn place(cx: &Cx) -> Result<(Place, Hardware)> {
    let place = Place::new(cx, "nvm")?;
    place.script("nvm.sh", SCRIPT)?;
    let memory = |number| place.file(&format!("memory{number}"), 640 << 20);
    let hardware = Hardware {
        processors: 2,
        model: Model::Newest,
        memory_bytes: 1536 << 20,
        memories: vec![memory(0)?, memory(1)?],
        disks: vec![place.file("disk", 1 << 30)?],
    };
    Ok((place, hardware))
}

/// Waits until every writer has acknowledged so many things more.
fn all_write(place: &Place, before: &[usize], more: usize) -> Result<()> {
    let mut waited = Duration::ZERO;
    loop {
        let now = acknowledgements(place)?;
        let mut writers = now.iter().zip(before);
        if writers.all(|(now, before)| *now >= before + more) {
            return Ok(());
        }
        ensure!(
            waited < BEGUN,
            "not every writer gets to write: {now:?}, {before:?} before"
        );
        thread::sleep(LOOK);
        waited += LOOK;
    }
}

/// How many acknowledgements of each writer the host has.
fn acknowledgements(place: &Place) -> Result<Vec<usize>> {
    let names = VOLUMES
        .iter()
        .flat_map(|volume| KINDS.map(|kind| format!("{volume}.{kind}")));
    let count = |name: String| match fs::read_to_string(place.share().join(name)) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(0),
        log => Ok(log?.lines().filter(|line| line.starts_with("A ")).count()),
    };
    names.map(count).collect()
}
