//! `dure sim scale`, `experiments`, `calibrate` and `validate`: machines that are not at hand.
//!
//! **Structure.** `dure sim scale` checks its plans and becomes the program for simulated cores, where
//! `scale` runs them. `validate` measures on real cores, and has the other program predict.
//! **Invariants.** What is simulated is called so wherever it is printed. **Crash.** Nothing is kept.

mod experiments;
#[cfg(dure_backend = "sim")]
mod scale;
#[cfg(dure_backend = "sim")]
mod sensitivity;
#[cfg(not(dure_backend = "sim"))]
mod validate;

pub(crate) use experiments::run as experiments;

use anyhow::{Context, Result, anyhow};
use dure_bench::say;
use dure_sim::room::{Plan, Policy, Work, machine};

use crate::args::{SimCalibrate, SimScale, SimValidate};
use crate::exit;

/// The points that the arguments name, all of which can be simulated.
fn plans(args: &SimScale) -> Result<Vec<Plan>> {
    let machine = machine(&args.machine).map_err(|what| anyhow!("--machine {what}"))?;
    let none = vec!["default".to_owned()];
    let texts = if args.policies.is_empty() {
        &none
    } else {
        &args.policies
    };
    let mut plans = Vec::new();
    for workload in &args.workloads {
        for text in texts {
            let policy: Policy = text.parse().map_err(|what| anyhow!("--policy {what}"))?;
            for cores in &args.cores {
                let plan = Plan {
                    machine: machine.clone(),
                    work: Work::Calls(*workload, policy.clone()),
                    cores: *cores,
                    seed: args.seed,
                    planted: None,
                };
                plan.check().map_err(anyhow::Error::msg)?;
                plans.push(plan);
            }
        }
    }
    Ok(plans)
}

#[cfg(dure_backend = "sim")]
pub(crate) fn scale(args: &SimScale) -> Result<u8> {
    scale::run(args, &plans(args)?)
}

#[cfg(not(dure_backend = "sim"))]
pub(crate) fn scale(args: &SimScale) -> Result<u8> {
    // What is wrong is told before anything is built.
    plans(args)?;
    super::simulated::run()
}

#[cfg(dure_backend = "sim")]
pub(crate) fn validate(args: &SimValidate) -> Result<u8> {
    anyhow::ensure!(
        args.sensitivity,
        "this build runs on simulated cores: the other one measures real ones"
    );
    sensitivity::run(args.json)
}

#[cfg(not(dure_backend = "sim"))]
pub(crate) fn validate(args: &SimValidate) -> Result<u8> {
    if args.sensitivity {
        return super::simulated::run();
    }
    validate::run(args)
}

pub(crate) fn calibrate(args: &SimCalibrate) -> Result<u8> {
    anyhow::ensure!(
        !cfg!(dure_backend = "sim"),
        "this build runs on simulated cores: the other one measures real ones"
    );
    let text = dure_sim::room::calibrate::calibrate()?.to_toml();
    match &args.output {
        Some(path) => std::fs::write(path, text).with_context(|| path.display().to_string())?,
        None => say!("{}", text.trim_end()),
    }
    Ok(exit::OK)
}
