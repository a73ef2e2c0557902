//! Reads a log in large pieces.
//!
//! **Problem.** A log of small transactions read block by block would take a device round trip for
//! each. **Structure.** A window of consecutive blocks of one segment. **Invariants.** It never
//! reads beyond the segment. **Crash.** Nothing is written.

use dure_block::{BLOCK_BYTES, BlockBuf, Lba};

use crate::error::{Error, Result};
use crate::medium::LogMedium;
use crate::units::to_usize;

/// Blocks read at once.
const WINDOW_BLOCKS: u32 = 64;

pub(super) struct Reader<'m> {
    medium: &'m LogMedium,
    buffer: BlockBuf,
    start: Lba,
    /// Blocks of the buffer that are filled, from `start` on.
    blocks: u32,
}

impl<'m> Reader<'m> {
    pub(super) fn new(medium: &'m LogMedium) -> Self {
        Self {
            medium,
            buffer: BlockBuf::zeroed(0),
            start: Lba::new(0),
            blocks: 0,
        }
    }

    /// The `count` blocks at `at`; `left` blocks of the segment begin there.
    pub(super) fn blocks(&mut self, at: Lba, count: u32, left: u32) -> Result<&[u8]> {
        assert!(
            count > 0 && count <= left,
            "a transaction lies in one segment"
        );
        let held = at.number().checked_sub(self.start.number());
        let held = held.filter(|skip| skip + u64::from(count) <= u64::from(self.blocks));
        let skip = if let Some(skip) = held {
            skip
        } else {
            let length = WINDOW_BLOCKS.max(count).min(left);
            self.buffer.resize(to_usize(length));
            // Nothing counts as filled while the read may fail half way.
            self.blocks = 0;
            self.medium
                .read(at, &mut self.buffer)
                .map_err(|source| Error::Device { at, source })?;
            self.start = at;
            self.blocks = length;
            0
        };
        let from = usize::try_from(skip).expect("the blocks lie inside the window") * BLOCK_BYTES;
        Ok(&self.buffer.as_slice()[from..from + to_usize(count) * BLOCK_BYTES])
    }
}
