//! The protocol of both sides: one line of JSON per message. `dure top --json` prints the same.
//!
//! Counts only rise, from the mount on, and begin again when the volume grows (`up_ns` does too);
//! subtract two snapshots for rates. Times are nanoseconds. `journal` has the counts of a journal,
//! `trace` the events.

mod journal;
mod quota;
mod scrub;
mod trace;

use dure_fs::units::BLOCK_BYTES_U64;
use dure_fs::{Activity, Layout, WorkerActivity};
use serde::{Deserialize, Serialize};

pub(crate) use self::journal::{JournalCounts, Logged};
pub(crate) use self::quota::{QuotaRow, QuotaTask};
pub(crate) use self::scrub::{BadRow, ScrubNumbers, ScrubReport, ScrubState, ScrubTask};
pub(crate) use self::trace::TraceLine;
use crate::command::changes::ChangeRow;
use crate::log::{self, Line};
use crate::size::Size;

/// Lines of the log in a snapshot.
const LOG_LINES: usize = 20;

/// What a client asks.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "ask")]
pub(crate) enum Request {
    /// All numbers.
    Snapshot,
    /// Keep the trace on while this connection lasts.
    StartTrace {
        /// How many events to keep.
        events_per_core: usize,
    },
    /// The events from these on, by core.
    Trace {
        /// Position by core, from the last reply.
        from: Vec<u64>,
    },
    /// Make everything durable.
    Sync,
    /// Let the volume grow: `Grown`, or `Done` with the reason why not.
    Grow {
        /// To this size; if it is left out, to that of the device.
        bytes: Option<u64>,
    },
    /// Do this to the snapshots of the volume, one after the other: `Snapshots`, or `Done` with the
    /// first error.
    Snapshots {
        /// Nothing: only list them.
        tasks: Vec<SnapshotTask>,
    },
    /// Tell what differs between a snapshot and a later one, or the present: `Changes`, once or more,
    /// then `Done`.
    Changes {
        /// The older one.
        from: String,
        /// The later one.
        to: Option<String>,
    },
    /// Send a snapshot: `Sending`, then the bytes of the stream and nothing more, or `Done` with the
    /// error.
    Send {
        /// Its name.
        name: String,
        /// The older one that the stream is relative to.
        from: Option<String>,
    },
    /// Show a snapshot in a directory, until that is unmounted: `Done`.
    MountSnapshot {
        /// Its name.
        name: String,
        /// The directory.
        directory: String,
    },
    /// Do this to the quotas of the volume: `Quotas`, or `Done` with the error.
    Quotas {
        /// Nothing: only list them.
        task: Option<QuotaTask>,
    },
    /// Answers with `Project`, some times if one is to be given, and then with `Done`.
    Project {
        /// From the root of the volume.
        directory: String,
        /// 0: none; nothing: ask for it.
        id: Option<u32>,
    },
    /// What takes the room of the volume: `Room`.
    Room,
    /// Start or pause the scrub, or only say how it is: `Scrub`.
    Scrub(ScrubTask),
    /// Say when the volume is closed: `Awaiting` at once, `Done` then.
    AwaitClose,
}

/// What the server says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "reply")]
pub(crate) enum Reply {
    /// All numbers.
    Snapshot(Box<Snapshot>),
    /// Whether there is a trace now.
    Tracing {
        /// It is on.
        is_on: bool,
    },
    /// Events.
    Trace {
        /// In the order of time.
        events: Vec<TraceLine>,
        /// The position for the next request.
        next: Vec<u64>,
        /// How many were overwritten before they were read.
        lost: u64,
    },
    /// The server will not end without saying when the volume is closed.
    Awaiting,
    /// The volume has grown.
    Grown(Grown),
    /// What takes the room, in blocks.
    Room {
        /// By live data and nodes.
        used: u64,
        /// By log rings.
        in_logs: u64,
        /// By snapshots only.
        of_snapshots: u64,
        /// By nothing, since clones share.
        spared: u64,
        /// How many snapshots there are.
        snapshots: usize,
    },
    /// The snapshots that there are.
    Snapshots {
        /// The oldest first.
        list: Vec<SnapshotRow>,
    },
    /// What users and groups have.
    Quotas {
        /// Ascending.
        list: Vec<QuotaRow>,
    },
    /// The project of a directory, and how many inodes got it so far.
    Project {
        /// 0: none.
        id: u32,
        /// Of the whole call.
        inodes: u64,
    },
    /// What differs.
    Changes {
        /// Some of it.
        list: Vec<ChangeRow>,
    },
    /// A stream follows.
    Sending,
    /// How the scrub is.
    Scrub(Box<ScrubReport>),
    /// What was asked for is done, or has failed.
    Done {
        /// Why it failed.
        error: Option<String>,
    },
    /// The client is another user, or one too many.
    Refused,
    /// The request is not understood.
    Unknown {
        /// Why.
        why: String,
    },
}

/// What is to be done to the snapshots of a volume.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "do")]
pub(crate) enum SnapshotTask {
    Create { name: String },
    Delete { name: String },
    Rename { name: String, to: String },
}

/// A snapshot of a volume.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SnapshotRow {
    pub(crate) id: u64,
    pub(crate) name: String,
    /// Seconds since 1970.
    pub(crate) created: i64,
    pub(crate) inodes: u64,
    /// What the volume held then.
    pub(crate) bytes: u64,
}

/// Sizes of a volume that has grown, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Grown {
    before: u64,
    now: u64,
    /// The bytes for files and nodes in `now`.
    room: u64,
}

impl Grown {
    /// From this layout to that.
    pub(crate) fn of(before: &Layout, after: &Layout) -> Grown {
        let main = u64::from(after.segments) * u64::from(after.segment_blocks);
        Grown {
            before: before.bytes(),
            now: after.bytes(),
            room: main * BLOCK_BYTES_U64,
        }
    }
}

impl std::fmt::Display for Grown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (before, now, room) = (Size(self.before), Size(self.now), Size(self.room));
        write!(f, "{before} before, {now} now, {room} for files and nodes")
    }
}

/// What is said about the mount itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Mounted {
    pub(crate) volume: String,
    /// Empty: none was given.
    #[serde(default)]
    pub(crate) label: String,
    #[serde(default)]
    pub(crate) format_version: u32,
    pub(crate) directory: String,
    pub(crate) uuid: String,
    /// Mount options that concern the journal.
    pub(crate) options: String,
    /// The mount is read-only.
    pub(crate) read_only: bool,
    /// How requests come: the word of `transport=`.
    #[serde(default)]
    pub(crate) transport: String,
    /// Why they do not come through rings, if they were to.
    #[serde(default)]
    pub(crate) no_rings: Option<String>,
    /// The mount option for where a write(2) goes: `writeback` or `writethrough`.
    #[serde(default)]
    pub(crate) write_cache: String,
    /// Why it is `writethrough`, if the user has not asked for that.
    #[serde(default)]
    pub(crate) writes_through: Option<String>,
    /// What is half done, `half received` or `half restored`, and the snapshot.
    #[serde(default)]
    pub(crate) half_done: Option<(String, String)>,
}

/// All numbers of a mounted volume.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Snapshot {
    #[serde(flatten)]
    pub(crate) mounted: Mounted,
    /// The monotonic clock.
    pub(crate) clock_ns: u64,
    /// Since the mount.
    pub(crate) up_ns: u64,
    pub(crate) stopped: Option<String>,
    pub(crate) checkpoints: u64,
    pub(crate) images: u64,
    pub(crate) rings_grown: u64,
    pub(crate) cleaned_blocks: u64,
    pub(crate) blocks: u64,
    pub(crate) blocks_free: u64,
    /// Bytes that the kernel may collect of it, for which room is kept.
    #[serde(default)]
    pub(crate) kernel_cache_bytes: Option<u64>,
    pub(crate) device: Requests,
    /// Copies from and to persistent memory on the core's NUMA node and on others.
    #[serde(default)]
    pub(crate) nodes: Option<NodeBytes>,
    /// Data in persistent memory that is to move to the device.
    #[serde(default)]
    pub(crate) absorbed: Option<AbsorbedBlocks>,
    pub(crate) journals: Vec<JournalCounts>,
    /// Writes that slept because there were many dirty pages.
    pub(crate) pauses: u64,
    pub(crate) workers: Vec<WorkerCounts>,
    /// What the scrub has done, or the last one; nothing if there was none.
    #[serde(default)]
    pub(crate) scrub: Option<ScrubNumbers>,
    /// The last lines of the server's log.
    #[serde(default)]
    pub(crate) log: Vec<Line>,
}

/// A worker in the background. All counts but the backlog only rise.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WorkerCounts {
    /// The partitions, and so the journals, of its group of cores.
    pub(crate) partitions: Vec<u16>,
    /// Dirty pages of its partitions, and those in write-back.
    pub(crate) backlog_pages: u64,
    /// Rounds of write-back and commit.
    pub(crate) rounds: u64,
    /// Pages it wrote back.
    pub(crate) pages_written: u64,
    /// Images of nodes that it wrote for checkpoints.
    pub(crate) images_written: u64,
}

impl WorkerCounts {
    fn of(worker: &WorkerActivity) -> WorkerCounts {
        WorkerCounts {
            partitions: worker.partitions.iter().map(|core| core.number()).collect(),
            backlog_pages: worker.backlog,
            rounds: worker.rounds,
            pages_written: worker.pages,
            images_written: worker.images,
        }
    }

    /// Its partitions, as a list of ranges.
    pub(crate) fn group(&self) -> String {
        let mut ranges: Vec<(u16, u16)> = Vec::new();
        for &number in &self.partitions {
            match ranges.last_mut() {
                Some((_, last)) if number == *last + 1 => *last = number,
                _ => ranges.push((number, number)),
            }
        }
        let text = |(first, last): &(u16, u16)| match first == last {
            true => first.to_string(),
            false => format!("{first}-{last}"),
        };
        ranges.iter().map(text).collect::<Vec<_>>().join(",")
    }
}

/// Bytes copied near and far.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct NodeBytes {
    pub(crate) local_read: u64,
    pub(crate) remote_read: u64,
    pub(crate) local_written: u64,
    pub(crate) remote_written: u64,
}

/// Blocks of `page_cache=nvram`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AbsorbedBlocks {
    /// In use.
    pub(crate) blocks: u64,
    /// That may be in use.
    pub(crate) blocks_max: u64,
    /// Moved since the mount.
    pub(crate) moved: u64,
    /// Times that there was no room.
    #[serde(default)]
    pub(crate) refused: u64,
}

impl From<dure_block::NodeCounters> for NodeBytes {
    fn from(counts: dure_block::NodeCounters) -> NodeBytes {
        NodeBytes {
            local_read: counts.local_read,
            remote_read: counts.remote_read,
            local_written: counts.local_written,
            remote_written: counts.remote_written,
        }
    }
}

/// Requests to the device.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Requests {
    pub(crate) reads: u64,
    pub(crate) blocks_read: u64,
    pub(crate) writes: u64,
    pub(crate) blocks_written: u64,
    pub(crate) flush_requests: u64,
    pub(crate) device_flushes: u64,
    pub(crate) tag_waits: u64,
    pub(crate) errors: u64,
}

impl Snapshot {
    pub(crate) fn of(
        mounted: Mounted,
        (clock_ns, up_ns): (u64, u64),
        activity: &Activity,
        (kernel_cache_bytes, scrub): (Option<u64>, Option<ScrubNumbers>),
    ) -> Snapshot {
        let device = &activity.device;
        Snapshot {
            mounted,
            clock_ns,
            up_ns,
            stopped: activity.stopped.clone(),
            checkpoints: activity.checkpoints,
            images: activity.images,
            rings_grown: activity.rings_grown,
            cleaned_blocks: activity.cleaned_blocks,
            blocks: activity.room.blocks,
            blocks_free: activity.room.blocks_free,
            kernel_cache_bytes,
            nodes: activity.nodes.map(NodeBytes::from),
            absorbed: activity.absorbed.map(|absorbed| AbsorbedBlocks {
                blocks: absorbed.blocks,
                blocks_max: absorbed.blocks_max,
                moved: absorbed.moved,
                refused: absorbed.refused,
            }),
            device: Requests {
                reads: device.reads,
                blocks_read: device.blocks_read,
                writes: device.writes,
                blocks_written: device.blocks_written,
                flush_requests: device.flush_requests,
                device_flushes: device.device_flushes,
                tag_waits: device.tag_waits,
                errors: device.errors,
            },
            journals: activity.journals.iter().map(JournalCounts::of).collect(),
            pauses: activity.pauses,
            workers: activity.workers.iter().map(WorkerCounts::of).collect(),
            scrub,
            log: log::last(LOG_LINES),
        }
    }
}
