//! A RAM disk that really stores, and images of its content.
//!
//! **Problem.** Tests, the simulator and in-memory volumes need a device that scales with cores and
//! takes memory only for what was written. **Structure.** A radix tree of two levels, allocated at
//! first use: tables of 512 chunks of 64 blocks. Each block has its own lock, on a cache line of
//! its own, so cores contend only for the same block. **Invariants.** A block is written and read
//! as a whole. **Crash.** Everything written is kept as long as the process lives.

use std::collections::BTreeMap;
use std::fmt;

use dure_sync::{Arc, CachePadded, OnceLock, RwLock};

use crate::buf::Block;
use crate::rank::RAM_RANK;
use crate::{BLOCK_BYTES, Device, DeviceInfo, Io, Lba, Result, blocks_of};

const CHUNK_BLOCKS: usize = 64;
const TABLE_CHUNKS: usize = 512;

/// [RamDevice.block] The content; none = zeroes.
type StoredBlock = CachePadded<RwLock<RAM_RANK, Option<Box<Block>>>>;
type Chunk = Box<[StoredBlock]>;
type Table = Box<[OnceLock<Chunk>]>;

/// A sparse RAM disk.
pub struct RamDevice {
    info: DeviceInfo,
    tables: Box<[OnceLock<Table>]>,
}

impl RamDevice {
    /// A RAM disk of `blocks` blocks of zeroes.
    ///
    /// # Panics
    /// If `blocks` is beyond 2^36 (256 TiB): the table of tables would be too large.
    #[must_use]
    pub fn new(name: &str, blocks: u64) -> Self {
        assert!(
            blocks <= 1 << 36,
            "a RAM disk of {blocks} blocks is too large"
        );
        let tables = index_of(blocks).div_ceil(CHUNK_BLOCKS * TABLE_CHUNKS);
        Self {
            info: DeviceInfo::in_memory(name, blocks),
            tables: (0..tables).map(|_| OnceLock::new()).collect(),
        }
    }

    /// A RAM disk with the content of `image`.
    #[must_use]
    pub fn from_image(name: &str, image: &Image) -> Self {
        let device = Self::new(name, image.blocks());
        for (lba, block) in &image.map {
            device.store(*lba, Some(block.bytes()));
        }
        device
    }

    /// A RAM disk with the content `bytes`, padded to whole blocks.
    #[must_use]
    pub fn from_bytes(name: &str, bytes: &[u8]) -> Self {
        Self::from_image(name, &Image::from_bytes(bytes))
    }

    /// A copy of the content. Blocks written meanwhile may be old or new, each as a whole.
    #[must_use]
    pub fn snapshot(&self) -> Image {
        let mut image = Image::zeroed(self.info.blocks);
        for (table_index, table) in self.tables.iter().enumerate() {
            let Some(table) = table.get() else { continue };
            for (chunk_index, chunk) in table.iter().enumerate() {
                let Some(chunk) = chunk.get() else { continue };
                for (block_index, block) in chunk.iter().enumerate() {
                    if let Some(block) = &*block.read() {
                        let number =
                            (table_index * TABLE_CHUNKS + chunk_index) * CHUNK_BLOCKS + block_index;
                        let number = u64::try_from(number).expect("block numbers fit in 64 bits");
                        image.set(Lba::new(number), SharedBlock::new(&block.0));
                    }
                }
            }
        }
        image
    }

    /// How many blocks take memory.
    #[must_use]
    pub fn stored_blocks(&self) -> usize {
        self.snapshot().map.len()
    }

    fn find(&self, lba: Lba) -> Option<&StoredBlock> {
        let (table, chunk, block) = place(lba);
        Some(&self.tables[table].get()?[chunk].get()?[block])
    }

    fn find_or_make(&self, lba: Lba) -> &StoredBlock {
        let (table, chunk, block) = place(lba);
        let table =
            self.tables[table].get_or_init(|| (0..TABLE_CHUNKS).map(|_| OnceLock::new()).collect());
        let chunk = table[chunk].get_or_init(|| {
            (0..CHUNK_BLOCKS)
                .map(|_| CachePadded::new(RwLock::new(None)))
                .collect()
        });
        &chunk[block]
    }

    fn store(&self, lba: Lba, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => match &mut *self.find_or_make(lba).write() {
                Some(block) => block.0.copy_from_slice(bytes),
                empty => *empty = Some(Block::boxed(bytes)),
            },
            None => {
                if let Some(block) = self.find(lba) {
                    *block.write() = None;
                }
            }
        }
    }

    fn load(&self, lba: Lba, out: &mut [u8]) {
        match self.find(lba).map(|block| block.read()) {
            Some(guard) => match &*guard {
                Some(block) => out.copy_from_slice(&block.0),
                None => out.fill(0),
            },
            None => out.fill(0),
        }
    }
}

fn index_of(number: u64) -> usize {
    usize::try_from(number).expect("the size of a RAM disk fits in memory addresses")
}

fn place(lba: Lba) -> (usize, usize, usize) {
    let block = index_of(lba.number());
    let chunk = block / CHUNK_BLOCKS;
    (
        chunk / TABLE_CHUNKS,
        chunk % TABLE_CHUNKS,
        block % CHUNK_BLOCKS,
    )
}

impl Device for RamDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn execute(&self, io: Io<'_>) -> Result<()> {
        match io {
            Io::Read { mut lba, out } => {
                for block in out.chunks_exact_mut(BLOCK_BYTES) {
                    self.load(lba, block);
                    lba = lba.offset(1);
                }
            }
            Io::Write {
                mut lba,
                parts,
                flags: _,
            } => {
                for block in parts.iter().flat_map(|part| part.chunks_exact(BLOCK_BYTES)) {
                    self.store(lba, Some(block));
                    lba = lba.offset(1);
                }
            }
            Io::Flush => {}
            Io::Discard { lba, blocks } => {
                for number in 0..blocks {
                    self.store(lba.offset(number), None);
                }
            }
        }
        Ok(())
    }
}

impl fmt::Debug for RamDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RamDevice")
            .field("info", &self.info)
            .finish_non_exhaustive()
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
