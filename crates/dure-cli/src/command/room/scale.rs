//! The report of simulated points.

use anyhow::{Context, Result, anyhow};
use comfy_table::Table;
use comfy_table::presets::NOTHING;
use dure_bench::report::{Rate, simulated_svg};
use dure_bench::say;
use dure_sim::room::{FIGURES, Plan, Point, point};
use serde::Serialize;

use crate::args::SimScale;
use crate::{exit, progress};

/// Causes below a row.
const CAUSES_MAX: usize = 6;
/// A cause with less of the time is not told.
const SHARE_MIN: f64 = 0.01;
/// Holds of a band.
const HOLDS_NS: [u64; 3] = [3, 10, 30];

/// With `--json`.
#[derive(Debug, Serialize)]
struct Told {
    machine: String,
    workload: &'static str,
    policy: String,
    cores: usize,
    ops_per_second: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    band: Option<(f64, f64)>,
    ns_per_op: f64,
    lines_per_op: f64,
    bottleneck: String,
    causes: Vec<ToldCause>,
    operations: u64,
    hash: String,
    simulated: bool,
}

#[derive(Debug, Serialize)]
struct ToldCause {
    name: String,
    share: f64,
    lines_per_op: f64,
}

/// The lowest and the highest rate over what is least certain of a machine: how long a core keeps a
/// line, and what moves cost under load.
fn band(plan: &Plan) -> Result<(f64, f64)> {
    let figure = |name: &str| FIGURES.iter().find(|figure| figure.name == name);
    let named = |name: &str| figure(name).ok_or_else(|| anyhow!("{name} is a figure"));
    let mut rates = Vec::new();
    for hold_ns in HOLDS_NS {
        for times in [1, 2] {
            let mut plan = plan.clone();
            plan.machine.costs.hold_ns = hold_ns;
            for name in [
                "lines.same_socket_ns",
                "lines.cross_socket_ns",
                "lines.third_node_ns",
            ] {
                let scaled = plan.machine.scaled(named(name)?, (times, 1));
                plan.machine = scaled.ok_or_else(|| anyhow!("{name}: every machine has it"))?;
            }
            rates.push(point(&plan).map_err(anyhow::Error::msg)?.ops_per_second);
        }
    }
    let lowest = rates.iter().copied().fold(f64::MAX, f64::min);
    let highest = rates.iter().copied().fold(0.0, f64::max);
    Ok((lowest, highest))
}

pub(super) fn run(args: &SimScale, plans: &[Plan]) -> Result<u8> {
    let bar = progress::bar(dure_fs::units::to_u64(plans.len()), "points");
    let mut told = Vec::new();
    for plan in plans {
        let what = format!("{} on {} cores", plan.work.name(), plan.cores);
        let done = point(plan).map_err(|error| anyhow!("{what}: {error}"))?;
        let band = if args.band { Some(band(plan)?) } else { None };
        told.push(Told::new(plan, done, band));
        bar.inc(1);
    }
    bar.finish_and_clear();
    if args.json {
        say!("{}", serde_json::to_string_pretty(&told)?);
    } else {
        print(&told);
    }
    if let Some(path) = &args.svg {
        let rate = |one: &Told| Rate {
            workload: one.workload.to_owned(),
            line: one.policy.clone(),
            cores: one.cores,
            ops_per_second: one.ops_per_second,
        };
        let rates: Vec<Rate> = told.iter().map(rate).collect();
        let title = format!(
            "{}: operations per second over cores, simulated",
            args.machine
        );
        let drawn = simulated_svg(&title, &rates)?;
        std::fs::write(path, drawn).with_context(|| path.display().to_string())?;
    }
    Ok(exit::OK)
}

impl Told {
    fn new(plan: &Plan, done: Point, band: Option<(f64, f64)>) -> Told {
        let cause = |cause: dure_sim::room::Cause| ToldCause {
            name: cause.name,
            share: cause.share,
            lines_per_op: cause.lines_per_op,
        };
        Told {
            machine: plan.machine.name.clone(),
            workload: plan.work.name(),
            policy: plan.work.to_string(),
            cores: plan.cores,
            ops_per_second: done.ops_per_second.round(),
            band,
            ns_per_op: done.ns_per_op,
            lines_per_op: done.lines_per_op,
            bottleneck: done.bottleneck,
            causes: done.causes.into_iter().map(cause).collect(),
            operations: done.operations,
            hash: format!("{:016x}", done.hash),
            simulated: true,
        }
    }

    /// The share of the time of causes whose names begin so.
    fn share(&self, start: &str) -> String {
        let own = self
            .causes
            .iter()
            .filter(|cause| cause.name.starts_with(start));
        let share = own.fold(0.0, |sum, cause| sum + cause.share);
        format!("{:.0} %", share * 100.0)
    }

    /// Its largest causes that have names.
    fn named(&self) -> Vec<String> {
        let plain = ["compute", "copies", "kernel", "asleep"];
        let named = self.causes.iter().filter(|cause| {
            let counts = cause.share >= SHARE_MIN || cause.lines_per_op >= 0.5;
            counts && !plain.contains(&cause.name.as_str())
        });
        let text = |cause: &ToldCause| {
            let lines = if cause.lines_per_op > 0.0 {
                format!(", {:.2} an operation", cause.lines_per_op)
            } else {
                String::new()
            };
            format!("{:.0} % {}{lines}", cause.share * 100.0, cause.name)
        };
        named.take(CAUSES_MAX).map(text).collect()
    }
}

fn print(told: &[Told]) {
    let mut before = None;
    let mut table = Table::new();
    let new_table = || {
        let mut table = Table::new();
        table.load_preset(NOTHING).set_header([
            "cores", "ops/s", "ns/op", "lines/op", "compute", "copies", "lines", "locks", "device",
            "kernel",
        ]);
        table
    };
    for one in told {
        let key = (&one.workload, &one.policy);
        if before != Some(key) {
            if before.is_some() {
                say!("{table}\n");
            }
            say!(
                "{} on {}, {} (simulated)",
                one.workload,
                one.machine,
                one.policy
            );
            table = new_table();
            before = Some(key);
        }
        let rate = match one.band {
            Some((low, high)) => format!("{:.0} ({low:.0} to {high:.0})", one.ops_per_second),
            None => format!("{:.0}", one.ops_per_second),
        };
        table.add_row([
            one.cores.to_string(),
            rate,
            format!("{:.0}", one.ns_per_op),
            format!("{:.3}", one.lines_per_op),
            one.share("compute"),
            one.share("copies"),
            one.share("line "),
            one.share("lock "),
            one.share("device"),
            one.share("kernel"),
        ]);
    }
    say!("{table}\n");
    for one in told {
        let (workload, policy, cores) = (one.workload, &one.policy, one.cores);
        say!("{workload}, {policy}, {cores} cores: {}", one.bottleneck);
        for cause in one.named() {
            say!("    {cause}");
        }
    }
}
