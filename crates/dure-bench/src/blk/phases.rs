//! The table of phases, as btt has it.
//!
//! **Structure.** Rows that serde prints for programs, a table of them for people.
//! **Invariants.** Shares are of the time between Q and C of all requests. Q2Q overlaps the others and
//! has none; `plug` and `tag` are the two parts of Q2G. **On a crash** nothing is kept.

use comfy_table::Table;
use dure_block::{Phase, Phases};
use serde::Serialize;

use crate::measure::f64_of;
use crate::report::{Columns, plain_table};

/// A phase of requests.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct PhaseRow {
    pub(crate) phase: &'static str,
    pub(crate) n: u64,
    pub(crate) min_ns: u64,
    pub(crate) mean_ns: f64,
    pub(crate) max_ns: u64,
    /// The share of the time of all requests, in percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) share: Option<f64>,
}

/// The phases that there were.
pub(crate) fn rows(phases: &Phases) -> Vec<PhaseRow> {
    let all = phases.q2c.total_ns().max(1.0);
    let row = |phase: &'static str, times: Phase| PhaseRow {
        phase,
        n: times.n,
        min_ns: times.min_ns,
        mean_ns: times.mean_ns,
        max_ns: times.max_ns,
        share: (phase != "Q2Q").then(|| 100.0 * times.total_ns() / all),
    };
    let rows = [
        row("Q2Q", phases.q2q),
        row("Q2G", phases.q2g),
        row("plug", phases.plug),
        row("tag", phases.tag),
        row("G2I", phases.g2i),
        row("Q2M", phases.q2m),
        row("I2D", phases.i2d),
        row("D2C", phases.d2c),
        row("Q2C", phases.q2c),
    ];
    rows.into_iter().filter(|row| row.n > 0).collect()
}

/// For people.
pub(crate) fn table(rows: &[PhaseRow]) -> Table {
    let heads = ["phase", "min us", "avg us", "max us", "n", "share %"];
    let mut table = plain_table(&heads, &[0], Columns::All);
    for row in rows {
        let us = |ns: f64| format!("{:.3}", ns / 1e3);
        table.add_row([
            row.phase.to_owned(),
            us(f64_of(row.min_ns)),
            us(row.mean_ns),
            us(f64_of(row.max_ns)),
            row.n.to_string(),
            row.share
                .map_or_else(String::new, |share| format!("{share:.1}")),
        ]);
    }
    table
}
