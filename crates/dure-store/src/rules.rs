//! The orderings of the store that a test may leave out (`dure_sync::canary`).

use dure_sync::canary::Rule;

/// Which rules hold: all of them, but for tests.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
#[doc(hidden)]
pub struct StoreRules {
    /// An operation depends on what it decided on.
    pub read_marks: Rule,
    /// A checkpoint commits what its images hold before the NAT names them.
    pub commit_before_nat: Rule,
    /// A checkpoint writes SIT pairs only when the images of all partitions are in the space map.
    pub nodes_before_space: Rule,
    /// A checkpoint flushes images and tables before it writes the volume header.
    pub tables_before_header: Rule,
    /// A checkpoint flushes the volume header before it writes journal headers.
    pub header_before_tails: Rule,
    /// Blocks are used again only when the handle that freed them is valid.
    pub reuse_after_valid: Rule,
    /// A pair is copied for the newest snapshot before it changes.
    pub keep_before_change: Rule,
    /// What a new snapshot has live is pinned before operations go on.
    pub pin_before_opening: Rule,
    /// No operation is under way in the checkpoint that is a snapshot.
    pub quiet_snapshots: Rule,
    /// What only a deleted snapshot needed is free when the header without it is durable.
    pub unpin_after_header: Rule,
    /// The lists of shared blocks are taken before SIT pairs and summaries.
    pub shared_before_space: Rule,
    /// A clone counts as a reference when it joins.
    pub clones_count: Rule,
    /// A clone notes the slots of its source, too.
    pub clones_note_sources: Rule,
    /// The superblock says that there are clones, or projects, before the first one.
    pub flag_before_use: Rule,
    /// Recovery compares slots that may have been in flight with their data.
    pub data_check: Rule,
    /// With `page_cache=nvram`: data is flushed before an operation joins that names it.
    pub data_before_record: Rule,
    /// A checkpoint writes pages of the data log to their blocks before the tail passes them.
    pub data_before_tail: Rule,
    /// With `durability=strict` an operation is durable before it releases its locks.
    pub strict_joins: Rule,
    /// A mount without a log says so in the volume header before the first change.
    pub mark_unlogged: Rule,
    /// A mount tells the media its number before the volume header has it.
    pub stamps_before_header: Rule,
    /// And that it counts, after that.
    pub stamps_after_header: Rule,
}
