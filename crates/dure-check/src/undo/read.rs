//! What an undo file says.

use std::collections::BTreeMap;

use dure_block::crc32c::crc32c;
use dure_store::units::{BLOCK_BYTES, to_u64};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::format::{End, MAGIC, RECORD_BYTES, Record, UndoHeader, VERSION, kind};
use super::{UndoError, UndoFile};

/// A block that was written.
#[derive(Debug, Clone)]
pub(super) struct Block {
    /// Where its old content is in the file.
    pub(super) at: u64,
    /// Checksum of the old content.
    pub(super) old: u32,
    /// Checksums of what was about to be written, in order.
    pub(super) new: Vec<u32>,
}

/// The content of a file.
#[derive(Debug)]
pub(super) struct Contents {
    pub(super) header: UndoHeader,
    pub(super) blocks: BTreeMap<u64, Block>,
    /// The repair was complete, and no undo has begun.
    pub(super) finished: bool,
    pub(super) end: End,
}

/// Reads the file up to its first record that does not verify.
pub(super) fn contents(file: &dyn UndoFile) -> Result<Contents, UndoError> {
    let header = header(file)?;
    let mut contents = Contents {
        end: End::first(&header),
        header,
        blocks: BTreeMap::new(),
        finished: false,
    };
    while let Some(record) = next(file, &contents.end)? {
        let (block, crc) = (record.block.get(), record.block_crc.get());
        match record.kind.get() {
            kind::BEFORE => {
                let first = Block {
                    at: contents.end.at + to_u64(RECORD_BYTES),
                    old: crc,
                    new: Vec::new(),
                };
                contents.blocks.entry(block).or_insert(first);
            }
            kind::WRITE => {
                let Some(block) = contents.blocks.get_mut(&block) else {
                    return Err(UndoError::NotUndo("it lacks the old content of a block"));
                };
                block.new.push(crc);
            }
            kind::FINISH => contents.finished = true,
            kind::BEGUN => contents.finished = false,
            _ => return Err(UndoError::NotUndo("a newer dure wrote it")),
        }
        contents.end.pass(&record);
    }
    Ok(contents)
}

fn header(file: &dyn UndoFile) -> Result<UndoHeader, UndoError> {
    let mut header = UndoHeader::new_zeroed();
    let read = file.read_at(0, header.as_mut_bytes())?;
    if read < size_of::<UndoHeader>() || header.magic != MAGIC {
        return Err(UndoError::NotUndo("it does not begin as one"));
    }
    if header.version.get() != VERSION {
        return Err(UndoError::NotUndo("a newer dure wrote it"));
    }
    if header.checksum() != header.crc.get() {
        return Err(UndoError::NotUndo("its header is damaged"));
    }
    Ok(header)
}

/// The record at `end`, if there is one with all that belongs to it.
fn next(file: &dyn UndoFile, end: &End) -> Result<Option<Record>, UndoError> {
    let mut bytes = [0; RECORD_BYTES];
    if file.read_at(end.at, &mut bytes)? < RECORD_BYTES {
        return Ok(None);
    }
    let record = Record::read_from_bytes(&bytes).expect("it has its size");
    let sound =
        record.sequence.get() == end.sequence + 1 && record.checksum(end.crc) == record.crc.get();
    if !sound {
        return Ok(None);
    }
    if record.payload() > 0 {
        let mut content = [0; BLOCK_BYTES];
        let read = file.read_at(end.at + to_u64(RECORD_BYTES), &mut content)?;
        if read < BLOCK_BYTES || crc32c(&content) != record.block_crc.get() {
            return Ok(None);
        }
    }
    Ok(Some(record))
}
