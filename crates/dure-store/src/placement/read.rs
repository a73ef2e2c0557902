//! Reading pages: from the data log, or else from their blocks; compared with the CRC in the slot.
//!
//! **Invariants.** The log is asked first: a block that is not in it by now has its content on the
//! medium. It stays there as long as the block is not freed: the caller holds a lock that keeps it,
//! or looks at its slot again afterwards.

use dure_block::BlockBuf;
use dure_block::crc32c::crc32c;

use super::{Placement, contiguous};
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
    /// Those of [`Placement::read_page`].
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
    /// Those of [`Placement::read_page`], when the first page is not good.
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

    /// Reads pages whose blocks lie anywhere into `out`, one behind the other: those side by side in
    /// one request, and all of them together. Returns which of them are good.
    #[must_use]
    pub fn read_pages(&self, slots: &[Slot], out: &mut [u8]) -> Vec<bool> {
        // What was only preallocated has no content.
        let nothing = |slot: &Slot| (!slot.is_written()).then_some(true);
        let mut good: Vec<Option<bool>> = slots.iter().map(nothing).collect();
        let (mut runs, mut at) = (Vec::new(), 0);
        while at < slots.len() {
            let rest = slots[at..].iter().take_while(|slot| slot.is_written());
            let count = contiguous(rest.map(Slot::block), slots.len());
            let count = self.count_in_place(&slots[at..at + count]);
            if count > 0 {
                runs.push((at, slots[at].block(), count));
            }
            at += count.max(1);
        }
        let buf = |&(_, first, count): &_| (first, BlockBuf::zeroed(count));
        let requests = self.region.begin_reads(runs.iter().map(buf).collect());
        for ((at, _, count), request) in runs.into_iter().zip(requests) {
            let (buf, read) = self.region.end(request);
            if read.is_ok() {
                let bytes = &mut out[at * BLOCK_BYTES..][..count * BLOCK_BYTES];
                bytes.copy_from_slice(buf.as_slice());
                for (n, bytes) in bytes.chunks_exact(BLOCK_BYTES).enumerate() {
                    good[at + n] = Some(crc32c(bytes) == slots[at + n].crc.get());
                }
            }
        }
        // In the log; or one bad block failed the whole request, and only its page may fail.
        let pages = slots.iter().zip(out.chunks_exact_mut(BLOCK_BYTES));
        let alone = |(slot, bytes)| self.read_page(slot, bytes, String::new).is_ok();
        let known = good.into_iter().zip(pages);
        known
            .map(|(good, page)| good.unwrap_or_else(|| alone(page)))
            .collect()
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
