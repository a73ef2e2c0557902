//! What a case leaves out or changes.

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

/// The rules of a case. The default is the journal as it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    /// Operations before the search stops.
    pub(crate) operations: usize,
    /// Which sets of buffers an operation may write, as bit sets.
    pub(crate) write_sets: &'static [u8],
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
    /// The running transactions of a closure close at one moment.
    pub(crate) close_together: bool,
    /// The pieces of a transaction mark each other.
    pub(crate) pieces_mark: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            operations: 3,
            write_sets: &[0b01, 0b10, 0b11],
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
            close_together: true,
            pieces_mark: true,
        }
    }
}
