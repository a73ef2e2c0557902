//! `dure bench device`: calls that miss.
//!
//! **Problem.** Calls that hit memory say nothing about the way to the device: how many requests
//! are under way, which call waits for which, how large they are. **Structure.** The workers of a
//! threads, as many as asked for, on the cores there are; they share a file, or each has its own.
//! All of them together visit each page once before any page twice, in an order without pattern, so
//! that nothing is read from memory as long as the file is larger than the cache. **Invariants.**
//! Files are written, synced and dropped from the kernel's cache before a point begins; of a volume
//! the bound of its cache (`cache=`) says what stays.

mod cold;
mod deep;
mod worker;

use anyhow::Result;
use clap::ValueEnum;

use crate::measure::{Bench, Crew, Plan, Point, run as measure_all};
use crate::micro::or_default;
use crate::options::{Measuring, Targets};
use crate::target::{Io, Target};
use worker::{Part, Worker};

/// `dure bench device`.
#[derive(Debug, clap::Args)]
pub struct Device {
    /// What to measure on.
    #[command(flatten)]
    pub targets: Targets,
    /// Workloads [default: all].
    #[arg(long = "workload", value_name = "NAME", value_enum)]
    pub workloads: Vec<Workload>,
    /// MiB of the file that threads share, and of all own files together; each file is rounded down
    /// to a power of two.
    #[arg(long, default_value_t = 1024, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub file_mib: u64,
    /// Use files in directories past the page cache (`O_DIRECT`); a volume always caches.
    #[arg(long)]
    pub directio: bool,
    /// Reads that a thread of `random-read-deep` has under way.
    #[arg(long, default_value_t = 32, value_name = "READS", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub depth: u16,
    /// Files of 6,000 bytes, 1,000 in a directory, of the workloads that find none of them in memory.
    #[arg(long, default_value_t = 40_000, value_name = "N", value_parser = clap::value_parser!(u64).range(1000..=100_000_000))]
    pub files: u64,
    /// How. `--threads` may be more than there are cores.
    #[command(flatten)]
    pub measuring: Measuring,
}

/// A loop of one call on files that are larger than memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Workload {
    /// pread of 4 KiB at random in one file.
    RandomRead,
    /// pread of 4 KiB at random, in a file for each thread.
    RandomReadOwn,
    /// Reads of 4 KiB at random in one file, `--depth` of a thread under way at once: by `dure::Calls`
    /// of a volume, by `io_uring` past the kernel's cache of a directory.
    RandomReadDeep,
    /// 70 % preads and 30 % pwrites of 4 KiB at random in one file.
    Mix,
    /// 70 % preads and 30 % pwrites of 4 KiB at random, in a file for each thread.
    MixOwn,
    /// pwrite of 4 KiB at random in one file, and fsync.
    OverwriteFsync,
    /// pread of 1 MiB in order, a file for each thread.
    OrderedRead,
    /// pwrite of 1 MiB in order, a file for each thread, and fsync at the end of it.
    OrderedWrite,
    /// 1,000 files of 6,000 bytes made in a new directory, then sync; a work is a file.
    MakeFiles,
    /// All files listed and stat-ed, of which nothing is in memory; a work is a file. As root.
    ListCold,
    /// All files opened and read, of which nothing is in memory; a work is a file. As root.
    ReadCold,
    /// All files removed, of which nothing is in memory, then sync; a work is a file. As root.
    RemoveCold,
}

impl Workload {
    const ALL: [Workload; 12] = [
        Workload::RandomRead,
        Workload::RandomReadOwn,
        Workload::RandomReadDeep,
        Workload::Mix,
        Workload::MixOwn,
        Workload::OverwriteFsync,
        Workload::OrderedRead,
        Workload::OrderedWrite,
        Workload::MakeFiles,
        Workload::ListCold,
        Workload::ReadCold,
        Workload::RemoveCold,
    ];

    fn name(self) -> &'static str {
        match self {
            Workload::RandomRead => "random-read",
            Workload::RandomReadOwn => "random-read-own",
            Workload::RandomReadDeep => "random-read-deep",
            Workload::Mix => "mix",
            Workload::MixOwn => "mix-own",
            Workload::OverwriteFsync => "overwrite-fsync",
            Workload::OrderedRead => "ordered-read",
            Workload::OrderedWrite => "ordered-write",
            Workload::MakeFiles => "make-files",
            Workload::ListCold => "list-cold",
            Workload::ReadCold => "read-cold",
            Workload::RemoveCold => "remove-cold",
        }
    }

    /// Whether it is done once with files that are not in memory.
    fn is_cold(self) -> bool {
        use Workload::{ListCold, ReadCold, RemoveCold};
        matches!(self, ListCold | ReadCold | RemoveCold)
    }

    fn is_shared(self) -> bool {
        use Workload::{Mix, OverwriteFsync, RandomRead, RandomReadDeep};
        matches!(self, RandomRead | RandomReadDeep | Mix | OverwriteFsync)
    }
}

/// Measures and prints the report.
///
/// # Errors
/// A target that cannot be opened, or an operation that fails.
pub(crate) fn run(args: &Device) -> Result<()> {
    let targets = args.targets.open()?;
    let plan = args.measuring.plan(1000);
    let points = measure(args, targets, &plan)?;
    args.measuring.report("device", &points)
}

pub(crate) fn measure(args: &Device, mut targets: Vec<Target>, plan: &Plan) -> Result<Vec<Point>> {
    let workloads = or_default(&args.workloads, &Workload::ALL).iter().copied();
    let (cold, warm): (Vec<_>, Vec<_>) = workloads.partition(|workload| workload.is_cold());
    let mut points = measure_all(args, &warm, &targets, plan)?;
    points.append(&mut cold::measure(args.files, &cold, &mut targets, plan)?);
    targets.into_iter().try_for_each(Target::close)?;
    Ok(points)
}

impl Bench for Device {
    type Subject = Target;
    type Workload = Workload;

    fn name(&self, workload: Workload) -> &'static str {
        workload.name()
    }

    fn crew(&self, target: &Target, workload: Workload, threads: usize) -> Result<Option<Crew>> {
        let Some(tree) = target.tree()? else {
            return Ok(None);
        };
        let io = match self.directio && !target.is_volume() {
            true => Io::Direct,
            false => Io::Buffered,
        };
        let part = |number| Part {
            number,
            of: threads,
            bytes: self.file_mib << 20,
            depth: self.depth.into(),
        };
        let own = tree.clone();
        let make = |number| Worker::new(&own, (workload, io), part(number));
        let cores = threads.min(dure_sync::core_count());
        Crew::threads(threads, cores, Some(tree), |n| Ok(Box::new(make(n)?))).map(Some)
    }
}
