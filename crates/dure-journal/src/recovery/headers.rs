//! Journal headers: written by mkfs and by a rebuild, read by every mount.
//!
//! **Problem.** A fresh volume needs rings; every mount must find them. **Structure.** mkfs writes
//! headers of epoch 0, whose logs are empty; reading checks that the ring a header lists is
//! possible. **Crash.** mkfs flushes these headers before it writes the superblock that makes the
//! volume valid.

use dure_block::Lba;

use crate::error::{Error, Result};
use crate::format::{JournalHeader, TailPosition};
use crate::ids::{JournalId, Mark};
use crate::journal::RingStart;
use crate::medium::LogMedium;
use crate::units::to_usize;

use super::scan::LogLayout;

/// No counter of a volume reaches this: a greater one is damage, and must not be incremented.
pub const COUNT_MAX: u64 = 1 << 62;

/// The greatest number a log may begin with: it leaves half of all numbers to the epoch.
pub const NUMBER_START_MAX: u64 = Mark::NUMBER_MAX / 2;

/// Writes a header for each ring, as [`write_fresh_header`]: that of the first journal first. The
/// caller flushes.
///
/// # Errors
/// [`Error::Device`] if a write fails.
pub fn write_fresh_headers(
    medium: &LogMedium,
    seed: u32,
    segment_blocks: u32,
    rings: &[RingStart],
) -> Result<()> {
    for (index, ring) in rings.iter().enumerate() {
        let journal = JournalId::from_index(index);
        write_fresh_header(medium, (seed, segment_blocks), journal, ring)?;
    }
    Ok(())
}

/// Writes a header of epoch 0, in which no volume ever runs, and of the ring's generation, and
/// wipes the other slot of the pair. The caller flushes.
///
/// # Errors
/// [`Error::Device`] if a write fails.
pub fn write_fresh_header(
    medium: &LogMedium,
    (seed, segment_blocks): (u32, u32),
    journal: JournalId,
    ring: &RingStart,
) -> Result<()> {
    let header = JournalHeader {
        epoch: 0,
        journal,
        generation: ring.generation,
        segment_blocks,
        tail: TailPosition {
            segment: 0,
            offset: 0,
            sequence: 1,
            number: 1,
        },
        durable_upto: 0,
        checkpoint: 0,
        segments: ring.segments.clone(),
    };
    let failed = |(at, source)| Error::Device { at, source };
    medium
        .write_header(&header, ring.header, seed)
        .map_err(failed)?;
    medium
        .wipe_other_slot(ring.header, ring.generation)
        .map_err(failed)
}

/// Reads the header of `journal` and checks that its ring can exist.
pub(super) fn read_header(
    medium: &LogMedium,
    layout: &LogLayout,
    journal: JournalId,
) -> Result<JournalHeader> {
    let pair = layout.headers[journal.index()];
    let blocks = medium
        .read_header(pair)
        .map_err(|source| Error::Device { at: pair, source })?;
    let header = JournalHeader::open(blocks.as_slice(), pair, layout.seed, journal)?;
    check_ring(&header, layout, pair)?;
    Ok(header)
}

/// Checks that the ring of a sealed header can exist on this device.
fn check_ring(header: &JournalHeader, layout: &LogLayout, pair: Lba) -> Result<()> {
    let corrupt = |what, want, got| {
        Err(Error::Corrupt {
            what,
            at: pair,
            want,
            got,
        })
    };
    if header.segment_blocks != layout.segment_blocks {
        let (want, got) = (layout.segment_blocks.into(), header.segment_blocks.into());
        return corrupt("journal header: blocks of a segment", want, got);
    }
    let mut starts: Vec<u64> = header
        .segments
        .iter()
        .map(|segment| segment.number())
        .collect();
    starts.sort_unstable();
    let length = u64::from(layout.segment_blocks);
    for two in starts.windows(2) {
        if two[1] - two[0] < length {
            return corrupt(
                "journal header: distance of segments",
                length,
                two[1] - two[0],
            );
        }
    }
    let last = starts.last().copied().unwrap_or(0);
    if last
        .checked_add(length)
        .is_none_or(|end| end > layout.device_blocks)
    {
        return corrupt(
            "journal header: end of a segment",
            layout.device_blocks,
            last,
        );
    }
    let tail = &header.tail;
    assert!(
        to_usize(tail.segment) < header.segments.len(),
        "the tail is in a segment of the ring, as was checked when the header was opened"
    );
    check_counts(header, pair)
}

/// Checks that the counters of a sealed header leave room to be incremented.
///
/// # Errors
/// [`Error::Corrupt`], naming the counter.
pub fn check_counts(header: &JournalHeader, pair: Lba) -> Result<()> {
    let tail = &header.tail;
    // They leave room, so that nothing derived from them overflows.
    let counts = [
        ("journal header: generation", header.generation, COUNT_MAX),
        ("journal header: epoch", header.epoch.max(1), COUNT_MAX),
        (
            "journal header: checkpoint",
            header.checkpoint.max(1),
            COUNT_MAX,
        ),
        (
            "journal header: sequence of the tail",
            tail.sequence,
            COUNT_MAX,
        ),
        (
            "journal header: number of the tail",
            tail.number,
            NUMBER_START_MAX,
        ),
        (
            "journal header: durable_upto",
            header.durable_upto.max(1),
            NUMBER_START_MAX,
        ),
    ];
    for (what, got, most) in counts {
        if got == 0 || got > most {
            return Err(Error::Corrupt {
                what,
                at: pair,
                want: most,
                got,
            });
        }
    }
    Ok(())
}
