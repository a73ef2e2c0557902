//! Choices of a load: which blocks, how requests reach the kernel, who completes them.
//!
//! **Structure.** Enums that clap reads and serde prints; groups of options with the policy of the
//! queue or device that they name. **Invariants.** An option that is never used is refused. **On a
//! crash** nothing is kept.

use std::time::Duration;

use anyhow::{Result, bail};
use clap::ValueEnum;
use dure_block::null::Irq;
use dure_block::{Hybrid, Typical, Wait};
use serde::Serialize;

/// Which blocks, and what is done with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// Reads, one after the other.
    Read,
    /// Writes, one after the other.
    Write,
    /// Reads of random blocks.
    #[value(name = "randread")]
    RandRead,
    /// Writes of random blocks.
    #[value(name = "randwrite")]
    RandWrite,
    /// Reads and writes of random blocks, half of each.
    #[value(name = "randrw")]
    RandRw,
}

impl Pattern {
    pub(super) fn writes(self) -> bool {
        !matches!(self, Self::Read | Self::RandRead)
    }

    pub(super) fn reads(self) -> bool {
        !matches!(self, Self::Write | Self::RandWrite)
    }
}

/// How submitted requests reach the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// `io_uring` where the kernel has it, else plain system calls.
    Auto,
    /// Plain system calls, one after the other.
    Psync,
    /// Plain system calls, one after the other; the caller polls the device (`RWF_HIPRI`).
    Pvsync2,
    /// `libaio`.
    Libaio,
    /// `io_uring`.
    #[value(name = "io_uring")]
    #[serde(rename = "io_uring")]
    Uring,
}

/// Which bios that are submitted together are merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum MergeKind {
    /// None.
    None,
    /// One that continues a request.
    Back,
    /// One that a request continues.
    Front,
    /// Both.
    Both,
}

/// How a job waits for completions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Waiting {
    /// Asleep.
    Sleep,
    /// Looking for them.
    Poll,
    /// Asleep for a share of the usual time, then looking.
    Hybrid,
}

/// The time of which a share is slept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PollOf {
    /// The mean.
    Mean,
    /// The minimum.
    Min,
}

/// Who completes the requests of null, as null_blk's parameters of these names say.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct IrqArgs {
    /// Who completes a request of null: 0 its submitter, within submission; 1 another thread of its
    /// core, as soon as it runs; 2 that thread, after --completion-nsec. With 0 tags run out only while
    /// a job that has one is preempted.
    #[arg(long, default_value_t = 0, value_name = "0|1|2", value_parser = clap::value_parser!(u8).range(0..=2))]
    pub irqmode: u8,
    /// Nanoseconds after which --irqmode 2 completes a request [default: 10000].
    #[arg(long, value_name = "NS", value_parser = clap::value_parser!(u64).range(1..=10_000_000_000))]
    pub completion_nsec: Option<u64>,
}

/// What null_blk takes if it is not told.
const COMPLETION_NSEC: u64 = 10_000;

impl IrqArgs {
    /// Who completes requests.
    ///
    /// # Errors
    /// A time that is never used.
    pub(super) fn policy(self) -> Result<Irq> {
        if self.irqmode != 2 && self.completion_nsec.is_some() {
            bail!("--completion-nsec is for --irqmode 2");
        }
        Ok(match self.irqmode {
            0 => Irq::None,
            1 => Irq::Softirq,
            _ => Irq::Timer(Duration::from_nanos(
                self.completion_nsec.unwrap_or(COMPLETION_NSEC),
            )),
        })
    }
}

/// The options of a ring.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct RingArgs {
    /// With io_uring, poll the device instead of being interrupted (IOPOLL).
    #[arg(long)]
    pub hipri: bool,
    /// With io_uring, let a thread of the kernel take requests (SQPOLL).
    #[arg(long)]
    pub sqthread_poll: bool,
    /// With io_uring, register the file and the buffers with the kernel.
    #[arg(long)]
    pub registered: bool,
}

/// How jobs wait.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct WaitArgs {
    /// How jobs wait for completions.
    #[arg(long, value_enum, default_value_t = Waiting::Sleep)]
    pub poll: Waiting,
    /// The share of the usual time that --poll hybrid sleeps, in percent.
    #[arg(long, default_value_t = 50, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    pub poll_share: u8,
    /// The usual time: the mean or minimum of the last period.
    #[arg(long, value_enum, default_value_t = PollOf::Mean)]
    pub poll_of: PollOf,
    /// That period, in milliseconds.
    #[arg(long, default_value_t = 100, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=60_000))]
    pub poll_period: u64,
}

impl WaitArgs {
    pub(super) fn policy(self) -> Wait {
        match self.poll {
            Waiting::Sleep => Wait::Sleep,
            Waiting::Poll => Wait::Poll,
            Waiting::Hybrid => Wait::Hybrid(Hybrid {
                share_percent: self.poll_share,
                of: match self.poll_of {
                    PollOf::Mean => Typical::Mean,
                    PollOf::Min => Typical::Minimum,
                },
                period: Duration::from_millis(self.poll_period),
            }),
        }
    }
}
