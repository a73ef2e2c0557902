//! IOPS over jobs, a line for each series.

use anyhow::{Context, Result};
use plotters::prelude::*;

use super::Report;
use super::cause::Cause;
use crate::report::{LABELS, axis, short};
use dure_block::count::Count;

const WIDTH: u32 = 900;
const CHART: u32 = 380;
const LINE: u32 = 22;

/// The drawing.
pub(super) fn svg(report: &Report) -> Result<String> {
    let mut text = String::new();
    let head = LINE * (u32::try_from(report.series.len())? + 1) + 10;
    {
        let root = SVGBackend::with_string(&mut text, (WIDTH, CHART + head)).into_drawing_area();
        root.fill(&WHITE).context("drawing")?;
        let (legend, area) = root.split_vertically(head);
        let title = format!("{}: IOPS over jobs", report.device);
        legend
            .draw(&Text::new(title, (10, 6), ("sans-serif", 16)))
            .context("drawing")?;
        let points = || report.series.iter().flat_map(|series| &series.points);
        let jobs: Vec<f64> = points().map(|point| f64::from(point.jobs)).collect();
        let highest = points().map(|point| point.iops).fold(1.0, f64::max);
        let mut chart = ChartBuilder::on(&area)
            .margin(8)
            .x_label_area_size(36)
            .y_label_area_size(64)
            .build_cartesian_2d(axis(&jobs), 0.0..highest * 1.05)
            .context("drawing")?;
        chart
            .configure_mesh()
            .light_line_style(WHITE)
            .x_desc("jobs")
            .x_labels(LABELS)
            .x_label_formatter(&|jobs| format!("{jobs:.0}"))
            .y_label_formatter(&|rate| short(*rate))
            .draw()
            .context("drawing")?;
        for (number, series) in report.series.iter().enumerate() {
            let style = Palette99::pick(number).stroke_width(2);
            let y = i32::try_from(LINE)? * (i32::try_from(number)? + 1) + 8;
            legend
                .draw(&PathElement::new([(10, y + 5), (40, y + 5)], style))
                .context("drawing")?;
            let jobs = Count::of(series.ends_at_jobs, "job");
            let cause = series.cause.name();
            let name = match series.cause {
                Cause::None => format!("{}; {cause} to {jobs}", series.name()),
                _ => format!("{}; ends at {jobs}: {cause}", series.name()),
            };
            legend
                .draw(&Text::new(name, (48, y), ("sans-serif", 13)))
                .context("drawing")?;
            let line = series.points.iter();
            let line = line.map(|point| (f64::from(point.jobs), point.iops));
            chart
                .draw_series(LineSeries::new(line, style).point_size(4))
                .context("drawing")?;
        }
        root.present().context("drawing")?;
    }
    Ok(text)
}
