//! `dure bench fxmark`: the micro-benchmarks of `FxMark` (ATC'16), and the mixes by which pNOVA was
//! measured.
//!
//! **Structure.** `workload` names them; `data`, `tail`, `lookup` and `namespace` do them, written
//! once for directories and volumes; every worker checks at the end that its operations did what
//! they claim. A block is 4 KiB of incompressible bytes.
//!
//! **Against the original.** MRDL and MRDM read the directory again at its end instead of counting
//! the end as work. What DWTL, MWUL and MWUM use up is bounded (`--fill`), and DWAL keeps to half
//! of the room, instead of filling the device. The worker in the background (`_bg`) is one more
//! than `--cores`, on the core after theirs (else the first), and is not counted; the original
//! takes it from the cores and counts the others. In DRBL_bg and DRBM_bg it writes; in the original
//! it reads. Which files it replaces in MRDL_bg and MRDM_bg comes from a seed; there from unset
//! memory.

mod data;
mod field;
mod lookup;
mod namespace;
mod seat;
mod tail;
mod workload;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::measure::{Bench, Crew, Hiring, Plan, Point, Worker, WorkerKind, run as measure_all};
use crate::micro::{Direction, floor, or_default, plain_copy};
use crate::options::{Measuring, Targets};
use crate::report;
use crate::target::{Io, NO_DIRECT, Target, Tree};

pub use field::{Field, Sizes};
pub(crate) use seat::Numbered;
use seat::Seat;
pub use workload::Workload;

/// Files or blocks that a worker makes at most, unless it is told another number.
const FILL: u64 = 32_768;

/// `dure bench fxmark`.
#[derive(Debug, clap::Args)]
pub struct FxMark {
    /// What to measure on.
    #[command(flatten)]
    pub targets: Targets,
    /// A workload, several times [default: all].
    #[arg(long = "workload", value_enum, ignore_case = true, value_name = "NAME")]
    pub workloads: Vec<Workload>,
    /// All workloads.
    #[arg(long, conflicts_with = "workloads")]
    pub all: bool,
    /// Files or blocks that a worker makes at most before it removes them (DWTL, MWUL, MWUM), reads
    /// (MRDL, MRDM) or moves them (MWRM).
    #[arg(long, value_name = "N", default_value_t = FILL, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub fill: u64,
    /// Workers are processes, as in the original, not threads; on a volume, which belongs to one
    /// process, they are threads all the same.
    #[arg(long)]
    pub processes: bool,
    /// DR* and DW* move content past the page cache (`O_DIRECT`), on directories.
    #[arg(long)]
    pub directio: bool,
    /// How.
    #[command(flatten)]
    pub measuring: Measuring,
}

/// The policy of a point whose calls are direct.
const DIRECT: &str = "directio";

impl FxMark {
    fn io(&self) -> Io {
        if self.directio {
            Io::Direct
        } else {
            Io::Buffered
        }
    }
}

/// `--directio` and a volume contradict each other.
fn refuse_direct(args: &FxMark, targets: &[Target]) -> Result<()> {
    let volume = targets.iter().find(|target| target.is_volume());
    match volume {
        Some(volume) if args.directio => bail!(
            "--directio on '{}': {NO_DIRECT}; name directories only, as in --target dir:.",
            volume.label()
        ),
        _ => Ok(()),
    }
}

/// Measures and prints the report.
///
/// # Errors
/// A target that cannot be opened, or an operation that fails.
pub(crate) fn run(args: &FxMark) -> Result<()> {
    let targets = args.targets.open()?;
    refuse_direct(args, &targets)?;
    let plan = args.measuring.plan(200);
    let bench = Suite {
        fill: args.fill,
        kind: WorkerKind::of(args.processes),
        io: args.io(),
        ..Suite::of(&plan)
    };
    let workloads = or_default(&args.workloads, &Workload::ALL);
    let mut points = measure_all(&bench, workloads, &targets, &plan)?;
    targets.into_iter().try_for_each(Target::close)?;
    if args.directio {
        let moves_data = |point: &&mut Point| point.workload.starts_with('D');
        let data = points.iter_mut().filter(moves_data);
        data.for_each(|point| point.policy = DIRECT.to_owned());
    }
    if !args.measuring.json {
        report::print(&lines(&points));
    }
    args.measuring.report("fxmark", &points)
}

/// The lines of the original, as its plotter reads them: a paragraph for each target and workload,
/// a line for each number of cores.
fn lines(points: &[Point]) -> String {
    let key = |point: &Point| (point.workload.clone(), point.target.clone());
    let mut keys = Vec::new();
    for point in points {
        if !keys.contains(&key(point)) {
            keys.push(key(point));
        }
    }
    let mut text = Vec::new();
    for (workload, target) in keys {
        let own = |point: &&Point| point.workload == workload && point.target == target;
        let is_direct = points
            .iter()
            .filter(own)
            .any(|point| point.policy == DIRECT);
        let io = if is_direct { DIRECT } else { "bufferedio" };
        text.push(format!("## {target}:{workload}:{io}"));
        text.push("# ncpu secs works works/sec".to_owned());
        for point in points.iter().filter(own) {
            if let Some(run) = point.middle() {
                let (cores, seconds, works) = (point.cores, run.seconds, run.works);
                text.push(format!("{cores} {seconds:.6} {works} {:.6}", run.rate()));
            }
        }
        text.push(String::new());
    }
    text.join("\n")
}

/// What all points of a run have in common.
#[derive(Debug)]
pub(crate) struct Suite {
    fill: u64,
    fill_ns: u64,
    branches: u32,
    kind: WorkerKind,
    io: Io,
}

impl Suite {
    /// What it is without options: threads, calls through the page cache.
    pub(crate) fn of(plan: &Plan) -> Suite {
        Suite {
            fill: FILL,
            fill_ns: plan.run_ns,
            branches: lookup::BRANCHES,
            kind: WorkerKind::Threads,
            io: Io::Buffered,
        }
    }
}

/// The task of a worker process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Assignment {
    workload: String,
    place: PathBuf,
    seat: Seat,
}

impl Bench for Suite {
    type Subject = Target;
    type Workload = Workload;

    fn name(&self, workload: Workload) -> &'static str {
        workload.name()
    }

    fn crew(&self, target: &Target, workload: Workload, cores: usize) -> Result<Option<Crew>> {
        let Some(tree) = target.tree()? else {
            return match target.raw_device() {
                Some(raw) if workload == Workload::Dwsl => floor(raw, cores).map(Some),
                Some(_) => Ok(None),
                None if workload.reads_data() => plain_copy(cores, Direction::Out).map(Some),
                None if workload.is_data() => plain_copy(cores, Direction::In).map(Some),
                None => plain_loop(cores).map(Some),
            };
        };
        let seat = |number| Seat {
            number,
            count: cores,
            fill: self.fill,
            fill_ns: self.fill_ns,
            branches: self.branches,
            region: data::REGION,
            io: self.io,
        };
        let background = usize::from(workload.has_background());
        let hiring = Hiring {
            kind: self.kind,
            count: cores + background,
            background,
            cores: cores + background,
        };
        let assign = |place: &Path, number| {
            crate::Assignment::FxMark(Assignment {
                workload: workload.name().to_owned(),
                place: place.to_owned(),
                seat: seat(number),
            })
        };
        let make = |tree: &Tree, number| make(tree, workload, seat(number));
        Crew::hire(tree, hiring, assign, make).map(Some)
    }
}

fn make(tree: &Tree, workload: Workload, seat: Seat) -> Result<Box<dyn Worker>> {
    match workload {
        Workload::Mrpl | Workload::Mrpm | Workload::Mrph | Workload::MrpmBg => {
            lookup::make(tree, workload, seat)
        }
        _ if workload.is_data() => data::make(tree, workload, seat),
        _ => namespace::make(tree, workload, seat),
    }
}

/// The worker that another process was told to be.
///
/// # Errors
/// Those of the workload.
pub(crate) fn worker(told: Assignment) -> Result<Box<dyn Worker>> {
    let mut all = Workload::ALL.into_iter();
    let workload = all.find(|workload| workload.name() == told.workload);
    let tree = Tree::of_directory(told.place);
    make(&tree, workload.context("a workload")?, told.seat)
}

/// What a second core gains where there is no file system at all.
struct Loop(u64);

fn plain_loop(cores: usize) -> Result<Crew> {
    Crew::threads(cores, cores, None, |number| {
        Ok(Box::new(Loop(u64::try_from(number)?)))
    })
}

impl Worker for Loop {
    /// About 100 ns of dependent multiplications.
    fn operate(&mut self) -> Result<Option<u64>> {
        for _ in 0..64 {
            self.0 = std::hint::black_box(self.0.wrapping_mul(0x5851_f42d_4c95_7f2d) | 1);
        }
        Ok(Some(1))
    }
}
