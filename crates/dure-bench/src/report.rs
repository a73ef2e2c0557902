//! The report: a table for people, flat objects for programs.

use anyhow::{Context, Result};
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use crate::measure::Point;

#[derive(Debug, Serialize)]
struct Row<'p> {
    bench: &'static str,
    target: &'p str,
    workload: &'static str,
    policy: &'p str,
    threads: usize,
    ops_per_second: f64,
    min: f64,
    max: f64,
    n: usize,
    p50_ns: u64,
    p99_ns: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    log_bytes_per_op: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    flushes_per_op: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device_flushes_per_op: Option<f64>,
}

fn row<'p>(bench: &'static str, point: &'p Point) -> Row<'p> {
    Row {
        bench,
        target: &point.target,
        workload: point.workload.name(),
        policy: &point.policy,
        threads: point.threads,
        ops_per_second: point.median().round(),
        min: point
            .rates
            .iter()
            .copied()
            .fold(f64::INFINITY, f64::min)
            .round(),
        max: point.rates.iter().copied().fold(0.0, f64::max).round(),
        n: point.rates.len(),
        p50_ns: point.latencies.value_at_quantile(0.5),
        p99_ns: point.latencies.value_at_quantile(0.99),
        log_bytes_per_op: point.per_operation(|counts| counts.log_bytes),
        flushes_per_op: point.per_operation(|counts| counts.flushes),
        device_flushes_per_op: point.per_operation(|counts| counts.device_flushes),
    }
}

/// A list of flat JSON objects, one a point.
///
/// # Errors
/// Never for numbers that were measured.
pub fn json(bench: &'static str, points: &[Point]) -> Result<String> {
    let rows: Vec<Row<'_>> = points.iter().map(|point| row(bench, point)).collect();
    serde_json::to_string_pretty(&rows).context("writing JSON")
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
            "device flushes/op",
        ]);
    for column in [1, 4, 5, 6, 7, 8, 9, 10, 11, 12] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    for point in points {
        let first = points
            .iter()
            .find(|other| other.workload == point.workload && other.threads == point.threads)
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
            format!("{:.0}", own.ops_per_second),
            format!("{:.0}", own.min),
            format!("{:.0}", own.max),
            own.n.to_string(),
            own.p50_ns.to_string(),
            own.p99_ns.to_string(),
            format!("{ratio:.2}"),
            own.log_bytes_per_op
                .map_or_else(String::new, |bytes| format!("{bytes:.0}")),
            own.device_flushes_per_op
                .map_or_else(String::new, |count| format!("{count:.2}")),
        ]);
    }
    table
}
