//! A program that no library can be loaded into: this process serves the mount while it runs.

use std::time::Duration;

use anyhow::{Context, Result};
use dure_bench::note;
use dure_sync::thread;

use super::{Outcome, Plan};

/// Time between two looks whether the mount has users.
const LOOKS: Duration = Duration::from_millis(50);

pub(super) fn run(plan: &Plan) -> Result<Outcome> {
    let place = || plan.volume.display().to_string();
    let (options, point) = dure::run::options(&plan.args.options).map_err(anyhow::Error::msg)?;
    let volume = dure::Volume::open(&plan.volume, options)?;
    let mut mount = volume.mount_with(&plan.at, &point)?;
    let mut command = plan.command();
    if plan.begins_inside {
        command.current_dir(&plan.at);
    }
    let ran = command.status();
    let mut told = false;
    while mount.unmount().is_err() {
        if !told {
            note!(
                "dure: {} is still used by other processes",
                plan.at.display()
            );
        }
        told = true;
        thread::sleep(LOOKS);
    }
    volume.close().with_context(place)?;
    let status = ran.with_context(|| plan.program.display().to_string())?;
    Ok(Outcome {
        status,
        calls: None,
    })
}
