//! What a case leaves out or changes.

use super::state::CORES;

/// What happens to the version when a node id is used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NodeReuse {
    /// Nodes are only written.
    Never,
    /// The next life counts on.
    VersionContinues,
    /// The next life starts at 1.
    VersionRestarts,
    /// A node is freed, and its NAT entry forgets the version.
    FreeForgetsVersion,
    /// A node is freed, and its NAT entry is a tombstone with the version.
    FreeKeepsVersion,
}

/// How file data and the log are ordered, and what recovery checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Data {
    /// The buffers name no data blocks.
    None,
    /// Data is flushed before the commit; nothing is checked.
    TwoFlushes,
    /// One flush for both; nothing is checked.
    OneFlushUnchecked,
    /// One flush; all slots of a transaction must match.
    CheckAll,
    /// One flush; the newest slot in the logs must match, in one pass.
    CheckNewestOnce,
    /// One flush; slots that survive must match, repeated until stable.
    CheckSurvivors,
    /// As before, but blocks are reused before the freeing transaction is valid.
    CheckSurvivorsReuseEarly,
}

/// How recovery itself is cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecoveryCrash {
    /// Not at all.
    None,
    /// Before its one header write, with any of its images on the medium.
    BeforeHeader,
    /// It has no single header write: the tails of some journals are advanced, others not.
    TailsOneAtATime,
}

/// What the log holds of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Records {
    /// The change itself.
    Delta,
    /// Copies of whole nodes, taken when a transaction is committed.
    Image,
}

/// What an fsync waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fsync {
    /// Until a walk has found its transaction valid.
    Valid,
    /// For the commit of what runs or is closed in all journals, each closed separately: the released
    /// Z-Journal.
    AllCommitted,
    /// For the commit of all that is closed, all journals at one moment: a commit whose chain does
    /// not end, and the cut of a checkpoint.
    ClosedAtOnce,
}

/// The rules of a case. The default is the journal as it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    /// Cores that do something.
    pub(crate) cores: usize,
    /// Operations before the search stops.
    pub(crate) operations: usize,
    /// Which sets of buffers an operation may write, as bit sets.
    pub(crate) write_sets: &'static [u8],
    /// The same, where each core has its own.
    pub(crate) write_sets_of: Option<[&'static [u8]; CORES]>,
    /// Checkpointed copies before the search stops.
    pub(crate) checkpoints: u8,
    pub(crate) marks: bool,
    pub(crate) self_marks: bool,
    /// A mark is kept until its transaction is valid, not only until it is committed.
    pub(crate) marks_until_valid: bool,
    /// An image is written only when its last writer is valid.
    pub(crate) image_waits_for_valid: bool,
    /// A NAT block holds only entries of the checkpoint that writes it.
    pub(crate) nat_unstaged: bool,
    pub(crate) flush_image_before_nat: bool,
    pub(crate) flush_nat_before_header: bool,
    pub(crate) flush_header_before_reuse: bool,
    /// One write in flight per NAT block.
    pub(crate) nat_serial: bool,
    /// Images are written in place, without a version.
    pub(crate) in_place: bool,
    /// A tail waits for older transactions of the same buffer in other journals.
    pub(crate) reclaim_order: bool,
    pub(crate) node_reuse: NodeReuse,
    /// Recovery goes on behind an invalid transaction.
    pub(crate) skip_invalid: bool,
    /// Deltas are applied in the order of versions, not of commits.
    pub(crate) by_version: bool,
    /// Valid is the greatest closed set, not what can be built up from nothing.
    pub(crate) greatest: bool,
    pub(crate) recovery_crash: RecoveryCrash,
    pub(crate) data: Data,
    pub(crate) records: Records,
    // Of `Records::Image`:
    /// Running transactions that share a node mark each other.
    pub(crate) two_way: bool,
    /// A copy is kept for a closed transaction before its node is changed again.
    pub(crate) freeze: bool,
    /// A change marks the last writers of all that its node holds, not only of what it changes.
    pub(crate) mark_whole_node: bool,
    /// A two-way mark that replaces one of an earlier transaction of its core is passed on to the
    /// transaction that replaces it.
    pub(crate) pass_on: bool,
    /// What an fsync waits for.
    pub(crate) fsync: Fsync,
    /// A walk takes what is written for durable only after a flush.
    pub(crate) walk_durable: bool,
    /// What a mark names must itself be valid, not only be there.
    pub(crate) walk_transitive: bool,
    /// The pieces of a transaction mark each other.
    pub(crate) pieces_mark: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            cores: 2,
            operations: 3,
            write_sets: &[0b01, 0b10, 0b11],
            write_sets_of: None,
            checkpoints: 2,
            marks: true,
            self_marks: true,
            marks_until_valid: true,
            image_waits_for_valid: true,
            nat_unstaged: true,
            flush_image_before_nat: true,
            flush_nat_before_header: true,
            flush_header_before_reuse: true,
            nat_serial: true,
            in_place: false,
            reclaim_order: false,
            node_reuse: NodeReuse::Never,
            skip_invalid: true,
            by_version: true,
            greatest: true,
            recovery_crash: RecoveryCrash::None,
            data: Data::None,
            records: Records::Delta,
            two_way: true,
            freeze: true,
            mark_whole_node: true,
            pass_on: true,
            fsync: Fsync::Valid,
            walk_durable: true,
            walk_transitive: true,
            pieces_mark: true,
        }
    }
}
