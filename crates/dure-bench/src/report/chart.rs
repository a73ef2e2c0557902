//! Throughput over cores, drawn: a chart for each workload, a line for each target.
//!
//! **Structure.** The charts stand in a grid below one legend; bars show minimum and maximum.

use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use crate::measure::{Point, f64_of};

const COLUMNS: usize = 3;
const CELL: (u32, u32) = (400, 280);
/// Of one chart.
const SINGLE: (u32, u32) = (720, 360);
const LEGEND_LINE: u32 = 22;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Draws all points into `path`.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn draw(path: &Path, bench: &str, points: &[Point]) -> Result<()> {
    let title = format!("dure bench {bench}: operations per second over cores");
    let text = svg(&title, ["cores", "operations/s"], points)?;
    std::fs::write(path, text).with_context(|| path.display().to_string())
}

/// The drawing, with the names of both axes.
pub(crate) fn svg(title: &str, axes: [&str; 2], points: &[Point]) -> Result<String> {
    let mut text = String::new();
    let workloads = distinct(points, |point| point.workload.clone());
    let lines = distinct(points, line_of);
    let columns = workloads.len().clamp(1, COLUMNS);
    let rows = workloads.len().div_ceil(columns);
    let head = LEGEND_LINE * (u32::try_from(lines.len())? + 1) + 10;
    let cell = if columns == 1 { SINGLE } else { CELL };
    let width = cell.0 * u32::try_from(columns)?;
    let height = cell.1 * u32::try_from(rows)? + head;
    {
        let root = SVGBackend::with_string(&mut text, (width, height)).into_drawing_area();
        root.fill(&WHITE).context("drawing")?;
        let (legend, charts) = root.split_vertically(head);
        draw_legend(&legend, title, &lines)?;
        let cells = charts.split_evenly((rows, columns));
        for (workload, cell) in workloads.iter().zip(&cells) {
            let own: Vec<_> = points.iter().filter(|p| p.workload == *workload).collect();
            draw_chart(cell, (workload, axes), &own, &lines)?;
        }
        root.present().context("drawing")?;
    }
    Ok(text)
}

/// Target and policy, unless the target's name says it.
pub(super) fn line_of(point: &Point) -> String {
    if point.policy.is_empty() || point.target.contains(&point.policy) {
        point.target.clone()
    } else {
        format!("{} {}", point.target, point.policy)
    }
}

fn distinct(points: &[Point], of: impl Fn(&Point) -> String) -> Vec<String> {
    let mut found = Vec::new();
    for point in points {
        let name = of(point);
        if !found.contains(&name) {
            found.push(name);
        }
    }
    found
}

fn draw_legend(area: &Area<'_>, title: &str, lines: &[String]) -> Result<()> {
    area.draw(&Text::new(title, (10, 6), ("sans-serif", 16)))
        .context("drawing")?;
    for (number, line) in lines.iter().enumerate() {
        let y = i32::try_from(LEGEND_LINE)? * (i32::try_from(number)? + 1) + 8;
        let style = Palette99::pick(number).stroke_width(2);
        area.draw(&PathElement::new([(10, y + 5), (40, y + 5)], style))
            .context("drawing")?;
        area.draw(&Text::new(line.clone(), (48, y), ("sans-serif", 13)))
            .context("drawing")?;
    }
    Ok(())
}

fn draw_chart(
    area: &Area<'_>,
    (workload, [x, y]): (&str, [&str; 2]),
    points: &[&Point],
    lines: &[String],
) -> Result<()> {
    let cores = |point: &Point| f64_of(to_u64(point.cores));
    let all: Vec<f64> = points.iter().map(|point| cores(point)).collect();
    let highest = points
        .iter()
        .filter_map(|point| point.rates().last().copied());
    let highest = highest.fold(1.0, f64::max);
    let mut chart = ChartBuilder::on(area)
        .margin(8)
        .caption(workload, ("sans-serif", 15))
        .x_label_area_size(28)
        .y_label_area_size(70)
        .build_cartesian_2d(axis(&all), 0.0..highest * 1.05)
        .context("drawing")?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .x_desc(x)
        .y_desc(y)
        .x_labels(LABELS)
        .x_label_formatter(&|cores| format!("{cores:.0}"))
        .y_label_formatter(&|rate| short(*rate))
        .draw()
        .context("drawing")?;
    for (number, line) in lines.iter().enumerate() {
        let color = Palette99::pick(number);
        let mut own: Vec<&&Point> = points.iter().filter(|p| line_of(p) == *line).collect();
        own.sort_by_key(|point| point.cores);
        let medians = own.iter().map(|point| (cores(point), point.median()));
        chart
            .draw_series(LineSeries::new(medians, color.stroke_width(2)).point_size(3))
            .context("drawing")?;
        let spans = own.iter().filter_map(|point| {
            let (rates, x) = (point.rates(), cores(point));
            let (least, most) = (*rates.first()?, *rates.last()?);
            Some(PathElement::new(
                [(x, least), (x, most)],
                color.stroke_width(1),
            ))
        });
        chart.draw_series(spans).context("drawing")?;
    }
    Ok(())
}

/// Labels of an axis of counts at most.
pub(crate) const LABELS: usize = 16;

/// What [`axis`] makes.
pub(crate) struct Axis {
    scale: RangedCoordf64,
    range: Range<f64>,
    points: Vec<f64>,
}

/// An axis that has the counts that were measured, and no others: from the least to the most, with
/// some room at both ends, and labels only where a measurement is.
pub(crate) fn axis(counts: &[f64]) -> Axis {
    let mut points = counts.to_vec();
    points.sort_by(f64::total_cmp);
    points.dedup();
    let least = points.first().copied().unwrap_or(1.0);
    let most = points.last().copied().unwrap_or(1.0);
    // A single count is in the middle.
    let room = if most > least {
        (most - least) / 16.0
    } else {
        0.5
    };
    // Of many, those that are far enough apart for their labels.
    let apart = (most - least) / f64_of(to_u64(LABELS));
    let mut last = f64::NEG_INFINITY;
    points.retain(|count| {
        let is_kept = *count - last >= apart;
        if is_kept {
            last = *count;
        }
        is_kept
    });
    let range = least - room.min(least / 2.0)..most + room;
    Axis {
        scale: range.clone().into(),
        range,
        points,
    }
}

impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, count: &f64, pixels: (i32, i32)) -> i32 {
        self.scale.map(count, pixels)
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.points.clone()
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

fn to_u64(count: usize) -> u64 {
    u64::try_from(count).expect("usize has 64 bits")
}

/// 1500000 as 1.5 M. Two digits behind the point tell two labels of an axis apart, because there
/// are fewer than a hundred; zeros at the end say nothing.
pub(crate) fn short(rate: f64) -> String {
    let (number, unit) = match rate {
        _ if rate >= 1e6 => (rate / 1e6, " M"),
        _ if rate >= 1e3 => (rate / 1e3, " k"),
        _ => (rate, ""),
    };
    let digits = format!("{number:.2}");
    let digits = digits.trim_end_matches('0').trim_end_matches('.');
    format!("{digits}{unit}")
}

#[cfg(test)]
mod tests {
    use plotters::coord::ranged1d::{BoldPoints, Ranged};

    use super::{axis, short};
    use crate::measure::f64_of;

    /// One of 1 and 2 cores went from 0 to 3.
    #[test]
    fn an_axis_has_the_counts_that_were_measured() {
        for (counts, labels) in [
            (&[1.0, 2.0][..], &[1.0, 2.0][..]),
            (&[2.0, 1.0, 1.0], &[1.0, 2.0]),
            (&[4.0], &[4.0]),
            (&[1.0, 2.0, 4.0, 8.0], &[1.0, 2.0, 4.0, 8.0]),
            // 2 and 3 would be written over 1.
            (&[1.0, 2.0, 3.0, 64.0], &[1.0, 64.0]),
        ] {
            let axis = axis(counts);
            assert_eq!(axis.key_points(BoldPoints(16)), labels);
            let (least, most) = (labels[0], labels[labels.len() - 1]);
            let range = axis.range();
            let room = 0.5 + (most - least) / 8.0;
            assert!(range.start >= (least - room).max(0.0) && range.start < least);
            assert!(range.end > most && range.end <= most + room, "{range:?}");
        }
    }

    #[test]
    fn no_two_labels_of_an_axis_are_the_same() {
        for step in [1, 2, 5, 20, 250, 500, 2_500, 50_000, 500_000, 20_000_000] {
            let mut labels: Vec<String> = (0..20).map(|n| short(f64_of(n * step))).collect();
            assert_eq!(labels[0], "0");
            labels.sort();
            labels.dedup();
            assert_eq!(labels.len(), 20, "{step}: {labels:?}");
        }
        assert_eq!(short(1_500.0), "1.5 k");
        assert_eq!(short(20_000_000.0), "20 M");
    }
}
