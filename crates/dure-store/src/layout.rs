//! Where everything lies on a volume: a pure function of its size and the number of journals, fixed
//! by mkfs in the superblock.
//!
//! ```text
//! 0 | 1 free | 2..5 volume header | packs | journal headers | NAT | SIT | summaries | main ... | last: superblock 2
//! ```
//! Volume header, packs and journal headers are mirrored pairs of four blocks, all others pairs of
//! two. The main area starts at a multiple of the segment size. Of a volume that has grown, all but
//! the journal headers lie behind the main area. Of a volume on several media the space begins in
//! persistent memory (`offer`): the tables lie there, and the first segments.

use std::ops::Range;

use zerocopy::little_endian::{I64, U32, U64};

use crate::alloc::Numa;
use crate::error::{Error, Result, size_of};
use crate::format::media::{Medium, MediumKind};
use crate::format::sit::SegmentUse;
use crate::format::superblock::{MAGIC, SuperBlock, VERSION};
use crate::format::{nat, sit, summary, volume};
use crate::offer::Offer;
pub use crate::offer::{NodeLog, NvmRegion};
use crate::units::{BLOCK_BYTES_U64, BlockNo, SegNo};

/// Smallest volume.
pub const VOLUME_BLOCKS_MIN: u64 = 1024;
/// Longest label.
const LABEL_BYTES: usize = 64;
/// Most journals a volume can have; a mark has ten bits for them.
pub const JOURNALS_MAX: u32 = 1000;

/// Blocks of a mirrored pair.
const MIRRORED: u64 = 4;
const _: () = assert!(MIRRORED == dure_journal::format::slotted::MIRRORED_BLOCKS as u64);

/// What mkfs decides.
#[derive(Debug, Clone, Default)]
pub struct FormatOptions {
    /// Journals and allocation partitions, 1..=1000; `None`: the larger of 16 and the cores, less
    /// on a small volume.
    pub journals: Option<u32>,
    /// UTF-8 label, at most 64 bytes.
    pub label: String,
    /// Blocks in a segment, a power of two in 32..=512; `None`: by the volume's size.
    pub segment_blocks: Option<u32>,
    /// Identity; `None`: random.
    pub uuid: Option<[u8; 16]>,
    /// Who owns the root directory.
    pub owner: Owner,
    /// Regions of persistent memory that the volume lies on besides its device, and before it.
    pub nvm: Vec<NvmRegion>,
    /// Where the device of the volume is, for the table of media: a hint.
    pub path: String,
    /// With regions of persistent memory: where logs and nodes go.
    pub node_log: NodeLog,
    /// The NUMA node of the device, if that is persistent memory, too.
    pub device_node: Option<u32>,
    /// Where the first segments of the logs go.
    pub numa: Numa,
}

impl FormatOptions {
    /// The media, of which the device has so many blocks.
    fn offer(&self, device_blocks: u64) -> Offer<'_> {
        Offer {
            device_blocks,
            path: &self.path,
            device_node: self.device_node,
            regions: &self.nvm,
            node_log: self.node_log,
        }
    }
}

/// User and group of an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Owner {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
}

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
    /// Plans a volume on a device of `blocks` blocks, and on the regions of persistent memory in
    /// `options`, on a machine with `cores` cores.
    ///
    /// # Errors
    /// `TooSmall`, `BadOption`; `Medium` for persistent memory that is too small for its part.
    pub fn plan(blocks: u64, options: &FormatOptions, cores: u32) -> Result<Layout> {
        check_options(blocks, options)?;
        let offer = options.offer(blocks);
        let segment_blocks = segment_blocks_for(&offer, options.segment_blocks)?;
        let spans = offer.spans(segment_blocks)?;
        let blocks = spans.iter().map(|span| span.blocks).sum();
        let room = blocks / u64::from(segment_blocks);
        let journals = journals_for(room, options.journals, cores)?;
        let mut places = Places::of(blocks, segment_blocks, journals)?;
        let mut journals = journals;
        if options.journals.is_none() {
            let fit = offer.journals_max(places.main, segment_blocks);
            journals = journals.min(fit);
            places = Places::of(blocks, segment_blocks, journals)?;
        }
        offer.check(places.main, segment_blocks, journals)?;
        let segments = (blocks - 1).saturating_sub(places.main) / u64::from(segment_blocks);
        let need = u64::from(journals) * 4 + 4;
        if segments < need {
            let need = places.main + need * u64::from(segment_blocks) + 1;
            return Err(Error::TooSmall {
                what: "a volume with that many journals",
                have: blocks,
                need,
            });
        }
        let small = |value: u64| u32::try_from(value).map_err(|_| too_large(blocks));
        let uuid = options.uuid.unwrap_or_else(random_uuid);
        let table = offer.table(uuid, &spans);
        let superblock = SuperBlock {
            magic: MAGIC,
            crc: U32::ZERO,
            version: U32::new(VERSION),
            address: U64::ZERO,
            uuid,
            label: padded(&options.label),
            created: I64::new(dure_sync::clock::wall().secs),
            compat: U64::ZERO,
            ro_compat: U64::new(table.ro_compat),
            incompat: U64::new(table.incompat),
            block_bytes: U32::new(4096),
            segment_blocks: U32::new(segment_blocks),
            total_blocks: U64::new(blocks),
            journals: U32::new(journals),
            device_count: U32::new(table.count),
            volume_header: U64::new(places.volume_header),
            pack: U64::new(places.pack),
            journal_headers: U64::new(places.journal_headers),
            nat: U64::new(places.nat),
            sit: U64::new(places.sit),
            summary: U64::new(places.summary),
            main: U64::new(places.main),
            pack_pairs: U32::new(small(places.pack_pairs)?),
            nat_pairs: U32::new(small(places.nat_pairs)?),
            sit_pairs: U32::new(small(places.sit_pairs)?),
            summary_pairs: U32::new(small(places.summary_pairs)?),
            segments: U32::new(small(segments)?),
            crc_seed: U32::new(dure_block::crc32c::crc32c(&uuid)),
            hash_seed: U64::new(xxhash_rust::xxh3::xxh3_64(&uuid)),
            devices: table.devices,
            member: U32::ZERO,
            node_log: U32::new(table.node_log),
            paths: table.paths,
            reserved: [0; 256],
        };
        Layout::from_superblock(superblock)
    }

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
    fn parts(&self) -> [(&'static str, u64, u64); 7] {
        [
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
        ]
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

fn check_options(blocks: u64, options: &FormatOptions) -> Result<()> {
    if blocks < VOLUME_BLOCKS_MIN {
        let need = VOLUME_BLOCKS_MIN;
        return Err(Error::TooSmall {
            what: "a volume",
            have: blocks,
            need,
        });
    }
    if options.label.len() > LABEL_BYTES {
        return Err(Error::BadOption {
            option: "label",
            why: "longer than 64 bytes".into(),
        });
    }
    Ok(())
}

fn padded(label: &str) -> [u8; LABEL_BYTES] {
    let mut bytes = [0; LABEL_BYTES];
    bytes[..label.len()].copy_from_slice(label.as_bytes());
    bytes
}

/// Where the structures of a volume lie.
struct Places {
    volume_header: u64,
    pack: u64,
    pack_pairs: u64,
    journal_headers: u64,
    nat: u64,
    nat_pairs: u64,
    sit: u64,
    sit_pairs: u64,
    summary: u64,
    summary_pairs: u64,
    main: u64,
}

impl Places {
    fn of(blocks: u64, segment_blocks: u32, journals: u32) -> Result<Places> {
        let room = blocks / u64::from(segment_blocks);
        let nat_pairs = blocks
            .div_ceil(4)
            .div_ceil(nat::ENTRIES)
            .max(u64::from(journals));
        let summary_pairs = u64::from(segment_blocks.div_ceil(summary::ENTRIES));
        let sit_pairs = room.div_ceil(u64::from(sit::ENTRIES));
        let pack_pairs =
            nat_pairs.div_ceil(volume::PACK_PAIRS) + sit_pairs.div_ceil(volume::PACK_PAIRS);
        if pack_pairs > volume::PACKS_MAX {
            return Err(too_large(blocks));
        }
        let volume_header = 2;
        let pack = volume_header + MIRRORED;
        let journal_headers = pack + MIRRORED * pack_pairs;
        let nat = journal_headers + MIRRORED * u64::from(journals);
        let sit = nat + 2 * nat_pairs;
        let summary = sit + 2 * sit_pairs;
        let main = (summary + 2 * summary_pairs * room).next_multiple_of(u64::from(segment_blocks));
        Ok(Places {
            volume_header,
            pack,
            pack_pairs,
            journal_headers,
            nat,
            nat_pairs,
            sit,
            sit_pairs,
            summary,
            summary_pairs,
            main,
        })
    }
}

fn too_large(blocks: u64) -> Error {
    Error::BadOption {
        option: "size",
        why: format!("{} is more than a volume can have", size_of(blocks)),
    }
}

/// 2 MiB segments where the volume has room for 256 of them, and persistent memory besides it for 32,
/// smaller ones down to 128 KiB below.
fn segment_blocks_for(offer: &Offer<'_>, wish: Option<u32>) -> Result<u32> {
    if let Some(wish) = wish {
        if wish.is_power_of_two() && (32..=512).contains(&wish) {
            return Ok(wish);
        }
        let why = format!("{wish} is not a power of two from 32 to 512");
        return Err(Error::BadOption {
            option: "segment_blocks",
            why,
        });
    }
    let mut segment = 512_u32;
    let nvm = offer.nvm_blocks();
    let few =
        |segment: u64| offer.blocks() / segment < 256 || nvm.is_some_and(|nvm| nvm / segment < 32);
    while segment > 32 && few(u64::from(segment)) {
        segment /= 2;
    }
    Ok(segment)
}

/// Each journal needs two log segments and its partition two open ones: together at most an eighth
/// of the volume unless the caller insists.
fn journals_for(segments: u64, wish: Option<u32>, cores: u32) -> Result<u32> {
    if let Some(wish) = wish {
        if (1..=JOURNALS_MAX).contains(&wish) {
            return Ok(wish);
        }
        let why = format!("{wish} is not in 1..={JOURNALS_MAX}");
        return Err(Error::BadOption {
            option: "journals",
            why,
        });
    }
    let room = u32::try_from(segments / 8 / 4).unwrap_or(JOURNALS_MAX);
    Ok(cores.max(16).min(room.max(1)).min(JOURNALS_MAX))
}

fn random_uuid() -> [u8; 16] {
    let mut bytes = [0; 16];
    dure_sync::random::fill(&mut bytes);
    uuid::Builder::from_random_bytes(bytes)
        .into_uuid()
        .into_bytes()
}
