//! Throughput over cores, drawn: a chart for each workload, a line for each target.
//!
//! **Structure.** The charts stand in a grid below one legend; bars show minimum and maximum.

use std::path::Path;

use anyhow::{Context, Result};
use plotters::coord::Shift;
use plotters::prelude::*;

use crate::measure::Point;

const COLUMNS: usize = 3;
const CELL: (u32, u32) = (400, 280);
const LEGEND_LINE: u32 = 22;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Draws all points into `path`.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn draw(path: &Path, bench: &str, points: &[Point]) -> Result<()> {
    let text = svg(bench, points)?;
    std::fs::write(path, text).with_context(|| path.display().to_string())
}

/// The drawing.
fn svg(bench: &str, points: &[Point]) -> Result<String> {
    let mut text = String::new();
    let workloads = distinct(points, |point| point.workload.clone());
    let lines = distinct(points, line_of);
    let columns = workloads.len().clamp(1, COLUMNS);
    let rows = workloads.len().div_ceil(columns);
    let head = LEGEND_LINE * (u32::try_from(lines.len())? + 1) + 10;
    let width = CELL.0 * u32::try_from(columns)?;
    let height = CELL.1 * u32::try_from(rows)? + head;
    {
        let root = SVGBackend::with_string(&mut text, (width, height)).into_drawing_area();
        root.fill(&WHITE).context("drawing")?;
        let (legend, charts) = root.split_vertically(head);
        draw_legend(&legend, bench, &lines)?;
        let cells = charts.split_evenly((rows, columns));
        for (workload, cell) in workloads.iter().zip(&cells) {
            let own: Vec<_> = points.iter().filter(|p| p.workload == *workload).collect();
            draw_chart(cell, workload, &own, &lines)?;
        }
        root.present().context("drawing")?;
    }
    Ok(text)
}

/// Target and policy, unless the target's name says it.
fn line_of(point: &Point) -> String {
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

fn draw_legend(area: &Area<'_>, bench: &str, lines: &[String]) -> Result<()> {
    let title = format!("dure bench {bench}: operations per second over cores");
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

fn draw_chart(area: &Area<'_>, workload: &str, points: &[&Point], lines: &[String]) -> Result<()> {
    let cores = |point: &Point| u32::try_from(point.cores).unwrap_or(u32::MAX);
    let most = points.iter().map(|point| cores(point)).max().unwrap_or(1);
    let highest = points
        .iter()
        .filter_map(|point| point.rates().last().copied());
    let highest = highest.fold(1.0, f64::max);
    let mut chart = ChartBuilder::on(area)
        .margin(8)
        .caption(workload, ("sans-serif", 15))
        .x_label_area_size(28)
        .y_label_area_size(56)
        .build_cartesian_2d(0..most + 1, 0.0..highest * 1.05)
        .context("drawing")?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .x_desc("cores")
        .x_labels(usize::try_from(most.min(8))? + 2)
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
    use super::short;
    use crate::measure::f64_of;

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
