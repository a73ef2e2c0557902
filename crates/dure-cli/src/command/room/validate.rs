//! What the model predicts for one and two cores of this machine, and what they do.

use std::process::Command;

use anyhow::{Context, Result, anyhow, ensure};
use comfy_table::Table;
use comfy_table::presets::NOTHING;
use dure_bench::{note, say};
use dure_sim::room::calibrate::calibrate;
use dure_sim::room::{
    Kind, Machine, Measured, PREDICTED, Plan, WITHIN_PERCENT, Workload, judge, machine, measure,
};
use serde::{Deserialize, Serialize};

use crate::args::SimValidate;
use crate::command::simulated;
use crate::{exit, progress};

/// What is used of a simulated point.
#[derive(Debug, Deserialize)]
struct Predicted {
    cores: usize,
    ops_per_second: f64,
    bottleneck: String,
}

#[derive(Debug, Serialize)]
struct Row {
    workload: &'static str,
    policy: String,
    cores: usize,
    predicted: f64,
    measured: f64,
    median: f64,
    n: usize,
    ratio: f64,
    is_right: bool,
    bottleneck: String,
}

/// Cores that are compared: this machine may have more, but two must suffice.
const CORES: [usize; 2] = [1, 2];

fn predict(machine: &str, workload: Workload, policy: &str) -> Result<Vec<Predicted>> {
    let mut command = Command::new(simulated::program()?);
    command.args([
        "sim",
        "scale",
        "--json",
        "--cores",
        "1,2",
        "--machine",
        machine,
    ]);
    command.args(["--workload", workload.name(), "--policy"]);
    command.arg(if policy.is_empty() { "default" } else { policy });
    let output = command
        .output()
        .with_context(|| format!("cannot start {command:?}"))?;
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{command:?}: {error}");
    serde_json::from_slice(&output.stdout).context("the points of the other program")
}

/// All of one workload and policy.
fn rows(machine: &Machine, file: &str, row: (Workload, &str), repeat: u32) -> Result<Vec<Row>> {
    let (workload, text) = row;
    let predicted = predict(file, workload, text)?;
    let mut rows = Vec::new();
    for cores in CORES {
        let plan = Plan {
            machine: machine.clone(),
            work: Kind::Calls(workload)
                .work(text)
                .map_err(|what| anyhow!(what))?,
            cores,
            seed: 1,
            planted: None,
        };
        plan.check().map_err(anyhow::Error::msg)?;
        let measured = measure(&plan, repeat)?;
        let own = predicted.iter().find(|point| point.cores == cores);
        let own = own.context("a point of each number of cores")?;
        rows.push(Row::new(&plan, own, &measured));
    }
    Ok(rows)
}

impl Row {
    fn new(plan: &Plan, predicted: &Predicted, measured: &Measured) -> Row {
        let judged = judge(predicted.ops_per_second, measured.fastest());
        Row {
            workload: plan.work.name(),
            policy: plan.work.to_string(),
            cores: plan.cores,
            predicted: predicted.ops_per_second,
            measured: measured.fastest().round(),
            median: measured.rates[measured.rates.len() / 2].round(),
            n: measured.rates.len(),
            ratio: judged.ratio,
            is_right: judged.is_right,
            bottleneck: predicted.bottleneck.clone(),
        }
    }
}

pub(super) fn run(args: &SimValidate) -> Result<u8> {
    let folder = tempfile::tempdir().context("a temporary folder")?;
    let path = match &args.machine {
        Some(path) => path.clone(),
        None => {
            let path = folder.path().join("this-machine.toml");
            note!("calibrating: what else runs on this machine makes it worse");
            std::fs::write(&path, calibrate()?.to_toml()).context("the file of this machine")?;
            path
        }
    };
    let file = path.to_str().context("a path in UTF-8")?;
    let machine = machine(file).map_err(anyhow::Error::msg)?;
    let bar = progress::bar(dure_fs::units::to_u64(PREDICTED.len()), "workloads");
    let mut all = Vec::new();
    for row in PREDICTED {
        let done = rows(&machine, file, row, args.repeat);
        all.extend(done.with_context(|| format!("{} {}", row.0.name(), row.1))?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    let wrong = all.iter().filter(|row| !row.is_right).count();
    if args.json {
        say!("{}", serde_json::to_string_pretty(&all)?);
    } else {
        print(&all, wrong);
    }
    Ok(if wrong == 0 { exit::OK } else { exit::FAILED })
}

fn print(all: &[Row], wrong: usize) {
    let mut table = Table::new();
    table.load_preset(NOTHING).set_header([
        "workload",
        "policy",
        "cores",
        "predicted ops/s",
        "measured (fastest)",
        "median",
        "ratio",
        "",
    ]);
    for row in all {
        table.add_row([
            row.workload.to_owned(),
            row.policy.clone(),
            row.cores.to_string(),
            format!("{:.0}", row.predicted),
            format!("{:.0}", row.measured),
            format!("{:.0}", row.median),
            format!("{:.2}", row.ratio),
            (if row.is_right { "" } else { "missed" }).to_owned(),
        ]);
    }
    say!("{table}");
    let right = all.len() - wrong;
    say!(
        "{right} of {} within {WITHIN_PERCENT} %; docs/simulation/validation.md says what the model lacks",
        all.len()
    );
}
