//! Where a series ends to scale, why, and what to set.
//!
//! **Structure.** Points of the same engine, hardware queues and tags are a series. It ends at the
//! fewest jobs that reach nearly its highest rate; what was measured there, or one step further,
//! names the cause. **Invariants.** The first rule that fits wins: tags before queues, since both
//! show in the part of Q2G that is a wait for tags; then the cores, the plug, which is the other
//! part of Q2G, and the scheduler; a device that is busy is what remains. **On a crash** nothing is
//! kept.

use serde::Serialize;

use super::sweep::{FixedLoad, Point};
use dure_block::count::Count;

/// The share of the highest rate that counts as reaching it.
const REACHED: f64 = 0.95;
/// The share of a part of Q2G, the plug or a lack of tags, from which it is the cause, in percent.
/// Half of the requests that two jobs have under way wait when there are tags for one.
const PART_SHOWS: f64 = 25.0;
/// The least share of all requests that must have waited for a tag.
const WAITED: f64 = 0.01;
/// Like [`WAITED`], if requests lack tags for longer than they are in the plug: of the requests of
/// one job only the next waits, and those behind it have not arrived.
const WAITED_OFTEN: f64 = 0.1;
/// The share of a lack of tags below which it is no cause, however many waited, in percent.
const TAG_LEAST: f64 = 5.0;
/// The share of their cores' time that busy jobs use.
const CPU_BUSY: f64 = 0.85;
/// How many times the CPU time that a request takes with one job it may take before something is
/// contended.
const CPU_GROWTH: f64 = 1.5;
/// The gain of a step that still scales, of jobs by which it grew.
const SCALES: f64 = 0.75;

/// Why a series does not go higher.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Cause {
    /// Nothing was found: it goes up to the last point.
    None,
    /// One job has more requests under way than its queue has tags.
    Tags,
    /// Jobs that share a hardware queue have more than it has tags.
    QueueSharing,
    /// The processor spends more on a request the more jobs there are.
    Lock,
    /// The cores are busy.
    Cpu,
    /// Requests wait in the plug for those of their call that go before them.
    Plug,
    /// Requests wait between insertion and dispatch.
    Dispatch,
    /// The device takes its time.
    Device,
}

impl Cause {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::None => "scales",
            Self::Tags => "tags",
            Self::QueueSharing => "queue sharing",
            Self::Lock => "lock",
            Self::Cpu => "cpu",
            Self::Plug => "plug",
            Self::Dispatch => "dispatch",
            Self::Device => "device",
        }
    }
}

/// Points that differ in their jobs only.
#[derive(Debug, Serialize)]
pub(super) struct Series {
    pub(super) engine: String,
    pub(super) hw_queues: u32,
    pub(super) nr_requests: u32,
    pub(super) points: Vec<Point>,
    /// The fewest jobs that nearly reach the highest rate.
    pub(super) ends_at_jobs: u16,
    pub(super) iops_max: f64,
    pub(super) cause: Cause,
    /// The cause, with its figures.
    pub(super) why: String,
}

impl Series {
    pub(super) fn name(&self) -> String {
        let queues = Count::of(self.hw_queues, "hardware queue");
        let tags = Count::of(self.nr_requests, "tag");
        format!("{}, {queues} of {tags}", self.engine)
    }
}

/// The series of points, which are in their order.
pub(super) fn series(points: Vec<Point>, load: FixedLoad) -> Vec<Series> {
    let mut all: Vec<Vec<Point>> = Vec::new();
    let key = |point: &Point| (point.engine, point.hw_queues, point.nr_requests);
    for point in points {
        match all.last_mut() {
            Some(last) if key(&last[0]) == key(&point) => last.push(point),
            _ => all.push(vec![point]),
        }
    }
    all.into_iter().map(|points| fit(points, load)).collect()
}

fn fit(points: Vec<Point>, load: FixedLoad) -> Series {
    let iops_max = points.iter().map(|point| point.iops).fold(0.0, f64::max);
    let end = points
        .iter()
        .position(|point| point.iops >= REACHED * iops_max)
        .expect("the highest reaches itself");
    let (cause, why) = cause(&points, end, load);
    let first = &points[0];
    Series {
        engine: first.engine.to_owned(),
        hw_queues: first.hw_queues,
        nr_requests: first.nr_requests,
        ends_at_jobs: points[end].jobs,
        iops_max,
        cause,
        why,
        points,
    }
}

/// What bounds the series that ends at `points[end]`.
fn cause(points: &[Point], end: usize, load: FixedLoad) -> (Cause, String) {
    // One step further, what bounds it shows most.
    let at = &points[(end + 1).min(points.len() - 1)];
    let (q2g, d2c, i2d) = (at.share("Q2G"), at.share("D2C"), at.share("I2D"));
    let plug = at.share("plug");
    if let Some(found) = lack_of_tags(at, load) {
        return found;
    }
    if scales_to_the_end(points, end) {
        let why = format!(
            "no end in this sweep: the fastest is {}",
            Count::of(at.jobs, "job")
        );
        return (Cause::None, why);
    }
    let (cpu, with_one) = (at.cpu_ns_per_request, points[0].cpu_ns_per_request);
    let busy = 100.0 * at.cpu_share;
    if at.cpu_share >= CPU_BUSY && at.jobs > 1 && cpu >= CPU_GROWTH * with_one {
        let why = format!(
            "something is contended: a request takes {cpu:.0} ns of CPU time with {}, \
             {with_one:.0} ns with one, and jobs used or wanted their cores {busy:.0} % of the time",
            Count::of(at.jobs, "job")
        );
        return (Cause::Lock, why);
    }
    if at.cpu_share >= CPU_BUSY {
        let why = format!(
            "{} used or wanted cores {busy:.0} % of the time: {cpu:.0} ns for a request",
            Count::of(at.jobs, "job")
        );
        return (Cause::Cpu, why);
    }
    if plug >= PART_SHOWS && plug > d2c && plug > i2d {
        let why = format!(
            "requests wait in the plug, {plug:.0} % of their time, for those of their call that go \
             before them (D2C {d2c:.0} %)"
        );
        return (Cause::Plug, why);
    }
    if i2d > d2c && i2d > q2g {
        let why = format!("requests wait to be dispatched: I2D is {i2d:.0} %, D2C {d2c:.0} %");
        return (Cause::Dispatch, why);
    }
    let why = format!(
        "the device: D2C is {d2c:.0} % of the time of requests (Q2G {q2g:.0} %), jobs used or wanted their cores {busy:.0} % of it"
    );
    (Cause::Device, why)
}

/// What bounds `at` if requests lack tags: those of a job, or of the jobs that share a queue.
fn lack_of_tags(at: &Point, load: FixedLoad) -> Option<(Cause, String)> {
    let (q2g, plug, tag) = (at.share("Q2G"), at.share("plug"), at.share("tag"));
    let (d2c, waits) = (at.share("D2C"), at.tag_waits_share);
    let often = waits >= WAITED_OFTEN && tag >= plug.max(TAG_LEAST);
    if !often && (tag < PART_SHOWS || waits < WAITED) {
        return None;
    }
    let waited = 100.0 * waits;
    let figures = format!(
        "with {} Q2G is {q2g:.0} % of the time of requests (a lack of tags {tag:.0} %, the plug \
         {plug:.0} %, D2C {d2c:.0} %), {waited:.0} % of them waited for a tag",
        Count::of(at.jobs, "job")
    );
    let depth = load.iodepth;
    if depth <= at.nr_requests {
        let why = format!("jobs share hardware queues and their tags: {figures}");
        return Some((Cause::QueueSharing, why));
    }
    let under_way = Count::of(depth, "request");
    let why = format!("too few tags: {figures}; a job has {under_way} under way");
    Some((Cause::Tags, why))
}

/// Whether the last point is the highest, and the step to it is worth its jobs.
fn scales_to_the_end(points: &[Point], end: usize) -> bool {
    match points {
        [.., before, last] if end == points.len() - 1 => {
            let jobs = f64::from(last.jobs) / f64::from(before.jobs);
            last.iops / before.iops >= 1.0 + (jobs - 1.0) * SCALES
        }
        _ => false,
    }
}

/// What to set.
pub(super) fn advice(series: &[Series], load: FixedLoad) -> Vec<String> {
    let Some(best) = series
        .iter()
        .max_by(|a, b| a.iops_max.total_cmp(&b.iops_max))
    else {
        return Vec::new();
    };
    // The cheapest that is as good: fewer queues, then fewer tags.
    let good = series
        .iter()
        .filter(|s| s.iops_max >= REACHED * best.iops_max);
    let cheapest = good.min_by_key(|s| (s.hw_queues, s.nr_requests, s.ends_at_jobs));
    let best = cheapest.unwrap_or(best);
    let mut advice = vec![format!(
        "use {} and {} jobs: {:.0} IOPS, and no setting of this sweep has 5 % more",
        best.name(),
        best.ends_at_jobs,
        best.iops_max
    )];
    let last = best.points.last().map_or(1, |point| point.jobs);
    let wanted = u32::from(last).div_ceil(best.hw_queues) * load.iodepth;
    advice.push(match best.cause {
        Cause::Tags | Cause::QueueSharing => format!(
            "even there requests wait for tags: raise nr_requests to {}, or use more hardware queues \
             than {}",
            wanted.next_power_of_two(),
            best.hw_queues
        ),
        Cause::Lock => "more jobs cost more than they bring: use fewer, or more hardware queues, \
                        so that they share less"
            .to_owned(),
        Cause::Cpu => format!(
            "a faster interface or larger requests (--bs) are what would help, not more jobs than \
             {} cores",
            load.cores
        ),
        Cause::Plug => "let a job submit fewer requests together (--iodepth), or each by itself \
                        (without --merge and --sort)"
            .to_owned(),
        Cause::Dispatch => "try the scheduler `none` (/sys/block/DEVICE/queue/scheduler)".to_owned(),
        Cause::Device => "the device is used fully: only less load or another device helps".to_owned(),
        Cause::None => "try more jobs (--cores) or a deeper queue (--iodepth)".to_owned(),
    });
    let starved = |s: &&Series| matches!(s.cause, Cause::Tags | Cause::QueueSharing);
    if let Some(starved) = series
        .iter()
        .filter(|s| s.iops_max < best.iops_max)
        .find(starved)
    {
        advice.push(format!(
            "avoid {}: {:.0} IOPS; {}",
            starved.name(),
            starved.iops_max,
            starved.why
        ));
    }
    advice
}
