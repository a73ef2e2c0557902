//! `dure bench micro`: single operations, warm.

mod calls;
mod copy;
mod raw;
mod workload;

use std::path::Path;

use anyhow::Result;

use crate::measure::{Bench, Crew, Plan, Point, run};
use crate::options::{Measuring, Targets};
use crate::target::Target;

pub(crate) use copy::Direction;
pub use workload::Workload;
pub(crate) use workload::content;

/// `dure bench micro`.
#[derive(Debug, clap::Args)]
pub struct Micro {
    /// What to measure on.
    #[command(flatten)]
    pub targets: Targets,
    /// Workloads [default: overwrite, read, stat, create-unlink, overwrite-fsync].
    #[arg(long = "workload", value_name = "NAME", value_enum)]
    pub workloads: Vec<Workload>,
    /// How.
    #[command(flatten)]
    pub measuring: Measuring,
}

const DEFAULT: [Workload; 5] = [
    Workload::Overwrite,
    Workload::Read,
    Workload::Stat,
    Workload::CreateUnlink,
    Workload::OverwriteFsync,
];

/// Measures and prints the report.
///
/// # Errors
/// A target that cannot be opened, or an operation that fails.
pub(crate) fn run_micro(args: &Micro) -> Result<()> {
    let targets = args.targets.open()?;
    let plan = args.measuring.plan(200);
    let points = measure(or_default(&args.workloads, &DEFAULT), targets, &plan)?;
    args.measuring.report("micro", &points)
}

/// What was chosen, or the default.
pub(crate) fn or_default<'a, T>(chosen: &'a [T], default: &'a [T]) -> &'a [T] {
    if chosen.is_empty() { default } else { chosen }
}

/// Measures single operations and closes the targets.
pub(crate) fn measure(
    workloads: &[Workload],
    targets: Vec<Target>,
    plan: &Plan,
) -> Result<Vec<Point>> {
    let points = run(&Single, workloads, &targets, plan)?;
    targets.into_iter().try_for_each(Target::close)?;
    Ok(points)
}

/// Single operations, of which a device and a plain copy offer some.
pub(crate) struct Single;

impl Bench for Single {
    type Subject = Target;
    type Workload = Workload;

    fn name(&self, workload: Workload) -> &'static str {
        workload.name()
    }

    fn crew(&self, target: &Target, workload: Workload, cores: usize) -> Result<Option<Crew>> {
        if let Some(tree) = target.tree()? {
            let own = tree.clone();
            let make = |number| calls::Calls::new(&own, workload, number);
            return Crew::threads(cores, cores, Some(tree), |n| Ok(Box::new(make(n)?))).map(Some);
        }
        match target.raw_device() {
            Some(raw) if workload == Workload::OverwriteFsync => floor(raw, cores).map(Some),
            None if workload == Workload::Overwrite => plain_copy(cores, Direction::In).map(Some),
            None if workload == Workload::Read => plain_copy(cores, Direction::Out).map(Some),
            _ => Ok(None),
        }
    }
}

/// Workers that write and flush a device or file by itself.
pub(crate) fn floor((path, pages): (&Path, usize), cores: usize) -> Result<Crew> {
    let make = |number| raw::Writer::open(path, pages, number);
    Crew::threads(cores, cores, None, |n| Ok(Box::new(make(n)?)))
}

/// Workers that copy 4 KiB.
pub(crate) fn plain_copy(cores: usize, direction: Direction) -> Result<Crew> {
    let make = |_| Ok(Box::new(copy::Copier::new(direction)) as _);
    Crew::threads(cores, cores, None, make)
}
