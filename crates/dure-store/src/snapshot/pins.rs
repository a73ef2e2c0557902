//! Which blocks snapshots need.
//!
//! **Structure.** What the SIT of a snapshot has live, and the snapshots' own blocks. **Invariants.**
//! A SIT pair that a snapshot has kept is as that snapshot has it, and as older ones have it that did
//! not keep it; what the newest has not kept is as it is now. So the kept pairs of all, and what is
//! left of the table, are all that any snapshot shows. **Crash.** Counted anew at each mount.

use super::view::{read_kept, read_slot};
use super::{Snapshot, Snapshots};
use crate::error::Result;
use crate::layout::Layout;
use crate::media::Region;
use crate::packs::{Packs, PairIndex, Table};
use crate::space::{Pins, Space};
use crate::units::BlockNo;

impl Snapshots {
    /// Pins what snapshots need in a space map that was just loaded.
    ///
    /// # Errors
    /// `Corrupt`, naming block and field; `Block` when reading fails.
    pub fn pin(
        &self,
        (region, layout): (&Region, &Layout),
        space: &Space,
        packs: &Packs,
    ) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        space.pin(self.pins(region, (layout, packs))?, &self.own())?;
        space.count_pinned();
        Ok(())
    }

    /// What the SITs of all snapshots have live.
    ///
    /// # Errors
    /// Those of [`Snapshots::pin`].
    pub(super) fn pins(&self, region: &Region, (layout, packs): (&Layout, &Packs)) -> Result<Pins> {
        let mut pins = Pins::default();
        let (kept, unkept) = self.sit_pairs(packs);
        let kept = kept
            .into_iter()
            .map(|(pair, block)| (pair, read_kept(region, layout, pair, block)));
        let unkept = unkept
            .into_iter()
            .map(|pair| (pair, read_slot(region, (layout, packs), pair)));
        for (pair, found) in kept.chain(unkept) {
            if let Some((at, payload)) = found? {
                pins.add_pair(layout, pair.index, (at, &payload))?;
            }
        }
        Ok(pins)
    }

    /// The SIT pairs that are kept, and those that the newest snapshot has as they are now.
    fn sit_pairs(&self, packs: &Packs) -> (Vec<(PairIndex, BlockNo)>, Vec<PairIndex>) {
        let state = self.state.lock();
        let is_sit = |(pair, _): &(&PairIndex, &BlockNo)| pair.table == Table::Sit;
        let of = |one: &Snapshot| -> Vec<(PairIndex, BlockNo)> {
            let kept = one.kept.iter().filter(is_sit);
            kept.map(|(pair, block)| (*pair, *block)).collect()
        };
        let kept = state.all.iter().flat_map(of).collect();
        let Some(newest) = state.all.last() else {
            return (kept, Vec::new());
        };
        let table = Table::Sit;
        let written = packs.written(table).map(|index| PairIndex { table, index });
        let unkept = written.filter(|pair| !newest.kept.contains_key(pair));
        (kept, unkept.collect())
    }
}
