//! A RAM disk that really stores.
//!
//! **Problem.** Tests, the simulator and in-memory volumes need a device that scales with cores and
//! takes memory only for what was written, and a request should cost what its copy costs.
//! **Structure.** Sparse mappings ([`Memory`]) of a TiB each, as no free range of addresses is as
//! long as the largest disk: in each the blocks, and after them a byte for each, which is not 0 once
//! the block was written. A write copies, then sets the byte, if it is not set; a discard clears the
//! byte, then gives the block's page back. **Invariants.** A block of which the byte is 0 has no
//! content. There is no lock: requests of the same block under way at once give a mixture, as on any
//! device. **Crash.** Everything written is kept as long as the process lives.

use std::ops::Range;

use dure_pmem::Memory;

pub use self::image::{Image, SharedBlock};
use crate::{BLOCK_BYTES, Device, DeviceInfo, Io, Lba, Result, blocks_of};

mod image;

/// Blocks of a mapping.
const PIECE_BLOCKS: usize = 1 << 28;
/// Blocks whose marks are looked at together, since most blocks were never written.
const RUN_BLOCKS: usize = 64;
/// Their marks then.
const UNWRITTEN: [u8; RUN_BLOCKS] = [0; RUN_BLOCKS];

/// A sparse RAM disk.
#[derive(Debug)]
pub struct RamDevice {
    info: DeviceInfo,
    pieces: Box<[Piece]>,
}

impl RamDevice {
    /// A RAM disk of `blocks` blocks of zeroes.
    ///
    /// # Panics
    /// If the process gets no addresses for them: from some 120 TiB on, or where a limit
    /// (`ulimit -v`, `vm.overcommit_memory=2`) forbids it.
    #[must_use]
    pub fn new(name: &str, blocks: u64) -> Self {
        let end = index_of(blocks);
        let starts = (0..end).step_by(PIECE_BLOCKS);
        let pieces = starts.map(|start| Piece::new((end - start).min(PIECE_BLOCKS)));
        let pieces: dure_pmem::Result<_> = pieces.collect();
        Self {
            info: DeviceInfo::in_memory(name, blocks),
            pieces: pieces.unwrap_or_else(|error| {
                panic!("a RAM disk of {blocks} blocks is too large: {error}")
            }),
        }
    }

    /// A RAM disk with the content of `image`.
    #[must_use]
    pub fn from_image(name: &str, image: &Image) -> Self {
        let device = Self::new(name, image.blocks());
        for (lba, block) in image.stored() {
            device.store(lba, block.bytes());
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
        for (piece, first) in self.pieces.iter().zip((0..).step_by(PIECE_BLOCKS)) {
            piece.for_each_stored(|block| {
                piece.read(block, &mut content);
                let number = u64::try_from(first + block).expect("block numbers fit in 64 bits");
                image.set(Lba::new(number), SharedBlock::new(&content));
            });
        }
        image
    }

    /// How many blocks take memory.
    #[must_use]
    pub fn stored_blocks(&self) -> usize {
        let mut count = 0;
        for piece in &self.pieces {
            piece.for_each_stored(|_| count += 1);
        }
        count
    }

    fn store(&self, lba: Lba, bytes: &[u8]) {
        self.for_each_piece(lba, blocks_of(bytes.len()), |piece, at, part| {
            piece.store(at, &bytes[bytes_of(&part)]);
        });
    }

    /// Calls `what` with each piece that has some of `blocks` blocks from `lba` on, the first of
    /// them in it, and which of them these are.
    fn for_each_piece(
        &self,
        lba: Lba,
        blocks: u64,
        mut what: impl FnMut(&Piece, usize, Range<usize>),
    ) {
        let (first, blocks) = (index_of(lba.number()), index_of(blocks));
        let mut done = 0;
        while done < blocks {
            let (piece, at) = ((first + done) / PIECE_BLOCKS, (first + done) % PIECE_BLOCKS);
            let end = blocks.min(done + PIECE_BLOCKS - at);
            what(&self.pieces[piece], at, done..end);
            done = end;
        }
    }
}

/// One mapping.
#[derive(Debug)]
struct Piece {
    memory: Memory,
    blocks: usize,
}

impl Piece {
    fn new(blocks: usize) -> dure_pmem::Result<Self> {
        let memory = Memory::new(blocks * (BLOCK_BYTES + 1))?;
        Ok(Self { memory, blocks })
    }

    fn read(&self, block: usize, out: &mut [u8]) {
        self.memory.read(block * BLOCK_BYTES, out);
    }

    fn store(&self, block: usize, bytes: &[u8]) {
        self.memory.store(block * BLOCK_BYTES, bytes);
        // After the copy: a discard that clears the mark later frees the page later still.
        for mark in self.marks(&(block..block + bytes.len() / BLOCK_BYTES)) {
            if self.memory.byte(mark) == 0 {
                self.memory.store(mark, &[1]);
            }
        }
    }

    fn discard(&self, blocks: &Range<usize>) {
        self.memory.zero(self.marks(blocks));
        self.memory.zero(bytes_of(blocks));
    }

    /// Where the bytes of blocks are that say whether they were written.
    fn marks(&self, blocks: &Range<usize>) -> Range<usize> {
        let first = self.blocks * BLOCK_BYTES;
        first + blocks.start..first + blocks.end
    }

    fn for_each_stored(&self, mut what: impl FnMut(usize)) {
        let mut marks = [0; BLOCK_BYTES];
        for first in (0..self.blocks).step_by(BLOCK_BYTES) {
            let marks = &mut marks[..(self.blocks - first).min(BLOCK_BYTES)];
            self.memory.read(self.marks(&(first..first)).start, marks);
            let runs = (first..).step_by(RUN_BLOCKS).zip(marks.chunks(RUN_BLOCKS));
            for (first, run) in runs.filter(|(_, run)| **run != UNWRITTEN[..run.len()]) {
                let stored = (first..).zip(run).filter(|(_, mark)| **mark != 0);
                stored.for_each(|(block, _)| what(block));
            }
        }
    }
}

fn bytes_of(blocks: &Range<usize>) -> Range<usize> {
    blocks.start * BLOCK_BYTES..blocks.end * BLOCK_BYTES
}

fn index_of(number: u64) -> usize {
    usize::try_from(number).expect("the size of a RAM disk fits in memory addresses")
}

impl Device for RamDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn execute(&self, io: Io<'_>) -> Result<()> {
        match io {
            Io::Read { lba, out } => {
                self.for_each_piece(lba, blocks_of(out.len()), |piece, at, part| {
                    piece.read(at, &mut out[bytes_of(&part)]);
                });
            }
            Io::Write { mut lba, parts, .. } => {
                for part in parts {
                    self.store(lba, part);
                    lba = lba.offset(blocks_of(part.len()));
                }
            }
            Io::Flush => {}
            Io::Discard { lba, blocks } => {
                self.for_each_piece(lba, blocks, |piece, at, part| {
                    piece.discard(&(at..at + part.len()));
                });
            }
        }
        Ok(())
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
    fn requests_go_on_in_the_next_mapping() {
        let device = RamDevice::new("ram", 3 << 28);
        let (lba, flags) = (Lba::new((1 << 28) - 1), crate::WriteFlags::NONE);
        let blocks: Vec<u8> = (0..=250)
            .cycle()
            .take(3 * BLOCK_BYTES)
            .map(|byte: u8| byte / 3)
            .collect();
        let parts = [&blocks[..]];
        device
            .execute(Io::Write {
                lba,
                parts: &parts,
                flags,
            })
            .unwrap();
        let mut out = vec![9; blocks.len()];
        device.execute(Io::Read { lba, out: &mut out }).unwrap();
        assert_eq!(out, blocks);
        let stored = device.snapshot();
        assert_eq!(
            stored.get(lba.offset(2)).unwrap().bytes(),
            &blocks[2 * BLOCK_BYTES..]
        );
        device.execute(Io::Discard { lba, blocks: 2 }).unwrap();
        assert_eq!(device.stored_blocks(), 1);
        device.execute(Io::Read { lba, out: &mut out }).unwrap();
        assert_eq!(out[..2 * BLOCK_BYTES], [0; 2 * BLOCK_BYTES]);
        assert_eq!(out[2 * BLOCK_BYTES..], blocks[2 * BLOCK_BYTES..]);
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
