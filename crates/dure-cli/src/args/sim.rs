//! `dure sim`.

use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};
use dure_sim::room::Workload;
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
    /// How FxMark's workloads scale on the cores of a machine that is not at hand: the whole file
    /// system on virtual cores, with the costs of that machine.
    #[command(after_long_help = SCALE_HELP)]
    Scale(SimScale),
    /// Repeat the figures and tables of the five documents that dure learns from: simulate those of
    /// rates over cores, and say whether their shape comes out, and how the others are repeated.
    #[command(after_long_help = EXPERIMENTS_HELP)]
    Experiments(SimExperiments),
    /// Write the file of this machine, for `dure sim scale --machine FILE`: what lines, locks,
    /// copies and calls of the kernel cost on it. Takes half a minute on an idle machine.
    Calibrate(SimCalibrate),
    /// Compare what the simulation predicts for one and two cores of this machine with what they do.
    /// Ends with 1 if a prediction is wrong by more than a quarter.
    Validate(SimValidate),
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

const SCALE_HELP: &str = "\
Every figure is of a model, none is measured: docs/simulation says what the model has and lacks. A line below a row \
says what its cores spend their time on: computing, copies, calls of the kernel, the device, waits by the name of the \
lock, moves of cache lines by the place in the program that asks for the line.

The cores are simulated, which takes another build of this program: the installed one finds it in libexec/dure \
(`cargo xtask dist --simulation`), one in the target folder of the sources builds and runs it itself.

JSON: a list of points: machine, workload, policy, cores, ops_per_second (simulated), ns_per_op, lines_per_op \
(moves of cache lines between cores), bottleneck, causes (name, share of the time, lines_per_op), operations \
(simulated), hash (equal for equal runs).";

/// `dure sim scale`.
#[derive(Debug, clap::Args)]
pub struct SimScale {
    /// A machine by name (4x20-6138, 8x15-8870v2, 8x15-8870v2-nvm, 8x24-8890v4, 2x28-8280m,
    /// 2x28-8280m-single, 983zet-host, null-block-host, 2x64-9554), or its file.
    #[arg(long, value_name = "NAME|FILE", default_value = "4x20-6138")]
    pub machine: String,
    /// A workload of `dure bench fxmark`, several times.
    #[arg(
        long = "workload",
        value_enum,
        ignore_case = true,
        value_name = "NAME",
        required = true
    )]
    pub workloads: Vec<Workload>,
    /// Numbers of cores, with commas between; the first ones of the machine work.
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1")]
    pub cores: Vec<usize>,
    /// Options that the volume is mounted with, as -o of `dure mount` takes them, with commas between,
    /// and nvm=emulated; several times. `default`: none.
    #[arg(long = "policy", value_name = "OPT")]
    pub policies: Vec<String>,
    /// The seed of what is random.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Each rate as a band: the lowest and the highest of six simulations, with the hold of a line at
    /// 3, 10 and 30 ns, and moves of lines at once and twice their cost.
    #[arg(long)]
    pub band: bool,
    /// Print a JSON list.
    #[arg(long)]
    pub json: bool,
    /// Draw rates over cores into this file.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

const EXPERIMENTS_HELP: &str = "\
No rate is measured, each is of a model: docs/simulation says what the model has and lacks. The shape of a figure is \
what its document says, and nothing is tuned to agree; a figure that does not agree is no failure, and the status is 0.

A figure has the name of its document and its own, as 000-2a; docs/simulation/experiments.md has all of them. Those \
that depend on a drive or on programs that are not simulated come with the command that measures them.

The cores are simulated, which takes another build of this program: the installed one finds it in libexec/dure \
(`cargo xtask dist --simulation`), one in the target folder of the sources builds and runs it itself.

JSON: a list of figures: figure, figures (with others of the same data), document, title, shows (what the document \
shows), state (simulated, measured by COMMAND, shown by COMMAND), agrees (null: it has no answer here), comes_out, why (if \
it does not agree, or has no answer), simulated, workload, checks (check, found, holds), points (line, machine, policy, \
cores, ops_per_second, lines_per_op, bottleneck, hash).";

/// `dure sim experiments`.
#[derive(Debug, clap::Args)]
pub struct SimExperiments {
    /// Only this figure, several times.
    #[arg(long = "figure", value_name = "NAME")]
    pub figures: Vec<String>,
    /// Print a JSON list.
    #[arg(long)]
    pub json: bool,
    /// Write a page with all figures into this file, which needs no other file.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Draw each simulated figure into a file of this directory, as 000-2a.svg.
    #[arg(long, value_name = "DIRECTORY")]
    pub svg_dir: Option<PathBuf>,
}

/// `dure sim calibrate`.
#[derive(Debug, clap::Args)]
pub struct SimCalibrate {
    /// Write it here, not to standard output.
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// `dure sim validate`.
#[derive(Debug, clap::Args)]
pub struct SimValidate {
    /// Use this file of this machine instead of calibrating first.
    #[arg(long, value_name = "NAME|FILE")]
    pub machine: Option<PathBuf>,
    /// Runs of each point on real cores; the fastest counts.
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: u32,
    /// Instead: how each headline moves when each cost of its machine is halved and doubled.
    #[arg(long, conflicts_with_all = ["machine", "repeat"])]
    pub sensitivity: bool,
    /// Print a JSON list.
    #[arg(long)]
    pub json: bool,
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
    /// One device, and two copies of NAT and SIT (mkfs --metadata-copies 2), of which each crash
    /// destroys one.
    Copies,
    /// Tables, logs and nodes in persistent memory, data on a disk.
    Hybrid,
    /// Tables in persistent memory, logs, nodes and data on a disk.
    HybridLogsOnDisk,
    /// As hybrid, with persistent memory of two regions on two NUMA nodes, used in turn
    /// (numa=interleave, if --mount says no other).
    HybridRegions,
}
