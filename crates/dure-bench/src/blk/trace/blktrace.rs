//! The binary format of blktrace, for blkparse and btt.
//!
//! **Structure.** A file for each core, `BASE.blktrace.CORE`, of records of 48 bytes: magic and
//! version, sequence, time, sector, bytes, action, pid, device, core, error, length of what follows.
//! **Invariants.** Records of a file are in the order of their times; numbers are little-endian,
//! which readers tell by the magic. **On a crash** files may be cut short; blkparse says so.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::event::{Action, Direction, Event};

const MAGIC_AND_VERSION: u32 = 0x6561_7407;
/// Categories are above the action.
const CATEGORY_SHIFT: u32 = 16;
const READ: u32 = 1;
const WRITE: u32 = 1 << 1;
const QUEUE: u32 = 1 << 4;
const ISSUE: u32 = 1 << 6;
const COMPLETE: u32 = 1 << 7;
const DISCARD: u32 = 1 << 13;
const SECTOR_BYTES: u64 = 512;
/// Minor numbers have 20 bits.
const MINOR_BITS: u32 = 20;

/// Writes events, which are in order, and returns the files.
///
/// # Errors
/// A file that cannot be written.
pub(crate) fn write(base: &Path, events: &[Event]) -> Result<Vec<PathBuf>> {
    let mut cores: BTreeMap<u16, Vec<&Event>> = BTreeMap::new();
    for event in events {
        cores.entry(event.core).or_default().push(event);
    }
    // blkparse takes the files from core 0 on, and stops where one is missing.
    let last = cores.keys().next_back().copied().unwrap_or(0);
    let all = (0..=last).map(|core| (core, cores.remove(&core).unwrap_or_default()));
    all.map(|(core, events)| {
        let mut path = base.as_os_str().to_owned();
        path.push(format!(".blktrace.{core}"));
        let path = PathBuf::from(path);
        write_file(&path, &events).with_context(|| path.display().to_string())?;
        Ok(path)
    })
    .collect()
}

fn write_file(path: &Path, events: &[&Event]) -> Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    for (sequence, event) in (1..).zip(events) {
        file.write_all(&record(sequence, event))?;
    }
    Ok(file.flush()?)
}

fn record(sequence: u32, event: &Event) -> [u8; 48] {
    let (major, minor) = event.device;
    let bytes = u32::try_from(event.sectors * SECTOR_BYTES).unwrap_or(u32::MAX);
    let mut record = Vec::with_capacity(48);
    record.extend(MAGIC_AND_VERSION.to_le_bytes());
    record.extend(sequence.to_le_bytes());
    record.extend(event.ns.to_le_bytes());
    record.extend(event.sector.to_le_bytes());
    record.extend(bytes.to_le_bytes());
    record.extend(action(event).to_le_bytes());
    record.extend(0_u32.to_le_bytes());
    record.extend((major << MINOR_BITS | minor).to_le_bytes());
    record.extend(u32::from(event.core).to_le_bytes());
    record.extend([0; 4]);
    record.try_into().expect("a record has 48 bytes")
}

fn action(event: &Event) -> u32 {
    let (number, category) = match event.action {
        Action::Queue => (1, QUEUE),
        Action::BackMerge => (2, QUEUE),
        Action::FrontMerge => (3, QUEUE),
        Action::GetRequest => (4, QUEUE),
        Action::Issue => (7, ISSUE),
        Action::Complete => (8, COMPLETE),
        Action::Insert => (12, QUEUE),
    };
    let direction = match event.direction {
        Direction::Read => READ,
        Direction::Write => WRITE,
        Direction::Discard => WRITE | DISCARD,
    };
    number | (category | direction) << CATEGORY_SHIFT
}
