//! `cargo xtask cost`: instructions of each call, counted by callgrind, and requests of programs on
//! a mount, counted by trace events, against their budgets.
//!
//! **Problem.** A call that has become a tenth slower does not show on a shared machine.
//! **Structure.** [`callgrind`] runs the program `dure-cost` and reads what was counted; [`table`]
//! holds the budgets; [`requests`] has the programs and theirs. docs/performance/cost.md says what
//! each row is and how it is counted.
//! **Invariants.** A row over its budget is a failure; what cannot run is named, and is a failure
//! unless `--allow-skip`. **Crash.** Images are temporary; everything can be run again.

mod callgrind;
mod requests;
mod table;

use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};
use clap::Args;
use clap::builder::PossibleValuesParser;

use crate::cargo;
use crate::conformance::tools::{Needs, Tools};
use table::{Line, ROWS, Row, Size};

const NEEDS: Needs = Needs {
    mount: false,
    crates: &[],
    programs: &[("valgrind", "valgrind")],
};

/// Stands for the requests of programs on a mount.
const REQUESTS: &str = "requests";

/// Arguments of `cargo xtask cost`.
#[derive(Debug, Args)]
pub(crate) struct Cost {
    /// Which calls; `requests`: those of programs on a mount [default: all].
    #[arg(value_parser = PossibleValuesParser::new(
        ROWS.iter().map(|row| row.call).chain([REQUESTS])))]
    operations: Vec<String>,
    /// Only in a directory of 100 names, not of 100,000.
    #[arg(long)]
    quick: bool,
    /// Leave what callgrind wrote in this folder, for callgrind_annotate.
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,
    /// Count the requests to this program instead of building dure.
    #[arg(long, value_name = "PROGRAM")]
    dure: Option<PathBuf>,
    /// It is not a failure if this machine cannot count.
    #[arg(long)]
    allow_skip: bool,
}

impl Cost {
    pub(crate) fn run(self) -> Result<()> {
        let mut exceeded = 0;
        if self.rows().next().is_some() && self.can(can_count())? {
            exceeded += self.instructions()?;
        }
        if self.is_chosen(REQUESTS) && self.can(requests::can_count())? {
            let dure = match &self.dure {
                Some(program) => program.canonicalize()?,
                None => cargo::build_dure()?,
            };
            exceeded += requests::run(dure)?;
        }
        if exceeded > 0 {
            bail!("{exceeded} rows exceed their budgets (docs/performance/cost.md)");
        }
        Ok(())
    }

    fn is_chosen(&self, name: &str) -> bool {
        self.operations.is_empty() || self.operations.iter().any(|chosen| chosen == name)
    }

    /// Whether it can be counted here; if not, and that may not be, an error.
    fn can(&self, able: Result<()>) -> Result<bool> {
        let Err(reason) = able else {
            return Ok(true);
        };
        ensure!(
            self.allow_skip,
            "{reason:#} (--allow-skip to accept that it is not counted)"
        );
        println!("skipped: {reason:#}");
        Ok(false)
    }

    /// Counts those of the calls and prints the table; how many exceed their budgets.
    fn instructions(&self) -> Result<usize> {
        let program = callgrind::build()?;
        let scratch = tempfile::tempdir()?;
        let out = self.keep.as_deref().unwrap_or(scratch.path());
        std::fs::create_dir_all(out)?;
        println!("{}", table::heading());
        let mut exceeded = 0;
        for size in self.sizes() {
            let image = callgrind::prepare(&program, scratch.path(), size.names())?;
            for row in self.rows() {
                let lines = count(row, *size, &program, (&image, out))?;
                exceeded += lines.iter().filter(|line| line.is_exceeded()).count();
            }
        }
        Ok(exceeded)
    }

    fn sizes(&self) -> &[Size] {
        if self.quick {
            &[Size::Small]
        } else {
            &[Size::Small, Size::Large]
        }
    }

    fn rows(&self) -> impl Iterator<Item = &'static Row> {
        ROWS.iter().filter(|row| self.is_chosen(row.call))
    }
}

/// Whether callgrind is there, and counts what the budgets are of.
fn can_count() -> Result<()> {
    ensure!(
        cfg!(target_arch = "x86_64"),
        "the budgets are of instructions of x86-64"
    );
    Tools::new().ensure(&NEEDS)
}

fn count(row: &Row, size: Size, program: &Path, at: (&Path, &Path)) -> Result<Vec<Line>> {
    let (image, out) = at;
    let out = out.join(format!("{}-{}", row.call, size.names()));
    let counted = callgrind::count(program, row.call, image, &out)?;
    let lines = row.lines(size, counted);
    for line in &lines {
        println!("{}", table::show(line));
    }
    Ok(lines)
}
