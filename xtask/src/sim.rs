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
    "dure-sim",
];

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

/// What runs on simulated cores beside tests.
#[derive(Debug, Subcommand)]
enum Report {
    /// Build `dure` for simulated cores, and run `dure sim conflicts`.
    Conflicts {
        /// Arguments of `dure sim conflicts`; `--help` lists them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
}

impl Sim {
    pub(crate) fn run(self) -> Result<()> {
        if let Some(Report::Conflicts { arguments }) = self.report {
            let program = cargo::build_simulated_dure()?;
            let mut command = Command::new(&program);
            command.args(["sim", "conflicts"]).args(arguments);
            // Its exit code is the answer.
            let error = command.exec();
            return Err(error).with_context(|| program.display().to_string());
        }
        let mut command = cargo::test_with_backend("sim");
        if let Some(package) = &self.package {
            ensure!(
                CRATES.contains(&package.as_str()),
                "{package} is none of {CRATES:?}"
            );
        }
        for name in CRATES
            .iter()
            .filter(|name| self.package.as_deref().is_none_or(|p| p == **name))
        {
            command.args(["-p", name]);
        }
        command.args(["--tests", "--no-fail-fast"]);
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
