//! How each headline moves when each cost of its machine is halved and doubled.

use anyhow::{Result, anyhow};
use comfy_table::Table;
use comfy_table::presets::NOTHING;
use dure_bench::say;
use dure_sim::room::{FIGURES, Kind, Machine, Plan, Workload, machine, point};
use serde::Serialize;

use crate::{exit, progress};

/// What is claimed of a machine: the rate of one policy by that of another, or of many cores by one.
struct Headline {
    name: &'static str,
    machine: &'static str,
    /// Above the line: workload, policy, cores.
    above: (Workload, &'static str, usize),
    /// Below it.
    below: (Workload, &'static str, usize),
}

const JBD2: &str = "journal=jbd2,data=journal";
const PER_CORE: &str = "journal=per-core,data=journal";

const HEADLINES: [Headline; 5] = [
    Headline {
        name: "DWOL per-core / jbd2, 80 cores",
        machine: "4x20-6138",
        above: (Workload::Dwol, PER_CORE, 80),
        below: (Workload::Dwol, JBD2, 80),
    },
    Headline {
        name: "DWOM ranges / rwsem, 80 cores",
        machine: "4x20-6138",
        above: (Workload::Dwom, "default", 80),
        below: (Workload::Dwom, "range_lock=rwsem", 80),
    },
    Headline {
        name: "DWOL 80 cores / 1",
        machine: "4x20-6138",
        above: (Workload::Dwol, "default", 80),
        below: (Workload::Dwol, "default", 1),
    },
    Headline {
        name: "MWCL 80 cores / 1",
        machine: "4x20-6138",
        above: (Workload::Mwcl, "default", 80),
        below: (Workload::Mwcl, "default", 1),
    },
    Headline {
        name: "DWSL 80 cores / 1",
        machine: "4x20-6138",
        above: (Workload::Dwsl, "default", 80),
        below: (Workload::Dwsl, "default", 1),
    },
];

#[derive(Debug, Serialize)]
struct Row {
    headline: &'static str,
    figure: &'static str,
    halved: f64,
    as_it_is: f64,
    doubled: f64,
    simulated: bool,
}

impl Headline {
    fn ratio(&self, machine: &Machine) -> Result<f64> {
        let rate = |(workload, policy, cores): (Workload, &str, usize)| {
            let plan = Plan {
                machine: machine.clone(),
                work: Kind::Calls(workload)
                    .work(policy)
                    .map_err(|what| anyhow!(what))?,
                cores,
                seed: 1,
                planted: None,
            };
            let done = point(&plan).map_err(anyhow::Error::msg)?;
            anyhow::Ok(done.ops_per_second)
        };
        Ok(rate(self.above)? / rate(self.below)?)
    }

    fn rows(&self, moved: impl Fn()) -> Result<Vec<Row>> {
        let machine = machine(self.machine).map_err(anyhow::Error::msg)?;
        let as_it_is = self.ratio(&machine)?;
        let mut rows = Vec::new();
        for figure in FIGURES.iter().filter(|figure| figure.is_cost) {
            let halved = machine.scaled(figure, (1, 2));
            let doubled = machine.scaled(figure, (2, 1));
            if let (Some(halved), Some(doubled)) = (halved, doubled) {
                rows.push(Row {
                    headline: self.name,
                    figure: figure.name,
                    halved: self.ratio(&halved)?,
                    as_it_is,
                    doubled: self.ratio(&doubled)?,
                    simulated: true,
                });
            }
            moved();
        }
        Ok(rows)
    }
}

pub(super) fn run(json: bool) -> Result<u8> {
    let costs = FIGURES.iter().filter(|figure| figure.is_cost).count();
    let all = dure_fs::units::to_u64(HEADLINES.len() * costs);
    let bar = progress::bar(all, "costs");
    let mut rows = Vec::new();
    for headline in &HEADLINES {
        rows.extend(headline.rows(|| bar.inc(1))?);
    }
    bar.finish_and_clear();
    if json {
        say!("{}", serde_json::to_string_pretty(&rows)?);
        return Ok(exit::OK);
    }
    let mut before = "";
    let mut table = Table::new();
    table.load_preset(NOTHING);
    for row in &rows {
        if row.headline != before {
            before = row.headline;
            table.add_row([
                &format!("{before} (simulated)"),
                "halved",
                "as it is",
                "doubled",
            ]);
        }
        let shown = |ratio: f64| format!("{ratio:.2}");
        let cells = [row.halved, row.as_it_is, row.doubled].map(shown);
        let [halved, as_it_is, doubled] = &cells;
        table.add_row([&format!("  {}", row.figure), halved, as_it_is, doubled]);
    }
    say!("{table}");
    Ok(exit::OK)
}
