//! The columns of AIM7's own report.
//!
//! The figures are those of the middle measurement. A child's time is what the jobs of the mix
//! would have taken it: AIM7's children run so many jobs, ours run for a time.

use comfy_table::Table;
use serde::Serialize;

use super::mix::Mix;
use crate::measure::{Part, Point, f64_of};
use crate::report::{self, Columns};

/// A line of the report.
#[derive(Debug, Serialize)]
pub(super) struct Row<'p> {
    bench: &'static str,
    workload: &'p str,
    target: &'p str,
    policy: &'p str,
    users: usize,
    /// Until the last child had ended.
    pub(super) real_seconds: f64,
    /// All children together, as that of `user_seconds`.
    system_seconds: f64,
    user_seconds: f64,
    pub(super) jobs_per_minute: f64,
    jobs_per_minute_per_child: f64,
    pub(super) child_seconds_deviation: f64,
    pub(super) coefficient_of_variation_percent: f64,
    /// 100 less that: AIM7's job timing index.
    pub(super) job_timing_index: f64,
}

pub(super) fn rows(points: &[Point]) -> Vec<Row<'_>> {
    points.iter().filter_map(row).collect()
}

fn row(point: &Point) -> Option<Row<'_>> {
    let run = point.middle()?;
    let mix = Mix::ALL
        .into_iter()
        .find(|mix| mix.name() == point.workload)?;
    let jobs = f64_of(u64::try_from(mix.jobs().len()).ok()?);
    let seconds = |of: fn(&Part) -> u64| run.parts.iter().map(move |part| f64_of(of(part)) / 1e9);
    let users = f64_of(u64::try_from(run.parts.len()).ok()?);
    let child = |part: &Part| f64_of(part.ns) / 1e9 / f64_of(part.works) * jobs;
    let (mean, deviation) = spread(run.parts.iter().map(child));
    let variation = 100.0 * deviation / mean;
    let per_minute = run.rate() * 60.0;
    Some(Row {
        bench: "aim7",
        workload: &point.workload,
        target: &point.target,
        policy: &point.policy,
        users: run.parts.len(),
        real_seconds: seconds(|part| part.ns).fold(0.0, f64::max),
        system_seconds: seconds(|part| part.cpu.system_ns).sum(),
        user_seconds: seconds(|part| part.cpu.user_ns).sum(),
        jobs_per_minute: per_minute,
        jobs_per_minute_per_child: per_minute / users,
        child_seconds_deviation: deviation,
        coefficient_of_variation_percent: variation,
        job_timing_index: 100.0 - variation,
    })
}

/// Mean and standard deviation, of all there are.
pub(super) fn spread(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let count = values.clone().fold(0.0, |count, _| count + 1.0);
    let mean = values.clone().sum::<f64>() / count;
    let squares: f64 = values.map(|value| (value - mean) * (value - mean)).sum();
    (mean, (squares / count).sqrt())
}

pub(super) fn table(rows: &[Row<'_>]) -> Table {
    let heads = [
        "mix",
        "target",
        "users",
        "real s",
        "sys s",
        "user s",
        "jobs/min",
        "per child",
        "std dev s",
        "CoV %",
        "JTI",
    ];
    let mut table = report::plain_table(&heads, &[0, 1], Columns::Usual);
    for row in rows {
        table.add_row([
            row.workload.to_owned(),
            row.target.to_owned(),
            row.users.to_string(),
            format!("{:.2}", row.real_seconds),
            format!("{:.2}", row.system_seconds),
            format!("{:.2}", row.user_seconds),
            format!("{:.0}", row.jobs_per_minute),
            format!("{:.0}", row.jobs_per_minute_per_child),
            format!("{:.3}", row.child_seconds_deviation),
            format!("{:.1}", row.coefficient_of_variation_percent),
            format!("{:.0}", row.job_timing_index),
        ]);
    }
    table
}
