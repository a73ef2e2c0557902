//! Records: the changes and notes inside a transaction.
//!
//! **Problem.** A commit writes only the bytes that changed. **Structure.** `{kind u8, len u24}`
//! and then a fixed head and the bytes, unaligned, one after the other. **Invariants.** The records
//! of a transaction fill its record bytes exactly. They stay as they lie on the medium, in one
//! piece of memory per transaction: recovery of dense logs reads millions of them. **Crash.**
//! Records have no checksum of their own: the transaction has one.

use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::ids::{GranuleId, Nid};
use crate::units::{to_u32, to_usize};

const KIND_DELTA: u8 = 1;
const KIND_NOTE: u8 = 2;
const KIND_IMAGE: u8 = 3;

/// Kind and length at the front of every record.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RecordHeadV1 {
    kind: u8,
    /// Bytes after this head, little endian.
    len: [u8; 3],
}

/// Follows the head of a delta; the new bytes follow it.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct DeltaV1 {
    nid: U64,
    version: U64,
    offset: U16,
    granule: u8,
    reserved: u8,
}

const HEAD_BYTES: usize = 4;
const DELTA_BYTES: usize = 20;
/// Bytes a delta takes besides its own.
pub const DELTA_HEAD_BYTES: usize = HEAD_BYTES + DELTA_BYTES;
/// Bytes a note takes besides its own.
pub const NOTE_HEAD_BYTES: usize = HEAD_BYTES + 1;
/// Bytes an image takes besides its own.
pub const IMAGE_HEAD_BYTES: usize = HEAD_BYTES + 8;
/// The longest record that its 24-bit length can express.
pub const RECORD_BYTES_MAX: usize = (1 << 24) - 1;

const _: () = assert!(size_of::<RecordHeadV1>() == HEAD_BYTES);
const _: () = assert!(size_of::<DeltaV1>() == DELTA_BYTES);

/// One record of a handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record<'r> {
    /// Bytes of a granule changed.
    Delta {
        /// The granule.
        granule: GranuleId,
        /// Its version after the change.
        version: u64,
        /// Where in the granule.
        offset: u16,
        /// The new bytes.
        bytes: &'r [u8],
    },
    /// A whole buffer, as it was when its transaction was committed.
    Image {
        /// The buffer.
        nid: Nid,
        /// Its content; only the file system interprets it.
        bytes: &'r [u8],
    },
    /// A note that only the file system interprets.
    Note {
        /// Which kind of note.
        kind: u8,
        /// Its content.
        bytes: &'r [u8],
    },
}

/// Why bytes are not a sequence of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordError {
    /// The bytes end inside a record.
    Short,
    /// The kind is not known.
    Kind(u8),
    /// A reserved byte is set.
    Reserved,
}

fn put_head(out: &mut Vec<u8>, kind: u8, len: usize) {
    assert!(
        len <= RECORD_BYTES_MAX,
        "a record has at most 2^24 - 1 bytes, not {len}"
    );
    let [a, b, c, _] = to_u32(len).to_le_bytes();
    out.extend_from_slice(
        RecordHeadV1 {
            kind,
            len: [a, b, c],
        }
        .as_bytes(),
    );
}

pub(crate) fn put_delta(
    out: &mut Vec<u8>,
    granule: GranuleId,
    version: u64,
    offset: u16,
    bytes: &[u8],
) {
    put_head(out, KIND_DELTA, DELTA_BYTES + bytes.len());
    let delta = DeltaV1 {
        nid: granule.nid.0.into(),
        version: version.into(),
        offset: offset.into(),
        granule: granule.index,
        reserved: 0,
    };
    out.extend_from_slice(delta.as_bytes());
    out.extend_from_slice(bytes);
}

/// A note whose bytes are `head` and then `tail`.
pub(crate) fn put_note_of(out: &mut Vec<u8>, kind: u8, head: &[u8], tail: &[u8]) {
    put_head(out, KIND_NOTE, 1 + head.len() + tail.len());
    out.push(kind);
    out.extend_from_slice(head);
    out.extend_from_slice(tail);
}

pub(crate) fn put_image(out: &mut Vec<u8>, nid: Nid, bytes: &[u8]) {
    put_head(out, KIND_IMAGE, 8 + bytes.len());
    out.extend_from_slice(&nid.0.to_le_bytes());
    out.extend_from_slice(bytes);
}

/// The records of a transaction, as they lie on the medium; all of them are sound.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoggedRecords {
    bytes: Box<[u8]>,
    count: u32,
}

impl LoggedRecords {
    /// Checks and takes over all record bytes of a transaction.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, RecordError> {
        let mut count = 0;
        let mut rest = bytes;
        while !rest.is_empty() {
            (_, rest) = split_record(rest)?;
            count += 1;
        }
        let bytes = bytes.into();
        Ok(Self { bytes, count })
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Each record with its place, in join order.
    pub fn places(&self) -> impl Iterator<Item = (u32, Record<'_>)> {
        let mut rest = &self.bytes[..];
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let place = to_u32(self.bytes.len() - rest.len());
            let record;
            (record, rest) = split_record(rest).expect("checked when they were read");
            Some((place, record))
        })
    }

    /// Each record, in join order.
    pub fn iter(&self) -> impl Iterator<Item = Record<'_>> {
        self.places().map(|(_, record)| record)
    }

    /// The record at a place that [`LoggedRecords::places`] returned.
    ///
    /// # Panics
    /// If none ends there.
    #[must_use]
    pub fn at(&self, place: u32) -> Record<'_> {
        let rest = &self.bytes[to_usize(place)..];
        split_record(rest).expect("a record stands there").0
    }
}

/// The first record of some, and those after it.
fn split_record(bytes: &[u8]) -> Result<(Record<'_>, &[u8]), RecordError> {
    let (head, rest) = RecordHeadV1::ref_from_prefix(bytes).map_err(|_| RecordError::Short)?;
    let len = u32::from_le_bytes([head.len[0], head.len[1], head.len[2], 0]);
    let (payload, rest) = rest
        .split_at_checked(to_usize(len))
        .ok_or(RecordError::Short)?;
    Ok((parse_record(head.kind, payload)?, rest))
}

fn parse_record(kind: u8, payload: &[u8]) -> Result<Record<'_>, RecordError> {
    match kind {
        KIND_DELTA => {
            let (delta, bytes) =
                DeltaV1::ref_from_prefix(payload).map_err(|_| RecordError::Short)?;
            if delta.reserved != 0 {
                return Err(RecordError::Reserved);
            }
            Ok(Record::Delta {
                granule: GranuleId {
                    nid: Nid(delta.nid.get()),
                    index: delta.granule,
                },
                version: delta.version.get(),
                offset: delta.offset.get(),
                bytes,
            })
        }
        KIND_NOTE => {
            let (kind, bytes) = payload.split_first().ok_or(RecordError::Short)?;
            Ok(Record::Note { kind: *kind, bytes })
        }
        KIND_IMAGE => {
            let (nid, bytes) = U64::ref_from_prefix(payload).map_err(|_| RecordError::Short)?;
            Ok(Record::Image {
                nid: Nid(nid.get()),
                bytes,
            })
        }
        other => Err(RecordError::Kind(other)),
    }
}
