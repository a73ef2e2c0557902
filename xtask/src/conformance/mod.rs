//! `cargo xtask conformance`: test suites of other projects, and real programs on a volume.
//!
//! **Problem.** Our own tests know what we thought of. **Structure.** One file per suite, each
//! with a volume of its own ([`mount`]); [`step`] runs programs, [`tools`] installs them,
//! [`report`] prints. docs/testing/conformance.md has the suites and the known differences.
//! **Invariants.** A suite ends unmounted, and `dure check` finds nothing afterwards; what cannot
//! run is named, and is a failure unless `--allow-skip`. **Crash.** Scratch directories are
//! temporary; everything can be run again.

mod conditions;
pub(crate) mod draw;
mod enospc;
mod fio;
pub(crate) mod fsx;
pub(crate) mod git;
mod gluster;
mod images;
mod kill;
mod known;
mod manifest;
mod memory;
pub(crate) mod mount;
mod package;
mod permissions;
pub(crate) mod pjdfstest;
mod postgres;
pub(crate) mod profile;
mod put_get;
pub(crate) mod python;
pub(crate) mod report;
mod rocksdb;
mod run;
mod sqlite;
pub(crate) mod step;
pub(crate) mod tools;
mod tree;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, ValueEnum};
use dure_sync::clock::monotonic_ns;

use crate::cargo;
pub(crate) use images::ImageCases;
use profile::Profile;
use report::Report;
use tools::{Needs, Tools};

/// Arguments of `cargo xtask conformance`.
#[derive(Debug, Args)]
pub(crate) struct Conformance {
    /// Which suites [default: all].
    #[arg(value_enum)]
    suites: Vec<Suite>,
    /// Leave images and logs behind, and say where.
    #[arg(long)]
    keep: bool,
    /// Fewer operations, rounds and files.
    #[arg(long)]
    quick: bool,
    /// A suite that cannot run here is not a failure.
    #[arg(long)]
    allow_skip: bool,
    /// Print one JSON object instead of the table.
    #[arg(long)]
    json: bool,
    /// What is drawn at random depends on it: policies, moments of kills, damage. 0: on the clock.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// How requests come to the server of each mount; one that falls back fails [default: dure's].
    #[arg(long, value_enum)]
    transport: Option<Transport>,
    /// On which media the volumes are, and how they are mounted; of suites that mount.
    #[arg(long, value_enum, default_value_t)]
    profile: Profile,
    /// Test this program instead of building dure.
    #[arg(long, value_name = "PROGRAM")]
    dure: Option<PathBuf>,
}

/// `-o transport=`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Transport {
    /// `/dev/fuse`.
    Device,
    /// Rings of io_uring.
    Uring,
}

impl Transport {
    /// The mount option.
    fn option(self) -> &'static str {
        match self {
            Transport::Device => "transport=device",
            Transport::Uring => "transport=uring",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Suite {
    /// POSIX calls, case by case, compared with tmpfs.
    Pjdfstest,
    /// Random operations on one file.
    Fsx,
    /// Whole trees into a volume and out of it, without a mount.
    PutGet,
    /// A real source tree on a mount, with kills.
    Tree,
    /// SQLite in its journal modes, with kills.
    Sqlite,
    /// fio by an engine of its own, without a mount.
    Fio,
    /// RocksDB, its tools and tests of its file system, with kills.
    Rocksdb,
    /// fsx, pjdfstest and SQLite, with kills, under `dure run`.
    Run,
    /// git, with kills.
    Git,
    /// PostgreSQL, with a kill.
    Postgres,
    /// Resident memory of the server against `cache=`.
    Memory,
    /// Seven kinds of writers, with kills and drawn policies.
    Kill,
    /// Volumes that are full, with kills and drawn policies.
    Enospc,
    /// Calls by several users, compared with ext4.
    Permissions,
    /// Damaged images, with checksums made right.
    Images,
    /// The Debian package, installed and used in a clean root.
    Package,
    /// What a mount meets: no io_uring, a CPU that goes, a server that is stopped, `umount -l`.
    Conditions,
    /// Gluster on bricks of mounts, one of them lost and healed, compared with bricks of ext4.
    Gluster,
}

/// What every suite is given.
#[derive(Debug)]
pub(crate) struct Cx {
    /// The program under test.
    pub(crate) dure: PathBuf,
    /// Where the other programs are.
    pub(crate) tools: Tools,
    /// Fewer operations, rounds and files.
    pub(crate) quick: bool,
    /// Scratch directories stay.
    pub(crate) keep: bool,
    /// What is drawn at random depends on it.
    pub(crate) seed: u64,
    /// How requests come, if it is not left to dure.
    pub(crate) transport: Option<Transport>,
    /// On which media volumes are.
    pub(crate) profile: Profile,
}

impl Suite {
    fn name(self) -> String {
        let value = self.to_possible_value().expect("no suite is hidden");
        value.get_name().to_owned()
    }

    /// Whether the seed decides what it does.
    fn is_drawn(self) -> bool {
        matches!(
            self,
            Suite::Kill | Suite::Enospc | Suite::Images | Suite::Rocksdb
        )
    }

    fn needs(self) -> Needs {
        match self {
            Suite::Pjdfstest => pjdfstest::NEEDS,
            Suite::Fsx => fsx::NEEDS,
            Suite::PutGet => put_get::NEEDS,
            Suite::Tree => tree::NEEDS,
            Suite::Sqlite => sqlite::NEEDS,
            Suite::Fio => fio::NEEDS,
            Suite::Rocksdb => rocksdb::NEEDS,
            Suite::Run => run::NEEDS,
            Suite::Git => git::NEEDS,
            Suite::Postgres => postgres::NEEDS,
            Suite::Memory => memory::NEEDS,
            Suite::Kill => kill::NEEDS,
            Suite::Enospc => enospc::NEEDS,
            Suite::Permissions => permissions::NEEDS,
            Suite::Images => images::NEEDS,
            Suite::Package => package::NEEDS,
            Suite::Conditions => conditions::NEEDS,
            Suite::Gluster => gluster::NEEDS,
        }
    }

    fn run(self, cx: &Cx, report: &mut Report) -> Result<()> {
        match self {
            Suite::Pjdfstest => pjdfstest::run(cx, report),
            Suite::Fsx => fsx::run(cx, report),
            Suite::PutGet => put_get::run(cx, report),
            Suite::Tree => tree::run(cx, report),
            Suite::Sqlite => sqlite::run(cx, report),
            Suite::Fio => fio::run(cx, report),
            Suite::Rocksdb => rocksdb::run(cx, report),
            Suite::Run => run::run(cx, report),
            Suite::Git => git::run(cx, report),
            Suite::Postgres => postgres::run(cx, report),
            Suite::Memory => memory::run(cx, report),
            Suite::Kill => kill::run(cx, report),
            Suite::Enospc => enospc::run(cx, report),
            Suite::Permissions => permissions::run(cx, report),
            Suite::Images => images::run(cx, report),
            Suite::Package => package::run(cx, report),
            Suite::Conditions => conditions::run(cx, report),
            Suite::Gluster => gluster::run(cx, report),
        }
    }
}

impl Conformance {
    pub(crate) fn run(self) -> Result<()> {
        let suites = match self.suites.as_slice() {
            [] => Suite::value_variants(),
            chosen => chosen,
        };
        let cx = Cx {
            dure: match &self.dure {
                Some(program) => program.canonicalize()?,
                None => cargo::build_dure()?,
            },
            tools: Tools::new(),
            quick: self.quick,
            keep: self.keep,
            transport: self.transport,
            profile: self.profile,
            seed: match self.seed {
                0 => draw::seed_of_clock(),
                seed => seed,
            },
        };
        let reports: Vec<Report> = suites.iter().map(|suite| run_one(&cx, *suite)).collect();
        report::print(&reports, self.json);
        report::judge(&reports, self.allow_skip)
    }
}

fn run_one(cx: &Cx, suite: Suite) -> Report {
    eprintln!("{}", suite.name());
    let begin = monotonic_ns();
    let mut report = Report::new(suite.name());
    match cx.tools.ensure(&suite.needs()) {
        Err(reason) => report.skip(format!("{reason:#}")),
        Ok(()) => {
            if let Err(error) = suite.run(cx, &mut report) {
                report.case("suite", Err(error));
            }
        }
    }
    if suite.is_drawn() {
        let quick = if cx.quick { " --quick" } else { "" };
        let profile = match cx.profile {
            Profile::Disk => String::new(),
            other => format!(" --profile {}", other.name()),
        };
        report.note(format!(
            "again: cargo xtask conformance {} --seed {}{profile}{quick}",
            suite.name(),
            cx.seed
        ));
    }
    report.end((monotonic_ns() - begin) / 1_000_000);
    report
}
