//! `cargo xtask cost`: instructions of each call, counted by callgrind, against their budgets.
//!
//! **Problem.** A call that has become a tenth slower does not show on a shared machine.
//! **Structure.** [`callgrind`] runs the program `dure-cost` and reads what was counted; [`table`]
//! holds the budgets. docs/performance/cost.md says what each row is and how it is counted.
//! **Invariants.** A row over its budget is a failure; what cannot run is named, and is a failure
//! unless `--allow-skip`. **Crash.** Images are temporary; everything can be run again.

mod callgrind;
mod table;

use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};
use clap::Args;
use clap::builder::PossibleValuesParser;

use crate::conformance::tools::{Needs, Tools};
use table::{Line, ROWS, Row, Size};

const NEEDS: Needs = Needs {
    mount: false,
    crates: &[],
    programs: &[("valgrind", "valgrind")],
};

/// Arguments of `cargo xtask cost`.
#[derive(Debug, Args)]
pub(crate) struct Cost {
    /// Which calls [default: all].
    #[arg(value_parser = PossibleValuesParser::new(ROWS.iter().map(|row| row.call)))]
    operations: Vec<String>,
    /// Only in a directory of 100 names, not of 100,000.
    #[arg(long)]
    quick: bool,
    /// Leave what callgrind wrote in this folder, for callgrind_annotate.
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,
    /// It is not a failure if this machine cannot count.
    #[arg(long)]
    allow_skip: bool,
}

impl Cost {
    pub(crate) fn run(self) -> Result<()> {
        if let Err(reason) = can_count() {
            ensure!(
                self.allow_skip,
                "{reason:#} (--allow-skip to accept that nothing is counted)"
            );
            println!("skipped: {reason:#}");
            return Ok(());
        }
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
        if exceeded > 0 {
            bail!("{exceeded} rows exceed their budgets (docs/performance/cost.md)");
        }
        Ok(())
    }

    fn sizes(&self) -> &[Size] {
        if self.quick {
            &[Size::Small]
        } else {
            &[Size::Small, Size::Large]
        }
    }

    fn rows(&self) -> impl Iterator<Item = &'static Row> {
        let is_chosen = |row: &&Row| self.operations.iter().any(|name| name == row.call);
        ROWS.iter()
            .filter(move |row| self.operations.is_empty() || is_chosen(row))
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
