//! Records: the changes and notes inside a transaction.
//!
//! **Problem.** A commit writes only the bytes that changed. **Structure.** `{kind u8, len u24}`
//! and then a fixed head and the bytes, unaligned, one behind the other. **Invariants.** The
//! records of a transaction fill its record bytes exactly. **Crash.** Records have no checksum of
//! their own: the transaction has one.

use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::ids::{GranuleId, Nid};
use crate::units::to_u32;

const KIND_DELTA: u8 = 1;
const KIND_NOTE: u8 = 2;
const KIND_IMAGE: u8 = 3;

/// Kind and length in front of every record.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RecordHeadV1 {
    kind: u8,
    /// Bytes behind this head, little endian.
    len: [u8; 3],
}

/// Behind the head of a delta; the new bytes follow.
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
/// The longest record: what its 24-bit length can say.
pub const RECORD_BYTES_MAX: usize = (1 << 24) - 1;

const _: () = assert!(size_of::<RecordHeadV1>() == HEAD_BYTES);
const _: () = assert!(size_of::<DeltaV1>() == DELTA_BYTES);

/// One record of a handle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// Bytes of a granule changed.
    Delta {
        /// The granule.
        granule: GranuleId,
        /// Its version after the change.
        version: u64,
        /// Where in the granule.
        offset: u16,
        /// The new bytes.
        bytes: Vec<u8>,
    },
    /// A whole buffer, as it was when its transaction was committed.
    Image {
        /// The buffer.
        nid: Nid,
        /// Its content; what is in it only the file system understands.
        bytes: Vec<u8>,
    },
    /// Something only the file system understands.
    Note {
        /// Which kind of note.
        kind: u8,
        /// Its content.
        bytes: Vec<u8>,
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

/// Reads all records of a transaction.
pub(crate) fn parse_records(mut bytes: &[u8]) -> Result<Vec<Record>, RecordError> {
    let mut records = Vec::new();
    while !bytes.is_empty() {
        let (head, rest) = RecordHeadV1::ref_from_prefix(bytes).map_err(|_| RecordError::Short)?;
        let len = u32::from_le_bytes([head.len[0], head.len[1], head.len[2], 0]);
        let (payload, rest) = rest
            .split_at_checked(crate::units::to_usize(len))
            .ok_or(RecordError::Short)?;
        records.push(parse_record(head.kind, payload)?);
        bytes = rest;
    }
    Ok(records)
}

fn parse_record(kind: u8, payload: &[u8]) -> Result<Record, RecordError> {
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
                bytes: bytes.to_vec(),
            })
        }
        KIND_NOTE => {
            let (kind, bytes) = payload.split_first().ok_or(RecordError::Short)?;
            Ok(Record::Note {
                kind: *kind,
                bytes: bytes.to_vec(),
            })
        }
        KIND_IMAGE => {
            let (nid, bytes) = U64::ref_from_prefix(payload).map_err(|_| RecordError::Short)?;
            Ok(Record::Image {
                nid: Nid(nid.get()),
                bytes: bytes.to_vec(),
            })
        }
        other => Err(RecordError::Kind(other)),
    }
}
