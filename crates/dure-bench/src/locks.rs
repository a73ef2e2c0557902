//! What taking and releasing a range of a file costs, policy by policy.
//!
//! **Problem.** A range lock is worth its cost only if tasks whose ranges do not overlap do not
//! slow each other down. **Structure.** All policies in turn on one lock, with one thread and with
//! several that each have a range of their own, `repeat` times. **Invariants.** Every figure has
//! its number, minimum and maximum; nothing here is a test. **On a crash** nothing is left behind.

use anyhow::Result;
use clap::ValueEnum;
use dure_sync::Arc;
use dure_sync::range_lock::{ByteRange, Config, Policy, RangeLock};

use crate::measure::{self, Bench, Crew, Subject, Worker};
use crate::micro::or_default;
use crate::options::Measuring;

/// The rank of the locks measured; no other lock is held.
const RANK: u8 = 10;
const PAGE_BYTES: u64 = 4096;
/// Acquisitions of one operation: one takes less time than reading the clock.
const BATCH: u64 = 64;

/// `dure bench locks`.
#[derive(Debug, clap::Args)]
pub struct Locks {
    /// Policies [default: all].
    #[arg(long = "range-lock", value_name = "POLICY", value_parser = parse_policy)]
    pub policies: Vec<Policy>,
    /// What is taken [default: all].
    #[arg(long = "claim", value_enum)]
    pub claims: Vec<Claim>,
    /// How.
    #[command(flatten)]
    pub measuring: Measuring,
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
    fn range(self, thread: usize) -> ByteRange {
        let thread = u64::try_from(thread).expect("threads are few");
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

/// Measures and prints the report.
///
/// # Errors
/// The drawing cannot be written.
pub(crate) fn run(args: &Locks) -> Result<()> {
    let policies = or_default(&args.policies, &Policy::ALL);
    let subjects: Vec<_> = policies.iter().map(|policy| Lock(*policy)).collect();
    let claims = or_default(&args.claims, &Claim::ALL);
    let points = measure::run(&Claims, claims, &subjects, &args.measuring.plan(20))?;
    args.measuring.report("locks", &points)
}

/// A policy, measured on a lock of its own.
struct Lock(Policy);

impl Subject for Lock {
    fn name(&self) -> &'static str {
        "range lock"
    }

    fn policy(&self) -> &str {
        self.0.name()
    }
}

struct Claims;

impl Bench for Claims {
    type Subject = Lock;
    type Workload = Claim;

    fn name(&self, claim: Claim) -> &'static str {
        claim.name()
    }

    fn crew(&self, subject: &Lock, claim: Claim, cores: usize) -> Result<Option<Crew>> {
        let lock: Arc<RangeLock<RANK>> = Arc::new(RangeLock::new(Config::new(subject.0)));
        Crew::threads(cores, cores, None, |number| {
            Ok(Box::new(Claimant {
                lock: Arc::clone(&lock),
                claim,
                range: claim.range(number),
            }))
        })
        .map(Some)
    }
}

/// Takes and releases its range.
struct Claimant {
    lock: Arc<RangeLock<RANK>>,
    claim: Claim,
    range: ByteRange,
}

impl Worker for Claimant {
    fn operate(&mut self) -> Result<Option<u64>> {
        for _ in 0..BATCH {
            if self.claim.is_shared() {
                drop(self.lock.read(self.range));
            } else {
                drop(self.lock.write(self.range));
            }
        }
        Ok(Some(BATCH))
    }
}
