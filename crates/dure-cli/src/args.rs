//! Every command and option.

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};
use dure_fs::{NumaPolicy, Owner};
use dure_sync::Topology;
use serde::{Deserialize, Serialize};

use crate::log::Level;
use crate::size::Size;

/// A many-core file system in user space that loses nothing in a crash.
#[derive(Debug, Parser)]
#[command(name = "dure", version, max_term_width = 100, propagate_version = true)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make a volume on a block device or in an image file.
    Mkfs(Mkfs),
    /// Mount a volume on a directory.
    Mount(Mount),
    /// Unmount a directory.
    Umount(Umount),
    /// Check a volume that is not mounted, and repair what is safe to repair.
    Check(Check),
    /// Take back a repair that had an undo file.
    #[command(after_long_help = UNDO_HELP)]
    Undo(Undo),
    /// Copy what can be read of a damaged volume to a directory of the host, and say what is lost.
    #[command(after_long_help = RESCUE_HELP)]
    Rescue(Rescue),
    /// Let a volume that is not mounted use more room.
    #[command(after_long_help = RESIZE_HELP)]
    Resize(Resize),
    /// Tell the device or the host's file system which blocks of a volume hold nothing.
    Trim(Trim),
    /// Show what a volume is and holds.
    Info(Info),
    /// Show what the journals of a mounted volume are doing, again and again.
    Top(Top),
    /// List a directory of a volume that is not mounted.
    Ls(Ls),
    /// Print files of a volume that is not mounted.
    Cat(Paths),
    /// Copy files and trees of the host into a volume.
    Put(Copy),
    /// Copy files and trees of a volume to the host.
    Get(Copy),
    /// Remove files, or trees with --recursive, from a volume.
    Rm(Rm),
    /// Make directories in a volume.
    Mkdir(Mkdir),
    /// Print a structure of the volume as it lies on the medium.
    Dump(Dump),
    /// Make a volume, use it, crash it, recover it, and show that nothing is lost.
    Demo(Demo),
    /// Measure a volume side by side with directories of other file systems.
    Bench(dure_bench::Args),
    /// Look into the requests of block devices.
    #[command(subcommand)]
    Blk(dure_bench::blk::Command),
    /// Prove on simulated devices that no crash loses what was promised.
    #[command(subcommand)]
    Sim(Sim),
}

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
    /// Operations of a workload, 1 to 3.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=3))]
    pub seq: u32,
    /// Stop when this many workloads were run, counting those of the file of --resume; the group of
    /// workloads under way is finished first [default: all].
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
    /// What the order of the workloads depends on, so which ones --count takes. 0: those that begin
    /// alike one after the other, which is the fastest way through all of them.
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// Also spread the operations over up to so many cores, 1 to 3, and commit in every order.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=3))]
    pub cores: u32,
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Suite {
    /// All sequences of --seq operations on a tree of a dozen inodes, with every persistence point.
    Ace,
}

/// The persistent memory of a volume.
#[derive(Debug, Default, clap::Args)]
pub struct Regions {
    /// Where the volume's regions of persistent memory are, once for each, in the order of mkfs
    /// [default: where they were then].
    #[arg(long = "nvm", value_name = "FILE")]
    pub files: Vec<PathBuf>,
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
}

/// `dure mkfs`.
#[derive(Debug, clap::Args)]
pub struct Mkfs {
    /// A block device, or the path of an image file.
    pub volume: PathBuf,
    /// Size of a new image file, as in 512M, 1G; an existing file or device has its own.
    #[arg(long)]
    pub size: Option<Size>,
    /// Journals and allocation partitions, 1 to 1000 [default: the larger of 16 and the cores,
    /// fewer on a small volume].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub journals: Option<u32>,
    /// A name for the volume, at most 64 bytes.
    #[arg(long, short = 'L', default_value = "")]
    pub label: String,
    /// Overwrite whatever is there.
    #[arg(long, short)]
    pub force: bool,
    /// Allocate the blocks of a new image file now.
    #[arg(long)]
    pub preallocate: bool,
    /// Owner of the root directory: numbers of a user and a group [default: the caller's].
    #[arg(long, value_name = "UID[:GID]", value_parser = owner)]
    pub owner: Option<Owner>,
    /// A file on persistent memory for tables, logs and nodes, so that the volume has only data;
    /// once for each region. NODE is the NUMA node it is on, if the system does not tell.
    #[arg(long, value_name = "FILE[@NODE]", value_parser = region)]
    pub nvm: Vec<NvmFile>,
    /// Size of the --nvm files that are not there yet.
    #[arg(long, value_name = "SIZE", requires = "nvm")]
    pub nvm_size: Option<Size>,
    /// Refuse --nvm files, and with --node the VOLUME, that are not mapped directly (DAX).
    #[arg(long, requires = "nvm")]
    pub require_dax: bool,
    /// Where logs and nodes go: to persistent memory, or with the data.
    #[arg(
        long,
        value_enum,
        value_name = "WHERE",
        requires = "nvm",
        default_value = "nvm"
    )]
    pub node_log: NodeLog,
    /// VOLUME is on persistent memory, too, of this NUMA node: all regions are one space, of which
    /// each core uses what is on its own node first.
    #[arg(long, value_name = "NODE", conflicts_with = "node_log")]
    pub node: Option<u32>,
    /// Place the logs as on a machine of so many NUMA nodes, with so many cores each [default: this
    /// machine].
    #[arg(long, value_name = "NODESxCORES")]
    pub topology: Option<Topology>,
    /// Where the logs of a core begin: on its own node, on each in turn, or on the first.
    #[arg(long, value_name = "POLICY", default_value = "local", value_parser = numa)]
    pub numa: NumaPolicy,
}

/// A file of `--nvm`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NvmFile {
    /// The file.
    pub path: PathBuf,
    /// Its NUMA node, if that was said.
    pub node: Option<u32>,
}

/// "FILE@NODE", or "FILE"; a file whose name ends with @ and digits needs its node behind it.
fn region(text: &str) -> Result<NvmFile, String> {
    let with_node = text.rsplit_once('@').and_then(|(path, node)| {
        let node = node.parse::<u32>().ok()?;
        (!path.is_empty()).then_some((path, Some(node)))
    });
    let (path, node) = with_node.unwrap_or((text, None));
    let path = PathBuf::from(path);
    Ok(NvmFile { path, node })
}

fn numa(text: &str) -> Result<NumaPolicy, String> {
    let found = NumaPolicy::ALL.iter().find(|(name, _)| *name == text);
    found
        .map(|(_, policy)| *policy)
        .ok_or_else(|| "local, interleave or first".to_owned())
}

/// Where logs and nodes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum NodeLog {
    /// To persistent memory.
    Nvm,
    /// To the block device: the baseline.
    Block,
}

fn owner(text: &str) -> Result<Owner, String> {
    let number = |text: &str| {
        let number = text.parse::<u32>().ok().filter(|id| *id != u32::MAX);
        number.ok_or_else(|| format!("'{text}' is not the number of a user or group"))
    };
    let (uid, gid) = text.split_once(':').unwrap_or((text, text));
    Ok(Owner {
        uid: number(uid)?,
        gid: number(gid)?,
    })
}

/// `dure mount`.
#[derive(Debug, Default, clap::Args)]
pub struct Mount {
    /// A block device or image file.
    pub volume: PathBuf,
    /// An existing directory.
    pub directory: PathBuf,
    /// Options, separated by commas: ro, rw, journal=per-core|single|jbd2|zjournal|none (a log
    /// per core, or one, of changed bytes; or one, or one per core, of whole nodes copied at commit,
    /// with the transactions of JBD2 and Z-Journal; or none, for comparison, with which a crash loses
    /// files: it needs the word no-crash-guarantee, too), data=ordered|writeback|journal (data goes
    /// to its place before the log; or does, but may be lost without what came after it; or goes
    /// through the log), commit=SECONDS (what waits is written back and made durable that often, 5
    /// by default, 1 for an image file, whose sync(1) the kernel keeps to itself), writethrough or
    /// writeback (each write(2) is in the server's cache, and has its ENOSPC, when it returns, the
    /// default; or the kernel collects writes: small ones are faster, but on a full volume write(2)
    /// succeeds and only fsync(2) or close(2) fails, a kill of the server loses up to 30 s of them,
    /// and holes are not found by lseek(2)), transport=uring|device (requests come
    /// through a ring of io_uring for each core, where the kernel has them, or through /dev/fuse), cache=SIZE, noatime, relatime, strictatime,
    /// flush=one|two, log-data=PAGES (an fsync of at most so many puts them into the log, 4 by
    /// default), fsync=closure|all (what an fsync commits: what it depends on, or everything),
    /// alloc=local|global (each core allocates in its own groups, or all at one place),
    /// numa=local|interleave|first (in persistent memory on several NUMA nodes: on the core's own
    /// first, on each in turn, or as they lie), topology=NODESxCORES (as if on such a machine),
    /// active_logs=2|4 (segments a core writes to: data and nodes, or also by how long data is
    /// likely to live), range_lock=inode|rwsem|tree|bitmap|segment (tasks that share a file wait for
    /// each other: one lock per file, which counts readers per core or in one place, or only where
    /// their ranges overlap: an interval tree, a bit per page, a word per segment),
    /// range_lock_wait=try|queue (a task that finds its range taken locks the file instead, and
    /// readers take no range; or all wait in order of arrival), segment_size=SIZE (of range_lock=segment, a power of two, 4K by
    /// default), node_lock=mutex|rwsem|optimistic (a reader of a metadata node takes its lock
    /// exclusively, takes it shared, or copies without it and checks for changes),
    /// blk.hw_queues=N and blk.nr_requests=N (queues in front of the device, 1 by default, and how
    /// many requests each lets into it at once, 256 by default), blk.merge=on|off (blocks that lie
    /// next to one another are one request, or each is one), blk.poll=sleep|poll|hybrid (callers
    /// sleep until the device is done, or poll it, at once or after half of the usual time),
    /// submit_lock=none|writes|all (requests are made by anybody at any time, or writes one at a
    /// time, or reads too), dirty_limit=SIZE|none (bytes of
    /// dirty pages that writers slow down for, half of the cache by default), workers=N (threads in
    /// the background, one for each NUMA node and 8 of its cores by default),
    /// nvm=auto|off|direct|emulated (a volume on a DAX file is mapped and needs no flush; never; or
    /// nothing else will do; or any file is treated so, and what is synced survives the end of the
    /// server, not a power cut), page_cache=dram|none (files in memory, too; or used where they lie,
    /// on a volume wholly in persistent memory), durability=posix|strict (a call is durable when it
    /// is synced; or when it returns, as with page_cache=none by default), trace=EVENTS
    /// (keep so many events of the journals per core, for `dure top --trace`), log=FILE and
    /// log-level=error|warning|info|debug (where the server says why it stopped, and how much),
    /// metrics=unix:PATH|FILE (where Prometheus finds the numbers of `dure top`),
    /// recover=whole|tolerate (if synced changes are missing in the logs: refuse, or show the rest,
    /// read-only), allow_other; uid=N, gid=N (all files show this owner, and none can be given
    /// another). The generic ones of mount(8): ro, nosuid, nodev (both unless root says suid, dev),
    /// noexec, sync, dirsync, nodiratime, nosymfollow, lazytime, silent; remount,ro and the like
    /// with a mounted directory. Those that are mount(8)'s own (auto, user, _netdev, x-...) are
    /// accepted.
    #[arg(
        short = 'o',
        long = "options",
        value_delimiter = ',',
        value_name = "OPT"
    )]
    pub options: Vec<String>,
    /// Serve in the foreground until unmounted, SIGINT or SIGTERM.
    #[arg(long)]
    pub foreground: bool,
    /// Append to this file what the server has to say, as -o log=FILE does [default: the system's
    /// log, which is syslogd or journald; with --foreground standard error].
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Say nothing that matters less, as -o log-level=LEVEL does [default: info].
    #[arg(long, value_enum, value_name = "LEVEL")]
    pub log_level: Option<Level>,
    /// Show the numbers of `dure top` to Prometheus, as -o metrics=PLACE does: unix:PATH, a socket that
    /// answers HTTP, or a file that is written every 10 seconds.
    #[arg(long, value_name = "PLACE")]
    pub metrics: Option<String>,
    /// The file system type, as mount(8) passes it.
    #[arg(short = 't', hide = true, value_parser = ["dure", "fuse.dure", "fuseblk.dure"])]
    pub kind: Option<String>,
    /// Do everything but the mount, and change nothing.
    #[arg(short = 'f', long)]
    pub fake: bool,
    /// Leave out options that are not known, with a warning.
    #[arg(short = 's', long)]
    pub sloppy: bool,
    /// Say what was mounted.
    #[arg(short = 'v', long)]
    pub verbose: bool,
    /// Keep no list of mounts, as mount(8) passes it: the kernel keeps it.
    #[arg(short = 'n', hide = true)]
    pub no_list: bool,
    /// Its persistent memory.
    #[command(flatten)]
    pub regions: Regions,
}

/// `dure umount`.
#[derive(Debug, clap::Args)]
pub struct Umount {
    /// The directory.
    pub directory: PathBuf,
    /// Detach now, end when the last user leaves.
    #[arg(long, short)]
    pub lazy: bool,
}

/// `dure check`.
#[derive(Debug, clap::Args)]
pub struct Check {
    /// A block device or image file that is not mounted.
    pub volume: PathBuf,
    /// Repair. What needs no guess first; where structures are lost, all that is left is found
    /// again, what lost its name goes to lost+found, and what is lost is said.
    #[arg(long)]
    pub repair: bool,
    /// With --repair: only what needs no guess, and no rebuild; what fsck(8) asks for at boot (-a,
    /// -p). The exit status is 4 if more is to be done.
    #[arg(long, requires = "repair")]
    pub safe: bool,
    /// Before a block is written, save what stood in it to this new file of another file system:
    /// `dure undo FILE VOLUME` takes the repair back, also one that was cut off.
    #[arg(long, value_name = "FILE", requires = "repair")]
    pub undo: Option<PathBuf>,
    /// Also read all file data and verify its checksums.
    #[arg(long)]
    pub data: bool,
    /// With "tolerate": if synced changes are missing in the logs, look at the rest, as a mount
    /// with `-o recover=tolerate` shows it.
    #[arg(long, value_parser = ["whole", "tolerate"], default_value = "whole")]
    #[arg(value_name = "HOW", conflicts_with = "repair")]
    pub recover: String,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    /// Its persistent memory.
    #[command(flatten)]
    pub regions: Regions,
}

impl Check {
    /// Whether the rest is looked at when the logs have holes.
    pub fn tolerates_holes(&self) -> bool {
        self.recover == "tolerate"
    }
}

const UNDO_HELP: &str = "\
The volume must be as the repair left it: once it was mounted for writing, or repaired again, the undo is \
refused. A repair that was cut off is taken back too, and an undo that was cut off is done again.";

/// `dure undo`.
#[derive(Debug, clap::Args)]
pub struct Undo {
    /// The file that `dure check --repair --undo FILE` wrote.
    pub file: PathBuf,
    /// The volume that was repaired, not mounted.
    pub volume: PathBuf,
    /// Its persistent memory.
    #[command(flatten)]
    pub regions: Regions,
}

const RESCUE_HELP: &str = "\
Nothing is written to the volume. Modes, times, symbolic links, hard links, holes, extended attributes \
and, for root, owners and devices are kept. What lost its name is in lost+found. A destroyed page reads as zeroes.";

/// `dure rescue`.
#[derive(Debug, clap::Args)]
pub struct Rescue {
    /// A block device or image file that is not mounted.
    pub volume: PathBuf,
    /// A directory of the host that is empty, or does not exist.
    pub directory: PathBuf,
    /// Its persistent memory.
    #[command(flatten)]
    pub regions: Regions,
}

const RESIZE_HELP: &str = "\
A volume never becomes smaller: files, nodes and logs may lie anywhere on it. For a smaller one make a new \
volume and copy (`dure get`, `dure put`, or cp(1) between two mounts). Nor does it grow while it is mounted: \
its server has the places of all tables in memory.

The new tables are written behind the old end of the volume, then one block makes them count: a crash leaves \
the volume with the old or with the new size.";

/// `dure resize`.
#[derive(Debug, clap::Args)]
pub struct Resize {
    /// A block device or image file that is not mounted.
    pub volume: PathBuf,
    /// The new size of an image file, as in 2G; a block device is used as it is.
    pub size: Option<Size>,
}

/// `dure trim`.
#[derive(Debug, clap::Args)]
pub struct Trim {
    /// A block device or image file that is not mounted.
    pub volume: PathBuf,
}

/// `dure info`.
#[derive(Debug, clap::Args)]
pub struct Info {
    /// A block device or image file, or where it is mounted. A mounted one is asked by its server.
    pub volume: PathBuf,
    /// The journals: headers, rings, tails, the transactions in the logs, and what recovery would
    /// do. Of a mounted volume what `dure top --once` shows.
    #[arg(long)]
    pub journal: bool,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    /// Its persistent memory.
    #[command(flatten)]
    pub regions: Regions,
}

/// `dure top`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = TOP_HELP)]
pub struct Top {
    /// A mounted volume (block device or image file), or the directory it is mounted on.
    pub volume: PathBuf,
    /// Seconds between two looks, 0.01 to 3600 [default: 1; with --trace 0.1].
    #[arg(long, short = 'd', value_name = "SECONDS", value_parser = interval)]
    pub interval: Option<f64>,
    /// End after so many looks.
    #[arg(long, short = 'n', value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// Show the averages since the mount (with --trace: the events that trace=EVENTS has kept), and
    /// end.
    #[arg(long, conflicts_with_all = ["interval", "count"])]
    pub once: bool,
    /// Print a JSON object a line for each look, or for each event.
    #[arg(long)]
    pub json: bool,
    /// Turn the trace on and print what happens in the journals, event by event.
    #[arg(long)]
    pub trace: bool,
}

const TOP_HELP: &str = "\
Head: commits and flushes per second (fewer of the device than asked: callers share them), bytes that go to \
the logs, marks (what a handle depends on) before and after duplicates go, stalls by reason with their mean \
duration, and what each kind of operation logs.

A line for each journal in use. OPEN: handles that run. RUN: handles of the running transaction. WRT, FLU, DUR, \
VALID: transactions being written, waiting for a flush, for the rest of what they depend on, for a checkpoint. \
run, writing, written, durable, valid: how long those that left these states had stayed in them, on average. \
RING%: how full the log is.

JSON has the totals since the mount; histograms count zeros first, then what is at least 2^(n-1) and below 2^n ns.

The process that serves the mount answers its own user and root, also while the device hangs.";

fn interval(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.01..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("it is between 0.01 and 3600 seconds".into()),
    }
}

/// `dure ls`.
#[derive(Debug, clap::Args)]
pub struct Ls {
    /// A block device or image file that is not mounted.
    pub volume: PathBuf,
    /// Files or directories in the volume.
    #[arg(default_value = "/")]
    pub paths: Vec<PathBuf>,
    /// Type, permissions, links, owner, size and time of each entry.
    #[arg(long, short)]
    pub long: bool,
    /// Directories below, too.
    #[arg(long, short = 'R')]
    pub recursive: bool,
}

/// `dure cat`.
#[derive(Debug, clap::Args)]
pub struct Paths {
    /// A block device or image file that is not mounted.
    pub volume: PathBuf,
    /// Files in the volume.
    #[arg(required = true)]
    pub paths: Vec<PathBuf>,
}

/// `dure put` and `dure get`.
#[derive(Debug, clap::Args)]
pub struct Copy {
    /// A block device or image file that is not mounted.
    pub volume: PathBuf,
    /// What to copy, then where to: into it if it is a directory, else to that name.
    #[arg(required = true, num_args = 2.., value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Say nothing.
    #[arg(long, short)]
    pub quiet: bool,
}

/// `dure rm`.
#[derive(Debug, clap::Args)]
pub struct Rm {
    /// A block device or image file that is not mounted.
    pub volume: PathBuf,
    /// What to remove.
    #[arg(required = true)]
    pub paths: Vec<PathBuf>,
    /// Directories with all they hold.
    #[arg(long, short)]
    pub recursive: bool,
    /// Also all that the root directory holds.
    #[arg(long)]
    pub no_preserve_root: bool,
}

/// `dure mkdir`.
#[derive(Debug, clap::Args)]
pub struct Mkdir {
    /// A block device or image file that is not mounted.
    pub volume: PathBuf,
    /// Directories to make.
    #[arg(required = true)]
    pub paths: Vec<PathBuf>,
    /// Parents too; existing directories are no error.
    #[arg(long, short)]
    pub parents: bool,
}

/// `dure dump`.
#[derive(Debug, clap::Args)]
pub struct Dump {
    /// A block device or image file.
    pub volume: PathBuf,
    /// What to print.
    #[arg(value_enum)]
    pub what: Structure,
    /// Which one: a node id, inode, segment, block or journal number.
    pub number: Option<u64>,
    /// Its persistent memory.
    #[command(flatten)]
    pub regions: Regions,
}

/// What `dure dump` prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Structure {
    /// Both copies of the superblock.
    Superblock,
    /// The volume header.
    Volume,
    /// All journal headers.
    Journals,
    /// The transactions in a journal's log, or in all.
    Log,
    /// The NAT entry of a node id.
    Nat,
    /// A node, by node id.
    Node,
    /// An inode.
    Inode,
    /// A directory's buckets, by its inode.
    Directory,
    /// A file's block map, by its inode.
    Map,
    /// A segment's SIT entry and summary.
    Segment,
    /// A block, raw.
    Block,
}

/// `dure demo`.
#[derive(Debug, clap::Args)]
pub struct Demo {
    /// Leave the volume behind and say where it is.
    #[arg(long)]
    pub keep: bool,
    /// Size of the volume.
    #[arg(long, default_value = "1G")]
    pub size: Size,
    /// Go through the library even where FUSE could be used.
    #[arg(long)]
    pub no_mount: bool,
    /// The writer that gets killed (internal).
    #[arg(long, hide = true)]
    pub child: Option<PathBuf>,
}
