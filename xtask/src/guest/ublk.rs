//! Devices of ours as block devices of the guest's kernel.
//!
//! **Problem.** A kernel with ublk is rare; and what its file systems ask of a device, no test of
//! ours asks. **Structure.** All of it is in `ublk.sh`: fio, ext4 and blkdiscard on `/dev/ublkb0`,
//! which devices in memory and a disk are behind; the server killed under ext4, and recovered.
//! **Invariants.** fio finds every block as it wrote it, ext4 is clean, and programs that wrote
//! while the server was killed notice nothing. **Crash.** The kill of the server.

use anyhow::Result;

use super::machine::{Hardware, Model};
use super::{Cx, Place};
use crate::conformance::report::Report;

const SCRIPT: &str = include_str!("../../programs/guest/ublk.sh");

pub(super) fn run(cx: &Cx, report: &mut Report) -> Result<()> {
    let place = Place::new(cx, "ublk")?;
    place.script("ublk.sh", SCRIPT)?;
    let hardware = Hardware {
        processors: 4,
        model: Model::Newest,
        memory_bytes: 2 << 30,
        memories: Vec::new(),
        disks: vec![place.file("disk", 512 << 20)?],
    };
    let (kills, processors) = if cx.quick { (1, 4) } else { (5, 16) };
    place
        .start(cx, &hardware, &format!("ublk.sh {kills}"))?
        .finish(report)?;
    let hardware = Hardware {
        processors,
        model: Model::Newest,
        memory_bytes: 2 << 30,
        memories: Vec::new(),
        disks: Vec::new(),
    };
    let machine = place.start(cx, &hardware, "ublk.sh rates")?;
    machine.finish(report)
}
