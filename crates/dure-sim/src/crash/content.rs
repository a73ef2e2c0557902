//! The content of a medium as one number for each block.
//!
//! **Problem.** Crashes of one run leave thousands of media that differ in a few blocks; which of
//! them are equal, and in what they differ, must be cheap to tell. **Structure.** [`Digests`] has a
//! number for each block of a medium, and one for all of it; [`BlockDigests`] caches those of
//! blocks that media share. **Invariants.** Equal content has equal numbers, and different content,
//! all but certainly, different ones. A block of zeroes and one that was never written are equal.
//! **Crash.** Nothing is kept.

use std::collections::{BTreeMap, BTreeSet};

use dure_block::crash::Changes;
use dure_block::ram::{Image, SharedBlock};
use dure_block::{BLOCK_BYTES, Device, Io, Lba};
use dure_fs::units::to_usize;
use dure_sync::Arc;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// The digest of a block of zeroes.
const ZEROES: u64 = 0;

fn digest(bytes: &[u8]) -> u64 {
    if bytes.iter().all(|byte| *byte == 0) {
        ZEROES
    } else {
        xxh3_64(bytes)
    }
}

/// Cached digests of blocks that several media share.
#[derive(Debug, Default)]
pub(super) struct BlockDigests {
    /// By address; the entry keeps the block alive, so that no other block can get its address.
    known: BTreeMap<usize, (SharedBlock, u64)>,
}

impl BlockDigests {
    fn of(&mut self, block: Option<&SharedBlock>) -> u64 {
        let Some(block) = block else {
            return ZEROES;
        };
        let address = block.bytes().as_ptr().addr();
        let make = || (block.clone(), digest(block.bytes()));
        self.known.entry(address).or_insert_with(make).1
    }
}

/// One number for each block of a medium.
#[derive(Debug, Clone)]
pub(super) struct Digests {
    blocks: Vec<u64>,
    /// The digest of all blocks together.
    whole: u64,
}

fn share(lba: u64, digest: u64) -> u64 {
    match digest {
        ZEROES => 0,
        digest => xxh3_64_with_seed(&digest.to_le_bytes(), lba),
    }
}

impl Digests {
    /// The digests of an image.
    pub(super) fn of(image: &Image) -> Digests {
        let mut digests = Digests {
            blocks: vec![ZEROES; to_usize(image.blocks())],
            whole: 0,
        };
        for lba in 0..image.blocks() {
            if let Some(block) = image.get(Lba::new(lba)) {
                digests.set(lba, digest(block.bytes()));
            }
        }
        digests
    }

    fn set(&mut self, lba: u64, digest: u64) -> u64 {
        let old = std::mem::replace(&mut self.blocks[to_usize(lba)], digest);
        if old != digest {
            self.whole ^= share(lba, old) ^ share(lba, digest);
        }
        old
    }

    /// Makes them those of the medium with `changes`; returns what undoes that.
    pub(super) fn apply(&mut self, changes: &Changes, known: &mut BlockDigests) -> Vec<(u64, u64)> {
        let change = |(lba, block): (&Lba, &Option<SharedBlock>)| {
            let new = known.of(block.as_ref());
            (lba.number(), self.set(lba.number(), new))
        };
        changes.iter().map(change).collect()
    }

    /// Looks at these blocks again.
    pub(super) fn read(&mut self, blocks: BTreeSet<u64>, device: &Arc<dyn Device>) {
        let mut bytes = [0; BLOCK_BYTES];
        for number in blocks {
            let (lba, out) = (Lba::new(number), &mut bytes[..]);
            let read = device.execute(Io::Read { lba, out });
            read.expect("memory can be read");
            self.set(number, digest(&bytes));
        }
    }

    /// Takes back what [`Digests::apply`] did.
    pub(super) fn undo(&mut self, old: Vec<(u64, u64)>) {
        for (lba, digest) in old {
            self.set(lba, digest);
        }
    }

    /// The digest of each block.
    pub(super) fn blocks(&self) -> &[u64] {
        &self.blocks
    }

    /// The digest of all blocks together.
    pub(super) fn whole(&self) -> u64 {
        self.whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_content_has_equal_digests() {
        let block = |byte| Some(SharedBlock::new(&[byte; BLOCK_BYTES]));
        let mut image = Image::zeroed(8);
        image.set(Lba::new(2), block(7).unwrap());
        let (mut digests, mut known) = (Digests::of(&image), BlockDigests::default());
        let start = digests.clone();
        let changes = Changes::from([(Lba::new(1), block(7)), (Lba::new(2), None)]);
        let undo = digests.apply(&changes, &mut known);
        let mut moved = Image::zeroed(8);
        moved.set(Lba::new(1), block(7).unwrap());
        // Written zeroes are what was never written.
        moved.set(Lba::new(5), block(0).unwrap());
        let moved = Digests::of(&moved);
        assert_eq!(digests.blocks(), moved.blocks());
        assert_eq!(digests.whole(), moved.whole());
        assert_ne!(digests.whole(), start.whole(), "the place counts");
        digests.undo(undo);
        assert_eq!(
            (digests.blocks(), digests.whole()),
            (start.blocks(), start.whole())
        );
    }
}
