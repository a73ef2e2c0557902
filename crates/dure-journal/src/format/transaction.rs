//! The transaction: one contiguous write of header, marks and records.
//!
//! **Problem.** A commit must be all or nothing, with one write and without a second one for a
//! commit block. **Structure.** A header whose checksum covers everything up to the last block.
//! **Invariants.** A transaction is complete iff magic, checksum, address, epoch, journal and
//! sequence hold; it lies in one log segment. What lies behind its records in its last block does
//! not count: the checksum takes zeroes for it, since persistent memory keeps what it had there.
//! **Crash.** A torn write fails the checksum; a write
//! of an older life of the segment fails epoch or sequence.

use dure_block::{BLOCK_BYTES, BlockBuf, Lba};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::checksum::{crc_of_zeroes, crc_without_field};
use super::record::LoggedRecords;
use crate::ids::{JournalId, Mark};
use crate::rules::Rules;
use crate::units::{BLOCK_BYTES_U32, to_u32, to_usize};

/// First bytes of a transaction; 8 bytes per mark follow, then the records; the rest of the
/// last block does not count.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct TransactionHeaderV1 {
    /// "DRtx".
    pub magic: U32,
    /// CRC32C of all its blocks with this field zero, and zeroes behind the records, seeded by the
    /// volume's seed.
    pub crc: U32,
    /// The block number it was written to.
    pub address: U64,
    /// Epoch of the volume.
    pub epoch: U64,
    /// Which transaction of its journal in this epoch.
    pub sequence: U64,
    /// First handle number.
    pub first: U64,
    /// Last handle number.
    pub last: U64,
    /// Greatest handle number of its journal that was known to be durable with all it depends on.
    pub durable_upto: U64,
    /// Marks after this header.
    pub mark_count: U32,
    /// Bytes of records after the marks.
    pub record_bytes: U32,
    /// Handles: `last - first + 1`.
    pub handle_count: U32,
    /// Blocks of the whole transaction.
    pub block_count: U32,
    /// Which journal.
    pub journal: U16,
    /// Zero.
    pub reserved: [U16; 3],
}

/// The current version of the transaction header.
pub type TransactionHeader = TransactionHeaderV1;

pub(crate) const TRANSACTION_HEADER_BYTES: usize = 80;
const MAGIC: u32 = 0x7874_5244;
const CRC_FIELD: usize = 4;
const MARK_BYTES: usize = 8;

const _: () = assert!(size_of::<TransactionHeaderV1>() == TRANSACTION_HEADER_BYTES);
const _: () = assert!(std::mem::offset_of!(TransactionHeaderV1, crc) == CRC_FIELD);

/// The fields of a transaction besides its marks and records.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seal {
    pub(crate) address: Lba,
    pub(crate) epoch: u64,
    pub(crate) journal: JournalId,
    pub(crate) sequence: u64,
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) durable_upto: u64,
    pub(crate) seed: u32,
}

/// Memory in which one transaction after another is made.
#[derive(Debug)]
pub(crate) struct SealBuffer {
    blocks: BlockBuf,
    /// End of the last one; all bytes behind it are zero, so that the next one clears only what it
    /// does not cover of it.
    end: usize,
}

impl Default for SealBuffer {
    fn default() -> Self {
        Self {
            blocks: BlockBuf::zeroed(1),
            end: 0,
        }
    }
}

impl SealBuffer {
    /// Makes a transaction of these parts. Returns its blocks, and how many of their bytes it takes;
    /// everything after the records is zero.
    pub(crate) fn seal(&mut self, what: &Seal, marks: &[Mark], records: &[u8]) -> (&[u8], usize) {
        assert!(what.first <= what.last, "a transaction holds handles");
        assert!(
            what.durable_upto < what.first,
            "what is being written is not durable yet"
        );
        let records_at = TRANSACTION_HEADER_BYTES + marks.len() * MARK_BYTES;
        let end = records_at + records.len();
        let blocks = end.div_ceil(BLOCK_BYTES);
        let mut header = header(what, blocks, marks.len(), records.len());
        if self.blocks.blocks() < blocks {
            self.blocks.resize(blocks);
        }
        let out = self.blocks.as_mut_slice();
        if end < self.end {
            out[end..self.end].fill(0);
        }
        self.end = end;
        let out = &mut out[..blocks * BLOCK_BYTES];
        out[..TRANSACTION_HEADER_BYTES].copy_from_slice(header.as_bytes());
        for (place, mark) in out[TRANSACTION_HEADER_BYTES..records_at]
            .chunks_exact_mut(MARK_BYTES)
            .zip(marks)
        {
            place.copy_from_slice(&mark.as_u64().to_le_bytes());
        }
        out[records_at..end].copy_from_slice(records);
        let crc = crc_without_field(what.seed, &out[..end], CRC_FIELD);
        header.crc = crc_of_zeroes(crc, out.len() - end).into();
        out[..TRANSACTION_HEADER_BYTES].copy_from_slice(header.as_bytes());
        (out, end)
    }
}

/// The header, without its checksum, of a transaction with so many blocks, marks and bytes of
/// records.
fn header(what: &Seal, blocks: usize, marks: usize, records: usize) -> TransactionHeaderV1 {
    let handle_count = u32::try_from(what.last - what.first + 1)
        .expect("each handle takes bytes of the segment, so their count fits");
    TransactionHeaderV1 {
        magic: MAGIC.into(),
        crc: 0.into(),
        address: what.address.number().into(),
        epoch: what.epoch.into(),
        sequence: what.sequence.into(),
        first: what.first.into(),
        last: what.last.into(),
        durable_upto: what.durable_upto.into(),
        mark_count: to_u32(marks).into(),
        record_bytes: to_u32(records).into(),
        handle_count: handle_count.into(),
        block_count: to_u32(blocks).into(),
        journal: what.journal.number().into(),
        reserved: [0.into(); 3],
    }
}

/// What the scan expects at a place in the log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expected {
    pub(crate) epoch: u64,
    pub(crate) journal: JournalId,
    pub(crate) seed: u32,
    pub(crate) rules: Rules,
}

/// A complete transaction.
#[derive(Debug)]
pub(crate) struct ParsedTransaction {
    pub(crate) sequence: u64,
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) durable_upto: u64,
    pub(crate) marks: Vec<Mark>,
    pub(crate) records: LoggedRecords,
}

/// Sequence and length of the transaction that seems to start with `block`, read from `at`. The
/// checksum is not verified yet: this only tells how much to read.
pub(crate) fn peek(block: &[u8], at: Lba, expected: &Expected) -> Option<(u64, u32)> {
    let (header, _) = TransactionHeaderV1::ref_from_prefix(block).ok()?;
    let sound = header.magic.get() == MAGIC
        && header.address.get() == at.number()
        && header.journal.get() == expected.journal.number()
        && (!expected.rules.epoch.holds() || header.epoch.get() == expected.epoch)
        && header.block_count.get() > 0;
    sound.then(|| (header.sequence.get(), header.block_count.get()))
}

/// Reads the transaction that fills `blocks`, which [`peek`] has measured. `None` if it is not
/// complete.
pub(crate) fn open(blocks: &[u8], expected: &Expected) -> Option<ParsedTransaction> {
    let (header, rest) = TransactionHeaderV1::ref_from_prefix(blocks).ok()?;
    let (first, last) = (header.first.get(), header.last.get());
    let mark_bytes = to_usize(header.mark_count.get()).checked_mul(MARK_BYTES)?;
    let record_bytes = to_usize(header.record_bytes.get());
    let bytes = TRANSACTION_HEADER_BYTES
        .checked_add(mark_bytes)?
        .checked_add(record_bytes)?;
    let (used, padding) = blocks.split_at_checked(bytes)?;
    let crc = crc_without_field(expected.seed, used, CRC_FIELD);
    let crc = crc_of_zeroes(crc, padding.len());
    if expected.rules.checksum.holds() && header.crc.get() != crc {
        return None;
    }
    let consistent = header.block_count.get() == to_u32(blocks.len()) / BLOCK_BYTES_U32
        && bytes.div_ceil(BLOCK_BYTES) == blocks.len() / BLOCK_BYTES
        && first > 0
        && last <= Mark::NUMBER_MAX
        && last.checked_sub(first)?.checked_add(1)? == u64::from(header.handle_count.get())
        && header.durable_upto.get() < first
        && header.reserved.iter().all(|word| word.get() == 0);
    if !consistent {
        return None;
    }
    let (marks, rest) = rest.split_at_checked(mark_bytes)?;
    let records = rest.get(..record_bytes)?;
    let marks = marks
        .as_chunks::<MARK_BYTES>()
        .0
        .iter()
        .map(|mark| Mark::from_u64(u64::from_le_bytes(*mark)))
        .collect();
    Some(ParsedTransaction {
        sequence: header.sequence.get(),
        first,
        last,
        durable_upto: header.durable_upto.get(),
        marks,
        records: LoggedRecords::read(records).ok()?,
    })
}
