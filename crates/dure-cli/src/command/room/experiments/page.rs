//! One page of all figures.

use anyhow::Result;
use dure_bench::report::page::{Page, escaped};

use super::told::{Told, ToldPoint};

/// The page, with nothing outside of it.
pub(super) fn html(told: &[Told]) -> Result<String> {
    let mut page = Page::new("dure sim experiments (simulated)", "dure sim experiments");
    let head = "All rates on this page are simulated, none is measured. For each figure of the five \
        documents: what the document shows, what comes out, whether the shape agrees, and why if it does \
        not. Nothing is tuned to agree.";
    page.text("p", head);
    let answer = |one: &Told| match one.agrees {
        Some(true) => "agrees".to_owned(),
        Some(false) => "differs".to_owned(),
        None => escaped(&one.state),
    };
    let row = |one: &Told| [one.figures.join(", "), escaped(one.title), answer(one)];
    page.table(["figure", "what", "shape"], told.iter().map(row));
    for one in told {
        page.text("h2", &format!("{}: {}", one.figures.join(", "), one.title));
        page.text("p", &format!("The document shows: {}.", one.shows));
        if one.simulated {
            page.html(&one.svg()?);
            page.text("p", "What comes out (simulated):");
            let checks = one.checks.iter();
            page.list(checks.map(|check| format!("{}: {}", check.answer().trim(), check.told)));
            points(&mut page, &one.points);
        }
        page.text("p", &format!("Shape: {}.", one.verdict()));
    }
    Ok(page.end())
}

fn points(page: &mut Page, points: &[ToldPoint]) {
    let cells = |point: &ToldPoint| {
        [
            escaped(point.line),
            escaped(point.policy),
            escaped(point.machine),
            point.cores.to_string(),
            format!("{:.0}", point.ops_per_second),
            format!("{:.2}", point.lines_per_op),
            escaped(&point.bottleneck),
        ]
    };
    let heads = [
        "line",
        "policy",
        "machine",
        "cores",
        "operations/s (simulated)",
        "lines/op",
        "bottleneck",
    ];
    page.table(heads, points.iter().map(cells));
}
