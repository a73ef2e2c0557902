//! `cargo xtask guest`: what the host's kernel or hardware does not have, in a virtual machine.
//!
//! **Problem.** Persistent memory, its loss of power, and ublk cannot be had on most machines that
//! run the tests. **Structure.** One file per suite, each with a script in `xtask/programs/guest`;
//! [`kernel`] fetches a kernel, [`machine`] runs QEMU in software emulation. The guest reads the
//! host's files, so programs need no image. docs/testing/guest.md has the suites.
//! **Invariants.** No guest outlives its suite; what cannot run is named, and is a failure unless
//! `--allow-skip`. **Crash.** Files of guests are temporary; everything can be run again.

mod kernel;
mod machine;
mod nvm;
mod ublk;

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use dure_sync::clock::monotonic_ns;
use tempfile::TempDir;

use crate::cargo;
use crate::conformance::python::Programs;
use crate::conformance::report::{self, Report};
use crate::conformance::tools::{Needs, Tools};
use crate::conformance::{draw, fsx, pjdfstest};
use kernel::Kernel;
use machine::{Hardware, Machine};

const NEEDS: Needs = Needs {
    mount: false,
    crates: &[fsx::CRATE, pjdfstest::CRATE],
    programs: &[
        ("qemu-system-x86_64", "qemu-system-x86"),
        ("busybox", "busybox-static"),
        ("depmod", "kmod"),
        ("xz", "xz-utils"),
        ("ndctl", "ndctl"),
        ("mkfs.ext4", "e2fsprogs"),
        ("fio", "fio"),
        ("setpriv", "util-linux"),
        ("python3", "python3"),
    ],
};

/// Arguments of `cargo xtask guest`.
#[derive(Debug, Args)]
pub(crate) struct Guest {
    /// Which suites [default: all].
    #[arg(value_enum)]
    suites: Vec<Suite>,
    /// Fewer rounds.
    #[arg(long)]
    quick: bool,
    /// Leave the files of the guest behind, and say where.
    #[arg(long)]
    keep: bool,
    /// A suite that cannot run here is not a failure.
    #[arg(long)]
    allow_skip: bool,
    /// Print one JSON object instead of the table.
    #[arg(long)]
    json: bool,
    /// When power cuts come depends on it. 0: on the clock.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Test this program instead of building dure.
    #[arg(long, value_name = "PROGRAM")]
    dure: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Suite {
    /// Volumes on NVDIMMs, by themselves and with a disk; power cuts.
    Nvm,
    /// Devices as /dev/ublkb0: fio, ext4, discards; the server killed and recovered.
    Ublk,
}

/// What every suite is given.
#[derive(Debug)]
struct Cx {
    kernel: Kernel,
    tools: Tools,
    dure: PathBuf,
    quick: bool,
    keep: bool,
    seed: u64,
}

impl Guest {
    pub(crate) fn run(self) -> Result<()> {
        let suites = match self.suites.as_slice() {
            [] => Suite::value_variants(),
            chosen => chosen,
        };
        let tools = Tools::new();
        let reports = match tools.ensure(&NEEDS).and_then(|()| Kernel::ready()) {
            Err(reason) => skipped(suites, &format!("{reason:#}")),
            Ok(kernel) => {
                let cx = Cx {
                    kernel,
                    tools,
                    dure: match &self.dure {
                        Some(program) => program.canonicalize()?,
                        None => cargo::build_dure()?,
                    },
                    quick: self.quick,
                    keep: self.keep,
                    seed: match self.seed {
                        0 => draw::seed_of_clock(),
                        seed => seed,
                    },
                };
                suites.iter().map(|suite| run_one(&cx, *suite)).collect()
            }
        };
        report::print(&reports, self.json);
        report::judge(&reports, self.allow_skip)
    }
}

impl Suite {
    fn name(self) -> String {
        let value = self.to_possible_value().expect("no suite is hidden");
        value.get_name().to_owned()
    }

    fn run(self, cx: &Cx, report: &mut Report) -> Result<()> {
        match self {
            Suite::Nvm => nvm::run(cx, report),
            Suite::Ublk => ublk::run(cx, report),
        }
    }
}

fn skipped(suites: &[Suite], reason: &str) -> Vec<Report> {
    let skip = |suite: &Suite| {
        let mut report = Report::new(suite.name());
        report.skip(reason.to_owned());
        report
    };
    suites.iter().map(skip).collect()
}

fn run_one(cx: &Cx, suite: Suite) -> Report {
    eprintln!("{} (Linux {})", suite.name(), cx.kernel.version);
    let begin = monotonic_ns();
    let mut report = Report::new(suite.name());
    if let Err(error) = suite.run(cx, &mut report) {
        report.case("suite", Err(error));
    }
    report.end((monotonic_ns() - begin) / 1_000_000);
    report
}

/// The files of one guest.
#[derive(Debug)]
struct Place(TempDir);

impl Place {
    fn new(cx: &Cx, suite: &str) -> Result<Place> {
        let mut builder = tempfile::Builder::new();
        builder.prefix("dure-guest-").suffix(suite);
        let mut directory = builder.tempdir().context("making a temporary directory")?;
        if cx.keep {
            directory.disable_cleanup(true);
            eprintln!("  files of the guest: {}", directory.path().display());
        }
        let place = Place(directory);
        let share = place.share();
        std::fs::create_dir(&share)?;
        std::fs::copy(&cx.dure, share.join("dure")).context("the dure program")?;
        std::fs::write(
            share.join("guest.sh"),
            include_str!("../../programs/guest/guest.sh"),
        )?;
        Programs::new(&share)?;
        Ok(place)
    }

    /// The folder that the guest may write to.
    fn share(&self) -> PathBuf {
        self.0.path().join("share")
    }

    fn script(&self, name: &str, source: &str) -> Result<()> {
        std::fs::write(self.share().join(name), source).context("a script")
    }

    /// A file without content.
    fn file(&self, name: &str, bytes: u64) -> Result<PathBuf> {
        let path = self.0.path().join(name);
        std::fs::File::create_new(&path)?.set_len(bytes)?;
        Ok(path)
    }

    fn start(&self, cx: &Cx, hardware: &Hardware, script: &str) -> Result<Machine> {
        Machine::start(&cx.kernel, hardware, &self.share(), script)
    }
}
