//! Repairs that need no guess, on a volume that was unmounted cleanly.
//!
//! **Order.** SIT with the new images' blocks live too, flush; images, flush; NAT, flush; SIT and
//! summaries as they are then, flush. A crash at any point leaves every node readable and at worst
//! blocks that belong to nothing, which the next check reports and frees.
//!
//! **Invariants.** Images go to blocks that nothing owns; nothing is overwritten but slots of
//! pairs, each with its next generation, and a superblock copy that is bad anyway. If anything was
//! found that this cannot mend, then what looks like a leak or a missing name may be what is left
//! of something lost: link counts stay as they are and no block is freed.

use std::collections::BTreeMap;

use dure_block::{BlockBuf, Lba, WriteFlags};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, IntoBytes};

use crate::checkpoint::census::Census;
use crate::error::Result;
use crate::format::inode::InodeRecord;
use crate::format::nat::{self, NatBlock, NatEntry};
use crate::format::node::NodeImage;
use crate::format::pair_kind;
use crate::format::sit::{ENTRIES, SegmentUse, SitBlock, SitEntry};
use crate::format::summary::{self, OWNER_NODE, SummaryBlock, SummaryEntry};
use crate::format::volume::VolumeHeader;
use crate::pair;
use crate::units::{BLOCK_BYTES, BlockNo, GranuleId, Ino, Nid, SegNo, to_usize};

use super::context::Context;
use super::issue::IssueKind;
use super::nodes;
use super::sit::is_live;

/// What the passes found that can be mended.
#[derive(Debug, Default)]
pub(super) struct Repairs {
    /// Right block counts.
    pub(super) blocks: BTreeMap<Ino, u64>,
    /// Right counts of the volume header.
    pub(super) counts: Option<Census>,
    /// Inodes in use that the NAT's entries leave out, and a repair of these brings in.
    pub(super) inodes_left_out: i64,
    /// Right link counts.
    pub(super) links: BTreeMap<Ino, u32>,
    /// Orphan slots of inodes that do not exist.
    pub(super) orphans: Vec<(GranuleId, usize)>,
    /// Right owners.
    pub(super) summaries: BTreeMap<BlockNo, SummaryEntry>,
}

/// Mends what can be mended and marks those issues.
///
/// # Errors
/// A failed read, write or flush.
pub(super) fn run(context: &mut Context<'_>, checkpoint: u64) -> Result<()> {
    superblocks(context)?;
    if context.report.suppressed() > 0 {
        return Ok(());
    }
    let whole = context
        .report
        .issues()
        .iter()
        .all(|issue| is_mendable(&issue.kind));
    if whole {
        header(context)?;
    }
    let images = images(context, whole);
    let Some(moves) = place(context, images) else {
        return Ok(());
    };
    let owns = |kind: &IssueKind| matches!(kind, IssueKind::SitMissing { .. });
    let bits = context
        .report
        .issues()
        .iter()
        .any(|issue| is_sit(&issue.kind));
    if moves.is_empty() && !bits && context.repairs.summaries.is_empty() {
        return Ok(());
    }
    let frees = if whole { Frees::Yes } else { Frees::No };
    write_sit(context, checkpoint, Frees::No)?;
    write_images(context, checkpoint, &moves)?;
    write_nat(context, checkpoint, &moves)?;
    for (nid, (_, block)) in &moves {
        context
            .owned
            .clear(context.entry(*nid).block().0 - context.layout.main);
        let nid = U64::new(nid.0);
        let owner = SummaryEntry {
            nid,
            kind: OWNER_NODE,
            granule: 0,
            slot: 0,
            reserved: 0,
        };
        context.repairs.summaries.insert(*block, owner);
    }
    write_sit(context, checkpoint, frees)?;
    write_summaries(context, checkpoint)?;
    context.queue.flush()?;
    context.report.mark_repaired(|kind| {
        owns(kind)
            || matches!(
                kind,
                IssueKind::SummaryWrong { .. }
                    | IssueKind::SitCount { .. }
                    | IssueKind::InodeBlocks { .. }
                    | IssueKind::OrphanVanished { .. }
            )
            || (whole
                && matches!(
                    kind,
                    IssueKind::SitLeak { .. } | IssueKind::LinkCount { .. }
                ))
    });
    Ok(())
}

fn is_sit(kind: &IssueKind) -> bool {
    matches!(
        kind,
        IssueKind::SitMissing { .. } | IssueKind::SitLeak { .. } | IssueKind::SitCount { .. }
    )
}

/// Whether an issue is of those that are mended here, or says nothing about who owns what.
fn is_mendable(kind: &IssueKind) -> bool {
    is_sit(kind)
        || matches!(
            kind,
            IssueKind::SuperblockCopy { .. }
                | IssueKind::HeaderCount { .. }
                | IssueKind::PairSlotBad { .. }
                | IssueKind::NatFreeInodes { .. }
                | IssueKind::SummaryWrong { .. }
                | IssueKind::InodeBlocks { .. }
                | IssueKind::LinkCount { .. }
                | IssueKind::OrphanVanished { .. }
                | IssueKind::DataChecksum { .. }
        )
}

fn superblocks(context: &mut Context<'_>) -> Result<()> {
    let copies: Vec<u64> = context
        .report
        .issues()
        .iter()
        .filter_map(|issue| match issue.kind {
            IssueKind::SuperblockCopy { at, .. } => Some(at),
            _ => None,
        })
        .collect();
    for at in &copies {
        let block = BlockBuf::from_slice(&context.layout.superblock.seal(*at));
        context
            .queue
            .write(Lba::new(*at), block.as_slice(), WriteFlags::NONE)?;
    }
    if !copies.is_empty() {
        context.queue.flush()?;
        context
            .report
            .mark_repaired(|kind| matches!(kind, IssueKind::SuperblockCopy { .. }));
    }
    Ok(())
}

/// The next generation of the volume header, with the right counts. A torn write leaves the one
/// before.
fn header(context: &mut Context<'_>) -> Result<()> {
    let Some(mut census) = context.repairs.counts.take() else {
        return Ok(());
    };
    census.inodes += context.repairs.inodes_left_out;
    let (first, seed) = (context.layout.volume_header, context.layout.crc_seed);
    let pair = pair::read(&context.queue, first, pair_kind::VOLUME, seed)?;
    let newest = pair.newest().expect("it was read before");
    let mut payload = newest.payload.clone();
    let (header, _) = VolumeHeader::mut_from_prefix(&mut payload).expect("112 bytes");
    (header.nodes, header.inodes) = (U64::ZERO, U64::ZERO);
    census.apply(header);
    let generation = newest.generation + 1;
    pair::write(
        &context.queue,
        first,
        pair_kind::VOLUME,
        generation,
        &payload,
        seed,
    )?;
    context.queue.flush()?;
    context
        .report
        .mark_repaired(|kind| matches!(kind, IssueKind::HeaderCount { .. }));
    Ok(())
}

/// The node images with the right counts and without the vanished orphans.
fn images(context: &mut Context<'_>, whole: bool) -> BTreeMap<Nid, NodeImage> {
    let mut images = BTreeMap::new();
    let blocks = std::mem::take(&mut context.repairs.blocks);
    for (ino, want) in blocks {
        edit(context, &mut images, ino.granule(), |payload| {
            let mut record = InodeRecord::read_from_bytes(payload).expect("an inode payload");
            record.blocks = U64::new(want);
            payload.copy_from_slice(record.as_bytes());
        });
    }
    let links = std::mem::take(&mut context.repairs.links);
    for (ino, want) in links.into_iter().filter(|_| whole) {
        edit(context, &mut images, ino.granule(), |payload| {
            let mut record = InodeRecord::read_from_bytes(payload).expect("an inode payload");
            record.nlink = U32::new(want);
            payload.copy_from_slice(record.as_bytes());
        });
    }
    let orphans = std::mem::take(&mut context.repairs.orphans);
    for (granule, slot) in orphans {
        edit(context, &mut images, granule, |payload| {
            payload[slot * 16..][..16].fill(0)
        });
    }
    images
}

fn edit(
    context: &mut Context<'_>,
    images: &mut BTreeMap<Nid, NodeImage>,
    granule: GranuleId,
    change: impl FnOnce(&mut [u8]),
) {
    if let std::collections::btree_map::Entry::Vacant(entry) = images.entry(granule.nid) {
        let Some(image) = context.image(granule.nid) else {
            return;
        };
        entry.insert(image);
    }
    let image = images.get_mut(&granule.nid).expect("just put there");
    let index = usize::from(granule.index);
    change(image.payload_mut(index));
    image.set_version(index, image.version(index) + 1);
}

/// Nodes with their new image and its block.
type Moves = BTreeMap<Nid, (NodeImage, BlockNo)>;

/// Finds a free block for every image; `None` if there are not enough.
fn place(context: &mut Context<'_>, images: BTreeMap<Nid, NodeImage>) -> Option<Moves> {
    let mut moves = Moves::new();
    let mut from = 0;
    for (nid, image) in images {
        let index = context.owned.next_zero(from)?;
        context.owned.set(index);
        from = index + 1;
        moves.insert(nid, (image, BlockNo(context.layout.main + index)));
    }
    Some(moves)
}

fn write_images(context: &Context<'_>, checkpoint: u64, moves: &Moves) -> Result<()> {
    for (nid, (image, block)) in moves {
        let mut bytes = BlockBuf::zeroed(1);
        image.seal(
            bytes.as_mut_slice(),
            *nid,
            *block,
            checkpoint,
            context.layout.crc_seed,
        );
        context
            .queue
            .write(Lba::new(block.0), bytes.as_slice(), WriteFlags::NONE)?;
    }
    // Crash here: the NAT must not name an image that is not there.
    context.queue.flush()?;
    Ok(())
}

fn write_nat(context: &Context<'_>, checkpoint: u64, moves: &Moves) -> Result<()> {
    let pairs: std::collections::BTreeSet<u64> =
        moves.keys().map(|nid| nat::place_of(*nid).0).collect();
    let seed = context.layout.crc_seed;
    for index in pairs {
        let first = context.layout.nat_pair(index);
        let old = pair::read(&context.queue, first, pair_kind::NAT, seed)?;
        let newest = old.newest().expect("a node of this pair was read");
        let mut block = NatBlock::read_from_bytes(&newest.payload).expect("a whole payload");
        block.checkpoint = U64::new(checkpoint);
        for (nid, (image, at)) in moves
            .iter()
            .filter(|(nid, _)| nat::place_of(**nid).0 == index)
        {
            let free = nodes::free_inodes(*nid, image);
            let entry = NatEntry::live(*at, image.kind, free, image.version_max());
            block.entries[nat::place_of(*nid).1] = entry;
        }
        let generation = newest.generation + 1;
        pair::write(
            &context.queue,
            first,
            pair_kind::NAT,
            generation,
            block.as_bytes(),
            seed,
        )?;
    }
    // Crash here: only now may the old images' blocks be taken from the SIT.
    context.queue.flush()?;
    Ok(())
}

/// Whether blocks that belong to nothing lose their SIT bit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Frees {
    Yes,
    No,
}

fn write_sit(context: &Context<'_>, checkpoint: u64, frees: Frees) -> Result<()> {
    let seed = context.layout.crc_seed;
    for index in 0..context.layout.sit_pairs {
        let first = context.layout.sit_pair(index);
        let old = pair::read(&context.queue, first, pair_kind::SIT, seed)?;
        let (generation, payload) = match old.newest() {
            Some(newest) => (newest.generation, newest.payload.clone()),
            None => (0, vec![0; BLOCK_BYTES - 32]),
        };
        let old = SitBlock::read_from_bytes(&payload).expect("a whole payload");
        let mut new = old;
        for (segment, entry) in (index * ENTRIES..context.layout.segments).zip(&mut new.entries) {
            set_bits(context, SegNo(segment), entry, frees);
        }
        new.index = U64::new(u64::from(index));
        if new.as_bytes() != old.as_bytes() {
            new.checkpoint = U64::new(checkpoint);
            let payload = new.as_bytes();
            pair::write(
                &context.queue,
                first,
                pair_kind::SIT,
                generation + 1,
                payload,
                seed,
            )?;
        }
    }
    context.queue.flush()?;
    Ok(())
}

fn set_bits(context: &Context<'_>, segment: SegNo, entry: &mut SitEntry, frees: Frees) {
    let start = context.layout.segment_start(segment).0 - context.layout.main;
    let log = context.log_segments.contains(&segment);
    let mut live = [0_u8; 64];
    let mut count = 0;
    for n in 0..context.layout.segment_blocks {
        let owned = context.owned.get(start + u64::from(n)) && !log;
        if owned || (frees == Frees::No && is_live(entry, n)) {
            live[to_usize(u64::from(n / 8))] |= 1 << (n % 8);
            count += 1;
        }
    }
    entry.live = live;
    entry.valid = U16::new(count);
    if SegmentUse::from_code(entry.usage).is_none() {
        entry.usage = SegmentUse::Data.code();
    }
}

fn write_summaries(context: &Context<'_>, checkpoint: u64) -> Result<()> {
    let mut pairs: BTreeMap<(SegNo, u32), Vec<(usize, SummaryEntry)>> = BTreeMap::new();
    for (block, owner) in &context.repairs.summaries {
        let (segment, index) = context
            .layout
            .locate(*block)
            .expect("only blocks of the main area");
        let (n, within) = (
            index / summary::ENTRIES,
            to_usize(u64::from(index % summary::ENTRIES)),
        );
        pairs
            .entry((segment, n))
            .or_default()
            .push((within, *owner));
    }
    let seed = context.layout.crc_seed;
    for ((segment, n), owners) in pairs {
        let first = context.layout.summary_pair(segment, n);
        let mut bytes = vec![0; 2 * BLOCK_BYTES];
        context.queue.read(Lba::new(first), &mut bytes)?;
        let kind = super::pairs::slot_kind(super::owner::PairKind::Summary);
        let (slots, _) = super::pairs::parse(&bytes, kind, first, seed);
        let generation = slots.newest.as_ref().map_or(0, |newest| newest.generation);
        let payload = slots
            .newest
            .map_or_else(|| vec![0; BLOCK_BYTES - 32], |newest| newest.payload);
        let mut block = SummaryBlock::read_from_bytes(&payload).expect("a whole payload");
        block.checkpoint = U64::new(checkpoint);
        block.segment = U64::new(u64::from(segment.0));
        for (within, owner) in owners {
            block.entries[within] = owner;
        }
        let payload = block.as_bytes();
        pair::write(
            &context.queue,
            first,
            pair_kind::SUMMARY,
            generation + 1,
            payload,
            seed,
        )?;
    }
    Ok(())
}
