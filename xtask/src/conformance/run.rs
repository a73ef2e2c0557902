//! Programs under `dure run`: other suites, whose calls are done in the program.
//!
//! **Problem.** What goes past the kernel is tested by nobody's suites. **Structure.** fsx, pjdfstest and
//! SQLite as they run on a mount, each program started by `dure run`; those of SQLite are killed.
//! **Invariants.** As in these suites. **Crash.** SIGKILL to the program.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::mount::Volume;
use super::report::Report;
use super::tools::Needs;
use super::{Cx, fsx, pjdfstest, sqlite};
use crate::cargo;

pub(crate) const NEEDS: Needs = Needs {
    mount: true,
    crates: &[fsx::CRATE, pjdfstest::CRATE],
    programs: sqlite::NEEDS.programs,
};

const LIMIT: Duration = Duration::from_secs(900);

pub(crate) fn run(cx: &Cx, report: &mut Report) -> Result<()> {
    cargo::build_preload()?;
    let mut volume = Volume::unmounted(cx, "run")?;
    let operations = if cx.quick { "5000" } else { "100000" };
    for (name, seed, configuration) in fsx::CONFIGURATIONS {
        let result = random_operations(cx, &volume, configuration, [seed, operations]);
        report.case(&format!("fsx: {name}"), result);
    }
    pjdfstest::run_under_run(cx, &volume, report)?;
    sqlite::databases(cx, &mut volume, true, report);
    report.case("check", volume.check());
    Ok(())
}

fn random_operations(
    cx: &Cx,
    volume: &Volume,
    configuration: &str,
    numbers: [&str; 2],
) -> Result<()> {
    let command = fsx::command(cx, volume, configuration, numbers)?;
    let command = volume.under_run(&command);
    let done = volume.steps.finish(command, LIMIT)?;
    let said = done.err();
    done.success()?;
    let short = said.split(" calls were done in the program").next();
    let short = short.and_then(|said| said.rsplit(' ').next()?.parse::<u64>().ok());
    let short = short.with_context(|| format!("no report: {said}"))?;
    ensure!(short > 1000, "{short} calls were done in the program");
    volume.check()
}
