//! Orphan slots: inodes to be freed, or truncated further, after a crash. One chain of orphan nodes
//! per partition; the first one is nid `1 + partition`. Granules 0..6 hold slots, granule 6 the
//! link.

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::Error;
use crate::units::Nid;

/// Slots in one granule.
pub const GRANULE_SLOTS: usize = 32;
/// Granules with slots in one node.
pub const SLOT_GRANULES: usize = 6;
/// The granule whose first 8 bytes name the next orphan node of the partition (0: none).
pub const LINK_GRANULE: u8 = 6;
/// `intent`: the inode has no name; free it.
pub const INTENT_DELETE: u64 = u64::MAX;

/// One slot. `ino == 0`: free. `intent`: [`INTENT_DELETE`], or the size a truncate is going down
/// to.
#[derive(
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Default,
)]
#[repr(C)]
pub struct OrphanSlotV1 {
    /// The inode; 0: the slot is free.
    pub ino: U64,
    /// What is to be done.
    pub intent: U64,
}
const _: () = assert!(size_of::<OrphanSlotV1>() == 16);
const _: () = assert!(GRANULE_SLOTS * 16 == 512);
/// The current version.
pub type OrphanSlot = OrphanSlotV1;

/// The damage when two links lead to the same orphan node.
#[must_use]
pub fn met_twice(nid: Nid) -> Error {
    Error::Corrupt {
        what: format!("chains of orphan nodes that lead to node {nid}"),
        at: nid.0,
        want: 1,
        got: 2,
    }
}
