//! A RAM disk that really stores, and images of its content.
//!
//! **Problem.** Tests, the simulator and in-memory volumes need a device that scales with cores and
//! takes memory only for what was written, and a request should cost what its copy costs.
//! **Structure.** One sparse mapping ([`Memory`]): the blocks, and after them a byte for each, which
//! is not 0 once the block was written. A write copies, then sets the byte, if it is not set; a
//! discard clears the byte, then gives the block's page back. **Invariants.** A block of which the
//! byte is 0 has no content. There is no lock: requests of the same block under way at once give a
//! mixture, as on any device. **Crash.** Everything written is kept as long as the process lives.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use dure_pmem::Memory;
use dure_sync::Arc;

use crate::buf::Block;
use crate::{BLOCK_BYTES, Device, DeviceInfo, Io, Lba, Result, blocks_of};

/// A sparse RAM disk.
#[derive(Debug)]
pub struct RamDevice {
    info: DeviceInfo,
    memory: Memory,
}

impl RamDevice {
    /// A RAM disk of `blocks` blocks of zeroes.
    ///
    /// # Panics
    /// If the process gets no addresses for them: beyond 2^34 blocks (64 TiB), or where a limit
    /// (`ulimit -v`, `vm.overcommit_memory=2`) forbids it.
    #[must_use]
    pub fn new(name: &str, blocks: u64) -> Self {
        let bytes = blocks.checked_mul(BLOCK_BYTES as u64 + 1);
        let memory = bytes.map(|bytes| Memory::new(bytes.max(1)));
        let Some(Ok(memory)) = memory else {
            panic!("a RAM disk of {blocks} blocks is too large: {memory:?}");
        };
        Self {
            info: DeviceInfo::in_memory(name, blocks),
            memory,
        }
    }

    /// A RAM disk with the content of `image`.
    #[must_use]
    pub fn from_image(name: &str, image: &Image) -> Self {
        let device = Self::new(name, image.blocks());
        for (lba, block) in &image.map {
            device.store(index_of(lba.number()), block.bytes());
        }
        device
    }

    /// A RAM disk with the content `bytes`, padded to whole blocks.
    #[must_use]
    pub fn from_bytes(name: &str, bytes: &[u8]) -> Self {
        Self::from_image(name, &Image::from_bytes(bytes))
    }

    /// A copy of the content. Of blocks that are written meanwhile it may have parts.
    #[must_use]
    pub fn snapshot(&self) -> Image {
        let mut image = Image::zeroed(self.info.blocks);
        let mut content = [0; BLOCK_BYTES];
        self.for_each_stored(|block| {
            self.memory.read(block * BLOCK_BYTES, &mut content);
            let number = u64::try_from(block).expect("block numbers fit in 64 bits");
            image.set(Lba::new(number), SharedBlock::new(&content));
        });
        image
    }

    /// How many blocks take memory.
    #[must_use]
    pub fn stored_blocks(&self) -> usize {
        let mut count = 0;
        self.for_each_stored(|_| count += 1);
        count
    }

    fn for_each_stored(&self, mut what: impl FnMut(usize)) {
        let blocks = index_of(self.info.blocks);
        let mut marks = [0; BLOCK_BYTES];
        for first in (0..blocks).step_by(marks.len()) {
            let marks = &mut marks[..(blocks - first).min(BLOCK_BYTES)];
            self.memory.read(self.marks(first..first).start, marks);
            if *marks == [0; BLOCK_BYTES][..marks.len()] {
                continue;
            }
            let stored = (first..).zip(&*marks).filter(|(_, mark)| **mark != 0);
            stored.for_each(|(block, _)| what(block));
        }
    }

    /// Where the bytes of blocks are that say whether they were written.
    fn marks(&self, blocks: Range<usize>) -> Range<usize> {
        let first = index_of(self.info.blocks) * BLOCK_BYTES;
        first + blocks.start..first + blocks.end
    }

    /// Writes whole blocks from `block` on.
    fn store(&self, block: usize, bytes: &[u8]) {
        self.memory.store(block * BLOCK_BYTES, bytes);
        // After the copy: a discard that clears the mark later frees the page later still.
        for block in block..block + bytes.len() / BLOCK_BYTES {
            let at = self.marks(block..block).start;
            if self.memory.byte(at) == 0 {
                self.memory.store(at, &[1]);
            }
        }
    }
}

fn index_of(number: u64) -> usize {
    usize::try_from(number).expect("the size of a RAM disk fits in memory addresses")
}

impl Device for RamDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn execute(&self, io: Io<'_>) -> Result<()> {
        let mut block = index_of(io.lba().number());
        match io {
            Io::Read { out, .. } => self.memory.read(block * BLOCK_BYTES, out),
            Io::Write { parts, .. } => {
                for part in parts {
                    self.store(block, part);
                    block += part.len() / BLOCK_BYTES;
                }
            }
            Io::Flush => {}
            Io::Discard { blocks, .. } => {
                let end = block + index_of(blocks);
                self.memory.zero(self.marks(block..end));
                self.memory.zero(block * BLOCK_BYTES..end * BLOCK_BYTES);
            }
        }
        Ok(())
    }
}

/// One block that images share.
#[derive(Clone, PartialEq, Eq)]
pub struct SharedBlock(Arc<Block>);

impl SharedBlock {
    /// A copy of `bytes`, which is one block long.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        Self(Arc::from(Block::boxed(bytes)))
    }

    /// The content.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0.0
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
            if chunk.iter().any(|byte| *byte != 0) {
                let mut block = Block::boxed_zeroed();
                block.0[..chunk.len()].copy_from_slice(chunk);
                image.set(Lba::new(number), SharedBlock(Arc::from(block)));
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
        static ZEROES: Block = Block([0; BLOCK_BYTES]);
        self.map.get(&lba).map_or(&ZEROES.0, SharedBlock::bytes)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn write(device: &RamDevice, lba: u64, byte: u8) {
        let block = [byte; BLOCK_BYTES];
        let flags = crate::WriteFlags::NONE;
        device
            .execute(Io::Write {
                lba: Lba::new(lba),
                parts: &[&block],
                flags,
            })
            .unwrap();
    }

    #[test]
    fn stores_only_what_was_written() {
        let device = RamDevice::new("ram", 1 << 30);
        for lba in [0, 63, 64, (1 << 30) - 1] {
            write(&device, lba, 3);
        }
        assert_eq!(device.stored_blocks(), 4);
        let mut out = [9; 2 * BLOCK_BYTES];
        device
            .execute(Io::Read {
                lba: Lba::new(64),
                out: &mut out,
            })
            .unwrap();
        assert_eq!(out[..BLOCK_BYTES], [3; BLOCK_BYTES]);
        assert_eq!(out[BLOCK_BYTES..], [0; BLOCK_BYTES]);
        device
            .execute(Io::Discard {
                lba: Lba::new(63),
                blocks: 2,
            })
            .unwrap();
        assert_eq!(device.stored_blocks(), 2);
    }

    #[test]
    fn images_compare_by_content() {
        let mut bytes = vec![0; 4 * BLOCK_BYTES];
        bytes[3 * BLOCK_BYTES] = 1;
        let device = RamDevice::from_bytes("ram", &bytes);
        assert_eq!(device.snapshot(), Image::from_bytes(&bytes));
        assert_eq!(device.snapshot().to_bytes(), bytes);
        // A stored block of zeroes equals one that was never written.
        write(&device, 1, 0);
        assert_eq!(device.snapshot(), Image::from_bytes(&bytes));
        write(&device, 2, 5);
        let difference = device
            .snapshot()
            .first_difference(&Image::from_bytes(&bytes));
        assert_eq!(difference, Some(Lba::new(2)));
        assert_ne!(device.snapshot(), Image::from_bytes(&bytes));
    }
}
