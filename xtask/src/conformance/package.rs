//! The Debian package in a clean Debian root.
//!
//! **Problem.** On the machine that builds dure everything is there that a package may forget.
//! **Structure.** The package of `cargo xtask dist --deb`; mmdebstrap makes a root with fuse3, systemd's
//! journal and nothing of ours, from the sources of packages that this machine has; `package.sh` runs in
//! it, in a mount namespace of its own. **Invariants.** Nothing of this machine is mounted there. **Crash.** The scratch directory is temporary; mounts end with their namespace.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use super::Cx;
use super::python::word;
use super::report::Report;
use super::step::Steps;
use super::tools::Needs;
use crate::dist;

pub(crate) const NEEDS: Needs = Needs {
    mount: true,
    crates: &[],
    programs: &[
        ("mmdebstrap", "mmdebstrap"),
        ("dpkg-shlibdeps", "dpkg-dev"),
        ("strip", "binutils"),
        ("lintian", "lintian"),
        ("unshare", "util-linux"),
    ],
};

const LIMIT: Duration = Duration::from_secs(900);
const PROGRAM: &str = include_str!("../../programs/package.sh");

/// Enters the root: devices with the modes that udev gives them, processes, and the groups of
/// processes that journald asks for, for this namespace only.
const ENTER: &str = "mount -t tmpfs dev \"$1/dev\" && cd \"$1/dev\" && mkdir shm && \
                     mknod -m 666 null c 1 3 && mknod -m 666 zero c 1 5 && \
                     mknod -m 666 urandom c 1 9 && mknod -m 666 fuse c 10 229 && \
                     mount -t proc proc \"$1/proc\" && \
                     mount -t sysfs sys \"$1/sys\" && \
                     mount -t cgroup2 cgroup \"$1/sys/fs/cgroup\" && cd / && exec chroot \"$1\" sh /package.sh";

pub(crate) fn run(cx: &Cx, report: &mut Report) -> Result<()> {
    let scratch = tempfile::Builder::new().prefix("dure-package-").tempdir()?;
    let steps = Steps::new(scratch.path().join("log"))?;
    let package = dist::package(&cx.dure)?;
    report.case("lintian", dist::judge(&package));
    let root = scratch.path().join("root");
    if let Err(error) = make_root(&steps, &root) {
        report.skip(format!("no Debian root: {error:#}"));
        return Ok(());
    }
    fs::copy(&package, root.join("dure.deb"))?;
    fs::write(root.join("package.sh"), PROGRAM)?;
    let mut enter = Command::new("unshare");
    enter.args([
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "sh",
        "-c",
        ENTER,
        "sh",
    ]);
    enter.arg(&root).env_clear();
    enter.env(
        "PATH",
        "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    );
    let done = steps.finish(enter, LIMIT)?;
    report.steps("", &done)?;
    if cx.keep {
        report.note(format!("kept: {}", scratch.keep().display()));
    }
    Ok(())
}

/// A root of the Debian version that this machine has, from its own sources.
fn make_root(steps: &Steps, root: &Path) -> Result<()> {
    let release = fs::read_to_string("/etc/os-release")?;
    let name = |line: &str| line.strip_prefix("VERSION_CODENAME=").map(str::to_owned);
    let name = release.lines().find_map(name);
    let name = name.context("/etc/os-release names no version of Debian")?;
    let mut make = Command::new("mmdebstrap");
    make.args([
        "--variant=minbase",
        "--include=fuse3,mount,libgcc-s1,systemd",
    ]);
    make.args([&name, word(root)]);
    if let Some(sources) = sources() {
        make.arg(sources);
    }
    steps.run(make, LIMIT).map(drop)
}

/// The sources of Debian's own packages.
fn sources() -> Option<PathBuf> {
    let places = [
        "/etc/apt/sources.list.d/debian.sources",
        "/etc/apt/sources.list",
    ];
    places.iter().map(PathBuf::from).find(|path| path.is_file())
}
