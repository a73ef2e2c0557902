//! `cargo xtask loom`.

use clap::Args;

use crate::cargo;

/// Arguments of `cargo xtask loom`.
#[derive(Debug, Args)]
pub(crate) struct Loom {
    /// Arguments of the test program, such as a part of a test's name.
    #[arg(last = true)]
    test_args: Vec<String>,
}

impl Loom {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let mut command = cargo::test_with_backend("loom");
        command.args(["-p", "dure-sync", "-p", "dure-journal"]);
        command.args(["--test", "loom", "--"]).args(self.test_args);
        cargo::run(command)
    }
}
