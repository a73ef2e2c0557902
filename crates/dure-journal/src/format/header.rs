//! The journal header: where the tail is and which segments the ring has.
//!
//! **Problem.** Recovery must know where a log starts and which blocks belong to it. **Structure.**
//! A mirrored pair per journal: nothing else tells which header is the newest, and an old one would
//! give segments of files to a ring, or end its log early. **Invariants.** A segment is used only
//! after a header that lists it is durable, and reused only after a header whose tail has left it
//! is durable. **Crash.** A header of another epoch than the volume's means that nothing of its log
//! counts except its list of segments: the log of the new epoch starts at the first one listed.

use dure_block::Lba;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::slotted::{self, SLOT_BODY_BYTES, SLOT_HEADER_BYTES, SlotKind};
use crate::error::Error;
use crate::ids::JournalId;
use crate::units::{to_u32, to_u64, to_usize};

/// Segments a ring may have.
pub const SEGMENTS_MAX: usize = 480;
const FIXED_BYTES: usize = 80;
const PADDING_BYTES: usize = SLOT_BODY_BYTES - FIXED_BYTES - SEGMENTS_MAX * 8;

/// Body of a journal header's slot.
#[derive(Debug, Clone, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct JournalHeaderV1 {
    /// Epoch of the volume when it was written.
    pub epoch: U64,
    /// Which journal.
    pub journal: U32,
    /// Blocks of a log segment.
    pub segment_blocks: U32,
    /// Index into `segments` of the tail's segment.
    pub tail_segment: U32,
    /// Blocks from its start to the tail.
    pub tail_offset: U32,
    /// Sequence of the transaction expected there.
    pub tail_sequence: U64,
    /// First handle number of that transaction.
    pub tail_number: U64,
    /// Greatest handle number that is known to be durable.
    pub durable_upto: U64,
    /// The completed checkpoint that moved the tail here.
    pub checkpoint: U64,
    /// How many of `segments` are used.
    pub segment_count: U32,
    /// Zero.
    pub reserved: [U32; 5],
    /// First block of each segment; zero after the last.
    pub segments: [U64; SEGMENTS_MAX],
    /// Zero.
    pub padding: [u8; PADDING_BYTES],
}

const _: () = assert!(size_of::<JournalHeaderV1>() == SLOT_BODY_BYTES);
const _: () = assert!(std::mem::offset_of!(JournalHeaderV1, segments) == FIXED_BYTES);

/// Where a log begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TailPosition {
    /// Index of the segment in the ring's list.
    pub segment: u32,
    /// Blocks from the segment's start.
    pub offset: u32,
    /// Sequence of the transaction expected there.
    pub sequence: u64,
    /// First handle number of that transaction.
    pub number: u64,
}

/// A journal header whose fields were checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalHeader {
    /// Epoch of the volume when it was written.
    pub epoch: u64,
    /// Which journal.
    pub journal: JournalId,
    /// Generation of the pair.
    pub generation: u64,
    /// Blocks of a log segment.
    pub segment_blocks: u32,
    /// Where the log begins.
    pub tail: TailPosition,
    /// Greatest handle number known to be durable.
    pub durable_upto: u64,
    /// The completed checkpoint that moved the tail here.
    pub checkpoint: u64,
    /// First block of each segment, in ring order.
    pub segments: Vec<Lba>,
}

impl JournalHeader {
    /// Writes the header into `block` and seals it for the pair at `pair`, one of the two copies.
    /// Returns the address of its slot.
    ///
    /// # Panics
    /// If the ring has no or too many segments.
    pub fn seal(&self, block: &mut [u8], pair: Lba, seed: u32) -> Lba {
        assert!(!self.segments.is_empty(), "a ring has segments");
        assert!(
            self.segments.len() <= SEGMENTS_MAX,
            "a ring has at most {SEGMENTS_MAX} segments"
        );
        let mut segments = [U64::new(0); SEGMENTS_MAX];
        for (slot, segment) in segments.iter_mut().zip(&self.segments) {
            *slot = segment.number().into();
        }
        let body = JournalHeaderV1 {
            epoch: self.epoch.into(),
            journal: u32::from(self.journal.number()).into(),
            segment_blocks: self.segment_blocks.into(),
            tail_segment: self.tail.segment.into(),
            tail_offset: self.tail.offset.into(),
            tail_sequence: self.tail.sequence.into(),
            tail_number: self.tail.number.into(),
            durable_upto: self.durable_upto.into(),
            checkpoint: self.checkpoint.into(),
            segment_count: to_u32(self.segments.len()).into(),
            reserved: [0.into(); 5],
            segments,
            padding: [0; PADDING_BYTES],
        };
        block[SLOT_HEADER_BYTES..].copy_from_slice(body.as_bytes());
        slotted::seal(block, SlotKind::JOURNAL_HEADER, pair, self.generation, seed)
    }

    /// Reads the newest valid slot of the mirrored pair at `pair`, whose blocks are `blocks`.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if no slot is valid, or a sealed field is impossible.
    pub fn open(blocks: &[u8], pair: Lba, seed: u32, journal: JournalId) -> Result<Self, Error> {
        let corrupt = |what, want, got| Error::Corrupt {
            what,
            at: pair,
            want,
            got,
        };
        let newest = slotted::open_mirrored(blocks, SlotKind::JOURNAL_HEADER, pair, seed)
            .ok_or_else(|| corrupt("journal header: valid slots", 1, 0))?;
        let body = JournalHeaderV1::ref_from_bytes(newest.body)
            .map_err(|_| corrupt("journal header: bytes", to_u64(SLOT_BODY_BYTES), 0))?;
        let count = to_usize(body.segment_count.get());
        if body.journal.get() != u32::from(journal.number()) {
            let want = u64::from(journal.number());
            return Err(corrupt(
                "journal header: journal",
                want,
                body.journal.get().into(),
            ));
        }
        if count == 0 || count > SEGMENTS_MAX {
            return Err(corrupt(
                "journal header: segments",
                to_u64(SEGMENTS_MAX),
                to_u64(count),
            ));
        }
        if to_usize(body.tail_segment.get()) >= count {
            let got = body.tail_segment.get().into();
            return Err(corrupt(
                "journal header: segment of the tail",
                to_u64(count),
                got,
            ));
        }
        if body.tail_offset > body.segment_blocks {
            let want = body.segment_blocks.get().into();
            return Err(corrupt(
                "journal header: tail offset",
                want,
                body.tail_offset.get().into(),
            ));
        }
        let unused = body.segments[count..]
            .iter()
            .any(|segment| segment.get() != 0);
        let reserved = body.reserved.iter().any(|word| word.get() != 0);
        if unused || reserved || body.padding.iter().any(|byte| *byte != 0) {
            return Err(corrupt("journal header: reserved bytes", 0, 1));
        }
        Ok(Self {
            epoch: body.epoch.get(),
            journal,
            generation: newest.generation,
            segment_blocks: body.segment_blocks.get(),
            tail: TailPosition {
                segment: body.tail_segment.get(),
                offset: body.tail_offset.get(),
                sequence: body.tail_sequence.get(),
                number: body.tail_number.get(),
            },
            durable_upto: body.durable_upto.get(),
            checkpoint: body.checkpoint.get(),
            segments: body.segments[..count]
                .iter()
                .map(|segment| Lba::new(segment.get()))
                .collect(),
        })
    }
}
