//! `dure bench directory`: one directory while it grows to a million entries and shrinks again.
//!
//! **Problem.** Structures that are fast while they are small may not be when they are large.
//! **Structure.** The workers (`worker`) share a directory. It grows by tenths; after each, names
//! that are there and names that are not are looked up, and the directory is read; then the tenths
//! are unlinked. What is reported is the rate of each tenth, and the last one's by the first one's.
//! **Invariants.** All repetitions use the same directory: one that does not shrink is slower in
//! the second. A worker checks what it found, and at the end that the directory is empty.

mod worker;

#[cfg(test)]
mod tests;

use anyhow::{Context, Result, bail, ensure};
use comfy_table::Table;
use indicatif::ProgressBar;
use serde::Serialize;

use crate::measure::{Crew, Plan, Point, bar, measure_into};
use crate::options::Targets;
use crate::report::{self, Columns};
use crate::target::Target;

use worker::{Share, Task, Worker};

/// `dure bench directory`.
#[derive(Debug, clap::Args)]
pub struct Directory {
    /// What to measure on.
    #[command(flatten)]
    pub targets: Targets,
    /// Entries of the directory.
    #[arg(long, default_value_t = 1_000_000, value_name = "N", value_parser = clap::value_parser!(u64).range(100..=1_000_000_000))]
    pub entries: u64,
    /// Names looked up by each worker, of those that are there and of others, after each tenth.
    #[arg(long, default_value_t = 20_000, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub lookups: u64,
    /// Numbers of cores, with a worker bound to each: all work in the one directory.
    #[arg(long, visible_alias = "threads", value_delimiter = ',', default_value = "1", value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..=10))]
    pub cores: Vec<u16>,
    /// How often it grows and shrinks; the medians count.
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: u32,
    /// Print a list of JSON objects.
    #[arg(long)]
    pub json: bool,
    /// Print all columns, so every tenth; without, the table keeps to 100 characters.
    #[arg(long, conflicts_with = "json")]
    pub wide: bool,
}

/// Parts in which the directory grows and shrinks.
const TENTHS: usize = 10;
/// Longer than a tenth takes: its end is the end of the names.
const FOREVER_NS: u64 = 24 * 3_600_000_000_000;

/// The rates of one task over the tenths.
#[derive(Debug, Serialize)]
struct Row<'p> {
    bench: &'static str,
    target: &'p str,
    workload: &'static str,
    policy: &'p str,
    cores: usize,
    entries: u64,
    /// Medians, in entries a second.
    first_tenth: f64,
    last_tenth: f64,
    /// The ratio of each repetition: median, minimum, maximum.
    last_to_first: f64,
    min: f64,
    max: f64,
    n: usize,
}

/// A target with its workers.
struct Party<'t> {
    target: &'t Target,
    crew: Crew,
    /// For each task its tenths.
    tasks: Vec<(Task, Vec<Point>)>,
}

/// Measures and prints the report.
///
/// # Errors
/// A target that cannot be opened, or an operation that fails or did not do what it claims.
pub(crate) fn run(args: &Directory) -> Result<()> {
    let targets = args.targets.open()?;
    let tasks = measure(args, &targets)?;
    targets.into_iter().try_for_each(Target::close)?;
    let rows: Vec<_> = tasks.iter().map(|task| row(args.entries, task)).collect();
    if args.json {
        let points = tasks.iter().flat_map(|(_, tenths)| tenths);
        report::print(&report::json_beside("directory", points, &rows)?);
    } else {
        report::print(&table(&rows, &tasks, Columns::of(args.wide)).to_string());
    }
    Ok(())
}

/// The tenths of each task, by number of cores and target.
fn measure(args: &Directory, targets: &[Target]) -> Result<Vec<(Task, Vec<Point>)>> {
    let stages = TENTHS * Task::ALL.len();
    let bar = bar(stages * targets.len() * args.cores.len(), args.repeat);
    let plan = Plan {
        cores: Vec::new(),
        repeat: args.repeat,
        run_ns: FOREVER_NS,
        warm_up_ns: 0,
    };
    let mut tasks = Vec::new();
    for &cores in &args.cores {
        let party = |target| party(args, usize::from(cores), target);
        let mut parties = targets.iter().map(party).collect::<Result<Vec<_>>>()?;
        for _ in 0..args.repeat {
            for party in &mut parties {
                let once = grow_and_shrink(party, &plan, &bar);
                once.with_context(|| party.target.label().to_owned())?;
            }
        }
        for Party {
            target,
            crew,
            tasks: own,
        } in parties
        {
            crew.end().with_context(|| target.label().to_owned())?;
            tasks.extend(own);
        }
    }
    bar.finish_and_clear();
    Ok(tasks)
}

fn party<'t>(args: &Directory, cores: usize, target: &'t Target) -> Result<Party<'t>> {
    let Some(tree) = target.tree()? else {
        bail!("{}: only file systems have directories", target.label());
    };
    let count = u64::try_from(cores)?;
    let tenths = u64::try_from(TENTHS)?;
    ensure!(
        args.entries.is_multiple_of(tenths * count),
        "--entries: a multiple of {}, for the tenths of {count} workers",
        tenths * count
    );
    let share = Share {
        entries: args.entries / count,
        lookups: args.lookups,
        workers: count,
    };
    let own = tree.clone();
    let make = |number| Ok(Box::new(Worker::new(&own, number, share)?) as _);
    let crew = Crew::threads(cores, cores, Some(tree), make)?;
    let whose = (target.label(), target.policies());
    let tenths_of = |task: Task| -> Result<_> {
        let name = |tenth: usize| format!("{} {tenth}/{TENTHS}", task.name());
        let workers = (crew.size(), crew.kind());
        let points = (1..=TENTHS).map(|tenth| Point::new(&name(tenth), cores, whose, workers));
        Ok((task, points.collect::<Result<_>>()?))
    };
    let tasks = Task::ALL
        .into_iter()
        .map(tenths_of)
        .collect::<Result<_>>()?;
    Ok(Party {
        target,
        crew,
        tasks,
    })
}

/// All stages in the order in which the workers expect them.
fn grow_and_shrink(party: &mut Party<'_>, plan: &Plan, bar: &ProgressBar) -> Result<()> {
    for (task, tenth) in worker::stages() {
        let all = party.tasks.iter_mut();
        let mut own = all.filter(|(other, _)| *other == task);
        let (_, tenths) = own.next().expect("a row of tenths for each task");
        let point = &mut tenths[tenth];
        bar.set_message(format!("{} on {}", point.workload, party.target.label()));
        measure_into(point, party.target, &mut party.crew, plan)
            .with_context(|| point.workload.clone())?;
        bar.inc(1);
    }
    Ok(())
}

fn row(entries: u64, (task, tenths): &(Task, Vec<Point>)) -> Row<'_> {
    let (first, last) = (&tenths[0], &tenths[TENTHS - 1]);
    let runs = last.runs.iter().zip(&first.runs);
    let mut ratios: Vec<f64> = runs
        .map(|(last, first)| last.rate() / first.rate())
        .collect();
    ratios.sort_by(f64::total_cmp);
    let n = ratios.len();
    let hundredths = |ratio: f64| (ratio * 100.0).round() / 100.0;
    Row {
        bench: "directory",
        target: &first.target,
        workload: task.name(),
        policy: &first.policy,
        cores: first.cores,
        entries,
        first_tenth: first.median().round(),
        last_tenth: last.median().round(),
        last_to_first: hundredths(f64::midpoint(ratios[(n - 1) / 2], ratios[n / 2])),
        min: hundredths(ratios[0]),
        max: hundredths(ratios[n - 1]),
        n,
    }
}

fn table(rows: &[Row<'_>], tasks: &[(Task, Vec<Point>)], columns: Columns) -> Table {
    // The usual ones: the first tenth, the fifth and the last.
    let wanted = |tenth: &usize| columns == Columns::All || [1, 5, TENTHS].contains(tenth);
    let wanted: Vec<usize> = (1..=TENTHS).filter(wanted).collect();
    let tenths: Vec<String> = wanted.iter().map(|t| format!("{t}/{TENTHS}")).collect();
    let mut heads = vec!["entries/s", "cores", "target"];
    heads.extend(tenths.iter().map(String::as_str));
    heads.extend(["last/first", "min", "max", "n"]);
    let mut table = report::plain_table(&heads, &[0, 2], columns);
    for (row, (_, tenths)) in rows.iter().zip(tasks) {
        let mut cells = vec![
            row.workload.to_owned(),
            row.cores.to_string(),
            row.target.to_owned(),
        ];
        let rate = |tenth: &usize| format!("{:.0}", tenths[tenth - 1].median());
        cells.extend(wanted.iter().map(rate));
        let ratios = [row.last_to_first, row.min, row.max];
        cells.extend(ratios.map(|ratio| format!("{ratio:.2}")));
        cells.push(row.n.to_string());
        table.add_row(cells);
    }
    table
}
