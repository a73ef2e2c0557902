//! Writes a rebuilt volume: logged pages, journal headers, images and tables, and the header of a
//! new epoch, which empties all logs.
//!
//! **Invariants.** Images go to blocks without an owner that the NAT of the medium does not name
//! either: there the next rebuild of one that was cut off would find a new image under an old entry.
//! **Crash.** Before the volume header, images and tables are in places that do not count; a lost
//! journal header is replaced by one of epoch 0, whose log is empty in any epoch.

use std::collections::BTreeSet;

use dure_block::{BlockBuf, Lba};
use dure_journal::RingStart;
use dure_journal::format::slotted::SLOT_HEADER_BYTES;
use dure_journal::recovery::write_fresh_header;
use dure_store::census::Census;
use dure_store::checkpoint::{CheckpointState, Target, Writer};
use dure_store::error::{Error, Result};
use dure_store::format::nat::{ENTRIES, NatEntry, place_of};
use dure_store::format::sit;
use dure_store::format::volume::STATE_CLEAN;
use dure_store::node::nat::Nat;
use dure_store::packs::Table;
use dure_store::snapshot::Snapshots;
use dure_store::space::{OpClass, Space};
use dure_store::units::{BLOCK_BYTES, BlockNo, Nid, Run, SegNo, journal_id, to_usize};
use dure_store::{RING_SEGMENTS, StoreRules};
use dure_sync::CoreId;

use super::edit::Edit;
use super::salvage::Salvage;
use crate::context::Context;
use crate::heads;
use crate::issue::IssueKind;
use crate::owner::PairKind;
use crate::space::{self, Unowned};

const _: () = assert!(SLOT_HEADER_BYTES == 32);

/// Writes it.
///
/// # Errors
/// `NoSpace`, before anything is written; a failed write or flush.
pub(super) fn run(edit: &mut Edit<'_, '_>, salvage: Salvage) -> Result<()> {
    let context = &*edit.context;
    let layout = &context.layout;
    let space = space(context, &salvage)?;
    let rings = rings(context, &space, &salvage)?;
    let targets = targets(edit, &salvage);
    let images = targets
        .iter()
        .filter(|(_, target)| matches!(target, Target::Image(_)));
    let core = CoreId::new(0);
    let blocks = u32::try_from(images.count()).unwrap_or(u32::MAX);
    if !space.reserve(core, blocks, OpClass::Delete) {
        return Err(Error::NoSpace {
            what: "blocks for the rebuilt nodes",
        });
    }
    write_superblocks(context)?;
    for (block, page) in &context.logged {
        context.region.write(*block, &page.bytes)?;
    }
    let medium = context.region.log_medium();
    for (journal, segments) in rings {
        let ring = RingStart {
            header: Lba::new(layout.journal_header(journal)),
            generation: 1,
            segments,
        };
        let shape = (layout.crc_seed, layout.segment_blocks);
        write_fresh_header(&medium, shape, journal_id(journal), &ring)?;
    }
    let (nat, census) = nat(edit, &salvage);
    let mut header = salvage.header;
    header.epoch += 1;
    header.checkpoint += 1;
    // Usage that was stored for the next mount only does not count any more.
    header.mounts.set(header.mounts.get().wrapping_add(1));
    header.state.set(STATE_CLEAN);
    header.snapshots.set(0);
    (header.nodes, header.inodes) = (0.into(), 0.into());
    census.apply(&mut header);
    let checkpoint = header.checkpoint.get();
    let mut state = CheckpointState::new(header, salvage.generation);
    let writer = Writer {
        region: &context.region,
        layout,
        nat: &nat,
        space: &space,
        snapshots: &Snapshots::default(),
        checkpoint,
        rules: &StoreRules::default(),
        journal: None,
    };
    writer.write(core, &mut state, targets)?;
    // Crash before this: the header names the tables as they were, or is still lost.
    state.write(&context.region, layout)?;
    context.region.flush()?;
    // The other slot of the header holds what is older, or destroyed.
    state.write(&context.region, layout)?;
    wipe_bad_slots(context)?;
    heads::mend(&context.region, layout, &header)?;
    context.region.flush()?;
    Ok(())
}

/// The NAT as it will be, and what it counts.
fn nat(edit: &Edit<'_, '_>, salvage: &Salvage) -> (Nat, Census) {
    let context = &*edit.context;
    let layout = &context.layout;
    let nat = Nat::new(context.region.clone(), layout, context.packs.clone());
    let mut census = Census::default();
    for (pair, entries) in &context.nat {
        for (nid, entry) in (pair * ENTRIES..).map(Nid).zip(entries.iter()) {
            census.change(Census::default(), Census::of_entry(nid, entry));
        }
        nat.preload(*pair, entries.clone());
    }
    for pair in salvage
        .nat_lost
        .iter()
        .filter(|pair| !context.nat.contains_key(pair))
    {
        let tombstones = vec![NatEntry::tombstone(edit.version); to_usize(ENTRIES)];
        nat.preload(*pair, tombstones.into());
    }
    (nat, census)
}

/// Empties the slots of mirrored pairs that do not count and do not verify.
fn wipe_bad_slots(context: &Context<'_>) -> Result<()> {
    for issue in context.report.issues() {
        if let IssueKind::PairSlotBad { pair, at } = &issue.kind
            && pair.kind == PairKind::JournalHeader
        {
            context
                .region
                .write(BlockNo(*at), BlockBuf::zeroed(1).as_slice())?;
        }
    }
    Ok(())
}

/// The space map: exactly what has an owner is live.
fn space(context: &Context<'_>, salvage: &Salvage) -> Result<Space> {
    let layout = &context.layout;
    let space = space::owned(context, Unowned::Freed)?;
    for pair in &salvage.sit_lost {
        let segment = pair * sit::ENTRIES;
        if segment < layout.segments {
            space.rewrite(SegNo(segment));
        }
    }
    for (segment, n) in lost_summaries(context) {
        space.forget_summary(segment, n);
    }
    for first in salvage.named_blocks(layout) {
        space.fence(Run { first, count: 1 })?;
    }
    Ok(space)
}

/// Summary pairs that a SIT entry names and that do not verify.
fn lost_summaries(context: &Context<'_>) -> BTreeSet<(SegNo, u32)> {
    let lost = context.report.issues().iter().filter_map(|issue| {
        let (IssueKind::PairLost { pair, at } | IssueKind::PairMisplaced { pair, at, .. }) =
            &issue.kind
        else {
            return None;
        };
        let segment = SegNo(u32::try_from(pair.index).ok()?);
        let first =
            (pair.kind == PairKind::Summary).then(|| context.layout.summary_pair(segment, 0))?;
        Some((segment, u32::try_from((at - first) / 2).ok()?))
    });
    lost.collect()
}

/// Segments for the journals without a header.
fn rings(context: &Context<'_>, space: &Space, salvage: &Salvage) -> Result<Vec<(u32, Vec<Lba>)>> {
    let layout = &context.layout;
    let per_segment = u64::from(layout.segment_blocks);
    let mut free = (0..layout.segments).map(SegNo).filter(|segment| {
        let start = u64::from(segment.0) * per_segment;
        let mut blocks = start..start + per_segment;
        !context.log_segments.contains(segment) && !blocks.any(|n| context.owned.get(n))
    });
    let mut rings = Vec::new();
    for journal in &salvage.journals_lost {
        let mut segments = Vec::new();
        for _ in 0..RING_SEGMENTS {
            let segment = free.next().ok_or(Error::NoSpace {
                what: "free segments for the logs",
            })?;
            let start = layout.segment_start(segment);
            space.mark_log(start)?;
            segments.push(Lba::new(start.0));
        }
        rings.push((*journal, segments));
    }
    Ok(rings)
}

/// What is to be written of each node, and one entry of every other pair of the NAT that changed.
fn targets(edit: &Edit<'_, '_>, salvage: &Salvage) -> Vec<(Nid, Target)> {
    let context = &*edit.context;
    let mut targets = Vec::new();
    let mut pairs = BTreeSet::new();
    for nid in &edit.edited {
        let target = match context.replayed.get(nid) {
            Some(Some(image)) => Target::Image(image.clone()),
            _ => Target::Tombstone(edit.version),
        };
        pairs.insert(place_of(*nid).0);
        targets.push((*nid, target));
    }
    let packs_named = context.packs.written(Table::Nat);
    let all: BTreeSet<u64> = packs_named.chain(context.nat.keys().copied()).collect();
    for pair in all.difference(&pairs) {
        let lost = salvage.nat_lost.contains(pair);
        if lost || context.nat.get(pair) != salvage.original.get(pair) {
            let first = Nid(pair * ENTRIES);
            let lost = NatEntry::tombstone(edit.version);
            let entry = context.nat.get(pair).map_or(lost, |entries| entries[0]);
            targets.push((first, Target::Keep(entry)));
        }
    }
    targets.sort_by_key(|(nid, _)| *nid);
    targets
}

fn write_superblocks(context: &Context<'_>) -> Result<()> {
    for at in [context.layout.total_blocks - 1, 0] {
        let block = BlockBuf::from_slice(&context.layout.superblock.seal(at));
        let mut found = [0; BLOCK_BYTES];
        let read = context.region.read(BlockNo(at), &mut found);
        if read.is_err() || found[..] != *block.as_slice() {
            context.region.write(BlockNo(at), block.as_slice())?;
        }
    }
    Ok(())
}
