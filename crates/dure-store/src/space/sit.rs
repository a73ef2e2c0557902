//! The segment information table between medium and memory.
//!
//! **Structure.** Pair i holds the entries of segments `i * 50 ..`; the packs name the slot that
//! counts. **Invariants.** A pair that was never written is of segments that were never used.
//! **Crash.** What a checkpoint that was cut short wrote is in slots that do not count: the table
//! is as the last checkpoint left it.

use dure_block::BLOCK_BYTES;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, IntoBytes};

use super::bitmap::{BITS, Bitmap};
use super::segment::SegmentState;
use super::segments::Segments;
use super::summary::PAIRS_MAX;
use crate::error::{Error, Result};
use crate::format::pair_kind;
use crate::format::sit::{ENTRIES, SegmentUse, SitBlock, SitEntry};
use crate::format::volume::SlotCode;
use crate::layout::Layout;
use crate::media::Region;
use crate::packs::{Packs, PairIndex, Table};
use crate::pair;
use crate::units::{BlockNo, SegNo, is_zero, to_usize};

/// Pairs read in one request.
const PAIRS_PER_READ: u64 = 64;

/// SIT pair `index`.
pub fn pair_index(index: u32) -> PairIndex {
    let index = u64::from(index);
    PairIndex {
        table: Table::Sit,
        index,
    }
}

/// Reads all pairs that were ever written, neighbours in one request.
///
/// # Errors
/// `Corrupt`, naming pair and block; `Block` when reading fails.
pub(crate) fn load(
    region: &Region,
    layout: &Layout,
    packs: &Packs,
    segments: &Segments,
) -> Result<()> {
    let mut written = packs.written(Table::Sit).peekable();
    let mut bytes = vec![0; to_usize(2 * PAIRS_PER_READ) * BLOCK_BYTES];
    while let Some(first) = written.next() {
        let mut pairs = vec![first];
        while let Some(next) = written.next_if(|next| *next < first + PAIRS_PER_READ) {
            pairs.push(next);
        }
        let last = pairs.last().copied().unwrap_or(first);
        let place = |index: u64| layout.sit_pair(u32::try_from(index).expect("SIT pairs are u32"));
        let bytes = &mut bytes[..to_usize(2 * (last - first + 1)) * BLOCK_BYTES];
        if let Err(error) = region.read(BlockNo(place(first)), bytes) {
            if !layout.has_copies() {
                return Err(error.into());
            }
            // Nothing verifies, and each pair is read by itself.
            bytes.fill(0);
        }
        for index in pairs {
            let index = u32::try_from(index).expect("SIT pairs are u32");
            let SlotCode::Slot(slot) = packs.code(pair_index(index)) else {
                unreachable!("SIT pair {index} was written, so one of its slots counts");
            };
            let at = layout.sit_pair(index);
            let block = &bytes[to_usize(at + slot - place(first)) * BLOCK_BYTES..][..BLOCK_BYTES];
            let (kind, seed) = (pair_kind::SIT, layout.crc_seed);
            match pair::open_slot(block, at, slot, kind, seed) {
                Ok(payload) => open_pair(layout, segments, index, at + slot, payload)?,
                Err(error) if !layout.has_copies() => return Err(error),
                Err(_) => {
                    let payload = pair::read_slot(region, at, slot, kind, seed)?;
                    open_pair(layout, segments, index, at + slot, &payload)?;
                }
            }
        }
    }
    Ok(())
}

/// What the content of a pair says of its segments.
///
/// # Errors
/// `Corrupt`, naming pair, block and field.
pub(super) fn open_pair(
    layout: &Layout,
    segments: &Segments,
    index: u32,
    at: u64,
    payload: &[u8],
) -> Result<()> {
    each_entry(layout, index, at, payload, |segment, entry, found| {
        if !is_zero(entry.as_bytes()) {
            let Entry {
                live,
                usage,
                summaries,
            } = found;
            let changed = entry.changed.get();
            segments.with(segment, |state| {
                state.load(live, usage, summaries, changed);
            });
        }
    })
}

/// The live blocks of each segment of a pair.
///
/// # Errors
/// Those of [`open_pair`].
pub(super) fn live_blocks(
    layout: &Layout,
    index: u32,
    at: u64,
    payload: &[u8],
    mut add: impl FnMut(SegNo, &Bitmap),
) -> Result<()> {
    each_entry(layout, index, at, payload, |segment, _, found| {
        add(segment, &found.live);
    })
}

/// Checks the content of a pair, which was read from block `at`.
///
/// # Errors
/// Those of [`open_pair`].
pub(crate) fn check_pair(
    layout: &Layout,
    index: u64,
    (at, payload): (BlockNo, &[u8]),
) -> Result<()> {
    let index = u32::try_from(index).expect("SIT pairs are u32");
    live_blocks(layout, index, at.0, payload, |_, _| ())
}

/// Checks a pair, and gives `take` the entries of segments that exist.
fn each_entry(
    layout: &Layout,
    index: u32,
    at: u64,
    payload: &[u8],
    mut take: impl FnMut(SegNo, &SitEntry, Entry),
) -> Result<()> {
    let block = SitBlock::ref_from_bytes(payload).expect("a pair's payload has this size");
    Error::expect_eq("SIT pair index", at, u64::from(index), block.index.get())?;
    let dirty = u64::from(!is_zero(&block.reserved));
    Error::expect_eq("SIT reserved bytes", at, 0, dirty)?;
    for (segment, entry) in (index * ENTRIES..).zip(&block.entries) {
        let exists = segment < layout.segments;
        let blocks = if exists { layout.segment_blocks } else { 0 };
        let found = open_entry(entry, segment, blocks, at)?;
        if exists {
            take(SegNo(segment), entry, found);
        }
    }
    Ok(())
}

/// The payload of SIT pair `index`.
pub(crate) fn payload(checkpoint: u64, index: u32, entries: &[SitEntry]) -> Vec<u8> {
    let mut block = SitBlock::new_zeroed_block();
    block.checkpoint = U64::new(checkpoint);
    block.index = U64::new(u64::from(index));
    block.entries[..entries.len()].copy_from_slice(entries);
    block.as_bytes().to_vec()
}

/// The entry of a segment in this state.
pub(crate) fn entry(state: &SegmentState) -> SitEntry {
    SitEntry {
        live: state.live.to_bytes(),
        usage: state.usage.code(),
        summaries: codes(state),
        valid: U16::new(
            u16::try_from(state.live.count()).expect("a segment has at most 512 blocks"),
        ),
        reserved: U32::ZERO,
        changed: U64::new(state.changed),
    }
}

impl SitBlock {
    fn new_zeroed_block() -> SitBlock {
        let zero = SitEntry {
            live: [0; 64],
            usage: 0,
            summaries: 0,
            valid: U16::ZERO,
            reserved: U32::ZERO,
            changed: U64::ZERO,
        };
        SitBlock {
            checkpoint: U64::ZERO,
            index: U64::ZERO,
            entries: [zero; ENTRIES as usize],
            reserved: [0; 48],
        }
    }
}

/// The codes of the summary pairs of a segment in this state, in one byte.
pub(crate) fn codes(state: &SegmentState) -> u8 {
    let shifted = |(n, code): (usize, &SlotCode)| code.bits() << (2 * n);
    state.summaries.iter().enumerate().map(shifted).sum()
}

/// What the entry says of its segment's summary pairs; `None` for a code that says nothing, or one
/// of a pair that no segment has.
pub fn summaries_from(byte: u8) -> Option<[SlotCode; PAIRS_MAX]> {
    let mut codes = [SlotCode::Unwritten; PAIRS_MAX];
    for (n, code) in codes.iter_mut().enumerate() {
        *code = SlotCode::from_bits(byte >> (2 * n))?;
    }
    (byte >> (2 * PAIRS_MAX) == 0).then_some(codes)
}

/// A checked entry.
struct Entry {
    live: Bitmap,
    usage: SegmentUse,
    summaries: [SlotCode; PAIRS_MAX],
}

/// Checks an entry; a segment of `blocks` blocks (0: beyond the main area, the entry must be
/// empty).
fn open_entry(entry: &SitEntry, segment: u32, blocks: u32, at: u64) -> Result<Entry> {
    let name = |field: &str| format!("SIT entry of segment {segment}: {field}");
    let live = Bitmap::from_bytes(&entry.live);
    Error::expect_eq(
        &name("live blocks"),
        at,
        u64::from(live.count()),
        u64::from(entry.valid.get()),
    )?;
    let beyond = live.without(&Bitmap::of(0, blocks)).count();
    Error::expect_eq(
        &name("live blocks beyond its end"),
        at,
        0,
        u64::from(beyond),
    )?;
    let dirt = u64::from(entry.reserved.get());
    Error::expect_eq(&name("reserved bytes"), at, 0, dirt)?;
    let unknown = |field, got: u8| Error::Corrupt {
        what: name(field),
        at,
        want: u64::from(SegmentUse::Log.code()),
        got: u64::from(got),
    };
    let usage = SegmentUse::from_code(entry.usage).ok_or_else(|| unknown("usage", entry.usage))?;
    let summaries =
        summaries_from(entry.summaries).ok_or_else(|| unknown("summaries", entry.summaries))?;
    Ok(Entry {
        live,
        usage,
        summaries,
    })
}

const _: () = assert!(BITS == 512);
