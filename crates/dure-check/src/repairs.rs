//! What the passes have found that a repair may correct.
//!
//! **Structure.** The right value of each thing, by its place. The passes enter it as they go,
//! [`super::repair`] writes it at the end, unless an issue forbids it.

use std::collections::BTreeMap;

use dure_store::census::Census;
use dure_store::format::summary::SummaryEntry;
use dure_store::units::{BlockNo, GranuleId, Ino, Nid};

/// The corrections that a repair writes.
#[derive(Debug, Default)]
pub(super) struct Repairs {
    /// Right block counts.
    pub(super) blocks: BTreeMap<Ino, u64>,
    /// What damaged copies of pairs are to have, by block.
    pub(super) copies: BTreeMap<BlockNo, Vec<u8>>,
    /// Right counts of the volume header.
    pub(super) counts: Option<Census>,
    /// Nodes whose NAT entries have a wrong count of free inodes.
    pub(super) free_inodes: Vec<Nid>,
    /// Right link counts.
    pub(super) links: BTreeMap<Ino, u32>,
    /// Orphan slots of inodes that do not exist.
    pub(super) orphans: Vec<(GranuleId, usize)>,
    /// Right owners.
    pub(super) summaries: BTreeMap<BlockNo, SummaryEntry>,
}
