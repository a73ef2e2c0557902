//! Gluster on bricks that are directories of mounts, compared with bricks on ext4.
//!
//! **Problem.** A user that spreads data over machines puts an engine such as Gluster on top, which
//! asks things of a file system that other programs do not: attributes in `trusted.`, hard links to
//! everything, bits of directory positions. **Structure.** `gluster.sh` runs once for each kind of
//! brick, in namespaces of its own, with no network but the loopback. **Invariants.** Nothing of
//! this machine's Gluster is touched. **Crash.** All processes and mounts end with their namespace.

use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use super::Cx;
use super::Transport;
use super::python::word;
use super::report::Report;
use super::step::Steps;
use super::tools::Needs;

pub(crate) const NEEDS: Needs = Needs {
    mount: true,
    crates: &[],
    programs: &[
        ("glusterd", "glusterfs-server"),
        ("mount.glusterfs", "glusterfs-client"),
        ("mkfs.ext4", "e2fsprogs"),
        ("ip", "iproute2"),
        ("unshare", "util-linux"),
    ],
};

const LIMIT: Duration = Duration::from_secs(1200);
const PROGRAM: &str = include_str!("../../programs/gluster.sh");

pub(crate) fn run(cx: &Cx, report: &mut Report) -> Result<()> {
    for kind in ["dure", "ext4"] {
        bricks(cx, report, kind)?;
    }
    Ok(())
}

/// A volume of Gluster on four bricks.
fn bricks(cx: &Cx, report: &mut Report, kind: &str) -> Result<()> {
    let scratch = tempfile::Builder::new().prefix("dure-gluster-").tempdir()?;
    let steps = Steps::new(scratch.path().join("steps"))?;
    let program = scratch.path().join("gluster.sh");
    std::fs::write(&program, PROGRAM)?;
    let transport = cx.transport.map_or("", Transport::option);
    let mut run = Command::new("unshare");
    run.args(["--mount", "--net", "--pid", "--fork"])
        .args(["--kill-child", "--mount-proc", "sh", word(&program), kind])
        .arg(scratch.path())
        .arg(&cx.dure)
        .args([if cx.quick { "60" } else { "240" }, transport]);
    let done = steps.finish(run, LIMIT)?;
    if cx.keep {
        report.note(format!("kept: {}", scratch.keep().display()));
    }
    let seconds: Vec<&str> = done
        .out
        .lines()
        .filter_map(|line| line.strip_prefix("seconds: "))
        .collect();
    report.note(format!("{kind}, in seconds: {}", seconds.join("; ")));
    report.steps(&format!("{kind}: "), &done)
}
