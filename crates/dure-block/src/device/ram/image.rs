//! The content of a device, that copies share.
//!
//! **Problem.** Crash tests keep thousands of contents that differ in a few blocks. **Structure.** A
//! map of shared blocks. **Invariants.** A block that is not in the map is zeroes. **Crash.** Memory
//! only.

use std::collections::BTreeMap;
use std::fmt;

use dure_sync::Arc;

use super::index_of;
use crate::{BLOCK_BYTES, Lba, blocks_of};

/// What a block that is not stored holds.
static ZEROES: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];

/// One block that images share.
#[derive(Clone, PartialEq, Eq)]
pub struct SharedBlock(Arc<[u8]>);

impl SharedBlock {
    /// A copy of `bytes`.
    ///
    /// # Panics
    /// If they are not one block.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        assert_eq!(bytes.len(), BLOCK_BYTES, "one block");
        Self(Arc::from(bytes))
    }

    /// The content.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for SharedBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedBlock")
    }
}

/// The content of a device: sparse, immutable blocks that copies share.
#[derive(Clone)]
pub struct Image {
    blocks: u64,
    map: BTreeMap<Lba, SharedBlock>,
}

impl Image {
    /// `blocks` blocks of zeroes.
    #[must_use]
    pub fn zeroed(blocks: u64) -> Self {
        Self {
            blocks,
            map: BTreeMap::new(),
        }
    }

    /// The content `bytes`, padded to whole blocks. Blocks of zeroes take no memory.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let mut image = Self::zeroed(blocks_of(bytes.len().next_multiple_of(BLOCK_BYTES)));
        for (number, chunk) in (0..).zip(bytes.chunks(BLOCK_BYTES)) {
            // One comparison of memory: crash tests ask it of every block of a volume.
            if *chunk != ZEROES[..chunk.len()] {
                let mut block = [0; BLOCK_BYTES];
                block[..chunk.len()].copy_from_slice(chunk);
                image.set(Lba::new(number), SharedBlock::new(&block));
            }
        }
        image
    }

    /// All bytes, for small images.
    ///
    /// # Panics
    /// If the image is larger than the address space.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; index_of(self.blocks) * BLOCK_BYTES];
        for (lba, block) in &self.map {
            let start = index_of(lba.number()) * BLOCK_BYTES;
            bytes[start..start + BLOCK_BYTES].copy_from_slice(block.bytes());
        }
        bytes
    }

    /// The size in blocks.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// The block at `lba`; none = zeroes.
    #[must_use]
    pub fn get(&self, lba: Lba) -> Option<&SharedBlock> {
        self.map.get(&lba)
    }

    /// The blocks that are stored.
    pub fn stored(&self) -> impl Iterator<Item = (Lba, &SharedBlock)> {
        self.map.iter().map(|(lba, block)| (*lba, block))
    }

    /// Replaces the block at `lba`.
    ///
    /// # Panics
    /// If `lba` is outside the image.
    pub fn set(&mut self, lba: Lba, block: SharedBlock) {
        assert!(
            lba.number() < self.blocks,
            "block {lba} is outside an image of {}",
            self.blocks
        );
        self.map.insert(lba, block);
    }

    /// Replaces the bytes from `at` on in the block at `lba`; the block then.
    ///
    /// # Panics
    /// If they do not end in it.
    pub(crate) fn store(&mut self, lba: Lba, at: usize, bytes: &[u8]) -> SharedBlock {
        let mut block = [0; BLOCK_BYTES];
        block.copy_from_slice(self.bytes_at(lba));
        block[at..at + bytes.len()].copy_from_slice(bytes);
        let block = SharedBlock::new(&block);
        self.set(lba, block.clone());
        block
    }

    /// Makes the block at `lba` zeroes.
    pub fn clear(&mut self, lba: Lba) {
        self.map.remove(&lba);
    }

    /// The first block in which the images differ; blocks missing in one count as zeroes, and so do
    /// blocks after its end.
    #[must_use]
    pub fn first_difference(&self, other: &Self) -> Option<Lba> {
        let differs = |lba: &Lba| {
            let (mine, theirs) = (self.bytes_at(*lba), other.bytes_at(*lba));
            mine != theirs
        };
        let here = self.map.keys().copied().find(differs);
        let there = other.map.keys().copied().find(differs);
        match (here, there) {
            (Some(here), Some(there)) => Some(here.min(there)),
            (one, other) => one.or(other),
        }
    }

    fn bytes_at(&self, lba: Lba) -> &[u8] {
        self.map.get(&lba).map_or(&ZEROES, SharedBlock::bytes)
    }
}

/// Images are equal if they have the same size and content, however it is stored.
impl PartialEq for Image {
    fn eq(&self, other: &Self) -> bool {
        self.blocks == other.blocks && self.first_difference(other).is_none()
    }
}

impl Eq for Image {}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Image({} blocks, {} stored)",
            self.blocks,
            self.map.len()
        )
    }
}
