//! The page of an analysis: advice, chart, causes, table of points, phases, in one file.

use std::fmt::Write;

use super::cause::Series;
use super::{HEADS, Report};
use crate::report::page::{Page, escaped};

/// The phases of a request's way, with their colours.
const PARTS: [(&str, &str); 5] = [
    ("plug", "#16a085"),
    ("tag", "#c0392b"),
    ("G2I", "#8e44ad"),
    ("I2D", "#d68910"),
    ("D2C", "#2874a6"),
];

/// The page, with nothing outside of it.
pub(super) fn html(report: &Report, chart: &str) -> String {
    let mut page = Page::new(&report.title(), "dure blk analyze");
    page.text("p", &report.title());
    page.text("h2", "Advice");
    page.list(&report.advice);
    page.html(chart);
    page.text("h2", "Where scaling ends");
    causes(report, &mut page);
    if !report.kernel.is_empty() {
        page.text("h2", "Settings of the kernel");
        let settings = report.kernel.iter();
        page.list(settings.map(|(name, value)| format!("{name}: {value}")));
    }
    page.text("h2", "Measurements");
    let rows = report.rows().into_iter();
    page.table(HEADS, rows.map(|cells| cells.map(|cell| escaped(&cell))));
    page.end()
}

/// The phases of the last point.
fn bar(series: &Series) -> String {
    let mut bar = String::from("<div class=\"bar\">");
    if let Some(last) = series.points.last() {
        for (name, colour) in PARTS {
            let (share, row) = (
                last.share(name),
                last.phases.iter().find(|r| r.phase == name),
            );
            let mean_us = row.map_or(0.0, |row| row.mean_ns / 1e3);
            let _ = write!(
                bar,
                "<span style=\"width:{share:.2}%;background:{colour}\" title=\"{name} {share:.1} %, \
                 {mean_us:.2} us on average of {}\"></span>",
                row.map_or(0, |row| row.n)
            );
        }
    }
    bar.push_str("</div>");
    bar
}

/// Each series, with the phases of its last point as a bar.
fn causes(report: &Report, page: &mut Page) {
    let key =
        PARTS.map(|(name, colour)| format!("<span style=\"background:{colour}\">{name}</span>"));
    page.html(&format!("<p class=\"key\">{}</p>", key.concat()));
    let heads = [
        "settings",
        "highest IOPS",
        "jobs",
        "cause",
        "phases with most jobs",
    ];
    let cells = |series: &Series| {
        [
            escaped(&series.name()),
            format!("{:.0}", series.iops_max),
            series.ends_at_jobs.to_string(),
            format!(
                "<span title=\"{}\">{}</span>",
                escaped(&series.why),
                series.cause.name()
            ),
            bar(series),
        ]
    };
    page.table(heads, report.series.iter().map(cells));
    let whys = report.series.iter();
    page.list(whys.map(|series| format!("{}: {}", series.name(), series.why)));
}
