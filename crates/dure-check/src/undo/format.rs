//! Bytes of an undo file: a header block, then records one behind the other.
//!
//! **Invariants.** Every record's checksum begins with that of the record before it, so that the
//! file ends with its first record that does not verify: what lies behind is the rest of a write
//! that was cut off. **Crash.** A record counts with its last byte.

use dure_block::crc32c::{crc32c, crc32c_append};
use dure_store::units::BLOCK_BYTES;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// "DUREUNDO".
pub(super) const MAGIC: [u8; 8] = *b"DUREUNDO";
pub(super) const VERSION: u32 = 1;

/// Blocks of the volume header.
pub(super) const HEADER_BLOCKS: usize = dure_journal::format::slotted::MIRRORED_BLOCKS;

/// Begins the file; zeroes follow up to the end of the block.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct UndoHeaderV1 {
    pub(super) magic: [u8; 8],
    pub(super) version: U32,
    /// CRC32C of this structure with zero here.
    pub(super) crc: U32,
    /// The UUID of the volume.
    pub(super) uuid: [u8; 16],
    /// How many blocks the volume has.
    pub(super) total_blocks: U64,
    /// Checksums of the blocks of the volume header before the repair.
    pub(super) header_crcs: [U32; HEADER_BLOCKS],
    /// Written zero.
    pub(super) reserved: U64,
}
const _: () = assert!(size_of::<UndoHeaderV1>() == 48 + 4 * HEADER_BLOCKS);
pub(super) type UndoHeader = UndoHeaderV1;

impl UndoHeader {
    /// Its checksum, as it should be.
    pub(super) fn checksum(mut self) -> u32 {
        self.crc = U32::ZERO;
        crc32c(self.as_bytes())
    }
}

/// Kinds of records.
pub(super) mod kind {
    /// The old content of a block follows.
    pub(crate) const BEFORE: u32 = 1;
    /// A block is about to be written.
    pub(crate) const WRITE: u32 = 2;
    /// The repair is complete.
    pub(crate) const FINISH: u32 = 3;
    /// It is about to be taken back.
    pub(crate) const BEGUN: u32 = 4;
}

/// A record.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct RecordV1 {
    /// [`kind`].
    pub(super) kind: U32,
    /// CRC32C of the block: what it holds, or will hold.
    pub(super) block_crc: U32,
    /// The block; 0 where none is meant.
    pub(super) block: U64,
    /// From 1, without a gap.
    pub(super) sequence: U64,
    /// Written zero.
    pub(super) reserved: U32,
    /// CRC32C of the record with zero here, begun with the one of the record before it, or of the
    /// header.
    pub(super) crc: U32,
}
const _: () = assert!(size_of::<RecordV1>() == RECORD_BYTES);
pub(super) type Record = RecordV1;
pub(super) const RECORD_BYTES: usize = 32;

impl Record {
    pub(super) fn new(kind: u32, block: u64, block_crc: u32) -> Record {
        let mut record = Record::new_zeroed();
        record.kind.set(kind);
        record.block.set(block);
        record.block_crc.set(block_crc);
        record
    }

    /// Its checksum, as it should be after a record with checksum `before`. The content of a block
    /// has its own.
    pub(super) fn checksum(mut self, before: u32) -> u32 {
        self.crc = U32::ZERO;
        crc32c_append(before, self.as_bytes())
    }

    /// Bytes that follow it.
    pub(super) fn payload(&self) -> usize {
        match self.kind.get() {
            kind::BEFORE => BLOCK_BYTES,
            _ => 0,
        }
    }
}

/// Where records go on: the byte, and what the next one stands on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct End {
    pub(super) at: u64,
    pub(super) sequence: u64,
    pub(super) crc: u32,
}

impl End {
    /// Behind the header.
    pub(super) fn first(header: &UndoHeader) -> End {
        End {
            at: dure_store::units::to_u64(BLOCK_BYTES),
            sequence: 0,
            crc: header.crc.get(),
        }
    }

    /// Appends a record to `bytes`, which begin where this ended.
    pub(super) fn push(&mut self, bytes: &mut Vec<u8>, mut record: Record, content: &[u8]) {
        assert_eq!(content.len(), record.payload(), "as its kind says");
        record.sequence.set(self.sequence + 1);
        record.crc.set(record.checksum(self.crc));
        bytes.extend_from_slice(record.as_bytes());
        bytes.extend_from_slice(content);
        self.pass(&record);
    }

    /// Steps over a record that is sound.
    pub(super) fn pass(&mut self, record: &Record) {
        self.at += dure_store::units::to_u64(RECORD_BYTES + record.payload());
        self.sequence += 1;
        self.crc = record.crc.get();
    }
}
