//! `dure bench filebench`: five of Filebench's personalities.
//!
//! **Structure.** `personality` has the numbers; `fileset` is what the workers pick files from;
//! `flow` and `oltp` are the loops. The workers are threads, bound to the cores in turn. Works are
//! flowops. Sizes are gamma (shape 1.5; webproxy's fixed), appends uniform below 16 KiB, whole
//! files go in pieces of 1 MiB. **Against the original:** directories have a fixed number of
//! entries, not one around a mean; a worker uses a picked file exclusively; the log of webserver is
//! emptied before each measurement; for oltp see `oltp`.

mod fileset;
mod flow;
mod oltp;
mod personality;

#[cfg(test)]
mod tests;

use anyhow::{Context, Result, ensure};
use dure_sync::Arc;
use dure_sync::atomic::{AtomicU64, AtomicUsize};
use rustix::process::{Resource, getrlimit, setrlimit};

use crate::measure::{Bench, Crew, run as measure_all};
use crate::micro::or_default;
use crate::options::{Measuring, Targets};
use crate::target::Target;

use fileset::{FileSet, IO_BYTES};
pub use personality::Personality;

/// `dure bench filebench`.
#[derive(Debug, clap::Args)]
pub struct Filebench {
    /// A kind of server, several times [default: all].
    #[arg(long = "personality", value_enum, value_name = "NAME")]
    pub personalities: Vec<Personality>,
    /// Workers on those cores [default: 50 (fileserver), 16 (varmail), 100 (webserver, webproxy),
    /// 211 (oltp), as Filebench has them].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub workers: Option<u16>,
    /// Files [default: 10000 (fileserver, webproxy), 1000 (varmail, webserver); oltp has ten].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(10..=100_000_000))]
    pub files: Option<u32>,
    /// Files of a folder [default: 20 (fileserver, webserver), all (varmail, webproxy, oltp)].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    pub dir_width: Option<u32>,
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
pub(crate) fn run(args: &Filebench) -> Result<()> {
    let servers = Servers {
        workers: args.workers.map(usize::from),
        files: args.files.map(usize::try_from).transpose()?,
        width: args.dir_width.map(usize::try_from).transpose()?,
    };
    let personalities = or_default(&args.personalities, &Personality::ALL);
    let targets = args.targets.open()?;
    let plan = args.measuring.plan(1000);
    let points = measure_all(&servers, personalities, &targets, &plan)?;
    targets.into_iter().try_for_each(Target::close)?;
    args.measuring.report("filebench", &points)
}

/// What differs from Filebench's own files.
#[derive(Debug, Default)]
pub(crate) struct Servers {
    pub(crate) workers: Option<usize>,
    pub(crate) files: Option<usize>,
    /// Files of a folder.
    pub(crate) width: Option<usize>,
}

impl Bench for Servers {
    type Subject = Target;
    type Workload = Personality;

    fn name(&self, personality: Personality) -> &'static str {
        personality.name()
    }

    fn crew(&self, target: &Target, what: Personality, cores: usize) -> Result<Option<Crew>> {
        let Some(tree) = target.tree()? else {
            return Ok(None);
        };
        let content = crate::micro::content(0).repeat(IO_BYTES / 4096);
        let count = self.workers.unwrap_or(what.workers());
        let mut shape = what.shape();
        shape.width = self.width.unwrap_or(shape.width);
        if what == Personality::Oltp {
            ensure!(count >= 3, "oltp: --workers 3 or more, one of each kind");
            allow_descriptors()?;
            let database = Arc::new(oltp::Database {
                files: FileSet::make(&tree, "data", shape, &content)?,
                to_database: AtomicU64::new(0),
                to_log: AtomicU64::new(0),
            });
            let make = |number| oltp::Member::new(Arc::clone(&database), number, count);
            return Crew::threads(count, cores, Some(tree), |n| Ok(Box::new(make(n)?))).map(Some);
        }
        shape.files = self.files.unwrap_or(shape.files);
        let shared = Arc::new(flow::Shared {
            files: FileSet::make(&tree, "files", shape, &content)?,
            appended: AtomicU64::new(0),
            unchecked: AtomicUsize::new(count),
            content,
        });
        let make = |number| flow::Flow::new(what, Arc::clone(&shared), number);
        Crew::threads(count, cores, Some(tree), |n| Ok(Box::new(make(n)?))).map(Some)
    }
}

/// Raises the limit of descriptors of this process as far as allowed: every worker of oltp has
/// eleven files open.
fn allow_descriptors() -> Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).context("the number of open files")
}
