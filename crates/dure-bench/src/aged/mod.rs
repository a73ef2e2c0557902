//! `dure bench aged`: what filling and churning do to a file system.
//!
//! **Problem.** A new file system finds free blocks next to each other and has nothing to clean;
//! one in use does not. **Structure.** Single operations are measured while the targets are empty
//! ("young"); then each is filled and churned (`aging`), and the same is measured with those files
//! in place ("aged"). **Invariants.** The same seed, sizes and order of calls on every target.
//! Nothing is measured while a target is aged.
//!
//! The aging follows Smith and Seltzer (SIGMETRICS 1997) in kind, not in its trace: files come, go
//! and change at random at a fixed fill.

mod aging;

#[cfg(test)]
mod tests;

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use comfy_table::Table;
use serde::Serialize;

use crate::measure::{Point, run as measure_all};
use crate::micro::{Single, Workload, or_default};
use crate::options::{Measuring, Targets};
use crate::report::{self, Columns};
use crate::target::Target;

use aging::{Aging, Shape};

/// Size of the volume that is aged when no target is named.
const TEMPORARY_BYTES: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

/// `dure bench aged`.
#[derive(Debug, clap::Args)]
pub struct Aged {
    /// What is measured young and aged [default: append-fsync, create-fsync, overwrite-fsync].
    #[arg(long = "workload", value_name = "NAME", value_enum)]
    pub workloads: Vec<Workload>,
    /// How full: this part of the room, in percent.
    #[arg(long, default_value_t = 80, value_name = "PERCENT", value_parser = clap::value_parser!(u64).range(1..=95))]
    pub full: u64,
    /// How much is written while it is that full, in percent of the room.
    #[arg(long, default_value_t = 200, value_name = "PERCENT", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub churn: u64,
    /// Mean size of the files that fill it, in KiB.
    #[arg(long, default_value_t = 64, value_name = "KIB", value_parser = clap::value_parser!(u64).range(1..=1_048_576))]
    pub mean_kib: u64,
    /// A target with more room than this, in MiB, is refused: it would be filled.
    #[arg(long, default_value_t = 16_384, value_name = "MIB")]
    pub room_max: u64,
    /// What to measure on; without a target a temporary volume of 1 GiB in the current directory.
    #[command(flatten)]
    pub targets: Targets,
    /// How.
    #[command(flatten)]
    pub measuring: Measuring,
}

/// The results of a target.
#[derive(Debug, Serialize)]
struct Row<'t> {
    bench: &'static str,
    target: &'t str,
    workload: &'static str,
    policy: &'t str,
    files: usize,
    file_mib: u64,
    churn_mib: u64,
    seconds: f64,
    /// Bytes the device was given for each byte that was written to files: below 1 if files were
    /// removed before they were written back.
    #[serde(skip_serializing_if = "Option::is_none")]
    write_amplification: Option<f64>,
    /// Mean length of the runs the files lie in.
    #[serde(skip_serializing_if = "Option::is_none")]
    kib_per_extent: Option<f64>,
}

/// Measures, ages, measures again and prints the report.
///
/// # Errors
/// A target that cannot be opened or is too large, or an operation that fails.
pub(crate) fn run(args: &Aged) -> Result<()> {
    let targets = if args.targets.targets.is_empty() {
        let here = std::env::current_dir().context("the current directory")?;
        vec![Target::temporary(
            "dure (temporary)",
            "",
            &here,
            TEMPORARY_BYTES,
        )?]
    } else {
        args.targets.open()?
    };
    let (points, agings) = measure(args, &targets)?;
    let rows: Vec<_> = agings.iter().map(row).collect();
    let own = Some(table(&rows));
    args.measuring.report_beside("aged", &points, &rows, own)?;
    drop(agings);
    targets.into_iter().try_for_each(Target::close)
}

/// The points, young and aged, and how each target was aged.
fn measure<'t>(args: &Aged, targets: &'t [Target]) -> Result<(Vec<Point>, Vec<Aging<'t>>)> {
    let default = [
        Workload::AppendFsync,
        Workload::CreateFsync,
        Workload::OverwriteFsync,
    ];
    let workloads = or_default(&args.workloads, &default);
    let plan = args.measuring.plan(500);
    let shape = Shape {
        fill_percent: args.full,
        churn_percent: args.churn,
        mean_bytes: args.mean_kib * 1024,
    };
    let mut agings = Vec::new();
    for target in targets {
        let Some(tree) = target.tree()? else {
            bail!("{}: only file systems get old", target.label());
        };
        let room = tree.room_bytes()? / MIB;
        if room > args.room_max {
            bail!(
                "{}: it has {room} MiB of room, which this bench would fill to {} %; --room-max {room} allows it",
                target.label(),
                args.full
            );
        }
        agings.push(Aging::new(target, tree, shape)?);
    }
    let measured = |age: &str| -> Result<Vec<Point>> {
        let mut points = measure_all(&Single, workloads, targets, &plan)?;
        for point in &mut points {
            point.workload = format!("{} {age}", point.workload);
        }
        Ok(points)
    };
    let mut points = measured("young")?;
    for aging in &mut agings {
        let whose = aging.target().label().to_owned();
        aging.age().context(whose)?;
    }
    points.append(&mut measured("aged")?);
    Ok((points, agings))
}

fn row<'a>(aging: &'a Aging<'_>) -> Row<'a> {
    let counts = aging.counts();
    Row {
        bench: "aged",
        target: aging.target().label(),
        workload: "aging",
        policy: aging.target().policies(),
        files: counts.files,
        file_mib: counts.file_bytes / MIB,
        churn_mib: counts.churn_bytes / MIB,
        seconds: counts.seconds,
        write_amplification: counts.write_amplification(),
        kib_per_extent: counts.kib_per_extent(),
    }
}

fn table(rows: &[Row<'_>]) -> Table {
    let heads = [
        "aging of",
        "policy",
        "files",
        "their MiB",
        "churned",
        "seconds",
        "write ampl.",
        "KiB/extent",
    ];
    let mut table = report::plain_table(&heads, &[0, 1], Columns::Usual);
    let shown = |figure: Option<f64>| figure.map_or(String::new(), |figure| format!("{figure:.2}"));
    for row in rows {
        table.add_row([
            row.target.to_owned(),
            row.policy.to_owned(),
            row.files.to_string(),
            row.file_mib.to_string(),
            row.churn_mib.to_string(),
            format!("{:.1}", row.seconds),
            shown(row.write_amplification),
            shown(row.kib_per_extent),
        ]);
    }
    table
}

/// The directories of the files: some, so that none is huge.
const DIRECTORIES: u64 = 64;

fn directory_of(number: u64) -> PathBuf {
    PathBuf::from(format!("d{}", number % DIRECTORIES))
}
