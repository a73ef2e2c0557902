//! The page of an analysis: advice, chart, causes, table of points, phases, in one file.

use std::fmt::Write;

use super::{HEADS, Report};

const STYLE: &str = "body{font:15px/1.5 sans-serif;max-width:960px;margin:2em auto;padding:0 1em;\
    color:#222}table{border-collapse:collapse;margin:1em 0;font-size:13px}th,td{padding:3px 9px;\
    border-bottom:1px solid #ddd;text-align:right}th:first-child,td:first-child,td:last-child{\
    text-align:left}th{background:#f4f4f4}.bar{display:flex;height:18px;width:340px}.bar span{\
    display:block}.key span{padding:1px 8px;margin-right:6px;color:#fff}svg{max-width:100%;height:auto}";

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
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{0}</title><style>\
         {STYLE}</style></head><body>\n<h1>dure blk analyze</h1>\n<p>{0}</p>\n<h2>Advice</h2>\n<ul>\n",
        escaped(&report.title())
    );
    for line in &report.advice {
        let _ = writeln!(page, "<li>{}</li>", escaped(line));
    }
    let _ = writeln!(page, "</ul>\n{chart}\n<h2>Where scaling ends</h2>");
    causes(report, &mut page);
    if !report.kernel.is_empty() {
        page.push_str("<h2>Settings of the kernel</h2>\n<ul>\n");
        for (name, value) in &report.kernel {
            let _ = writeln!(page, "<li>{name}: {}</li>", escaped(value));
        }
        page.push_str("</ul>\n");
    }
    page.push_str("<h2>Measurements</h2>\n");
    row("th", HEADS.map(escaped), page_table(&mut page));
    for cells in report.rows() {
        row("td", cells.map(|cell| escaped(&cell)), &mut page);
    }
    page.push_str("</table>\n</body></html>\n");
    page
}

fn page_table(page: &mut String) -> &mut String {
    page.push_str("<table>\n");
    page
}

/// Each series, with the phases of its last point as a bar.
fn causes(report: &Report, page: &mut String) {
    page.push_str("<p class=\"key\">");
    for (name, colour) in PARTS {
        let _ = write!(page, "<span style=\"background:{colour}\">{name}</span>");
    }
    page.push_str("</p>\n");
    let heads = [
        "settings",
        "highest IOPS",
        "jobs",
        "cause",
        "phases with most jobs",
    ];
    row("th", heads.map(escaped), page_table(page));
    for series in &report.series {
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
        let cells = [
            escaped(&series.name()),
            format!("{:.0}", series.iops_max),
            series.ends_at_jobs.to_string(),
            format!(
                "<span title=\"{}\">{}</span>",
                escaped(&series.why),
                series.cause.name()
            ),
            bar,
        ];
        row("td", cells, page);
    }
    page.push_str("</table>\n<ul>\n");
    for series in &report.series {
        let _ = writeln!(
            page,
            "<li>{}: {}</li>",
            escaped(&series.name()),
            escaped(&series.why)
        );
    }
    page.push_str("</ul>\n");
}

fn row<const N: usize>(tag: &str, cells: [String; N], page: &mut String) {
    page.push_str("<tr>");
    for cell in cells {
        let _ = write!(page, "<{tag}>{cell}</{tag}>");
    }
    page.push_str("</tr>\n");
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
