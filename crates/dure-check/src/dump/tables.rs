//! Superblock, volume header, pack, journal headers, NAT entries, segments.

use dure_block::Lba;
use dure_journal::format::JournalHeader;
use dure_journal::format::slotted::{self, SlotKind};
use dure_store::error::{Error, Result};
use dure_store::format::nat::place_of;
use dure_store::format::node::NodeKind;
use dure_store::format::pair_kind;
use dure_store::format::sit::{self, SegmentUse, SitBlock};
use dure_store::format::summary::{
    self, OWNER_NODE, OWNER_NONE, OWNER_SLOT, SummaryBlock, SummaryEntry,
};
use dure_store::format::superblock::SuperBlock;
use dure_store::format::volume::{
    PACK_PAIRS, STATE_CLEAN, STATE_DIRTY, STATE_UNLOGGED, SlotCode, VolumeHeader,
};
use dure_store::members::stamps;
use dure_store::packs::read_pack;
use dure_store::space::{pair_index, summaries_from};
use dure_store::units::{BLOCK_BYTES, JournalId, Nid, SegNo, to_u64, to_usize};
use zerocopy::FromBytes;

use super::source::Source;
use super::{Out, line};

/// Both copies and the layout.
pub(super) fn superblocks(source: &Source, out: &mut Out<'_>) -> Result<()> {
    let layout = &source.layout;
    for at in [0, layout.total_blocks - 1] {
        let copy = source
            .block(at)
            .and_then(|block| SuperBlock::open(&block, at));
        match copy {
            Ok(_) => line!(out, "superblock at {at}: valid")?,
            Err(error) => line!(out, "superblock at {at}: {error}")?,
        }
    }
    let superblock = &layout.superblock;
    let label: Vec<u8> = superblock
        .label
        .iter()
        .copied()
        .take_while(|byte| *byte != 0)
        .collect();
    line!(out, "version: {}", superblock.version.get())?;
    line!(out, "uuid: {}", uuid::Uuid::from_bytes(superblock.uuid))?;
    line!(out, "label: \"{}\"", label.escape_ascii())?;
    line!(out, "created: {}", superblock.created.get())?;
    line!(
        out,
        "features: compat {:#x}, ro_compat {:#x}, incompat {:#x}",
        superblock.compat.get(),
        superblock.ro_compat.get(),
        superblock.incompat.get()
    )?;
    line!(out, "blocks: {}", layout.total_blocks)?;
    media(source, out)?;
    line!(
        out,
        "segments: {} of {} blocks",
        layout.segments,
        layout.segment_blocks
    )?;
    line!(out, "journals: {}", layout.journals)?;
    line!(out, "volume header: pair at {}", layout.volume_header)?;
    line!(
        out,
        "pack: {} pairs from {}",
        layout.pack_pairs,
        layout.pack
    )?;
    line!(
        out,
        "journal headers: {} pairs from {}",
        layout.journals,
        layout.journal_headers
    )?;
    line!(
        out,
        "NAT: {} pairs from {}, {} nodes",
        layout.nat_pairs,
        layout.nat,
        layout.nids()
    )?;
    line!(out, "SIT: {} pairs from {}", layout.sit_pairs, layout.sit)?;
    line!(
        out,
        "summaries: {} pairs per segment from {}",
        layout.summary_pairs,
        layout.summary
    )?;
    if layout.has_copies() {
        line!(out, "copies of NAT and SIT: from {}", layout.copies)?;
    }
    line!(out, "main area: from {}", layout.main)?;
    line!(out, "checksum seed: {:#010x}", layout.crc_seed)?;
    line!(out, "hash seed: {:#018x}", layout.hash_seed)
}

/// The table of media, if there are several.
fn media(source: &Source, out: &mut Out<'_>) -> Result<()> {
    let layout = &source.layout;
    let media = layout.superblock.media();
    if media.len() == 1 {
        return Ok(());
    }
    for medium in &media {
        line!(
            out,
            "medium: {} blocks from {}, {} from its block {}, uuid {}, was \"{}\"",
            medium.blocks,
            medium.first,
            medium.kind.name(),
            medium.start,
            uuid::Uuid::from_bytes(medium.uuid),
            medium.path.escape_default()
        )?;
    }
    let stamped = layout.superblock.is_stamped() && source.region.heads() == media.len();
    for member in 1..if stamped { media.len() } else { 1 } {
        let number = member + 1;
        match stamps::read(&source.region, layout, member) {
            Ok(Some((stamp, generation))) => line!(
                out,
                "stamp of medium {number}: generation {generation}, epoch {}, mount {:#018x}; next {}, \
                 {:#018x}",
                stamp.now.epoch,
                stamp.now.mount.get(),
                stamp.next.epoch,
                stamp.next.mount.get()
            )?,
            Ok(None) => line!(out, "stamp of medium {number}: destroyed")?,
            Err(error) => line!(out, "stamp of medium {number}: {error}")?,
        }
    }
    line!(
        out,
        "segments in persistent memory: {}",
        layout.nvm_segments
    )
}

/// All slots of the volume header that are valid, and the packs.
pub(super) fn volume_header(source: &Source, out: &mut Out<'_>) -> Result<()> {
    let first = source.layout.volume_header;
    for at in first..first + to_u64(slotted::MIRRORED_BLOCKS) {
        let block = source.block(at)?;
        let slot = (at - first) % 2;
        let (kind, seed) = (SlotKind(pair_kind::VOLUME), source.layout.crc_seed);
        let Some(found) = slotted::open_slot(&block, kind, Lba::new(at - slot), slot, seed) else {
            continue;
        };
        let header =
            VolumeHeader::ref_from_bytes(found.body).expect("a pair's payload has this size");
        let state = match header.state.get() {
            STATE_CLEAN => "clean".to_owned(),
            STATE_DIRTY => "dirty".to_owned(),
            STATE_UNLOGGED => "unlogged".to_owned(),
            other => format!("{other} (unknown)"),
        };
        let generation = found.generation;
        line!(out, "volume header at {at}, generation {generation}")?;
        line!(out, "  state: {state}")?;
        line!(out, "  epoch: {}", header.epoch.get())?;
        line!(out, "  first number: {}", header.first_number.get())?;
        line!(out, "  checkpoint: {}", header.checkpoint.get())?;
        line!(out, "  mounts: {}", header.mounts.get())?;
        line!(out, "  nodes: {}", header.nodes.get())?;
        line!(out, "  inodes: {}", header.inodes.get())?;
        line!(out, "  written: {}", header.written.get())?;
        line!(out, "  snapshots: {}", header.snapshots.get())?;
    }
    let header = source.header()?;
    for index in 0..u64::from(source.layout.pack_pairs) {
        pack(source, out, &header, index)?;
    }
    Ok(())
}

fn pack(source: &Source, out: &mut Out<'_>, header: &VolumeHeader, index: u64) -> Result<()> {
    let Some(pack) = read_pack(&source.region, &source.layout, header, index)? else {
        return Ok(());
    };
    let slots: Vec<String> = (0..PACK_PAIRS)
        .filter_map(|n| match SlotCode::get(&pack.slots, n) {
            Some(SlotCode::Slot(slot)) => Some(format!("{n}:{slot}")),
            _ => None,
        })
        .collect();
    let checkpoint = pack.checkpoint.get();
    let slots = slots.join(" ");
    line!(
        out,
        "pack {index}: checkpoint {checkpoint}, pairs and their slots: {slots}"
    )
}

/// The header of journal `journal`, if it is valid.
pub(super) fn journal_header(source: &Source, journal: u32) -> Result<JournalHeader> {
    let at = source.layout.journal_header(journal);
    let blocks = at..at + to_u64(slotted::MIRRORED_BLOCKS);
    let blocks: Result<Vec<Vec<u8>>> = blocks.map(|at| source.block(at)).collect();
    let id = u16::try_from(journal)
        .ok()
        .and_then(JournalId::new)
        .expect("a volume has at most 1000 journals");
    Ok(JournalHeader::open(
        &blocks?.concat(),
        Lba::new(at),
        source.layout.crc_seed,
        id,
    )?)
}

/// All journal headers.
pub(super) fn journals(source: &Source, out: &mut Out<'_>) -> Result<()> {
    for journal in 0..source.layout.journals {
        let header = match journal_header(source, journal) {
            Ok(header) => header,
            Err(error) => {
                line!(out, "journal {journal}: {error}")?;
                continue;
            }
        };
        let tail = &header.tail;
        let segments: Vec<String> = header
            .segments
            .iter()
            .map(|segment| segment.to_string())
            .collect();
        line!(out, "journal {journal}, generation {}", header.generation)?;
        line!(out, "  epoch: {}", header.epoch)?;
        line!(out, "  checkpoint: {}", header.checkpoint)?;
        line!(
            out,
            "  tail: segment {}, block {}, sequence {}, number {}",
            tail.segment,
            tail.offset,
            tail.sequence,
            tail.number
        )?;
        line!(out, "  durable up to: {}", header.durable_upto)?;
        line!(out, "  segments: {}", segments.join(" "))?;
    }
    Ok(())
}

/// The NAT entry of a node.
pub(super) fn nat(source: &Source, out: &mut Out<'_>, nid: Nid) -> Result<()> {
    let entry = source.entry(nid)?;
    let (pair, within) = place_of(nid);
    let version = entry.version.get();
    line!(out, "node {nid}: entry {within} of NAT pair {pair}")?;
    if entry.block().is_none() {
        return line!(out, "  free, version {version}");
    }
    let kind = NodeKind::from_code(entry.kind_code());
    let kind = kind.map_or_else(
        || format!("{}", entry.kind_code()),
        |kind| format!("{kind:?}"),
    );
    line!(out, "  block: {}", entry.block().0)?;
    line!(out, "  kind: {kind}")?;
    line!(out, "  free inodes: {}", entry.free_inodes())?;
    line!(out, "  version: {version}")
}

/// The summary entries of a segment.
pub(super) fn summary_of(source: &Source, segment: SegNo) -> Result<Vec<SummaryEntry>> {
    let mut entries = Vec::new();
    let codes = summaries_from(sit_entry(source, segment)?.summaries).unwrap_or_default();
    for n in 0..source.layout.summary_pairs {
        let first = source.layout.summary_pair(segment, n);
        let code = codes[to_usize(u64::from(n))];
        match source.pair(first, pair_kind::SUMMARY, code)? {
            Some(payload) => {
                let block = SummaryBlock::read_from_bytes(&payload)
                    .expect("a pair's payload has this size");
                entries.extend(block.entries);
            }
            None => entries.extend([SummaryEntry::default(); SUMMARY_ENTRIES]),
        }
    }
    entries.truncate(to_usize(u64::from(source.layout.segment_blocks)));
    Ok(entries)
}

const SUMMARY_ENTRIES: usize = 336;
const _: () = assert!(summary::ENTRIES == 336);

/// A summary entry in words.
pub(super) fn owner(entry: &SummaryEntry) -> String {
    let nid = entry.nid.get();
    match entry.kind {
        OWNER_NONE => "nobody".to_owned(),
        OWNER_NODE => format!("image of node {nid}"),
        OWNER_SLOT => format!("slot {} of granule {nid}.{}", entry.slot, entry.granule),
        other => format!("unknown kind {other}"),
    }
}

/// The SIT entry of a segment; all zero when the pair was never written.
pub(super) fn sit_entry(source: &Source, segment: SegNo) -> Result<sit::SitEntry> {
    if segment.0 >= source.layout.segments {
        let why = format!("{} is not below {}", segment.0, source.layout.segments);
        return Err(Error::BadOption {
            option: "segment",
            why,
        });
    }
    let index = segment.0 / sit::ENTRIES;
    let code = source.code(pair_index(index))?;
    let payload = source.pair(source.layout.sit_pair(index), pair_kind::SIT, code)?;
    let payload = payload.unwrap_or_else(|| vec![0; BLOCK_BYTES - 32]);
    let block = SitBlock::read_from_bytes(&payload).expect("a pair's payload has this size");
    Ok(block.entries[to_usize(u64::from(segment.0 % sit::ENTRIES))])
}

/// Whether bit `index` of a SIT entry is set.
pub(super) fn is_live(entry: &sit::SitEntry, index: u32) -> bool {
    entry.live[to_usize(u64::from(index / 8))] >> (index % 8) & 1 == 1
}

/// A segment: its SIT entry, and the owners of its live blocks.
pub(super) fn segment(source: &Source, out: &mut Out<'_>, segment: SegNo) -> Result<()> {
    let entry = sit_entry(source, segment)?;
    let first = source.layout.segment_start(segment).0;
    let last = first + u64::from(source.layout.segment_blocks) - 1;
    let usage = SegmentUse::from_code(entry.usage);
    let usage = usage.map_or_else(|| format!("{}", entry.usage), |usage| format!("{usage:?}"));
    line!(out, "segment {}: blocks {first}..={last}", segment.0)?;
    line!(out, "  use: {usage}")?;
    line!(out, "  live blocks: {}", entry.valid.get())?;
    line!(out, "  changed: {}", entry.changed.get())?;
    let owners = summary_of(source, segment)?;
    for (index, summary) in (0..).zip(&owners) {
        if is_live(&entry, index) {
            line!(
                out,
                "  block {}: {}",
                first + u64::from(index),
                owner(summary)
            )?;
        }
    }
    Ok(())
}
