//! What came out: a table for people, an object for programs, a page, drawings.

use std::fmt::Write;

use anyhow::{Context, Result};
use serde::Serialize;

use super::Outcome;
use super::machine::Machine;
use super::measure::Value;
use super::table::{How, Paper, Part};
use crate::report::page::{Page, escaped};
use crate::report::{Columns, Drawn, plain_table, rounded, svg_of};

#[derive(Debug, Serialize)]
struct Object<'o> {
    bench: &'static str,
    paper: &'static str,
    documents: &'static str,
    machine: &'o Machine,
    figures: Vec<Figure<'o>>,
}

#[derive(Debug, Serialize)]
struct Figure<'o> {
    figures: &'static [&'static str],
    title: &'static str,
    shows: &'static str,
    state: &'o str,
    here: &'static str,
    many_cores: Option<&'o str>,
    systems: Vec<Named>,
    points: Vec<Told<'o>>,
}

/// A system with all its policies.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Named {
    name: &'static str,
    policy: String,
}

#[derive(Debug, Serialize)]
struct Told<'o> {
    workload: &'o str,
    system: &'static str,
    threads: usize,
    unit: &'static str,
    median: f64,
    min: f64,
    max: f64,
    n: usize,
    by_baseline: f64,
}

impl Outcome {
    fn name(&self) -> String {
        self.row.figures.join(", ")
    }

    fn state(&self) -> &str {
        match self.row.how {
            How::Here { .. } => "measured",
            How::Elsewhere => &self.shown.state,
        }
    }

    /// How the measurement differs from the document.
    fn here(&self) -> &'static str {
        match self.row.how {
            How::Here { differs, .. } => differs,
            How::Elsewhere => "",
        }
    }

    fn systems(&self) -> Vec<Named> {
        let mut systems = Vec::new();
        for part in self.row.parts() {
            for system in named(part) {
                if !systems.contains(&system) {
                    systems.push(system);
                }
            }
        }
        systems
    }

    fn points(&self) -> Vec<Told<'_>> {
        let of_same = |one: &Value, other: &&Value| {
            other.workload == one.workload && other.threads == one.threads
        };
        let told = |one| {
            let mut same = self.values.iter().filter(|other| of_same(one, other));
            let baseline = same.next().map_or(0.0, Value::median);
            Told {
                workload: &one.workload,
                system: one.system,
                threads: one.threads,
                unit: one.unit,
                median: rounded(one.median()),
                min: rounded(one.min()),
                max: rounded(one.max()),
                n: one.values.len(),
                by_baseline: if baseline > 0.0 {
                    rounded(one.median() / baseline)
                } else {
                    0.0
                },
            }
        };
        self.values.iter().map(told).collect()
    }
}

fn named(part: &Part) -> impl Iterator<Item = Named> {
    part.systems.iter().map(|system| Named {
        name: system.name,
        policy: match part.policy(system) {
            policy if policy.is_empty() => "defaults".to_owned(),
            policy => policy,
        },
    })
}

const HEADS: [&str; 9] = [
    "workload",
    "threads",
    "system",
    "median",
    "min",
    "max",
    "n",
    "unit",
    "by the first",
];

impl Told<'_> {
    fn cells(&self) -> [String; 9] {
        let ratio = match self.by_baseline {
            0.0 => "-".to_owned(),
            ratio => format!("{ratio:.2}"),
        };
        [
            self.workload.to_owned(),
            self.threads.to_string(),
            self.system.to_owned(),
            shown(self.median),
            shown(self.min),
            shown(self.max),
            self.n.to_string(),
            self.unit.to_owned(),
            ratio,
        ]
    }
}

/// Three digits, and all before the point.
fn shown(value: f64) -> String {
    match value {
        _ if value >= 99.95 => format!("{value:.0}"),
        _ if value >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

pub(super) fn json(paper: &Paper, machine: &Machine, outcomes: &[Outcome]) -> Result<String> {
    fn figure(outcome: &Outcome) -> Figure<'_> {
        let Outcome { row, shown, .. } = outcome;
        Figure {
            figures: row.figures,
            title: shown.title,
            shows: shown.shows,
            state: outcome.state(),
            here: outcome.here(),
            many_cores: shown.many_cores.as_deref(),
            systems: outcome.systems(),
            points: outcome.points(),
        }
    }
    let object = Object {
        bench: "compare",
        paper: paper.name.name(),
        documents: paper.documents,
        machine,
        figures: outcomes.iter().map(figure).collect(),
    };
    serde_json::to_string_pretty(&object).context("writing JSON")
}

/// Lines about a figure, with what each says.
fn lines(outcome: &Outcome) -> Vec<(&'static str, String)> {
    let mut lines = vec![("document", outcome.shown.shows.to_owned())];
    match outcome.row.how {
        How::Here { differs, .. } => lines.push(("here", differs.to_owned())),
        How::Elsewhere => lines.push(("here", outcome.shown.state.clone())),
    }
    if let Some(command) = &outcome.shown.many_cores {
        lines.push(("many cores", format!("see {command}")));
    }
    let systems = outcome.systems().into_iter();
    lines.extend(systems.map(|system| ("system", format!("{}: {}", system.name, system.policy))));
    lines
}

pub(super) fn text(paper: &Paper, machine: &Machine, outcomes: &[Outcome]) -> String {
    let mut text = format!(
        "{} (documents {}): {}\n",
        paper.name.name(),
        paper.documents,
        machine.words()
    );
    for outcome in outcomes {
        let _ = writeln!(text, "\n{}: {}", outcome.name(), outcome.shown.title);
        for (what, line) in lines(outcome) {
            let _ = writeln!(text, "  {what:10}  {line}");
        }
        if !outcome.values.is_empty() {
            let mut table = plain_table(&HEADS, &[0, 2, 7], Columns::All);
            for told in outcome.points() {
                table.add_row(told.cells());
            }
            let _ = writeln!(text, "{table}");
        }
    }
    text.truncate(text.trim_end().len());
    text
}

/// The drawing of a figure that was measured.
pub(super) fn svg(outcome: &Outcome) -> Result<String> {
    let workloads: Vec<String> = outcome
        .values
        .iter()
        .map(|one| format!("{}, {}", one.workload, one.unit))
        .collect();
    let drawn = outcome
        .values
        .iter()
        .zip(&workloads)
        .map(|(one, workload)| Drawn {
            workload,
            line: one.system,
            cores: one.threads,
            values: &one.values,
        });
    let title = format!("{}: {}", outcome.name(), outcome.shown.title);
    svg_of(&title, ["threads", "measured here"], drawn)
}

/// One page of all figures, with nothing outside of it.
pub(super) fn html(paper: &Paper, machine: &Machine, outcomes: &[Outcome]) -> Result<String> {
    let head = format!("dure bench compare --paper {}", paper.name.name());
    let mut page = Page::new(&head, &head);
    page.text(
        "p",
        &format!("Documents {}. {}.", paper.documents, machine.words()),
    );
    for outcome in outcomes {
        page.text(
            "h2",
            &format!("{}: {}", outcome.name(), outcome.shown.title),
        );
        page.list(
            lines(outcome)
                .into_iter()
                .map(|(what, line)| format!("{what}: {line}")),
        );
        if !outcome.values.is_empty() {
            page.html(&svg(outcome)?);
            let rows = outcome.points().into_iter();
            page.table(
                HEADS,
                rows.map(|told| told.cells().map(|cell| escaped(&cell))),
            );
        }
    }
    Ok(page.end())
}
