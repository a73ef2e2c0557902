//! The report: a table for people, flat objects for programs.

mod chart;

use anyhow::{Context, Result};
use comfy_table::{CellAlignment, Table, TableComponent, presets};
use serde::Serialize;
use serde_json::to_value;

use crate::measure::Point;

pub(crate) use chart::draw;

#[derive(Debug, Serialize)]
struct Row<'p> {
    bench: &'static str,
    target: &'p str,
    workload: &'p str,
    policy: &'p str,
    cores: usize,
    threads: usize,
    workers: &'static str,
    ops_per_second: f64,
    min: f64,
    max: f64,
    n: usize,
    /// Of the middle measurement.
    seconds: f64,
    p50_ns: u64,
    p99_ns: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    log_bytes_per_op: Option<f64>,
    /// Without headers, marks and padding.
    #[serde(skip_serializing_if = "Option::is_none")]
    record_bytes_per_op: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    flushes_per_op: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device_flushes_per_op: Option<f64>,
}

fn row<'p>(bench: &'static str, point: &'p Point) -> Row<'p> {
    let rates = point.rates();
    Row {
        bench,
        target: &point.target,
        workload: &point.workload,
        policy: &point.policy,
        cores: point.cores,
        threads: point.workers,
        workers: point.kind.name(),
        ops_per_second: rounded(point.median()),
        min: rounded(rates.first().copied().unwrap_or_default()),
        max: rounded(rates.last().copied().unwrap_or_default()),
        n: rates.len(),
        seconds: point.middle().map_or(0.0, |run| run.seconds),
        p50_ns: point.latencies.value_at_quantile(0.5),
        p99_ns: point.latencies.value_at_quantile(0.99),
        log_bytes_per_op: point.per_work(|counts| counts.log_bytes),
        record_bytes_per_op: point.per_work(|counts| counts.record_bytes),
        flushes_per_op: point.per_work(|counts| counts.flushes),
        device_flushes_per_op: point.per_work(|counts| counts.device_flushes),
    }
}

/// Slow rates to a thousandth.
fn rounded(rate: f64) -> f64 {
    if rate < 1000.0 {
        (rate * 1000.0).round() / 1000.0
    } else {
        rate.round()
    }
}

fn shown(rate: f64) -> String {
    if rate < 1000.0 {
        format!("{rate:.1}")
    } else {
        format!("{rate:.0}")
    }
}

/// To standard output.
pub(crate) fn print(text: &str) {
    crate::say!("{text}");
}

/// To standard error.
pub(crate) fn say(text: &str) {
    crate::note!("{text}");
}

/// A list of flat JSON objects, one a point.
///
/// # Errors
/// Never for numbers that were measured.
pub fn json(bench: &'static str, points: &[Point]) -> Result<String> {
    json_beside::<()>(bench, points, &[])
}

/// The same, with objects of the bench's own behind.
///
/// # Errors
/// Never for numbers that were measured.
pub(crate) fn json_beside<'p, R: Serialize>(
    bench: &'static str,
    points: impl IntoIterator<Item = &'p Point>,
    own: &[R],
) -> Result<String> {
    let points = points.into_iter().map(|point| to_value(row(bench, point)));
    let rows = points.chain(own.iter().map(to_value));
    let rows = rows.collect::<serde_json::Result<Vec<_>>>();
    serde_json::to_string_pretty(&rows.context("writing JSON")?).context("writing JSON")
}

/// A table; the last column compares the time of an operation with that on the first target.
#[must_use]
pub fn table(points: &[Point]) -> Table {
    let mut table = Table::new();
    table
        .load_preset(presets::UTF8_HORIZONTAL_ONLY)
        .set_header([
            "workload",
            "threads",
            "target",
            "policy",
            "ops/s",
            "min",
            "max",
            "n",
            "p50 ns",
            "p99 ns",
            "time vs first",
            "log bytes/op",
            "record bytes/op",
            "device flushes/op",
        ]);
    for lines in [
        TableComponent::HorizontalLines,
        TableComponent::MiddleIntersections,
    ] {
        table.remove_style(lines);
    }
    for column in [1, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    for point in points {
        let first = points
            .iter()
            .find(|other| other.workload == point.workload && other.cores == point.cores)
            .map_or(0.0, Point::median);
        let own = row("", point);
        let ratio = if own.ops_per_second > 0.0 {
            first / point.median()
        } else {
            0.0
        };
        table.add_row([
            own.workload.to_owned(),
            own.threads.to_string(),
            own.target.to_owned(),
            own.policy.to_owned(),
            shown(own.ops_per_second),
            shown(own.min),
            shown(own.max),
            own.n.to_string(),
            own.p50_ns.to_string(),
            own.p99_ns.to_string(),
            format!("{ratio:.2}"),
            own.log_bytes_per_op
                .map_or_else(String::new, |bytes| format!("{bytes:.0}")),
            own.record_bytes_per_op
                .map_or_else(String::new, |bytes| format!("{bytes:.0}")),
            own.device_flushes_per_op
                .map_or_else(String::new, |count| format!("{count:.2}")),
        ]);
    }
    table
}
