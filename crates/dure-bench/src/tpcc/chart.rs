//! Response times, drawn: which part of the calls was done after so long.

use std::path::Path;

use anyhow::{Context, Result};
use plotters::prelude::*;

use super::replay::Run;
use crate::measure::f64_of;

const SIZE: (u32, u32) = (800, 480);
/// Points of a line.
const POINTS: usize = 400;

/// Draws the median run of each into `path`.
pub(super) fn draw(path: &Path, runs: &[(&'static str, Vec<Run>)]) -> Result<()> {
    let text = svg(runs)?;
    std::fs::write(path, text).with_context(|| path.display().to_string())
}

pub(super) fn svg(runs: &[(&'static str, Vec<Run>)]) -> Result<String> {
    let mut text = String::new();
    let medians: Vec<(&str, &[u64])> = runs
        .iter()
        .filter_map(|(name, runs)| Some((*name, runs.get(runs.len() / 2)?.ns.as_slice())))
        .collect();
    let longest = medians.iter().filter_map(|(_, ns)| ns.last()).max();
    let longest = longest.map_or(1.0, |ns| f64_of(*ns) / 1e3);
    {
        let root = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        root.fill(&WHITE).context("drawing")?;
        let mut chart = ChartBuilder::on(&root)
            .margin(10)
            .caption(
                "dure bench tpcc: percent of calls done within",
                ("sans-serif", 16),
            )
            .x_label_area_size(36)
            .y_label_area_size(48)
            .build_cartesian_2d((0.1..longest.max(1.0) * 1.5).log_scale(), 0.0..100.0)
            .context("drawing")?;
        chart
            .configure_mesh()
            .light_line_style(WHITE)
            .x_desc("microseconds")
            .y_desc("%")
            .draw()
            .context("drawing")?;
        for (number, (name, ns)) in medians.iter().enumerate() {
            let style = Palette99::pick(number).stroke_width(2);
            chart
                .draw_series(LineSeries::new(line(ns), style))
                .context("drawing")?
                .label(*name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], style));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::LowerRight)
            .border_style(BLACK)
            .background_style(WHITE)
            .draw()
            .context("drawing")?;
        root.present().context("drawing")?;
    }
    Ok(text)
}

/// Times in microseconds and percentages, of times that ascend.
fn line(ns: &[u64]) -> Vec<(f64, f64)> {
    let part = |n: usize| {
        let at = (ns.len() * n / POINTS).min(ns.len().saturating_sub(1));
        let percent = f64_of(u64::try_from(n * 100).unwrap_or(0)) / f64_of(400);
        ns.get(at).map(|ns| ((f64_of(*ns) / 1e3).max(0.1), percent))
    };
    (0..=POINTS).filter_map(part).collect()
}
