//! What snapshots have, for a caller that keeps none of them from being deleted.
//!
//! **Invariants.** What a [`Past`] says counts if its snapshot is still there afterwards: else its tables
//! and blocks may have been overwritten. **Crash.** Nothing is written.

use dure_sync::Arc;

use super::Store;
use crate::error::{Error, Result};
use crate::format::nat::NatEntry;
use crate::format::node::NodeImage;
use crate::format::pair_kind;
use crate::node::nat::Nat;
use crate::pair;
use crate::snapshot::View;
use crate::units::{BLOCK_BYTES, BlockNo, Nid};

/// A snapshot, as long as it is there.
#[derive(Debug)]
pub struct Past {
    /// The number of the checkpoint that it is. That of a snapshot is used again when the newest was
    /// deleted; this is not.
    pub checkpoint: u64,
    /// Its name.
    pub name: String,
    nat: Nat,
}

impl Store {
    /// The snapshots, the newest first.
    #[must_use]
    pub fn pasts(&self) -> Vec<Past> {
        let of = |info: crate::snapshot::SnapshotInfo| {
            let nat = Nat::new(self.region.clone(), &self.layout, self.nat.packs.clone());
            Past {
                checkpoint: info.checkpoint,
                name: info.name.clone(),
                nat: nat.of_snapshot(Arc::new(View::glance(&self.snapshots, info))),
            }
        };
        self.snapshots.list().into_iter().rev().map(of).collect()
    }

    /// The name of the snapshot that is this checkpoint, if it is there.
    #[must_use]
    pub fn past_name(&self, checkpoint: u64) -> Option<String> {
        let mut all = self.snapshots.list().into_iter();
        let found = all.find(|one| one.checkpoint == checkpoint);
        found.map(|one| one.name)
    }

    /// Whether this is the store of a snapshot.
    #[must_use]
    pub fn is_past(&self) -> bool {
        self.nat.is_of_snapshot()
    }

    /// The node `nid` of a snapshot, and where it lies; `None` if there is none.
    ///
    /// # Errors
    /// `Corrupt`, a failed read.
    pub fn past_node(&self, past: &Past, nid: Nid) -> Result<Option<(NatEntry, NodeImage)>> {
        let Some(entry) = self.past_entry(past, nid)? else {
            return Ok(None);
        };
        let mut bytes = [0; BLOCK_BYTES];
        self.region.read(entry.block(), &mut bytes)?;
        let image = NodeImage::open(&bytes, nid, entry.block(), self.layout.crc_seed)?;
        Ok(Some((entry, image)))
    }

    /// Where the node `nid` of a snapshot lies, if there is one.
    ///
    /// # Errors
    /// Those of [`Store::past_node`].
    pub fn past_entry(&self, past: &Past, nid: Nid) -> Result<Option<NatEntry>> {
        let entry = past.nat.entry(nid)?;
        let is_there = self.layout.locate(entry.block()).is_some();
        Ok(Some(entry).filter(|_| is_there))
    }

    /// Compares a block of the snapshots' own: a table, a list, or a pair that is kept.
    ///
    /// # Errors
    /// `Corrupt`: it is none of these.
    pub fn check_own(&self, block: BlockNo, bytes: &[u8]) -> Result<()> {
        let open = |kind| pair::open_slot(bytes, block.0, 0, kind, self.layout.crc_seed);
        let kinds = [pair_kind::KEPT, pair_kind::KEPT_LIST, pair_kind::SNAPSHOTS];
        match kinds.into_iter().any(|kind| open(kind).is_ok()) {
            true => Ok(()),
            false => Err(Error::Corrupt {
                what: "table of snapshots, or a pair kept for one".into(),
                at: block.0,
                want: 1,
                got: 0,
            }),
        }
    }
}
