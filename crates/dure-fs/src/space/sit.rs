//! The segment information table between medium and memory.
//!
//! **Structure.** Pair i holds the entries of segments `i * 50 ..`. **Invariants.** mkfs writes
//! every pair, so a sound SIT has a valid slot in each pair; a pair of zeroes (a volume image that
//! was wiped and never written) reads as empty. **Crash.** A torn write leaves the older slot.

use dure_block::{BLOCK_BYTES, Lba, Queue};
use dure_journal::format::slotted::{self, SlotKind};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, IntoBytes};

use super::bitmap::{BITS, Bitmap};
use super::segment::SegmentState;
use crate::error::{Error, Result};
use crate::format::pair_kind;
use crate::format::sit::{ENTRIES, SegmentUse, SitBlock, SitEntry};
use crate::layout::Layout;
use crate::units::is_zero;

/// Pairs read in one request.
const PAIRS_PER_READ: u32 = 64;

/// The SIT as it was on the medium.
#[derive(Debug)]
pub(crate) struct SitImage {
    /// Every segment of the main area.
    pub(crate) segments: Vec<SegmentState>,
    /// Newest generation of each pair; 0 for a pair that was never written.
    pub(crate) generations: Vec<u64>,
}

impl SitImage {
    /// The SIT of a volume in which nothing is live.
    pub(crate) fn empty(layout: &Layout) -> SitImage {
        let free = || SegmentState::new(Bitmap::EMPTY, SegmentUse::Free, 0);
        SitImage {
            segments: (0..layout.segments).map(|_| free()).collect(),
            generations: (0..layout.sit_pairs).map(|_| 0).collect(),
        }
    }

    /// Reads all pairs.
    ///
    /// # Errors
    /// `Corrupt`, naming pair and block; `Block` when reading fails.
    pub(crate) fn read(queue: &Queue, layout: &Layout) -> Result<SitImage> {
        let mut image = SitImage {
            segments: Vec::new(),
            generations: Vec::new(),
        };
        let mut from = 0;
        while from < layout.sit_pairs {
            let pairs = PAIRS_PER_READ.min(layout.sit_pairs - from);
            let mut bytes = vec![0; pairs as usize * 2 * BLOCK_BYTES];
            queue.read(Lba::new(layout.sit_pair(from)), &mut bytes)?;
            for (index, pair) in (from..).zip(bytes.chunks_exact(2 * BLOCK_BYTES)) {
                image.open_pair(layout, index, pair)?;
            }
            from += pairs;
        }
        image.segments.truncate(layout.segments as usize);
        assert!(
            image.segments.len() == layout.segments as usize,
            "the layout checked the SIT size"
        );
        Ok(image)
    }

    fn open_pair(&mut self, layout: &Layout, index: u32, bytes: &[u8]) -> Result<()> {
        let at = layout.sit_pair(index);
        let (first, second) = bytes.split_at(BLOCK_BYTES);
        let kind = SlotKind(pair_kind::SIT);
        let Some(newest) = slotted::open(first, second, kind, Lba::new(at), layout.crc_seed) else {
            if !is_zero(bytes) {
                let what = format!("SIT pair {index}: both slots invalid");
                return Err(Error::Corrupt {
                    what,
                    at,
                    want: 1,
                    got: 0,
                });
            }
            let free = || SegmentState::new(Bitmap::EMPTY, SegmentUse::Free, 0);
            self.segments.extend((0..ENTRIES).map(|_| free()));
            self.generations.push(0);
            return Ok(());
        };
        let at = slotted::address(Lba::new(at), newest.generation).number();
        Error::expect_count(
            || format!("generation of SIT pair {index}"),
            at,
            newest.generation,
        )?;
        let block = SitBlock::ref_from_bytes(newest.body).expect("a pair's payload has this size");
        Error::expect_eq("SIT pair index", at, u64::from(index), block.index.get())?;
        let dirty = u64::from(!is_zero(&block.reserved));
        Error::expect_eq("SIT reserved bytes", at, 0, dirty)?;
        for (segment, entry) in (index * ENTRIES..).zip(&block.entries) {
            let blocks = if segment < layout.segments {
                layout.segment_blocks
            } else {
                0
            };
            self.segments.push(open_entry(entry, segment, blocks, at)?);
        }
        self.generations.push(newest.generation);
        Ok(())
    }
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
        reserved: 0,
        valid: U16::new(u16::try_from(state.live.count()).expect("at most 512")),
        reserved2: U32::ZERO,
        changed: U64::new(state.changed),
    }
}

impl SitBlock {
    fn new_zeroed_block() -> SitBlock {
        let zero = SitEntry {
            live: [0; 64],
            usage: 0,
            reserved: 0,
            valid: U16::ZERO,
            reserved2: U32::ZERO,
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

/// Checks an entry; a segment of `blocks` blocks (0: beyond the main area, the entry must be
/// empty).
fn open_entry(entry: &SitEntry, segment: u32, blocks: u32, at: u64) -> Result<SegmentState> {
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
    let dirt = u64::from(entry.reserved) | u64::from(entry.reserved2.get());
    Error::expect_eq(&name("reserved bytes"), at, 0, dirt)?;
    let usage = SegmentUse::from_code(entry.usage).ok_or_else(|| Error::Corrupt {
        what: name("usage"),
        at,
        want: u64::from(SegmentUse::Log.code()),
        got: u64::from(entry.usage),
    })?;
    Ok(SegmentState::new(live, usage, entry.changed.get()))
}

const _: () = assert!(BITS == 512);
