//! Where everything lies on a volume: a pure function of its size and the number of journals, fixed
//! by mkfs in the superblock.
//!
//! ```text
//! 0 | 1 free | 2..5 volume header | packs | journal headers | NAT | SIT | summaries | (copies) | main ... | last: superblock 2
//! ```
//! Volume header, packs and journal headers are mirrored pairs of four blocks, all others pairs of
//! two. The copies are those of NAT and SIT, if the volume has them. The main area starts at a multiple of the segment size. Of a volume that has grown, all but
//! the journal headers lie behind the main area. Of a volume on several media the space begins in
//! persistent memory (`offer`): the tables lie there, and the first segments.

mod plan;

use std::ops::Range;

pub use self::plan::{FormatOptions, Owner, TableCopies};
use crate::error::{Error, Result};
use crate::format::feature::COPIES;
use crate::format::media::{Medium, MediumKind};
use crate::format::sit::SegmentUse;
use crate::format::superblock::SuperBlock;
use crate::format::{nat, sit, summary, volume};
pub use crate::offer::{NodeLog, NvmRegion};
use crate::units::{BLOCK_BYTES_U64, BlockNo, SegNo};

/// Smallest volume.
pub const VOLUME_BLOCKS_MIN: u64 = 1024;
/// Most journals a volume can have; a mark has ten bits for them.
pub const JOURNALS_MAX: u32 = 1000;

/// Blocks of a mirrored pair.
const MIRRORED: u64 = 4;
const _: () = assert!(MIRRORED == dure_journal::format::slotted::MIRRORED_BLOCKS as u64);

/// A validated superblock in plain numbers. No public constructor but [`Layout::plan`] and
/// [`Layout::from_superblock`].
#[derive(Debug, Clone)]
pub struct Layout {
    /// The superblock it came from.
    pub superblock: SuperBlock,
    /// Blocks of the volume.
    pub total_blocks: u64,
    /// Blocks in a segment.
    pub segment_blocks: u32,
    /// Segments in the main area.
    pub segments: u32,
    /// Journals, and partitions.
    pub journals: u32,
    /// Volume header pair.
    pub volume_header: u64,
    /// First block of the packs.
    pub pack: u64,
    /// Number of packs.
    pub pack_pairs: u32,
    /// Journal header pairs.
    pub journal_headers: u64,
    /// NAT pairs.
    pub nat: u64,
    /// Number of NAT pairs.
    pub nat_pairs: u32,
    /// SIT pairs.
    pub sit: u64,
    /// Number of SIT pairs.
    pub sit_pairs: u32,
    /// Summary pairs.
    pub summary: u64,
    /// Summary pairs per segment.
    pub summary_pairs: u32,
    /// Second copies of the pairs of NAT and SIT, which then lie next to each other; 0: there are none.
    pub copies: u64,
    /// First block of segment 0.
    pub main: u64,
    /// Seed of checksums.
    pub crc_seed: u32,
    /// Seed of the directory hash.
    pub hash_seed: u64,
    /// Segments that lie in persistent memory: the first ones. 0 if all media are of one kind.
    pub nvm_segments: u32,
}

impl Layout {
    /// Checks that the superblock's numbers fit together.
    ///
    /// # Errors
    /// `Corrupt`, naming the first field that does not fit.
    pub fn from_superblock(superblock: SuperBlock) -> Result<Layout> {
        let mut layout = Layout {
            superblock,
            total_blocks: superblock.total_blocks.get(),
            segment_blocks: superblock.segment_blocks.get(),
            segments: superblock.segments.get(),
            journals: superblock.journals.get(),
            volume_header: superblock.volume_header.get(),
            pack: superblock.pack.get(),
            pack_pairs: superblock.pack_pairs.get(),
            journal_headers: superblock.journal_headers.get(),
            nat: superblock.nat.get(),
            nat_pairs: superblock.nat_pairs.get(),
            sit: superblock.sit.get(),
            sit_pairs: superblock.sit_pairs.get(),
            summary: superblock.summary.get(),
            summary_pairs: superblock.summary_pairs.get(),
            copies: superblock.copies.get(),
            main: superblock.main.get(),
            crc_seed: superblock.crc_seed.get(),
            hash_seed: superblock.hash_seed.get(),
            nvm_segments: 0,
        };
        layout.validate()?;
        layout.nvm_segments = layout.count_nvm_segments();
        Ok(layout)
    }

    /// The parts of the volume: name, first block, blocks.
    fn parts(&self) -> Vec<(&'static str, u64, u64)> {
        let copies = self.has_copies().then_some((
            "copies of NAT and SIT",
            self.copies,
            2 * (u64::from(self.nat_pairs) + u64::from(self.sit_pairs)),
        ));
        let parts = [
            ("volume header", self.volume_header, MIRRORED),
            ("packs", self.pack, MIRRORED * u64::from(self.pack_pairs)),
            (
                "journal headers",
                self.journal_headers,
                MIRRORED * u64::from(self.journals),
            ),
            ("NAT", self.nat, 2 * u64::from(self.nat_pairs)),
            ("SIT", self.sit, 2 * u64::from(self.sit_pairs)),
            (
                "summaries",
                self.summary,
                (2 * u64::from(self.summary_pairs)).saturating_mul(u64::from(self.segments)),
            ),
            (
                "main area",
                self.main,
                u64::from(self.segments) * u64::from(self.segment_blocks),
            ),
        ];
        parts.into_iter().chain(copies).collect()
    }

    /// Whether NAT and SIT have a second copy.
    #[must_use]
    pub fn has_copies(&self) -> bool {
        self.superblock.has(COPIES)
    }

    /// The blocks that have a second copy, those of NAT and SIT, and where the copies begin.
    #[must_use]
    pub fn copied(&self) -> Option<(Range<u64>, u64)> {
        let pairs = u64::from(self.nat_pairs) + u64::from(self.sit_pairs);
        let blocks = self.nat..self.nat + 2 * pairs;
        self.has_copies().then_some((blocks, self.copies))
    }

    /// The second copy of a block of NAT or SIT, if it has one.
    #[must_use]
    pub fn copy_of(&self, block: BlockNo) -> Option<BlockNo> {
        let (blocks, copies) = self.copied()?;
        let has = blocks.contains(&block.0);
        has.then(|| BlockNo(copies + block.0 - blocks.start))
    }

    fn validate(&self) -> Result<()> {
        let ok = |what: &str, holds: bool, got: u64| {
            if holds {
                return Ok(());
            }
            Err(Error::Corrupt {
                what: format!("superblock: {what}"),
                at: 0,
                want: 0,
                got,
            })
        };
        let segment = u64::from(self.segment_blocks);
        ok("block size", self.superblock.block_bytes.get() == 4096, 0)?;
        ok(
            "segment size",
            self.segment_blocks.is_power_of_two() && (32..=512).contains(&self.segment_blocks),
            segment,
        )?;
        ok(
            "journals",
            (1..=JOURNALS_MAX).contains(&self.journals),
            u64::from(self.journals),
        )?;
        let mut areas = self.parts();
        // Of a volume that has grown, tables lie behind the main area.
        areas.sort_by_key(|(_, start, _)| *start);
        let mut end = 0;
        for (what, start, blocks) in areas {
            ok(what, start >= end && start >= 2 && blocks > 0, start)?;
            end = start.saturating_add(blocks);
            ok(what, end < self.total_blocks, end)?;
        }
        ok(
            "copies of a SIT that is not behind the NAT",
            !self.has_copies() || self.sit == self.nat + 2 * u64::from(self.nat_pairs),
            self.sit,
        )?;
        ok(
            "main area alignment",
            self.main.is_multiple_of(segment),
            self.main,
        )?;
        let sit_entries = u64::from(self.sit_pairs) * u64::from(sit::ENTRIES);
        ok(
            "SIT size",
            sit_entries >= u64::from(self.segments),
            sit_entries,
        )?;
        let summary_entries = self.summary_pairs.saturating_mul(summary::ENTRIES);
        ok(
            "summary size",
            summary_entries >= self.segment_blocks,
            u64::from(summary_entries),
        )?;
        let packs = u64::from(self.pack_pairs);
        let need = self.nat_packs() + u64::from(self.sit_pairs).div_ceil(volume::PACK_PAIRS);
        ok("packs", packs == need && packs <= volume::PACKS_MAX, packs)?;
        match self.superblock.media_fault() {
            None => Ok(()),
            Some(what) => ok(&format!("table of media: {what}"), false, 0),
        }
    }

    fn count_nvm_segments(&self) -> u32 {
        let media = self.superblock.media();
        let block = media.iter().find(|medium| medium.kind == MediumKind::Block);
        let nvm_blocks = block.map_or(0, |block| block.first);
        let segments = nvm_blocks.saturating_sub(self.main) / u64::from(self.segment_blocks);
        u32::try_from(segments).expect("fewer than all segments")
    }

    /// The NUMA node of each medium in persistent memory.
    pub(crate) fn nodes(&self) -> Vec<Option<u32>> {
        let media = self.superblock.media().into_iter();
        let node = |medium: Medium| (medium.kind == MediumKind::Nvm).then_some(medium.node);
        media.map(node).collect()
    }

    /// The segments of each medium in persistent memory, and the NUMA node it is on.
    pub(crate) fn node_segments(&self) -> Vec<(Range<u32>, u32)> {
        let segment = u64::from(self.segment_blocks);
        let number = |block: u64| {
            let number = block.saturating_sub(self.main) / segment;
            u32::try_from(number).unwrap_or(u32::MAX).min(self.segments)
        };
        let media = self.superblock.media().into_iter();
        media
            .filter(|medium| medium.kind == MediumKind::Nvm)
            .map(|medium| {
                let end = medium.first + medium.blocks;
                (number(medium.first)..number(end), medium.node)
            })
            .collect()
    }

    /// Where segments for such use are looked for, in this order.
    #[must_use]
    pub fn areas(&self, usage: SegmentUse) -> [Range<u32>; 2] {
        let (nvm, block) = (0..self.nvm_segments, self.nvm_segments..self.segments);
        let nodes_in_nvm = self.superblock.node_log.get() == NodeLog::Nvm.code();
        match usage {
            SegmentUse::Node | SegmentUse::Log if nodes_in_nvm => [nvm, block],
            SegmentUse::Free | SegmentUse::Data | SegmentUse::Node | SegmentUse::Log => {
                [block, nvm]
            }
        }
    }

    /// Whether a block of the main area lies in persistent memory of a volume with a block device.
    #[must_use]
    pub fn is_in_nvm(&self, block: BlockNo) -> bool {
        let segment = self.locate(block);
        segment.is_some_and(|(segment, _)| segment.0 < self.nvm_segments)
    }

    /// First block of segment `segment`.
    #[must_use]
    pub fn segment_start(&self, segment: SegNo) -> BlockNo {
        assert!(
            segment.0 < self.segments,
            "segment {} of {}",
            segment.0,
            self.segments
        );
        BlockNo(self.main + u64::from(segment.0) * u64::from(self.segment_blocks))
    }

    /// The segment of a block and its place there; `None` outside the main area.
    #[must_use]
    pub fn locate(&self, block: BlockNo) -> Option<(SegNo, u32)> {
        let offset = block.0.checked_sub(self.main)?;
        let segment = u32::try_from(offset / u64::from(self.segment_blocks)).ok()?;
        let index = u32::try_from(offset % u64::from(self.segment_blocks)).ok()?;
        (segment < self.segments).then_some((SegNo(segment), index))
    }

    /// Number of nids the NAT can hold.
    #[must_use]
    pub fn nids(&self) -> u64 {
        u64::from(self.nat_pairs) * nat::ENTRIES
    }

    /// Packs of the NAT; those of the SIT follow.
    #[must_use]
    pub fn nat_packs(&self) -> u64 {
        u64::from(self.nat_pairs).div_ceil(volume::PACK_PAIRS)
    }

    /// First block of pack pair `index`.
    #[must_use]
    pub fn pack_pair(&self, index: u64) -> u64 {
        self.pack + MIRRORED * index
    }

    /// First block of NAT pair `index`.
    #[must_use]
    pub fn nat_pair(&self, index: u64) -> u64 {
        self.nat + 2 * index
    }

    /// First block of SIT pair `index`.
    #[must_use]
    pub fn sit_pair(&self, index: u32) -> u64 {
        self.sit + 2 * u64::from(index)
    }

    /// First block of the `n`-th summary pair of `segment`.
    #[must_use]
    pub fn summary_pair(&self, segment: SegNo, n: u32) -> u64 {
        self.summary + 2 * (u64::from(segment.0) * u64::from(self.summary_pairs) + u64::from(n))
    }

    /// First block of journal `index`'s header pair.
    #[must_use]
    pub fn journal_header(&self, index: u32) -> u64 {
        self.journal_headers + MIRRORED * u64::from(index)
    }

    /// Bytes of the volume.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.total_blocks * BLOCK_BYTES_U64
    }
}
