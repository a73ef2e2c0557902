//! Options of a store, and its share of the memory.

use dure_journal::{Order, Rules};
use dure_sync::Arc;
use dure_sync::atomic::AtomicUsize;

use crate::alloc::{ActiveLogs, AllocPolicy, Numa};
use crate::media::QueueShape;
use crate::node::NodeLock;
use crate::rules::StoreRules;

/// What the log holds of a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RecordPolicy {
    /// The bytes that changed.
    #[default]
    Delta,
    /// A copy of each changed node, taken at commit (JBD2, Z-Journal).
    Image,
    /// Nothing: a volume that was not unmounted is refused until it is repaired.
    None,
}

/// Flushes per fsync.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FlushRule {
    /// Data and log are written, then flushed once; recovery checks the CRC of slots that may have
    /// been in flight.
    #[default]
    One,
    /// Data is flushed before the log is written.
    Two,
}

/// When what a call has done is durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Durability {
    /// When fsync or sync says so.
    #[default]
    Posix,
    /// When the call returns, whole: each operation is in the log, and fenced, before it releases
    /// its locks. For volumes in persistent memory, where that costs no flush.
    Strict,
}

/// Data that lies in persistent memory first, and moves to the block device of the volume later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Absorb {
    /// Segments that may have such data; at least 1.
    pub segments_max: u32,
}

/// What a mount or a check does about changes that were durable and that the logs have lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Recover {
    /// Refuses, and says what is missing.
    #[default]
    Whole,
    /// Mounts what is left, read-only: all changes that do not depend on those that are lost.
    Tolerate,
}

/// How to mount a store.
#[derive(Clone, Debug, Default)]
pub struct StoreOptions {
    /// Nothing is written, not even by recovery (which then happens in memory).
    pub read_only: bool,
    /// The snapshot to mount, read-only; `None`: the volume.
    pub snapshot: Option<String>,
    /// What happens if the logs have lost something durable.
    pub recover: Recover,
    /// When what a call has done is durable.
    pub durability: Durability,
    /// One journal per core, or one for all.
    pub order: Order,
    /// What the log holds of a change.
    pub records: RecordPolicy,
    /// Where cores allocate.
    pub alloc: AllocPolicy,
    /// In which region of persistent memory.
    pub numa: Numa,
    /// Whether long-lived data is kept apart from data that does not.
    pub active_logs: ActiveLogs,
    /// Flushes per fsync.
    pub flush: FlushRule,
    /// Whether data may lie in persistent memory first. Only with `FlushRule::Two`, and logs in
    /// persistent memory: then commits flush nothing, since no record names what is not flushed.
    pub absorb: Option<Absorb>,
    /// How nodes are locked.
    pub node_lock: NodeLock,
    /// The queues in front of the device.
    pub queues: QueueShape,
    /// Events of the journal's trace that are kept per core, from the start.
    pub trace: Option<usize>,
    /// Threads that scan logs and rebuild nodes at mount; `None`: one per core.
    pub recovery_threads: Option<usize>,
    /// Which rules of the journal hold.
    pub rules: Rules,
    /// Which rules of the store hold.
    pub store_rules: StoreRules,
    /// The core that every operation runs on, whatever the scheduler says; `None`: the task's own.
    /// For tests: which journal an operation goes to must not depend on where they run.
    pub core: Option<Arc<AtomicUsize>>,
}

/// What a store may keep in memory.
#[derive(Clone, Copy, Debug)]
pub struct StoreShares {
    /// Nodes.
    pub nodes: usize,
    /// Pages of the data log.
    pub logged_pages: u64,
    /// Bytes of one journal's records that wait.
    pub record_bytes: u64,
    /// Blocks whose owners wait for a checkpoint.
    pub owners: usize,
}
