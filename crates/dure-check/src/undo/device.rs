//! A device that saves what it is about to change.

use std::collections::BTreeSet;
use std::io;

use dure_block::crc32c::crc32c;
use dure_block::linear::Part;
use dure_block::{Device, DeviceInfo, Io, Lba, Op, OsError};
use dure_store::error::Result;
use dure_store::media::Region;
use dure_store::units::{BLOCK_BYTES, BlockNo, to_u64, to_usize};
use dure_sync::{Arc, Mutex};
use zerocopy::{FromZeros, IntoBytes};

use super::format::{End, HEADER_BLOCKS, MAGIC, Record, UndoHeader, VERSION, kind};
use super::{UNDO_RANK, UndoFile};
use crate::report::Report;
use crate::superblock;

/// What a file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Saved {
    /// Blocks whose old content it has; 0: nothing was written, and the file is empty.
    pub blocks: u64,
}

/// The file under way.
#[derive(Debug)]
struct Log {
    header: UndoHeader,
    saved: BTreeSet<u64>,
    /// Where it goes on; none before the header is written.
    end: Option<End>,
    /// An append failed: what the file says behind `end` is unknown, and nothing may be written any
    /// more.
    broken: Option<OsError>,
}

/// Saves the old content of every block in a file before it is written to the device below.
#[derive(Debug)]
pub struct UndoDevice {
    inner: Arc<dyn Device>,
    info: DeviceInfo,
    file: Box<dyn UndoFile>,
    log: Mutex<UNDO_RANK, Log>,
}

impl UndoDevice {
    /// Stands in front of `inner`, which has a volume; `file` is empty, and stays so as long as
    /// nothing is written.
    ///
    /// # Errors
    /// `inner` has no superblock, or cannot be read where its volume header is.
    pub fn new(inner: Arc<dyn Device>, file: Box<dyn UndoFile>) -> Result<UndoDevice> {
        let region = Region::open(Arc::clone(&inner));
        let layout = superblock::find(&region, &mut Report::default())?;
        let mut header = UndoHeader::new_zeroed();
        header.magic = MAGIC;
        header.version.set(VERSION);
        header.uuid = layout.superblock.uuid;
        header.total_blocks.set(layout.total_blocks);
        for (block, crc) in (layout.volume_header..).zip(&mut header.header_crcs) {
            let mut bytes = [0; BLOCK_BYTES];
            region.read(BlockNo(block), &mut bytes)?;
            crc.set(crc32c(&bytes));
        }
        header.crc.set(header.checksum());
        let mut info = inner.info().clone();
        // Stores to persistent memory would pass by, and a discard need not be done.
        info.nvm = None;
        info.discard = false;
        let log = Log {
            header,
            saved: BTreeSet::new(),
            end: None,
            broken: None,
        };
        Ok(UndoDevice {
            inner,
            info,
            file,
            log: Mutex::new(log),
        })
    }

    /// Notes in the file that the repair is complete: from now on the volume must be exactly as it
    /// is to be brought back.
    ///
    /// # Errors
    /// The host's. The file is as good as that of a repair that was cut off.
    pub fn finish(&self) -> io::Result<Saved> {
        let mut log = self.log.lock();
        if log.end.is_some() {
            let finish = Record::new(kind::FINISH, 0, 0);
            self.append(&mut log, &[(finish, Vec::new())])?;
        }
        drop(log);
        Ok(self.saved())
    }

    /// What the file holds by now.
    #[must_use]
    pub fn saved(&self) -> Saved {
        let log = self.log.lock();
        let blocks = if log.end.is_some() {
            log.saved.len()
        } else {
            0
        };
        Saved {
            blocks: to_u64(blocks),
        }
    }

    /// Saves what is at `lba`, where `parts` will be.
    fn save(&self, lba: Lba, parts: &[&[u8]]) -> std::result::Result<(), OsError> {
        let mut log = self.log.lock();
        if let Some(os) = log.broken {
            return Err(os);
        }
        let blocks = parts.iter().flat_map(|part| part.chunks_exact(BLOCK_BYTES));
        let mut records = Vec::new();
        for (block, bytes) in (lba.number()..).zip(blocks) {
            if log.saved.insert(block) {
                let mut old = vec![0; BLOCK_BYTES];
                // A block that cannot be read has no old content, but can be written anew.
                let lba = Lba::new(block);
                let read = Io::Read { lba, out: &mut old };
                if self.inner.execute(read).is_err() {
                    old.fill(0);
                }
                records.push((Record::new(kind::BEFORE, block, crc32c(&old)), old));
            }
            let write = Record::new(kind::WRITE, block, crc32c(bytes));
            records.push((write, Vec::new()));
        }
        let appended = self.append(&mut log, &records);
        appended.map_err(|error| {
            let os = error.raw_os_error().map_or(OsError::EIO, OsError::new);
            log.broken = Some(os);
            os
        })
    }

    /// Appends records, and makes them durable.
    fn append(&self, log: &mut Log, records: &[(Record, Vec<u8>)]) -> io::Result<()> {
        let mut bytes = Vec::new();
        let (at, mut end) = if let Some(end) = log.end {
            (end.at, end)
        } else {
            bytes.extend_from_slice(log.header.as_bytes());
            bytes.resize(BLOCK_BYTES, 0);
            (0, End::first(&log.header))
        };
        for (record, content) in records {
            end.push(&mut bytes, *record, content);
        }
        self.file.write_at(at, &bytes)?;
        // Crash before this: the block is still as it was, and the record does not count.
        self.file.sync()?;
        log.end = Some(end);
        Ok(())
    }
}

impl Device for UndoDevice {
    fn heads(&self) -> &[Part] {
        self.inner.heads()
    }

    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn execute(&self, io: Io<'_>) -> dure_block::Result<()> {
        let (lba, blocks) = (io.lba(), io.blocks());
        let saved = match &io {
            Io::Read { .. } | Io::Flush => Ok(()),
            Io::Write { parts, .. } => self.save(lba, parts),
            Io::Discard { blocks, .. } => {
                let zeroes = vec![0; to_usize(*blocks) * BLOCK_BYTES];
                self.save(lba, &[&zeroes])
            }
        };
        match saved {
            Ok(()) => self.inner.execute(io),
            Err(os) => Err(dure_block::Error::Io {
                device: format!("{} (its undo file)", self.info.name),
                op: Op::Write,
                lba,
                blocks,
                os,
            }),
        }
    }
}

const _: () = assert!(HEADER_BLOCKS == 4);
