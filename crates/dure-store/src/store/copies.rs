//! Copies of NAT and SIT that are damaged are written anew.
//!
//! **Structure.** A mount and a checkpoint write what reads have noted; a scrub writes what it finds.
//! **Invariants.** The checkpoint lock is held from the look at both copies to the write, so the slot
//! that counts is the same. One copy is written, when the other verifies: the first that does counts.
//! Race without the lock: a scrub reads a good copy; two checkpoints write other content to the same
//! slot; the scrub writes what it read over that. **Crash.** A torn write is of a copy that was damaged
//! before; the other is whole and durable.

use super::Store;
use crate::checkpoint::CheckpointState;
use crate::error::{Error, Result};
use crate::format::volume::SlotCode;
use crate::packs::{PairIndex, Table};
use crate::units::{BLOCK_BYTES, BlockNo};

type Block = [u8; BLOCK_BYTES];

impl Store {
    /// The block of the slot that counts of a pair, and that of its copy, if there is one.
    pub(super) fn places(&self, pair: PairIndex) -> Option<[BlockNo; 2]> {
        let SlotCode::Slot(slot) = self.nat.packs.code(pair) else {
            return None;
        };
        let at = BlockNo(self.pair_start(pair.table, pair.index) + slot);
        Some([at, self.region.copy_of(at)?])
    }

    /// The two blocks of the slots that count, of each pair of a table that was ever written; none of a
    /// volume with one copy. For tests.
    #[doc(hidden)]
    pub fn copies_of(&self, table: Table) -> Vec<[BlockNo; 2]> {
        let written = self.nat.packs.written(table);
        written
            .filter_map(|index| self.places(PairIndex { table, index }))
            .collect()
    }

    /// What a copy of a pair has, if it verifies.
    fn copy_at(&self, pair: PairIndex, at: BlockNo) -> Result<Block> {
        let SlotCode::Slot(slot) = self.nat.packs.code(pair) else {
            return Err(Error::Invalid("a pair that was never written"));
        };
        let mut block = [0; BLOCK_BYTES];
        self.region.read(at, &mut block)?;
        self.open_pair(pair, slot, &block)?;
        Ok(block)
    }

    /// What is wrong with one of the two copies of a pair: its block, and why. None if both are right,
    /// or both are damaged.
    pub(super) fn wrong_copy(
        &self,
        pair: PairIndex,
        _no_checkpoint: &CheckpointState,
    ) -> Option<(BlockNo, Error, Box<Block>)> {
        let [first, second] = self.places(pair)?;
        match (self.copy_at(pair, first), self.copy_at(pair, second)) {
            (Err(error), Ok(good)) => Some((first, error, Box::new(good))),
            (Ok(good), Err(error)) => Some((second, in_copy(error, second), Box::new(good))),
            (Ok(good), Ok(other)) if good != other => {
                let what = "second copy of a pair: it is not as the first".into();
                let wrong = Error::Corrupt {
                    what,
                    at: second.0,
                    want: 0,
                    got: 1,
                };
                Some((second, wrong, Box::new(good)))
            }
            _ => None,
        }
    }

    /// Writes the damaged copy of a pair anew, from the other, unless a checkpoint has done so; false if
    /// both are damaged.
    pub(super) fn mend_copy(&self, pair: PairIndex) -> Result<bool> {
        self.check_writable()?;
        let state = self.lock_checkpoint();
        let mended = self.write_copy(pair, &state)?;
        // Crash scenario without this flush: it is called mended, and is not when the other copy is
        // lost.
        self.region.flush()?;
        Ok(mended)
    }

    fn write_copy(&self, pair: PairIndex, no_checkpoint: &CheckpointState) -> Result<bool> {
        let Some((block, _, good)) = self.wrong_copy(pair, no_checkpoint) else {
            let one = self
                .places(pair)
                .map(|[first, _]| self.copy_at(pair, first));
            return Ok(one.is_some_and(|copy| copy.is_ok()));
        };
        self.region.write_once(block, &good[..])?;
        Ok(true)
    }

    /// Writes anew what reads have found damaged; durable with the next flush. What cannot be written
    /// stays as it is: the other copy serves, and a scrub says so.
    pub(super) fn mend_noted(&self, no_checkpoint: &CheckpointState) {
        for block in self.region.take_damaged() {
            let _stays_as_it_is = self.write_copy(self.pair_at(block), no_checkpoint);
        }
    }

    /// The pair of the NAT or SIT that this block is of.
    fn pair_at(&self, block: BlockNo) -> PairIndex {
        let number = (block.0 - self.layout.nat) / 2;
        let (table, index) = match number.checked_sub(u64::from(self.layout.nat_pairs)) {
            None => (Table::Nat, number),
            Some(index) => (Table::Sit, index),
        };
        PairIndex { table, index }
    }
}

/// The error of a copy, which says that it is in another block.
fn in_copy(error: Error, block: BlockNo) -> Error {
    match error {
        Error::Corrupt {
            what, want, got, ..
        } => Error::Corrupt {
            what: format!("second copy of a {what}"),
            at: block.0,
            want,
            got,
        },
        error => error,
    }
}
