//! The state that the surviving records give, in memory.

use std::collections::{BTreeMap, BTreeSet};

use dure_journal::recovery::Scan;

use super::Base;
use super::apply::{Recovered, apply_all};
use super::gather::gather;
use super::notes::bad_record;
use super::slots::{Slots, put_slot, slot_of};
use crate::error::Result;
use crate::format::slot::Slot;
use crate::units::SlotRef;
use crate::units::{BLOCK_BYTES, BlockNo, Nid, Run};

/// The state after replay.
#[derive(Debug)]
pub struct Replayed {
    /// Every node some surviving record names.
    pub nodes: BTreeMap<Nid, Recovered>,
    /// Transactions with a change that does not fit what is there: of logs with holes, which are
    /// tolerated. What they say counts for nothing then.
    pub(crate) baseless: BTreeSet<usize>,
    /// Blocks some surviving record names, with the slots they were allocated for or freed from.
    pub blocks: Vec<(SlotRef, Run)>,
    /// Pages that came with the log, whether their slots name these blocks or others.
    pub(crate) pages: Vec<(SlotRef, BlockNo)>,
    /// Content of blocks that slots of the recovered state name: it came with the log and counts as
    /// if it lay in the block.
    pub data: BTreeMap<BlockNo, LoggedPage>,
    /// Threads that applied them.
    pub(crate) threads: usize,
}

/// A page that came with the log.
#[derive(Debug)]
pub struct LoggedPage {
    /// The slot that names its block.
    pub(crate) owner: SlotRef,
    /// The content.
    pub bytes: Box<[u8]>,
}

/// Applies what survives. Writes nothing.
///
/// # Errors
/// `Corrupt` when an image is bad or a record does not follow on its predecessor.
pub(crate) fn replay(base: &impl Base, scan: &Scan, threads: usize) -> Result<Replayed> {
    let gathered = gather(scan, threads)?;
    for &(owner, run) in &gathered.blocks {
        check_place(base, owner, run)?;
    }
    for &(owner, first, _) in &gathered.pages {
        check_place(base, owner, Run { first, count: 1 })?;
    }
    let threads = gathered.parts.len();
    let mut nodes = apply_all(base, scan, gathered.parts)?;
    let baseless = nodes.values_mut();
    let baseless = baseless
        .flat_map(|node| std::mem::take(&mut node.baseless))
        .collect();
    let mut data = BTreeMap::new();
    let mut slots = Slots::new(base, &nodes);
    let mut pages = Vec::with_capacity(gathered.pages.len());
    for (owner, block, bytes) in gathered.pages {
        pages.push((owner, block));
        let slot = slots.get(owner)?;
        if slot.is_some_and(|slot| is_content(slot, block, bytes)) {
            let bytes = bytes.into();
            data.insert(block, LoggedPage { owner, bytes });
        }
    }
    Ok(Replayed {
        nodes,
        baseless,
        blocks: gathered.blocks,
        pages,
        data,
        threads,
    })
}

/// Refuses a note about blocks that are none, or about a slot of a node that cannot be.
fn check_place(base: &impl Base, owner: SlotRef, run: Run) -> Result<()> {
    let layout = base.layout();
    if owner.nid.0 >= layout.nids() {
        return Err(bad_record("node of a note about blocks", owner.nid.0));
    }
    let last = run.first.0.saturating_add(u64::from(run.count - 1));
    let outside = [run.first, BlockNo(last)].into_iter();
    let mut outside = outside.filter(|block| layout.locate(*block).is_none());
    match outside.next() {
        Some(block) => Err(bad_record(
            "block of a note outside of the main area",
            block.0,
        )),
        None => Ok(()),
    }
}

/// Whether the recovered slot names the block with these bytes as its content. If it does not, the
/// block may be another's by now. If it does, the block holds these bytes or, at worst, nothing
/// yet.
fn is_content(slot: Slot, block: BlockNo, bytes: &[u8]) -> bool {
    slot.is_written()
        && slot.block() == block
        && slot.crc.get() == dure_block::crc32c::crc32c(bytes)
}

/// Transactions above their journal's `durable_upto` with a surviving slot whose data is not there:
/// with one flush for data and log, their flush had not completed at the crash.
pub(crate) fn transactions_with_lost_data(
    base: &impl Base,
    scan: &Scan,
    replayed: &Replayed,
) -> Result<BTreeSet<usize>> {
    let mut lost = BTreeSet::new();
    let mut page = [0; BLOCK_BYTES];
    for node in replayed.nodes.values() {
        for (&(granule, index), &transaction) in &node.slots {
            let log = &scan.transactions()[transaction];
            if log.last <= scan.durable_upto(log.journal) || lost.contains(&transaction) {
                continue;
            }
            let Some(slot) = node.slot(granule, index) else {
                continue;
            };
            if !slot.is_written() || slot.is_unordered() {
                continue;
            }
            if replayed.data.contains_key(&slot.block()) {
                continue;
            }
            base.block(slot.block(), &mut page)?;
            if dure_block::crc32c::crc32c(&page) != slot.crc.get() {
                lost.insert(transaction);
            }
        }
    }
    Ok(lost)
}

/// Makes unwritten pages of those that may survive without their data (`data=writeback`) and had
/// none when the power failed: they read as zeroes, not as what the block held before. Below
/// `durable_upto` a mismatch is rot, and stays an error of that page.
///
/// # Errors
/// Errors of reading blocks.
pub(crate) fn forget_lost_pages(
    base: &impl Base,
    scan: &Scan,
    replayed: &mut Replayed,
) -> Result<()> {
    let mut page = [0; BLOCK_BYTES];
    for node in replayed.nodes.values_mut() {
        for (&(granule, index), &transaction) in &node.slots {
            let log = &scan.transactions()[transaction];
            let Some(slot) = node.image.as_ref().and_then(|i| slot_of(i, granule, index)) else {
                continue;
            };
            let block = slot.block();
            let durable = log.last <= scan.durable_upto(log.journal);
            if durable || !slot.is_unordered() || replayed.data.contains_key(&block) {
                continue;
            }
            base.block(block, &mut page)?;
            if dure_block::crc32c::crc32c(&page) != slot.crc.get() {
                let image = node.image.as_mut().expect("its image has the slot");
                put_slot(image, granule, index, Slot::unwritten(block));
            }
        }
    }
    Ok(())
}
