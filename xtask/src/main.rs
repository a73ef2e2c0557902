//! Automation of this repository: `cargo xtask COMMAND`.
//!
//! **Problem.** Builds with another backend, and checks over all crates, need more than one
//! command line. **Structure.** One file per subcommand. **Invariants.** A subcommand fails if
//! what it ran failed. **Crash.** Everything can be run again.

#![expect(clippy::print_stdout, reason = "results go to standard output")]

mod cargo;
mod conformance;
mod cost;
mod dist;
mod guest;
mod lines;
mod loom;
mod races;
mod sim;
mod site;

use std::process::ExitCode;

use clap::Parser;

#[derive(Debug, Parser)]
#[command(name = "xtask", about = "Automation of the dure repository")]
enum Command {
    /// Explore the orderings of the locks with loom.
    Loom(loom::Loom),
    /// Run the tests on simulated cores, over many seeds.
    Sim(sim::Sim),
    /// Run test suites of other projects, and real programs, on a volume.
    Conformance(conformance::Conformance),
    /// Run suites in a virtual machine that has persistent memory and ublk.
    Guest(guest::Guest),
    /// Count the instructions of each call, against their budgets.
    Cost(cost::Cost),
    /// Judge damaged images, one after another, in this process.
    #[command(hide = true)]
    ImageCases(conformance::ImageCases),
    /// List the bugs that have a regression test, and see that each test exists.
    Races(races::Races),
    /// Count lines of sources and words of pages, against their budgets.
    Lines,
    /// Put together what is installed, in target/dist.
    Dist(dist::Dist),
    /// Make a site of the documents, in target/site/book, and follow its links. Needs mdBook.
    Site,
}

fn main() -> ExitCode {
    let result = match Command::parse() {
        Command::Loom(loom) => loom.run(),
        Command::Sim(sim) => sim.run(),
        Command::Conformance(conformance) => conformance.run(),
        Command::Guest(guest) => guest.run(),
        Command::Cost(cost) => cost.run(),
        Command::ImageCases(cases) => cases.run(),
        Command::Races(races) => races.run(),
        Command::Lines => lines::run(),
        Command::Dist(dist) => dist.run(),
        Command::Site => site::run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
