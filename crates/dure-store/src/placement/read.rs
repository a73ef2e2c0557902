//! Reading pages: from the data log, or else from their blocks; compared with the CRC in the slot.
//!
//! **Invariants.** The log is asked first: a block that is not in it by now has its content on the
//! medium. It stays there as long as the block is not freed: the caller holds a lock that keeps it,
//! or looks at its slot again afterwards.

use dure_block::crc32c::crc32c;

use super::Placement;
use crate::error::{Error, Result};
use crate::format::slot::Slot;
use crate::units::BLOCK_BYTES;

impl Placement {
    /// Reads the page of `slot`, which is written. `what` names its checksum in errors.
    ///
    /// # Errors
    /// `Corrupt`, errors of the device.
    pub fn read_page(
        &self,
        slot: &Slot,
        out: &mut [u8],
        what: impl FnOnce() -> String,
    ) -> Result<()> {
        if !self.data_log.read(slot.block(), out) {
            self.region.read(slot.block(), out)?;
        }
        verify(slot, out, what)
    }

    /// Copies bytes of the page of `slot`, which is written, from its byte `within` on. The first
    /// such read of a block compares all of it with its checksum; `what` names that in errors.
    ///
    /// # Errors
    /// As [`Placement::read_page`].
    pub fn read_part(
        &self,
        slot: &Slot,
        (within, out): (usize, &mut [u8]),
        what: impl FnOnce() -> String,
    ) -> Result<()> {
        let block = slot.block();
        if self.verified.has(block) && !self.data_log.holds(block) {
            return Ok(self.region.read_part((block, within), out)?);
        }
        let mut page = [0; BLOCK_BYTES];
        self.read_page(slot, &mut page, what)?;
        out.copy_from_slice(&page[within..][..out.len()]);
        self.verified.note(block);
        Ok(())
    }

    /// Reads pages whose blocks are contiguous; returns how many from the first on are good. `what`
    /// names the checksum of the first in errors.
    ///
    /// # Errors
    /// As [`Placement::read_page`], when the first page is not good.
    pub fn read_run(
        &self,
        slots: &[Slot],
        out: &mut [u8],
        what: impl FnOnce() -> String,
    ) -> Result<usize> {
        let count = self.count_in_place(slots);
        let run = &mut out[..count * BLOCK_BYTES];
        if count == 0 || self.region.read(slots[0].block(), run).is_err() {
            // In the log; or one bad block failed the whole request, and only its page may fail.
            self.read_page(&slots[0], &mut out[..BLOCK_BYTES], what)?;
            return Ok(1);
        }
        verify(&slots[0], &run[..BLOCK_BYTES], what)?;
        Ok(1 + self.count_good(&slots[1..], &run[BLOCK_BYTES..]))
    }

    /// How many pages, from the first on, have their content in their blocks and not in the data
    /// log.
    #[must_use]
    pub fn count_in_place(&self, slots: &[Slot]) -> usize {
        let in_place = |slot: &&Slot| !self.data_log.holds(slot.block());
        slots.iter().take_while(in_place).count()
    }

    /// How many pages that were read, from the first on, have the CRC of their slot.
    #[must_use]
    pub fn count_good(&self, slots: &[Slot], bytes: &[u8]) -> usize {
        let pages = slots.iter().zip(bytes.chunks_exact(BLOCK_BYTES));
        let good = |(slot, bytes): &(&Slot, &[u8])| crc32c(bytes) == slot.crc.get();
        pages.take_while(good).count()
    }
}

/// Compares a page with the CRC in its slot.
fn verify(slot: &Slot, bytes: &[u8], what: impl FnOnce() -> String) -> Result<()> {
    let got = crc32c(bytes);
    if got == slot.crc.get() {
        return Ok(());
    }
    Err(Error::Corrupt {
        what: what(),
        at: slot.block().0,
        want: u64::from(slot.crc.get()),
        got: u64::from(got),
    })
}
