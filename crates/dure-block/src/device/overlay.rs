//! A RAM device on top of a shared, unchanging image.
//!
//! **Problem.** Crash tests mount thousands of states of one device that differ in a few blocks.
//! **Structure.** Reads come from the base image unless the block was changed here; changed blocks
//! are in sharded maps. **Invariants.** The base never changes; an overlay takes memory only for
//! its changed blocks. **Crash.** As [`crate::ram`].

use std::collections::BTreeMap;
use std::fmt;

use dure_sync::{Arc, Mutex};

use crate::ram::{Image, SharedBlock};
use crate::rank::OVERLAY_RANK;
use crate::{BLOCK_BYTES, Device, DeviceInfo, Io, Lba, Result};

const SHARDS: u64 = 16;

/// Changed blocks; none = zeroes.
type Shard = BTreeMap<Lba, Option<SharedBlock>>;

/// A copy-on-write view of an [`Image`].
pub struct OverlayRam {
    info: DeviceInfo,
    base: Arc<Image>,
    shards: Vec<Mutex<OVERLAY_RANK, Shard>>,
}

impl OverlayRam {
    /// A device with the content of `base`.
    #[must_use]
    pub fn new(name: &str, base: Arc<Image>) -> Self {
        let info = DeviceInfo::in_memory(name, base.blocks());
        Self {
            info,
            base,
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
        }
    }

    fn shard(&self, lba: Lba) -> &Mutex<OVERLAY_RANK, Shard> {
        let index = usize::try_from(lba.number() % SHARDS).expect("a shard number is small");
        &self.shards[index]
    }

    /// The block at `lba`; none = zeroes.
    pub(crate) fn get(&self, lba: Lba) -> Option<SharedBlock> {
        let changed = self.shard(lba).lock().get(&lba).cloned();
        changed.unwrap_or_else(|| self.base.get(lba).cloned())
    }

    /// Replaces the block at `lba`.
    pub(crate) fn set(&self, lba: Lba, block: Option<SharedBlock>) {
        assert!(lba.number() < self.info.blocks, "the range was checked");
        self.shard(lba).lock().insert(lba, block);
    }

    /// How many blocks were changed.
    #[must_use]
    pub fn changed_blocks(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    /// A copy of the content.
    #[must_use]
    pub fn snapshot(&self) -> Image {
        let mut image = Image::clone(&self.base);
        for shard in &self.shards {
            for (lba, block) in &*shard.lock() {
                match block {
                    Some(block) => image.set(*lba, block.clone()),
                    None => image.clear(*lba),
                }
            }
        }
        image
    }
}

impl Device for OverlayRam {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn execute(&self, io: Io<'_>) -> Result<()> {
        match io {
            Io::Read { mut lba, out } => {
                for chunk in out.chunks_exact_mut(BLOCK_BYTES) {
                    match self.get(lba) {
                        Some(block) => chunk.copy_from_slice(block.bytes()),
                        None => chunk.fill(0),
                    }
                    lba = lba.offset(1);
                }
            }
            Io::Write {
                mut lba,
                parts,
                flags: _,
            } => {
                for chunk in parts.iter().flat_map(|part| part.chunks_exact(BLOCK_BYTES)) {
                    self.set(lba, Some(SharedBlock::new(chunk)));
                    lba = lba.offset(1);
                }
            }
            Io::Flush => {}
            Io::Discard { lba, blocks } => {
                (0..blocks).for_each(|number| self.set(lba.offset(number), None));
            }
        }
        Ok(())
    }
}

impl fmt::Debug for OverlayRam {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OverlayRam")
            .field("info", &self.info)
            .field("changed_blocks", &self.changed_blocks())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WriteFlags;

    #[test]
    fn changes_do_not_reach_the_base() {
        let base = Arc::new(Image::from_bytes(&[1; 4 * BLOCK_BYTES]));
        let (one, two) = (
            OverlayRam::new("one", Arc::clone(&base)),
            OverlayRam::new("two", Arc::clone(&base)),
        );
        let block = [7; BLOCK_BYTES];
        let (lba, parts, flags) = (Lba::new(2), [&block[..]], WriteFlags::NONE);
        one.execute(Io::Write {
            lba,
            parts: &parts,
            flags,
        })
        .unwrap();
        one.execute(Io::Discard {
            lba: Lba::new(0),
            blocks: 1,
        })
        .unwrap();
        assert_eq!(two.snapshot(), *base);
        let mut expected = vec![1; 4 * BLOCK_BYTES];
        expected[..BLOCK_BYTES].fill(0);
        expected[2 * BLOCK_BYTES..3 * BLOCK_BYTES].fill(7);
        assert_eq!(one.snapshot(), Image::from_bytes(&expected));
        let mut out = vec![9; 4 * BLOCK_BYTES];
        one.execute(Io::Read {
            lba: Lba::new(0),
            out: &mut out,
        })
        .unwrap();
        assert_eq!(out, expected);
        assert_eq!((one.changed_blocks(), two.changed_blocks()), (2, 0));
    }
}
