//! What taking and releasing a range of a file costs, policy by policy.
//!
//! **Problem.** A range lock is worth its cost only if tasks that do not meet do not slow each
//! other down. **Structure.** All policies in turn on one lock, alone and with several threads
//! that each have a range of their own, `repeat` times. **Invariants.** Every
//! figure has its number, minimum and maximum; nothing here is a test. **On a crash** nothing is
//! left behind.

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use comfy_table::{CellAlignment, Table, presets};
use dure_sync::atomic::{AtomicU32, Ordering};
use dure_sync::range_lock::{ByteRange, Config, Policy, RangeLock};
use dure_sync::{CachePadded, CoreId, clock, thread};
use serde::Serialize;

/// The rank of the locks measured; nothing else is held.
const RANK: u8 = 10;
const PAGE_BYTES: u64 = 4096;
/// Operations between two looks at the clock.
const BATCH: u64 = 64;

/// `dure bench locks`.
#[derive(Debug, clap::Args)]
pub struct Locks {
    /// Policies [default: all].
    #[arg(long = "policy", value_parser = parse_policy)]
    pub policies: Vec<Policy>,
    /// What is taken [default: all].
    #[arg(long = "claim", value_enum)]
    pub claims: Vec<Claim>,
    /// Numbers of threads.
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    pub threads: Vec<u16>,
    /// Measurements of each point; their median counts.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: u32,
    /// Milliseconds of one measurement.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    pub milliseconds: u64,
    /// Print a list of JSON objects.
    #[arg(long)]
    pub json: bool,
}

fn parse_policy(name: &str) -> Result<Policy, String> {
    name.parse()
        .map_err(|error: dure_sync::range_lock::ConfigError| error.to_string())
}

/// What is taken and released.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Claim {
    /// A page of each thread's own, exclusively.
    WritePage,
    /// A page of each thread's own, shared.
    ReadPage,
    /// One page of all threads, shared.
    ReadOnePage,
    /// 16 pages of each thread's own, exclusively.
    WriteLarge,
    /// [own page, infinity), exclusively: threads exclude each other.
    WriteEndless,
}

impl Claim {
    const ALL: [Self; 5] = [
        Self::WritePage,
        Self::ReadPage,
        Self::ReadOnePage,
        Self::WriteLarge,
        Self::WriteEndless,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::WritePage => "write-page",
            Self::ReadPage => "read-page",
            Self::ReadOnePage => "read-one-page",
            Self::WriteLarge => "write-large",
            Self::WriteEndless => "write-endless",
        }
    }

    /// The range of a thread.
    fn range(self, thread: u16) -> ByteRange {
        let thread = u64::from(thread);
        let page = |number, count| ByteRange::new(number * PAGE_BYTES, count * PAGE_BYTES);
        match self {
            Self::WritePage | Self::ReadPage => page(thread, 1),
            Self::ReadOnePage => page(0, 1),
            Self::WriteLarge => page(16 * thread, 16),
            Self::WriteEndless => Some(ByteRange::from_offset(thread * PAGE_BYTES)),
        }
        .expect("some pages near the beginning of the file")
    }

    fn is_shared(self) -> bool {
        matches!(self, Self::ReadPage | Self::ReadOnePage)
    }
}

/// All measurements of one point.
#[derive(Debug, Serialize)]
struct Row {
    bench: &'static str,
    claim: &'static str,
    policy: &'static str,
    threads: u16,
    /// Median time of one acquire and release in one thread.
    ns: f64,
    min_ns: f64,
    max_ns: f64,
    n: usize,
    /// All threads together.
    ops_per_second: f64,
}

/// Measures and prints the report.
///
/// # Errors
/// No threads asked for.
#[expect(clippy::print_stdout, reason = "the report goes to standard output")]
pub fn run(args: &Locks) -> Result<()> {
    if args.threads.contains(&0) {
        bail!("--threads: at least one thread");
    }
    let policies = or_all(&args.policies, &Policy::ALL);
    let claims = or_all(&args.claims, &Claim::ALL);
    let mut rows = Vec::new();
    for claim in claims {
        for &threads in &args.threads {
            let locks: Vec<RangeLock<RANK>> = policies
                .iter()
                .map(|policy| RangeLock::new(Config::new(*policy)))
                .collect();
            let mut times = vec![Vec::new(); locks.len()];
            for _ in 0..args.repeat {
                for (lock, times) in locks.iter().zip(&mut times) {
                    times.push(measure(lock, claim, threads, args.milliseconds));
                }
            }
            let measured = policies.iter().zip(times);
            rows.extend(measured.map(|(policy, times)| row(claim, *policy, threads, times)));
        }
    }
    if args.json {
        let text = serde_json::to_string_pretty(&rows).context("writing JSON")?;
        println!("{text}");
    } else {
        println!("{}", table(&rows));
    }
    Ok(())
}

fn or_all<T: Copy>(chosen: &[T], all: &[T]) -> Vec<T> {
    if chosen.is_empty() { all } else { chosen }.to_vec()
}

fn row(claim: Claim, policy: Policy, threads: u16, mut times: Vec<f64>) -> Row {
    times.sort_by(f64::total_cmp);
    let n = times.len();
    let ns = f64::midpoint(times[(n - 1) / 2], times[n / 2]);
    Row {
        bench: "locks",
        claim: claim.name(),
        policy: policy.name(),
        threads,
        ns,
        min_ns: times[0],
        max_ns: times[n - 1],
        n,
        ops_per_second: (f64::from(threads) * 1e9 / ns).round(),
    }
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new();
    table
        .load_preset(presets::UTF8_HORIZONTAL_ONLY)
        .set_header([
            "claim", "threads", "policy", "ns", "min", "max", "n", "ops/s",
        ]);
    for column in [1, 3, 4, 5, 6, 7] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    for row in rows {
        table.add_row([
            row.claim.to_owned(),
            row.threads.to_string(),
            row.policy.to_owned(),
            format!("{:.1}", row.ns),
            format!("{:.1}", row.min_ns),
            format!("{:.1}", row.max_ns),
            row.n.to_string(),
            format!("{:.0}", row.ops_per_second),
        ]);
    }
    table
}

const WARM: u32 = 0;
const RUN: u32 = 1;
const STOP: u32 = 2;

/// The mean time of one acquire and release in each thread, in ns.
fn measure(lock: &RangeLock<RANK>, claim: Claim, threads: u16, milliseconds: u64) -> f64 {
    // Written by this thread, read by the workers; publishes nothing, hence Relaxed.
    let phase = CachePadded::new(AtomicU32::new(WARM));
    let times: Vec<f64> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|number| {
                let phase = &phase;
                scope.spawn_on(CoreId::new(number), move || {
                    work(lock, claim, number, phase)
                })
            })
            .collect();
        thread::sleep(std::time::Duration::from_millis(milliseconds / 2 + 1));
        phase.store(RUN, Ordering::Relaxed);
        thread::sleep(std::time::Duration::from_millis(milliseconds));
        phase.store(STOP, Ordering::Relaxed);
        workers
            .into_iter()
            .map(|worker| worker.join().expect("workers do not panic"))
            .collect()
    });
    // Threads run equally long, so their rates add up.
    let rates: f64 = times.iter().map(|ns| 1.0 / ns).sum();
    f64::from(threads) / rates
}

fn work(lock: &RangeLock<RANK>, claim: Claim, number: u16, phase: &AtomicU32) -> f64 {
    let range = claim.range(number);
    let batch = || {
        for _ in 0..BATCH {
            if claim.is_shared() {
                drop(lock.read(range));
            } else {
                drop(lock.write(range));
            }
        }
    };
    while phase.load(Ordering::Relaxed) == WARM {
        batch();
    }
    let start = clock::monotonic_ns();
    let mut count = 0;
    // At least one batch, however late this thread gets to run.
    loop {
        batch();
        count += BATCH;
        if phase.load(Ordering::Relaxed) == STOP {
            break;
        }
    }
    float(clock::monotonic_ns() - start) / float(count)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts and times far below 2^52"
)]
fn float(value: u64) -> f64 {
    value as f64
}
