//! Superblock, volume header, pack, journal headers, NAT entries, segments.

use dure_block::Lba;
use dure_journal::format::JournalHeader;
use zerocopy::FromBytes;

use super::source::Source;
use super::{Out, line};
use crate::error::{Error, Result};
use crate::format::nat::place_of;
use crate::format::node::NodeKind;
use crate::format::pair_kind;
use crate::format::sit::{self, SegmentUse, SitBlock};
use crate::format::summary::{
    self, OWNER_NODE, OWNER_NONE, OWNER_SLOT, SummaryBlock, SummaryEntry,
};
use crate::format::superblock::SuperBlock;
use crate::format::volume::{PACK_BITS, Pack, STATE_CLEAN, STATE_DIRTY, VolumeHeader};
use crate::units::{BLOCK_BYTES, JournalId, Nid, SegNo, to_usize};

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
    line!(out, "main area: from {}", layout.main)?;
    line!(out, "checksum seed: {:#010x}", layout.crc_seed)?;
    line!(out, "hash seed: {:#018x}", layout.hash_seed)
}

/// Both slots of the volume header, and the packs.
pub(super) fn volume_header(source: &Source, out: &mut Out<'_>) -> Result<()> {
    let at = source.layout.volume_header;
    let pair = source.pair(at, pair_kind::VOLUME)?;
    for slot in pair.newest().into_iter().chain(pair.older()) {
        let (header, _) =
            VolumeHeader::read_from_prefix(&slot.payload).expect("a payload is longer");
        let state = match header.state.get() {
            STATE_CLEAN => "clean".to_owned(),
            STATE_DIRTY => "dirty".to_owned(),
            other => format!("{other} (unknown)"),
        };
        line!(
            out,
            "volume header at {}, generation {}",
            at + slot.generation % 2,
            slot.generation
        )?;
        line!(out, "  state: {state}")?;
        line!(out, "  epoch: {}", header.epoch.get())?;
        line!(out, "  first number: {}", header.first_number.get())?;
        line!(out, "  checkpoint: {}", header.checkpoint.get())?;
        line!(out, "  mounts: {}", header.mounts.get())?;
        line!(out, "  nodes: {}", header.nodes.get())?;
        line!(out, "  inodes: {}", header.inodes.get())?;
        line!(out, "  written: {}", header.written.get())?;
    }
    for index in 0..u64::from(source.layout.pack_pairs) {
        pack(source, out, index)?;
    }
    Ok(())
}

fn pack(source: &Source, out: &mut Out<'_>, index: u64) -> Result<()> {
    let pair = source.pair(source.layout.pack + 2 * index, pair_kind::PACK)?;
    let Some(newest) = pair.newest() else {
        return line!(out, "pack {index}: never written");
    };
    let pack = Pack::read_from_bytes(&newest.payload).expect("a whole payload");
    let set = |bit: &u64| pack.bits[to_usize(bit / 8)] >> (bit % 8) & 1 == 1;
    let pairs: Vec<String> = (0..PACK_BITS)
        .filter(set)
        .map(|bit| (index * PACK_BITS + bit).to_string())
        .collect();
    let checkpoint = pack.checkpoint.get();
    line!(
        out,
        "pack {index}: checkpoint {checkpoint}, NAT pairs {}",
        pairs.join(" ")
    )
}

/// The header of journal `journal`, if it is valid.
pub(super) fn journal_header(source: &Source, journal: u32) -> Result<JournalHeader> {
    let at = source.layout.journal_header(journal);
    let (first, second) = (source.block(at)?, source.block(at + 1)?);
    let id = u16::try_from(journal)
        .ok()
        .and_then(JournalId::new)
        .expect("at most 1000 journals");
    Ok(JournalHeader::open(
        &first,
        &second,
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
    for n in 0..source.layout.summary_pairs {
        let first = source.layout.summary_pair(segment, n);
        // What an earlier volume left there is as good as nothing.
        let pair = source.pair(first, pair_kind::SUMMARY);
        let newest = pair
            .ok()
            .and_then(|pair| pair.newest().map(|slot| slot.payload.clone()));
        match newest {
            Some(payload) => {
                let block = SummaryBlock::read_from_bytes(&payload).expect("a whole payload");
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
    let pair = source.pair(source.layout.sit_pair(index), pair_kind::SIT)?;
    let payload = pair
        .newest()
        .map_or_else(|| vec![0; BLOCK_BYTES - 32], |s| s.payload.clone());
    let block = SitBlock::read_from_bytes(&payload).expect("a whole payload");
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
