//! The report: a table for people, flat objects for programs.

mod chart;
pub mod page;

use anyhow::{Context, Result};
use comfy_table::{
    CellAlignment, ColumnConstraint, ContentArrangement, Table, TableComponent, presets,
};
use serde::Serialize;
use serde_json::to_value;

use crate::measure::{Counts, Point, Run, WorkerKind};

use chart::line_of;
pub(crate) use chart::{LABELS, axis, draw, short};

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
    /// Seconds of the middle measurement.
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
    /// The part of what was read from persistent memory that is on the NUMA node of the reading
    /// core.
    #[serde(skip_serializing_if = "Option::is_none")]
    local_read_percent: Option<f64>,
    /// The part of what was written to persistent memory that is on the NUMA node of the writing
    /// core.
    #[serde(skip_serializing_if = "Option::is_none")]
    local_written_percent: Option<f64>,
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
        local_read_percent: point.percent(local_read),
        local_written_percent: point.percent(local_written),
    }
}

fn local_read(counts: &Counts) -> (u64, u64) {
    (counts.nodes.local_read, counts.nodes.remote_read)
}

fn local_written(counts: &Counts) -> (u64, u64) {
    (counts.nodes.local_written, counts.nodes.remote_written)
}

/// Slow rates to a thousandth.
pub(crate) fn rounded(rate: f64) -> f64 {
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

/// A rate that was simulated, to be drawn.
#[derive(Debug, Clone, PartialEq)]
pub struct Rate {
    /// Its chart.
    pub workload: String,
    /// Its line.
    pub line: String,
    /// Cores.
    pub cores: usize,
    /// Operations a second.
    pub ops_per_second: f64,
}

/// Draws simulated rates over cores: a chart for each workload, as SVG.
///
/// # Errors
/// There is nothing to draw.
pub fn simulated_svg(title: &str, rates: &[Rate]) -> Result<String> {
    let values: Vec<[f64; 1]> = rates.iter().map(|rate| [rate.ops_per_second]).collect();
    let drawn = rates.iter().zip(&values).map(|(rate, values)| Drawn {
        workload: &rate.workload,
        line: &rate.line,
        cores: rate.cores,
        values,
    });
    let axes = ["simulated cores", "simulated operations/s"];
    svg_of(title, axes, drawn)
}

/// What is drawn at a number of cores: the median, the least and the most of values of any unit.
#[derive(Debug)]
pub(crate) struct Drawn<'v> {
    /// Its chart.
    pub(crate) workload: &'v str,
    /// Its line.
    pub(crate) line: &'v str,
    pub(crate) cores: usize,
    pub(crate) values: &'v [f64],
}

/// Draws values over cores: a chart for each workload, as SVG.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "values are positive and far below 2^52"
)]
pub(crate) fn svg_of<'v>(
    title: &str,
    axes: [&str; 2],
    drawn: impl Iterator<Item = Drawn<'v>>,
) -> Result<String> {
    let point = |one: Drawn<'_>| {
        let workers = (one.cores, WorkerKind::Threads);
        let mut point = Point::new(one.workload, one.cores, (one.line, ""), workers)?;
        point.runs.extend(one.values.iter().map(|value| Run {
            // Works have to be whole: a thousandth of an operation does not show.
            works: (value * 1_000.0) as u64,
            seconds: 1_000.0,
            parts: Vec::new(),
        }));
        Ok(point)
    };
    let points: Vec<Point> = drawn.map(point).collect::<Result<_>>()?;
    chart::svg(title, axes, &points)
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

/// Like [`json`], with objects of the bench's own behind.
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

/// Columns of a terminal that a table keeps to.
const WIDTH: u16 = 100;

/// How much of the figures a table has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Columns {
    /// What fits.
    Usual,
    /// All, however wide.
    All,
}

impl Columns {
    /// The columns that `--wide` says.
    #[must_use]
    pub fn of(wide: bool) -> Columns {
        if wide { Columns::All } else { Columns::Usual }
    }
}

/// An empty table with lines only below its head. Those columns that are named have words, which
/// may go into a second line; the others have figures.
pub(crate) fn plain_table(heads: &[&str], words: &[usize], columns: Columns) -> Table {
    let mut table = Table::new();
    let arrangement = match columns {
        Columns::Usual => ContentArrangement::Dynamic,
        Columns::All => ContentArrangement::Disabled,
    };
    table
        .load_preset(presets::UTF8_HORIZONTAL_ONLY)
        .set_content_arrangement(arrangement)
        .set_width(WIDTH)
        .set_header(heads.iter().copied());
    for lines in [
        TableComponent::HorizontalLines,
        TableComponent::VerticalLines,
        TableComponent::MiddleIntersections,
        TableComponent::MiddleHeaderIntersections,
    ] {
        table.remove_style(lines);
    }
    for (number, column) in table.column_iter_mut().enumerate() {
        // One space and one of the lines that are gone: with more, words would be cut.
        column.set_padding((0, 1));
        if !words.contains(&number) {
            column
                .set_constraint(ColumnConstraint::ContentWidth)
                .set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// A column: its head, and the cell of a point.
type Column<'p> = (&'static str, Box<dyn Fn(&Row<'p>) -> String>);

fn column<'p>(head: &'static str, cell: impl Fn(&Row<'p>) -> String + 'static) -> Column<'p> {
    (head, Box::new(cell))
}

/// A table; one column compares the time of an operation with that on the first target.
#[must_use]
pub fn table(points: &[Point], wanted: Columns) -> Table {
    let any = |is: &dyn Fn(&Point) -> bool| wanted == Columns::All || points.iter().any(is);
    let mut columns = vec![column("workload", |row| row.workload.to_owned())];
    if any(&|point| point.cores != point.workers) {
        columns.push(column("cores", |row| row.cores.to_string()));
    }
    columns.push(column("threads", |row| row.threads.to_string()));
    columns.push(column("target", |row| row.target.to_owned()));
    if any(&|point| !point.target.contains(&point.policy)) {
        columns.push(column("policy", |row| row.policy.to_owned()));
    }
    columns.extend([
        column("ops/s", |row| shown(row.ops_per_second)),
        column("min", |row| shown(row.min)),
        column("max", |row| shown(row.max)),
        column("n", |row| row.n.to_string()),
        column("p50 ns", |row| row.p50_ns.to_string()),
        column("p99 ns", |row| row.p99_ns.to_string()),
    ]);
    let compared = columns.len();
    let against = against(points);
    columns.push(column("compared", |_| String::new()));
    if wanted == Columns::All {
        columns.extend([
            column("log bytes/op", |row| figure(row.log_bytes_per_op, 0)),
            column("record bytes/op", |row| figure(row.record_bytes_per_op, 0)),
            column("device flushes/op", |row| {
                figure(row.device_flushes_per_op, 2)
            }),
            column("near reads %", |row| figure(row.local_read_percent, 0)),
            column("near writes %", |row| figure(row.local_written_percent, 0)),
        ]);
    }
    let mut heads: Vec<&str> = columns.iter().map(|(head, _)| *head).collect();
    heads[compared] = &against;
    let words = ["workload", "target", "policy"];
    let words = words.map(|word| heads.iter().position(|head| *head == word));
    let words: Vec<usize> = words.into_iter().flatten().collect();
    let mut table = plain_table(&heads, &words, wanted);
    for point in points {
        let row = row("", point);
        let mut cells: Vec<String> = columns.iter().map(|(_, cell)| cell(&row)).collect();
        cells[compared] = time_against_first(point, points);
        table.add_row(cells);
    }
    table
}

/// A name of more characters makes the table wider than it is worth.
const NAME_MAX: usize = 17;

/// What the times of operations are compared with: the first target of each workload, by name if it
/// is the same of all and short.
fn against(points: &[Point]) -> String {
    let is_first = |point: &&Point| std::ptr::eq(first_of(point, points), *point);
    let mut names: Vec<String> = points.iter().filter(is_first).map(line_of).collect();
    names.dedup();
    match &names[..] {
        [name] if name.chars().count() <= NAME_MAX => format!("time vs\n{name}"),
        _ => "time vs\nfirst target".to_owned(),
    }
}

/// The first point of the same workload on as many cores.
fn first_of<'p>(point: &Point, points: &'p [Point]) -> &'p Point {
    let same = |other: &&Point| other.workload == point.workload && other.cores == point.cores;
    points.iter().find(same).expect("it is one of them itself")
}

fn time_against_first(point: &Point, points: &[Point]) -> String {
    let first = first_of(point, points).median();
    let own = point.median();
    format!("{:.2}", if own > 0.0 { first / own } else { 0.0 })
}

/// A figure that not all targets have.
fn figure(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(String::new, |value| format!("{value:.digits$}"))
}
