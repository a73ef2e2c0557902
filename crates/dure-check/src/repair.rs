//! Repairs that need no guess, on a volume that was unmounted cleanly.
//!
//! **Structure.** Faults are corrected in memory, in a space map made of the SIT and of what the
//! passes saw, and written as a checkpoint is ([`Writer`]): images to free blocks, tables to slots
//! that are not current. One write of the volume header makes all of it current. **Crash.** Before
//! that write, nothing has changed.
//!
//! **Invariants.** Nothing is written to a block that is live in the SIT or has an owner.
//!
//! # What an issue forbids
//! After an issue that cannot be repaired here, blocks that look free, leaked or unnamed may be the
//! rest of something lost: no image is written, no block is freed, and lists of shared blocks lose no
//! slot; if a list is lost too, nothing is written. If the current slot of a SIT
//! pair is lost, nothing is written but a superblock copy.

use std::collections::BTreeMap;

use dure_block::BlockBuf;
use dure_store::checkpoint::{CheckpointState, Target, Writer};
use dure_store::error::Result;
use dure_store::format::inode::{AttributesRecord, InodeData};
use dure_store::format::node::NodeImage;
use dure_store::node::nat::Nat;
use dure_store::space::OpClass;
use dure_store::units::{BlockNo, GranuleId, Nid};
use dure_store::{StoreRules, read_header};
use dure_sync::CoreId;
use zerocopy::FromBytes;
use zerocopy::little_endian::{U32, U64};

use crate::clones;
use crate::context::Context;
use crate::heads;
use crate::issue::IssueKind;
use crate::snapshots;
use crate::space::{self, Unowned};

/// Repairs what can be repaired and marks those issues.
///
/// # Errors
/// A failed read, write or flush.
pub(super) fn run(context: &mut Context<'_>) -> Result<()> {
    superblocks(context)?;
    heads(context)?;
    copies(context)?;
    let issues = context.report.issues();
    let whole = issues.iter().all(|issue| is_mendable(&issue.kind));
    if is_refused(context, whole) {
        return Ok(());
    }
    let lists = if whole {
        clones::are_wrong
    } else {
        clones::lack
    };
    let counts = context.repairs.counts.take().filter(|_| whole);
    let images = if whole {
        images(context)
    } else {
        BTreeMap::new()
    };
    let sit = issues_any(context, is_sit) || issues_any(context, lists);
    let usage = issues_any(context, is_usage);
    let nothing = counts.is_none() && images.is_empty() && !sit && !usage;
    if nothing && context.repairs.summaries.is_empty() {
        return Ok(());
    }
    let nat = Nat::new(
        context.region.clone(),
        &context.layout,
        context.packs.clone(),
    );
    let unowned = if whole { Unowned::Freed } else { Unowned::Kept };
    let space = space::owned(context, unowned)?;
    let targets: Vec<(Nid, Target)> = images
        .into_iter()
        .map(|(nid, image)| (nid, Target::Image(image)))
        .collect();
    let core = CoreId::new(0);
    let blocks = u32::try_from(targets.len()).unwrap_or(u32::MAX);
    if !space.reserve(core, blocks, OpClass::Delete) {
        return Ok(());
    }
    let (mut header, generation) = read_header(&context.region, &context.layout)?;
    if let Some(census) = counts {
        (header.nodes, header.inodes) = (U64::ZERO, U64::ZERO);
        census.apply(&mut header);
    }
    // What was stored for the next mount only does not count any more: it counts what inodes have.
    header.mounts = U32::new(header.mounts.get().wrapping_add(1));
    let checkpoint = header.checkpoint.get() + 1;
    let mut state = CheckpointState::new(header, generation);
    let writer = Writer {
        region: &context.region,
        layout: &context.layout,
        nat: &nat,
        space: &space,
        snapshots: &context.snapshots,
        checkpoint,
        rules: &StoreRules::default(),
        journal: None,
    };
    writer.write(core, &mut state, targets)?;
    // Crash before this: the header still names the tables as they were.
    state.write(&context.region, &context.layout)?;
    context.region.flush()?;
    mark(context, whole);
    Ok(())
}

/// Whether a write could destroy what is not lost yet.
fn is_refused(context: &Context<'_>, whole: bool) -> bool {
    context.report.suppressed() > 0
        || !context.sit_lost.is_empty()
        // Which blocks snapshots need is not known: none may be written.
        || issues_any(context, snapshots::are_damaged)
        // Only a list could tell which blocks the slots of a lost node name.
        || (!whole && issues_any(context, clones::are_lost))
}

/// What was repaired; `whole`: all that there was to repair.
fn mark(context: &mut Context<'_>, whole: bool) {
    context.report.mark_repaired(|kind| {
        matches!(
            kind,
            IssueKind::SitMissing { .. }
                | IssueKind::SummaryWrong { .. }
                | IssueKind::SitCount { .. }
                | IssueKind::QuotaUsage { .. }
        ) || (whole
            && matches!(
                kind,
                IssueKind::SitLeak { .. }
                    | IssueKind::LinkCount { .. }
                    | IssueKind::HeaderCount { .. }
                    | IssueKind::NatFreeInodes { .. }
                    | IssueKind::InodeBlocks { .. }
                    | IssueKind::OrphanVanished { .. }
            ))
            || clones::lack(kind)
            || (whole && clones::are_wrong(kind))
    });
}

fn issues_any(context: &Context<'_>, which: fn(&IssueKind) -> bool) -> bool {
    let mut issues = context.report.issues().iter();
    issues.any(|issue| which(&issue.kind))
}

fn is_sit(kind: &IssueKind) -> bool {
    matches!(
        kind,
        IssueKind::SitMissing { .. } | IssueKind::SitLeak { .. } | IssueKind::SitCount { .. }
    )
}

fn is_usage(kind: &IssueKind) -> bool {
    matches!(kind, IssueKind::QuotaUsage { .. })
}

/// Whether an issue can be repaired here, or has nothing to do with ownership.
fn is_mendable(kind: &IssueKind) -> bool {
    is_sit(kind)
        || clones::are_wrong(kind)
        || kind.is_lost_copy()
        || matches!(
            kind,
            IssueKind::HeaderCount { .. }
                | IssueKind::PairSlotBad { .. }
                | IssueKind::NatFreeInodes { .. }
                | IssueKind::SummaryWrong { .. }
                | IssueKind::InodeBlocks { .. }
                | IssueKind::LinkCount { .. }
                | IssueKind::OrphanVanished { .. }
                | IssueKind::DataChecksum { .. }
                | IssueKind::QuotaUsage { .. }
                | IssueKind::QuotaLimits { .. }
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
        context.region.write(BlockNo(*at), block.as_slice())?;
    }
    if !copies.is_empty() {
        context.region.flush()?;
        context
            .report
            .mark_repaired(|kind| matches!(kind, IssueKind::SuperblockCopy { .. }));
    }
    Ok(())
}

fn heads(context: &mut Context<'_>) -> Result<()> {
    let is_mended: fn(&IssueKind) -> bool = |kind| {
        matches!(
            kind,
            IssueKind::MediumHead { .. } | IssueKind::MediumStamp { .. }
        )
    };
    if !issues_any(context, is_mended) {
        return Ok(());
    }
    let (header, _) = read_header(&context.region, &context.layout)?;
    heads::mend(&context.region, &context.layout, &header)?;
    context.report.mark_repaired(is_mended);
    Ok(())
}

/// Writes damaged copies anew, each from the other.
fn copies(context: &mut Context<'_>) -> Result<()> {
    let copies = std::mem::take(&mut context.repairs.copies);
    if copies.is_empty() {
        return Ok(());
    }
    for (at, bytes) in &copies {
        let block = BlockBuf::from_slice(bytes);
        context.region.write_once(*at, block.as_slice())?;
    }
    // Crash scenario without this flush: a later write of the repair destroys the other copy, and this
    // one is not on the medium.
    context.region.flush()?;
    let is_mended: fn(&IssueKind) -> bool = |kind| matches!(kind, IssueKind::PairCopyBad { .. });
    context.report.mark_repaired(is_mended);
    Ok(())
}

/// The node images with the right counts and without the vanished orphans.
fn images(context: &mut Context<'_>) -> BTreeMap<Nid, NodeImage> {
    let mut images = BTreeMap::new();
    let blocks = std::mem::take(&mut context.repairs.blocks);
    for (ino, want) in blocks {
        edit(context, &mut images, ino.data_granule(), |payload| {
            InodeData::mut_from_bytes(payload)
                .expect("data of an inode is 376 bytes")
                .blocks = U64::new(want);
        });
    }
    let links = std::mem::take(&mut context.repairs.links);
    for (ino, want) in links {
        edit(context, &mut images, ino.granule(), |payload| {
            let attributes = AttributesRecord::mut_from_bytes(payload);
            attributes.expect("attributes are 112 bytes").nlink = U32::new(want);
        });
    }
    // The NAT entry of an image that is written again gets the right count.
    for nid in std::mem::take(&mut context.repairs.free_inodes) {
        if let Some(image) = context.image(nid) {
            images.entry(nid).or_insert(image);
        }
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
    let image = images
        .get_mut(&granule.nid)
        .expect("the image was inserted above");
    let index = usize::from(granule.index);
    change(image.payload_mut(index));
    image.set_version(index, image.version(index) + 1);
}
