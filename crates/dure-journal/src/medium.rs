//! The medium that the logs are on, and all that the journal asks of it.
//!
//! **Problem.** Commits, checkpoints, mkfs and the scan use the same medium, and none of them should
//! depend on which kind it is. **Structure.** [`LogMedium`], and six verbs: append a prefix, flush,
//! write, read and wipe a pair of journal headers, read a part of a log. A place is a block number,
//! whatever the kind: what a write and a flush are there, [`Media`] knows.
//!
//! **Invariants.** No other module names a device or its media. What was written before a flush
//! began is durable when the flush has returned, for every caller. Nothing is retried, and nothing
//! stops here: the error goes to the caller, which knows what it means.
//!
//! **Crash.** Of the writes since the last flush any subset may be there, each torn anywhere. In
//! persistent memory a write is durable when it returns, and torn between words before: its checksum
//! says so, and a prefix needs one fence, not one before and one after its header.

use dure_block::{BlockBuf, Lba, Media};
use dure_sync::Arc;

use crate::format::{JournalHeader, slotted};

/// What the logs of a volume are on.
#[derive(Debug, Clone)]
pub struct LogMedium {
    media: Arc<Media>,
    /// Whether a commit has something to flush.
    flushed: bool,
}

/// The block of a failed write, and its error.
pub(crate) type WriteFailed = (Lba, dure_block::Error);

impl LogMedium {
    /// Logs in `media`.
    #[must_use]
    pub fn on(media: Arc<Media>) -> Self {
        let flushed = true;
        Self { media, flushed }
    }

    /// Like `on`, where logs and their headers lie in persistent memory, and what a record names is
    /// durable before its handle joins: a commit need not flush what others write besides logs.
    #[must_use]
    pub fn never_flushed(self) -> Self {
        let flushed = false;
        Self { flushed, ..self }
    }

    /// Writes `prefix`, one sealed transaction of `used` bytes and zeroes, to its place `at` in a
    /// ring: one contiguous write. It is durable after the next flush.
    pub(crate) fn append(&self, at: Lba, prefix: &[u8], used: usize) -> dure_block::Result<()> {
        self.media.append(at, prefix, used)
    }

    /// Makes durable what was written before this call. Callers may share one flush.
    pub(crate) fn flush(&self) -> dure_block::Result<()> {
        match self.flushed {
            true => self.media.flush(),
            false => Ok(()),
        }
    }

    /// Writes `header` to both copies of the mirrored pair at `pair`. The caller has made the
    /// generation before it durable.
    pub(crate) fn write_header(
        &self,
        header: &JournalHeader,
        pair: Lba,
        seed: u32,
    ) -> Result<(), WriteFailed> {
        let mut block = BlockBuf::zeroed(1);
        for copy in slotted::mirrors(pair) {
            let at = header.seal(block.as_mut_slice(), copy, seed);
            self.write_slot(at, &block)?;
        }
        Ok(())
    }

    /// Wipes the slots of the mirrored pair at `pair` that do not hold `generation`.
    pub(crate) fn wipe_other_slot(&self, pair: Lba, generation: u64) -> Result<(), WriteFailed> {
        let zeroes = BlockBuf::zeroed(1);
        for copy in slotted::mirrors(pair) {
            self.write_slot(slotted::address(copy, generation + 1), &zeroes)?;
        }
        Ok(())
    }

    fn write_slot(&self, at: Lba, block: &BlockBuf) -> Result<(), WriteFailed> {
        let written = self.media.write(at, block.as_slice());
        written.map_err(|error| (at, error))
    }

    /// The blocks of the mirrored pair at `pair`.
    pub(crate) fn read_header(&self, pair: Lba) -> dure_block::Result<BlockBuf> {
        let mut blocks = BlockBuf::zeroed(slotted::MIRRORED_BLOCKS);
        self.read(pair, &mut blocks)?;
        Ok(blocks)
    }

    /// Fills `out` with what lies from `at` on.
    pub(crate) fn read(&self, at: Lba, out: &mut BlockBuf) -> dure_block::Result<()> {
        self.media.read(at, out.as_mut_slice())
    }
}
