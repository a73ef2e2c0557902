//! Pairs as a snapshot has them.
//!
//! **Invariants.** A pair that is kept is kept before a slot of it is written that counts later,
//! and the slot that counts stays as it is until the checkpoint after. So what a slot says counts
//! for the snapshot if the pair is not kept *after* it was read. **Crash.** Nothing is written.

use dure_sync::Arc;

use super::{SnapshotInfo, Snapshots};
use crate::error::{Error, Result};
use crate::format::nat::NatBlock;
use crate::format::pair_kind;
use crate::format::sit::SitBlock;
use crate::format::volume::SlotCode;
use crate::layout::Layout;
use crate::media::Region;
use crate::packs::{Packs, PairIndex, Table};
use crate::pair;
use crate::units::BlockNo;
use zerocopy::FromBytes;

/// What one snapshot shows. The snapshot cannot be deleted while it lives, but for a glance.
#[derive(Debug)]
pub(crate) struct View {
    snapshots: Arc<Snapshots>,
    pub(crate) info: SnapshotInfo,
    /// It is counted as a mount.
    is_counted: bool,
}

impl Drop for View {
    fn drop(&mut self) {
        if !self.is_counted {
            return;
        }
        let mut state = self.snapshots.state.lock();
        let same = |one: &&mut super::Snapshot| one.info.id == self.info.id;
        if let Some(one) = state.all.iter_mut().find(same) {
            one.views -= 1;
        }
    }
}

impl View {
    /// The snapshot with this name.
    ///
    /// # Errors
    /// `NoSnapshot`.
    pub(crate) fn of(snapshots: &Arc<Snapshots>, name: &str) -> Result<View> {
        let mut state = snapshots.state.lock();
        let found = state.all.iter_mut().find(|one| one.info.name == name);
        let one = found.ok_or_else(|| Error::NoSnapshot { name: name.into() })?;
        one.views += 1;
        let info = one.info.clone();
        drop(state);
        Ok(View {
            snapshots: snapshots.clone(),
            info,
            is_counted: true,
        })
    }

    /// A snapshot that may be deleted meanwhile: then what this shows is anything.
    pub(crate) fn glance(snapshots: &Arc<Snapshots>, info: SnapshotInfo) -> View {
        View {
            snapshots: snapshots.clone(),
            info,
            is_counted: false,
        }
    }

    /// Where the pair lies as the snapshot has it, if it has changed since: `NONE` if it had never
    /// been written.
    fn kept(&self, pair: PairIndex) -> Option<BlockNo> {
        let state = self.snapshots.state.lock();
        let mut from_here = state
            .all
            .iter()
            .skip_while(|one| one.info.id < self.info.id);
        from_here.find_map(|one| one.kept.get(&pair).copied())
    }

    /// The content of a pair, and the block that it was read from; `None` if it had never been
    /// written.
    ///
    /// # Errors
    /// `Corrupt`, naming pair and block; `Block` when reading fails.
    pub(crate) fn read(
        &self,
        region: &Region,
        (layout, packs): (&Layout, &Packs),
        pair: PairIndex,
    ) -> Result<Option<(BlockNo, Vec<u8>)>> {
        let Some(block) = self.kept(pair) else {
            let now = read_slot(region, (layout, packs), pair);
            return match self.kept(pair) {
                None => now,
                Some(block) => read_kept(region, layout, pair, block),
            };
        };
        read_kept(region, layout, pair, block)
    }
}

/// What counts of a pair now; `None` if it was never written.
pub(super) fn read_slot(
    region: &Region,
    (layout, packs): (&Layout, &Packs),
    pair: PairIndex,
) -> Result<Option<(BlockNo, Vec<u8>)>> {
    let SlotCode::Slot(slot) = packs.code(pair) else {
        return Ok(None);
    };
    let (first, kind) = match pair.table {
        Table::Nat => (layout.nat_pair(pair.index), pair_kind::NAT),
        Table::Sit => {
            let index = u32::try_from(pair.index).expect("SIT pairs are u32");
            (layout.sit_pair(index), pair_kind::SIT)
        }
    };
    let payload = pair::read_slot(region, first, slot, kind, layout.crc_seed)?;
    Ok(Some((BlockNo(first + slot), payload)))
}

/// A kept pair.
pub(super) fn read_kept(
    region: &Region,
    layout: &Layout,
    pair: PairIndex,
    block: BlockNo,
) -> Result<Option<(BlockNo, Vec<u8>)>> {
    if block.is_none() {
        return Ok(None);
    }
    let payload = pair::read_single(region, block, pair_kind::KEPT, layout.crc_seed)?;
    let size = "a pair's payload has this size";
    let index = match pair.table {
        Table::Nat => NatBlock::ref_from_bytes(&payload).expect(size).index,
        Table::Sit => SitBlock::ref_from_bytes(&payload).expect(size).index,
    };
    let index = index.get();
    Error::expect_eq("number of a kept pair", block.0, pair.index, index)?;
    Ok(Some((block, payload)))
}
