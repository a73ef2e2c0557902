//! Length and checksum around each record of a stream.
//!
//! **Structure.** A frame is the length of the payload (4 bytes), the kind of record (2), two bytes
//! that are zero, a CRC32C (4), the payload. The CRC is over the offset of the frame in the stream, the
//! eight bytes in front of the CRC, and the payload: a frame that is left out, or comes twice, does not
//! match. **Invariants.** A length is checked before memory is taken for it. **Crash.** Nothing.

use std::io::{self, BufRead, Read, Write};

use dure_block::crc32c::{crc32c, crc32c_append};

use super::Done;
use super::decode::{Cursor, decode};
use super::fault::Fault;
use super::format::{self, MAGIC, PAYLOAD_MAX, Record, START_BYTES, VERSION, encode};
use crate::error::Cause;

/// Bytes in front of a payload.
pub(super) const HEAD_BYTES: usize = 12;

/// Where a reader or writer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Position {
    /// Records before.
    pub(super) record: u64,
    /// Bytes before.
    pub(super) offset: u64,
    /// What tells these records from others.
    pub(super) digest: u32,
}

impl Position {
    fn pass(&mut self, bytes: usize, crc: u32) {
        self.record += 1;
        self.offset += bytes as u64;
        self.digest = crc32c_append(self.digest, &crc.to_le_bytes());
    }
}

pub(super) fn checksum(offset: u64, head: &[u8], parts: [&[u8]; 2]) -> u32 {
    let crc = crc32c_append(crc32c(&offset.to_le_bytes()), head);
    parts.into_iter().fold(crc, crc32c_append)
}

/// Writes records.
pub(super) struct FrameWriter<'o> {
    out: &'o mut dyn Write,
    pub(super) at: Position,
    scratch: Vec<u8>,
}

impl<'o> FrameWriter<'o> {
    /// Begins a stream.
    pub(super) fn begin(out: &'o mut dyn Write) -> io::Result<FrameWriter<'o>> {
        let mut start = [0; START_BYTES];
        start[..8].copy_from_slice(&MAGIC);
        start[8..12].copy_from_slice(&VERSION.to_le_bytes());
        out.write_all(&start)?;
        let at = Position {
            offset: START_BYTES as u64,
            ..Position::default()
        };
        let scratch = Vec::new();
        Ok(FrameWriter { out, at, scratch })
    }

    pub(super) fn write(&mut self, record: &Record<'_>) -> io::Result<()> {
        let kind = encode(record, &mut self.scratch);
        let content: &[u8] = match record {
            Record::Data { bytes, .. } => bytes,
            _ => &[],
        };
        let len = self.scratch.len() + content.len();
        assert!(len <= PAYLOAD_MAX, "a record is bounded");
        let mut head = [0; HEAD_BYTES];
        let len = u32::try_from(len).expect("bounded");
        head[..4].copy_from_slice(&len.to_le_bytes());
        head[4..6].copy_from_slice(&kind.to_le_bytes());
        let crc = checksum(self.at.offset, &head[..8], [&self.scratch, content]);
        head[8..].copy_from_slice(&crc.to_le_bytes());
        for part in [&head[..], &self.scratch, content] {
            self.out.write_all(part)?;
        }
        self.at
            .pass(HEAD_BYTES + self.scratch.len() + content.len(), crc);
        Ok(())
    }

    /// Passes a record on as it came.
    pub(super) fn pass(&mut self, bytes: [&[u8]; 2]) -> io::Result<()> {
        bytes
            .into_iter()
            .try_for_each(|part| self.out.write_all(part))
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Reads records.
pub(super) struct FrameReader<'i> {
    input: &'i mut dyn BufRead,
    /// Behind the record that was read last.
    pub(super) at: Position,
    /// Where that begins.
    pub(super) start: Position,
    head: [u8; HEAD_BYTES],
    payload: Vec<u8>,
}

impl<'i> FrameReader<'i> {
    /// Reads the start of a stream.
    pub(super) fn begin(input: &'i mut dyn BufRead) -> Done<FrameReader<'i>> {
        let mut start = Vec::new();
        let mut bounded = input.take(START_BYTES as u64);
        bounded.read_to_end(&mut start)?;
        let magic = start.len().min(MAGIC.len());
        if start[..magic] != MAGIC[..magic] {
            return Err(Cause::Stream(Fault::NoStream));
        }
        if start.len() < START_BYTES {
            return Err(Cause::Stream(Fault::Cut));
        }
        let version = u32::from_le_bytes([start[8], start[9], start[10], start[11]]);
        if version != VERSION || start[12..] != [0; 4] {
            return Err(Cause::Stream(Fault::Version(version)));
        }
        let at = Position {
            offset: START_BYTES as u64,
            ..Position::default()
        };
        Ok(FrameReader {
            input,
            at,
            start: at,
            head: [0; HEAD_BYTES],
            payload: Vec::new(),
        })
    }

    /// Reads a record, and checks its bytes.
    pub(super) fn advance(&mut self) -> Done {
        self.start = self.at;
        read(self.input, &mut self.head)?;
        let mut head = Cursor(&self.head);
        let len = head.half().map_err(Cause::Stream)?;
        let len = usize::try_from(len).ok().filter(|len| *len <= PAYLOAD_MAX);
        let Some(len) = len else {
            return Err(Cause::Stream(Fault::Malformed("a record is too long")));
        };
        self.payload.clear();
        self.payload.reserve(len);
        let mut bounded = self.input.take(len as u64);
        bounded.read_to_end(&mut self.payload)?;
        if self.payload.len() < len {
            return Err(Cause::Stream(Fault::Cut));
        }
        let crc = checksum(self.at.offset, &self.head[..8], [&self.payload, &[]]);
        if crc.to_le_bytes() != self.head[8..] {
            return Err(Cause::Stream(Fault::Checksum));
        }
        self.at.pass(HEAD_BYTES + len, crc);
        Ok(())
    }

    fn kind(&self) -> u16 {
        u16::from_le_bytes([self.head[4], self.head[5]])
    }

    /// What the record says.
    pub(super) fn record(&self) -> Done<Record<'_>> {
        if self.head[6..8] != [0; 2] {
            return Err(Cause::Stream(Fault::Malformed("bytes that are to be zero")));
        }
        decode(self.kind(), &self.payload).map_err(Cause::Stream)
    }

    /// The record as it came.
    pub(super) fn bytes(&self) -> [&[u8]; 2] {
        [&self.head, &self.payload]
    }

    /// Why the record that was read last, or should have been, was no good.
    pub(super) fn failure(&self, cause: Cause) -> Cause {
        let was_read = self.at != self.start;
        Cause::Record {
            number: self.start.record,
            offset: self.start.offset,
            kind: match was_read {
                true => format::name(self.kind()),
                false => "",
            },
            cause: Box::new(cause),
        }
    }
}

fn read(input: &mut dyn BufRead, out: &mut [u8]) -> Done {
    input.read_exact(out).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => Cause::Stream(Fault::Cut),
        _ => Cause::Host(error),
    })
}
