//! The protocol of both sides: one line of JSON per message. `dure top --json` prints the same.
//!
//! Counts only rise, from the mount on, and begin again when the volume grows (`up_ns` does too);
//! subtract two snapshots for rates. Times are nanoseconds.
//! Histograms have buckets of powers of two: the first counts zeros, the n-th after it what is at
//! least 2^(n-1) and below 2^n; empty ones at the end are left out.

use std::collections::BTreeMap;

use dure_fs::units::BLOCK_BYTES_U64;
use dure_fs::{
    Activity, Layout, LogStatistics, OpKind, Stall, TraceEvent, TraceRecord, WorkerActivity,
};
use dure_sync::HistogramCounts;
use serde::{Deserialize, Serialize};

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

/// Sizes of a volume that has grown, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Grown {
    before: u64,
    now: u64,
    /// Of these for files and nodes.
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

/// A histogram.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Times {
    pub(crate) count: u64,
    pub(crate) sum_ns: u64,
    pub(crate) buckets: Vec<u64>,
}

/// Transactions of a journal by state; `checkpointed` only rises, the others are as of now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct States {
    pub(crate) running_handles: u64,
    pub(crate) running_bytes: u64,
    pub(crate) writing: u64,
    pub(crate) written: u64,
    pub(crate) durable: u64,
    pub(crate) valid: u64,
    pub(crate) checkpointed: u64,
}

/// How long transactions stayed in each state.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StateTimes {
    pub(crate) running: Times,
    pub(crate) writing: Times,
    pub(crate) written: Times,
    pub(crate) durable: Times,
    pub(crate) valid: Times,
}

/// Handles and bytes of one kind of operation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Logged {
    pub(crate) handles: u64,
    pub(crate) bytes: u64,
}

/// One journal, or the sum of several.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JournalCounts {
    pub(crate) journal: u16,
    pub(crate) handles_begun: u64,
    pub(crate) handles_joined: u64,
    pub(crate) handles_dropped: u64,
    pub(crate) handles_open: u64,
    pub(crate) marks_given: u64,
    pub(crate) marks_joined: u64,
    pub(crate) marks_written: u64,
    pub(crate) marks_not_needed: u64,
    pub(crate) bytes_joined: u64,
    pub(crate) record_bytes_written: u64,
    pub(crate) operations: BTreeMap<String, Logged>,
    pub(crate) transactions: States,
    pub(crate) times: StateTimes,
    pub(crate) writes: u64,
    pub(crate) blocks_written: u64,
    pub(crate) blocks_skipped: u64,
    pub(crate) headers_written: u64,
    pub(crate) commits: u64,
    pub(crate) commit_journals: u64,
    pub(crate) flushes: u64,
    pub(crate) stalls: BTreeMap<String, Times>,
    pub(crate) log_full_at_begin: u64,
    pub(crate) log_full_at_commit: u64,
    pub(crate) effects: u64,
    /// With compound transactions: images logged, images frozen for a commit, marks in both directions.
    pub(crate) images: u64,
    pub(crate) images_frozen: u64,
    pub(crate) marks_two_way: u64,
    pub(crate) ring_blocks_used: u64,
    pub(crate) ring_blocks: u64,
}

impl Times {
    fn of(counts: &HistogramCounts) -> Times {
        let used = counts.buckets.iter().rposition(|count| *count > 0);
        Times {
            count: counts.count(),
            sum_ns: counts.sum,
            buckets: counts.buckets[..used.map_or(0, |last| last + 1)].to_vec(),
        }
    }

    /// The mean; `None` of nothing.
    pub(crate) fn mean_ns(&self) -> Option<u64> {
        self.sum_ns.checked_div(self.count)
    }

    fn combine(&mut self, other: &Times, change: fn(u64, u64) -> u64) {
        self.count = change(self.count, other.count);
        self.sum_ns = change(self.sum_ns, other.sum_ns);
        let len = self.buckets.len().max(other.buckets.len());
        self.buckets.resize(len, 0);
        for (own, other) in self.buckets.iter_mut().zip(&other.buckets) {
            *own = change(*own, *other);
        }
    }
}

impl JournalCounts {
    fn of(log: &LogStatistics) -> JournalCounts {
        let (transactions, times) = (&log.transactions, &log.times);
        let named = |kind: &OpKind| {
            let counts = log.operations[usize::from(kind.number())];
            let logged = Logged {
                handles: counts.handles,
                bytes: counts.bytes,
            };
            (counts.handles > 0).then(|| (kind.name().to_owned(), logged))
        };
        let stalled = |stall: &Stall| (stall.name().to_owned(), Times::of(log.stall(*stall)));
        JournalCounts {
            journal: log.journal.number(),
            handles_begun: log.begun,
            handles_joined: log.joined,
            handles_dropped: log.dropped,
            handles_open: log.open(),
            marks_given: log.marks_given,
            marks_joined: log.marks_joined,
            marks_written: log.marks_written,
            marks_not_needed: log.marks_dropped,
            bytes_joined: log.bytes_joined,
            record_bytes_written: log.record_bytes,
            operations: OpKind::ALL.iter().filter_map(named).collect(),
            transactions: States {
                running_handles: transactions.running_handles,
                running_bytes: transactions.running_bytes,
                writing: transactions.writing,
                written: transactions.written,
                durable: transactions.durable,
                valid: transactions.valid,
                checkpointed: transactions.checkpointed,
            },
            times: StateTimes {
                running: Times::of(&times.running),
                writing: Times::of(&times.writing),
                written: Times::of(&times.written),
                durable: Times::of(&times.durable),
                valid: Times::of(&times.valid),
            },
            writes: log.writes,
            blocks_written: log.blocks,
            blocks_skipped: log.gap_blocks,
            headers_written: log.headers,
            commits: log.commits,
            commit_journals: log.commit_journals,
            flushes: log.flushes,
            stalls: Stall::ALL.iter().map(stalled).collect(),
            log_full_at_begin: log.begin_log_full,
            log_full_at_commit: log.commit_log_full,
            effects: log.effects,
            images: log.images,
            images_frozen: log.frozen,
            marks_two_way: log.two_way,
            ring_blocks_used: log.ring_used,
            ring_blocks: log.ring_capacity,
        }
    }

    /// What happened since `before`; states and the ring are as they are now.
    pub(crate) fn since(&self, before: &JournalCounts) -> JournalCounts {
        let mut counts = self.clone();
        counts.combine(before, u64::saturating_sub);
        counts
    }

    /// Adds another journal.
    pub(crate) fn add(&mut self, other: &JournalCounts) {
        self.combine(other, u64::saturating_add);
        let (own, other_states) = (&mut self.transactions, &other.transactions);
        own.running_handles += other_states.running_handles;
        own.running_bytes += other_states.running_bytes;
        own.writing += other_states.writing;
        own.written += other_states.written;
        own.durable += other_states.durable;
        own.valid += other_states.valid;
        self.handles_open += other.handles_open;
        self.ring_blocks_used += other.ring_blocks_used;
        self.ring_blocks += other.ring_blocks;
    }

    /// Combines all counts that only rise.
    fn combine(&mut self, other: &JournalCounts, change: fn(u64, u64) -> u64) {
        for (own, other) in [
            (&mut self.handles_begun, other.handles_begun),
            (&mut self.handles_joined, other.handles_joined),
            (&mut self.handles_dropped, other.handles_dropped),
            (&mut self.marks_given, other.marks_given),
            (&mut self.marks_joined, other.marks_joined),
            (&mut self.marks_written, other.marks_written),
            (&mut self.marks_not_needed, other.marks_not_needed),
            (&mut self.bytes_joined, other.bytes_joined),
            (&mut self.record_bytes_written, other.record_bytes_written),
            (
                &mut self.transactions.checkpointed,
                other.transactions.checkpointed,
            ),
            (&mut self.writes, other.writes),
            (&mut self.blocks_written, other.blocks_written),
            (&mut self.blocks_skipped, other.blocks_skipped),
            (&mut self.headers_written, other.headers_written),
            (&mut self.commits, other.commits),
            (&mut self.commit_journals, other.commit_journals),
            (&mut self.flushes, other.flushes),
            (&mut self.log_full_at_begin, other.log_full_at_begin),
            (&mut self.log_full_at_commit, other.log_full_at_commit),
            (&mut self.effects, other.effects),
            (&mut self.images, other.images),
            (&mut self.images_frozen, other.images_frozen),
            (&mut self.marks_two_way, other.marks_two_way),
        ] {
            *own = change(*own, other);
        }
        let times = &other.times;
        self.times.running.combine(&times.running, change);
        self.times.writing.combine(&times.writing, change);
        self.times.written.combine(&times.written, change);
        self.times.durable.combine(&times.durable, change);
        self.times.valid.combine(&times.valid, change);
        for (name, times) in &other.stalls {
            let own = self.stalls.entry(name.clone()).or_default();
            own.combine(times, change);
        }
        for (name, logged) in &other.operations {
            let own = self.operations.entry(name.clone()).or_default();
            own.handles = change(own.handles, logged.handles);
            own.bytes = change(own.bytes, logged.bytes);
        }
    }
}

impl Snapshot {
    pub(crate) fn of(mounted: Mounted, clock_ns: u64, up_ns: u64, activity: &Activity) -> Snapshot {
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
            log: log::last(LOG_LINES),
        }
    }
}

/// An event of the trace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TraceLine {
    pub(crate) ns: u64,
    pub(crate) core: u16,
    pub(crate) journal: Option<u16>,
    pub(crate) event: String,
    /// Further fields, by name.
    #[serde(flatten)]
    pub(crate) details: BTreeMap<String, serde_json::Value>,
}

impl TraceLine {
    pub(crate) fn of(record: &TraceRecord) -> TraceLine {
        let (event, details) = describe(record.event);
        TraceLine {
            ns: record.ns,
            core: record.core.number(),
            journal: record.journal.map(|journal| journal.number()),
            event: event.to_owned(),
            details: details
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
        }
    }
}

type Details = Vec<(&'static str, serde_json::Value)>;

fn describe(event: TraceEvent) -> (&'static str, Details) {
    let operation = |number: u8| {
        let kind = OpKind::ALL.get(usize::from(number));
        kind.map_or("unknown", |kind| kind.name()).into()
    };
    match event {
        TraceEvent::Begin { bytes } => ("begin", vec![("bytes", bytes.into())]),
        TraceEvent::BeginFull => ("begin-full", vec![]),
        TraceEvent::Join {
            number,
            bytes,
            operation: kind,
        } => (
            "join",
            vec![
                ("number", number.into()),
                ("bytes", bytes.into()),
                ("operation", operation(kind)),
            ],
        ),
        TraceEvent::Drop => ("drop", vec![]),
        TraceEvent::CommitBegin => ("commit-begin", vec![]),
        TraceEvent::CommitEnd { journals } => ("commit-end", vec![("journals", journals.into())]),
        TraceEvent::Write {
            sequence,
            first,
            last,
            blocks,
        } => (
            "write",
            vec![
                ("sequence", sequence.into()),
                ("first", first.into()),
                ("last", last.into()),
                ("blocks", blocks.into()),
            ],
        ),
        TraceEvent::Written { sequence } => ("written", vec![("sequence", sequence.into())]),
        TraceEvent::FlushBegin => ("flush-begin", vec![]),
        TraceEvent::FlushEnd => ("flush-end", vec![]),
        TraceEvent::Valid { upto } => ("valid", vec![("upto", upto.into())]),
        TraceEvent::Tail { sequence } => ("tail", vec![("sequence", sequence.into())]),
        TraceEvent::Checkpoint { checkpoint, step } => (
            "checkpoint",
            vec![("checkpoint", checkpoint.into()), ("step", step.into())],
        ),
        TraceEvent::Stall { stall, ns } => (
            "stall",
            vec![("reason", stall.name().into()), ("waited_ns", ns.into())],
        ),
        // An event of a later version of the journal.
        _ => ("other", vec![]),
    }
}
