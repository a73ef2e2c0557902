//! `cargo xtask sim`.

use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::{Args, Subcommand};

use crate::cargo;

/// Crates that may have tests named `sim_*`.
const CRATES: &[&str] = &[
    "dure-vcpu",
    "dure-sync",
    "dure-block",
    "dure-journal",
    "dure-store",
    "dure-fs",
    "dure-fuse",
    "dure-sim",
];

/// The test program of a crate that runs on simulated cores; other schedules are unit tests.
const PROGRAM: &str = "sim";

/// Whether a crate has one. Cargo refuses a name that no crate has.
fn has_program(name: &str) -> bool {
    let tests = cargo::root().join("crates").join(name).join("tests");
    tests.join("sim/main.rs").exists() || tests.join("sim.rs").exists()
}

/// Arguments of `cargo xtask sim`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Sim {
    #[command(subcommand)]
    report: Option<Report>,
    /// Seeds per test, instead of what each test finds enough.
    #[arg(long)]
    seeds: Option<u64>,
    /// The one seed to replay.
    #[arg(long, conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Only this crate.
    #[arg(long, short)]
    package: Option<String>,
    /// Further arguments of the test programs, such as a part of a test's name instead of `sim_`.
    #[arg(last = true)]
    test_args: Vec<String>,
}

/// Programs other than tests that run on simulated cores.
#[derive(Debug, Subcommand)]
enum Report {
    /// Build `dure` for simulated cores, and run `dure sim conflicts`.
    Conflicts(Arguments),
    /// Build `dure` for simulated cores, and run `dure sim scale`.
    Scale(Arguments),
    /// Build `dure` for simulated cores, and run `dure sim experiments`.
    Experiments(Arguments),
    /// Build `dure` for simulated cores, and print where it is.
    Program,
}

#[derive(Debug, Args)]
struct Arguments {
    /// Arguments of the command; `--help` lists them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

impl Report {
    fn run(self) -> Result<()> {
        let program = cargo::build_simulated_dure()?;
        let (name, arguments) = match self {
            Report::Conflicts(Arguments { arguments }) => ("conflicts", arguments),
            Report::Scale(Arguments { arguments }) => ("scale", arguments),
            Report::Experiments(Arguments { arguments }) => ("experiments", arguments),
            Report::Program => {
                println!("{}", program.display());
                return Ok(());
            }
        };
        let mut command = Command::new(&program);
        command.args(["sim", name]).args(arguments);
        // Its exit code is the answer.
        let error = command.exec();
        Err(error).with_context(|| program.display().to_string())
    }
}

impl Sim {
    pub(crate) fn run(self) -> Result<()> {
        if let Some(report) = self.report {
            return report.run();
        }
        let mut command = cargo::test_with_backend("sim");
        if let Some(package) = &self.package {
            ensure!(
                CRATES.contains(&package.as_str()),
                "{package} is none of {CRATES:?}"
            );
        }
        let chosen = match self.package.as_deref() {
            Some(package) => vec![package],
            None => CRATES.to_vec(),
        };
        for name in &chosen {
            command.args(["-p", name]);
        }
        command.args(["--no-fail-fast", "--lib"]);
        // Only these: to build the other test programs takes as long again.
        if chosen.iter().any(|name| has_program(name)) {
            command.args(["--test", PROGRAM]);
        }
        if let Some(seeds) = self.seeds {
            command.env("DURE_SIM_SEEDS", seeds.to_string());
        }
        if let Some(seed) = self.seed {
            command.env("DURE_SIM_SEED", seed.to_string());
        }
        command.arg("--");
        if self.test_args.iter().all(|arg| arg.starts_with('-')) {
            command.arg("sim_");
        }
        command.args(self.test_args);
        cargo::run(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A schedule elsewhere would never be run.
    #[test]
    fn schedules_are_in_the_program_for_them() {
        let find = Command::new("grep")
            .args(["-rl", "fn sim_", "crates", "--include=*.rs"])
            .current_dir(cargo::root())
            .output()
            .expect("grep");
        let found = String::from_utf8(find.stdout).expect("paths");
        let programs = found.lines().filter_map(|path| path.split_once("/tests/"));
        let programs: Vec<_> = programs
            .filter(|(above, _)| !above.contains("/src/"))
            .collect();
        let elsewhere = |(_, file): &&(&str, &str)| !file.starts_with("sim/") && *file != "sim.rs";
        let elsewhere: Vec<_> = programs.iter().filter(elsewhere).collect();
        assert!(programs.len() > 10, "{found}");
        assert!(elsewhere.is_empty(), "{elsewhere:?}");
    }
}
