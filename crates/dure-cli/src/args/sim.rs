//! `dure sim`.

use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};

/// `dure sim`.
#[derive(Debug, Subcommand)]
pub enum Sim {
    /// Run small workloads, cut the power at every step, and compare what recovery makes of each
    /// state with what the contract allows. Ends with 1 if any state violates it.
    Crash(SimCrash),
    /// Run every pair of calls that commute on two virtual cores, and report which cache lines both
    /// use with at least one write, where, and the share of pairs that has none. Ends with 1 if a
    /// call answered other than the model says, or the share is below --at-least.
    #[command(after_long_help = CONFLICTS_HELP)]
    Conflicts(SimConflicts),
    /// Run a mechanism on the examples of its publication, and print what it has in memory after each
    /// step.
    Explain(SimExplain),
}

/// `dure sim explain`.
#[derive(Debug, clap::Args)]
pub struct SimExplain {
    /// What to explain.
    #[arg(value_name = "MECHANISM", value_enum)]
    pub mechanism: Mechanism,
}

/// What `dure sim explain` knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Mechanism {
    /// Transactions of several cores that share blocks, their marks, and what a crash leaves of them.
    Zjournal,
}

const CONFLICTS_HELP: &str = "\
A pair commutes if both orders give the same answers and leave the same state; a model of the file system says so. \
Arguments: same and different files, names, directories, offsets and descriptors, present or not. What counts is \
the steady state: both cores have made the same calls before on things of the same kind.

The cores are simulated, which takes another build of this program: the installed one finds it in libexec/dure \
(`cargo xtask dist --simulation`), one in the target folder of the sources builds and runs it itself, which is \
what `cargo xtask sim conflicts` does.

JSON: pairs, conflict_free, share, ordered (pairs that do not commute), meetings (of cores, after which structures adapt \
here) and real_meetings (after which they do on real cores), rehearsals, exceptions (one for each place in the code \
that writes a shared line: class, count of pairs, alone (pairs with no other), justified (why, or null), pair (an \
example) and line (where its memory was made, and who uses it)), excepted_pairs, wrong.";

/// `dure sim conflicts`.
#[derive(Debug, clap::Args)]
pub struct SimConflicts {
    /// Only one pair of so many.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub every: u32,
    /// Only pairs with this text in them, as in 'creat /a/x | unlink'.
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub only: String,
    /// Policies the volumes are mounted with, as -o of `dure mount` takes them, with commas
    /// between.
    #[arg(long, value_name = "OPTIONS", value_delimiter = ',')]
    pub mount: Vec<String>,
    /// End with 1 if less than so many percent of the pairs are free of conflicts.
    #[arg(long, value_name = "PERCENT")]
    pub at_least: Option<f64>,
    /// List the pairs that are not, too.
    #[arg(long)]
    pub list: bool,
    /// Threads that run pairs [default: one for each core of this machine].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub threads: Option<u32>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// `dure sim crash`.
#[derive(Debug, clap::Args)]
pub struct SimCrash {
    /// Which workloads.
    #[arg(long, value_enum, default_value_t = Suite::Ace)]
    pub suite: Suite,
    /// Operations of a workload of ace, 1 to 3 [default: 1].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=3))]
    pub seq: Option<u32>,
    /// Stop when this many workloads were run, counting those of the file of --resume; the group of
    /// workloads under way is finished first [default: all].
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
    /// What the order of the workloads of ace depends on, so which ones --count takes. 0: those that
    /// begin alike one after the other, which is the fastest way through all of them [default: 1].
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Also spread the operations of ace over up to so many cores, 1 to 3, and commit in every order
    /// [default: 3].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=3))]
    pub cores: Option<u32>,
    /// Policies the volumes are mounted with, as -o of `dure mount` takes them: journal=, data=,
    /// flush=, fsync=, log-data=, alloc= and nvm=emulated (writes are durable when they return,
    /// and torn between words of 8 bytes), there also page_cache=none (each call is durable when it
    /// returns) and durability=posix (when it is synced), with commas between. Not data=writeback, which allows
    /// states that the comparison does not.
    #[arg(long, value_name = "OPTIONS", value_delimiter = ',')]
    pub mount: Vec<String>,
    /// What the volumes lie on. In persistent memory, words of 8 bytes that no fence covers are
    /// there or not, each for itself.
    #[arg(long, value_enum, default_value_t = Media::Disk)]
    pub media: Media,
    /// Go on where the run that wrote this file stopped, and keep it up to date.
    #[arg(long, value_name = "FILE")]
    pub resume: Option<PathBuf>,
    /// Threads that run workloads [default: one for each core of this machine].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub threads: Option<u32>,
    /// Run this one workload, as a violation prints it.
    #[arg(long, value_name = "WORKLOAD", conflicts_with_all = ["count", "resume"])]
    pub replay: Option<String>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// The suites of `dure sim crash`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Suite {
    /// All sequences of --seq operations on a tree of a dozen inodes, with every persistence point.
    Ace,
    /// The kinds of bugs that Chipmunk found in file systems for persistent memory: two descriptors
    /// of a file, truncates mixed with allocations, writes of odd lengths, ...
    Chipmunk,
}

/// What volumes lie on.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Media {
    /// One device.
    #[default]
    Disk,
    /// Tables, logs and nodes in persistent memory, data on a disk.
    Hybrid,
    /// Tables in persistent memory, logs, nodes and data on a disk.
    HybridLogsOnDisk,
    /// As hybrid, with persistent memory of two regions on two NUMA nodes, used in turn
    /// (numa=interleave, if --mount says no other).
    HybridRegions,
}
