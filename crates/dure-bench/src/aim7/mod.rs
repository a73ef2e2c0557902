//! `dure bench aim7`: the storage tests of AIM7 (re-AIM-7), in the mixes of a file server, a
//! database and a shared machine.
//!
//! **Structure.** `mix` has the numbers, `user` does the tests, `columns` is AIM7's own report. Works are jobs. **Against the
//! original:** the rows of CPU, memory and network are left out, so that jobs a minute are storage
//! jobs; users work for a time, not for a number of jobs; `sync` reaches the file system under test
//! only; the directory that is read is one of it, not /bin.

mod columns;
mod mix;
mod user;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::measure::{Bench, Crew, Hiring, Worker, WorkerKind, run as measure_all};
use crate::micro::or_default;
use crate::options::{Measuring, Targets};
use crate::target::{Target, Tree};

pub use mix::Mix;
use user::{Syncs, User};

/// `dure bench aim7`.
#[derive(Debug, clap::Args)]
pub struct Aim7 {
    /// A mix, several times [default: all].
    #[arg(long = "mix", value_enum, value_name = "NAME")]
    pub mixes: Vec<Mix>,
    /// Users on those cores [default: one for each core].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub users: Option<u16>,
    /// KiB of a user's file [default: as the mix and the number of users have it, 1 to 30 MiB].
    #[arg(long, value_name = "KIB", value_parser = clap::value_parser!(u64).range(4..=1 << 30))]
    pub file_kib: Option<u64>,
    /// Leave out the syncs before and after each test, which weigh the more the more users there
    /// are.
    #[arg(long)]
    pub no_sync: bool,
    /// Users are processes, as in the original, not threads; on a volume, which belongs to one
    /// process, they are threads all the same.
    #[arg(long)]
    pub processes: bool,
    /// What to measure on.
    #[command(flatten)]
    pub targets: Targets,
    /// How.
    #[command(flatten)]
    pub measuring: Measuring,
}

/// Measures and prints the report.
///
/// # Errors
/// A target that cannot be opened, or an operation that fails.
pub(crate) fn run(args: &Aim7) -> Result<()> {
    let machine = Machine {
        users: args.users.map(usize::from),
        file_kib: args.file_kib,
        no_sync: args.no_sync,
        kind: WorkerKind::of(args.processes),
    };
    let targets = args.targets.open()?;
    let plan = args.measuring.plan(2000);
    let points = measure_all(
        &machine,
        or_default(&args.mixes, &Mix::ALL),
        &targets,
        &plan,
    )?;
    targets.into_iter().try_for_each(Target::close)?;
    let rows = columns::rows(&points);
    let own = Some(columns::table(&rows));
    args.measuring.report_beside("aim7", &points, &rows, own)
}

/// What differs from AIM7.
#[derive(Debug)]
pub(crate) struct Machine {
    users: Option<usize>,
    file_kib: Option<u64>,
    no_sync: bool,
    kind: WorkerKind,
}

impl Machine {
    /// A user for each core, who is a thread and has a file of so many KiB.
    pub(crate) fn with_files_of(kib: u64) -> Machine {
        Machine {
            users: None,
            file_kib: Some(kib),
            no_sync: false,
            kind: WorkerKind::Threads,
        }
    }
}

/// The task of a worker process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Assignment {
    mix: String,
    no_sync: bool,
    place: PathBuf,
    number: usize,
    kib: u64,
}

impl Bench for Machine {
    type Subject = Target;
    type Workload = Mix;

    fn name(&self, mix: Mix) -> &'static str {
        mix.name()
    }

    fn crew(&self, target: &Target, mix: Mix, cores: usize) -> Result<Option<Crew>> {
        let Some(tree) = target.tree()? else {
            return Ok(None);
        };
        let count = self.users.unwrap_or(cores);
        let kib = self.file_kib.unwrap_or_else(|| mix.kib_per_user(count));
        let hiring = Hiring {
            kind: self.kind,
            count,
            background: 0,
            cores,
        };
        let assign = |place: &Path, number| {
            crate::Assignment::Aim7(Assignment {
                mix: mix.name().to_owned(),
                no_sync: self.no_sync,
                place: place.to_owned(),
                number,
                kib,
            })
        };
        let rules = (mix, syncs(self.no_sync));
        let make = |tree: &Tree, number| -> Result<Box<dyn Worker>> {
            Ok(Box::new(User::new(tree, rules, number, kib)?))
        };
        Crew::hire(tree, hiring, assign, make).map(Some)
    }
}

fn syncs(no_sync: bool) -> Syncs {
    if no_sync { Syncs::LeftOut } else { Syncs::Kept }
}

/// The worker that another process was told to be.
///
/// # Errors
/// Those of the target.
pub(crate) fn worker(told: &Assignment) -> Result<Box<dyn Worker>> {
    let mix = Mix::ALL.into_iter().find(|mix| mix.name() == told.mix);
    let rules = (mix.context("a mix")?, syncs(told.no_sync));
    let tree = Tree::of_directory(told.place.clone());
    Ok(Box::new(User::new(&tree, rules, told.number, told.kib)?))
}
