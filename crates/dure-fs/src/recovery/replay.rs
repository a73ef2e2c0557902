//! Applying surviving records to images, per granule, where they are newer.

use std::collections::{BTreeMap, BTreeSet};

use dure_journal::Rules;
use dure_journal::recovery::{Record, Scan};
use dure_sync::thread;
use zerocopy::FromBytes;

use super::Base;
use super::slots::{Slots, put_slot, slot_of};
use crate::error::{Error, Result};
use crate::format::node::{NodeImage, NodeKind};
use crate::format::note::{BLOCKS, Blocks, DATA, Data, FREE_NODE, Life, NEW_NODE};
use crate::format::slot::{SLOT_BYTES, Slot};
use crate::op::SlotRef;
use crate::units::{BLOCK_BYTES, BlockNo, Ino, Nid, Run};

/// One thing the logs say about a node.
#[derive(Debug)]
struct Event<'s> {
    version: u64,
    what: What<'s>,
    /// Index of the transaction in the scan.
    transaction: usize,
}

#[derive(Debug)]
enum What<'s> {
    New(NodeKind, Ino),
    Free,
    Delta {
        index: u8,
        offset: usize,
        bytes: &'s [u8],
    },
    Image(NodeImage),
}

/// A node after replay.
#[derive(Debug)]
pub(crate) struct Recovered {
    /// Its image, or `None` when it is free at `tombstone`.
    pub(crate) image: Option<NodeImage>,
    /// Version of the last end of a life.
    pub(crate) tombstone: u64,
    /// Whether it differs from what the NAT says.
    pub(crate) changed: bool,
    /// (granule, slot) last written by a record, with the transaction that wrote it.
    slots: BTreeMap<(u8, u8), usize>,
}

/// The state after replay.
#[derive(Debug)]
pub(crate) struct Replayed {
    /// Every node some surviving record names.
    pub(crate) nodes: BTreeMap<Nid, Recovered>,
    /// Blocks some surviving record names, with the slots they were allocated for or freed from.
    pub(crate) blocks: Vec<(SlotRef, Run)>,
    /// Pages that came with the log, whether their slots name these blocks or others.
    pub(crate) pages: Vec<(SlotRef, BlockNo)>,
    /// Content of blocks that slots of the recovered state name: it came with the log and counts as if it
    /// lay in the block.
    pub(crate) data: BTreeMap<BlockNo, LoggedPage>,
}

/// A page that came with the log.
#[derive(Debug)]
pub(crate) struct LoggedPage {
    /// The slot that names its block.
    pub(crate) owner: SlotRef,
    /// The content.
    pub(crate) bytes: Box<[u8]>,
}

/// Applies what survives. Writes nothing.
///
/// # Errors
/// `Corrupt` when an image is bad or a record does not follow on its predecessor.
pub(crate) fn replay(base: &impl Base, scan: &Scan, threads: usize) -> Result<Replayed> {
    let seed = base.seed();
    let survivors = scan.survivors();
    let mut events: BTreeMap<Nid, Vec<Event<'_>>> = BTreeMap::new();
    let mut blocks = Vec::new();
    let mut logged = Vec::new();
    for (index, transaction) in scan.transactions().iter().enumerate() {
        if !survivors[index] {
            continue;
        }
        for record in &transaction.records {
            match record {
                Record::Delta {
                    granule,
                    version,
                    offset,
                    bytes,
                } => {
                    let offset = usize::from(*offset);
                    let what = What::Delta {
                        index: granule.index,
                        offset,
                        bytes,
                    };
                    let event = Event {
                        version: *version,
                        what,
                        transaction: index,
                    };
                    events.entry(granule.nid).or_default().push(event);
                }
                Record::Image { nid, bytes } => {
                    let event = parse_image(*nid, bytes, seed, index)?;
                    events.entry(*nid).or_default().push(event);
                }
                Record::Note {
                    kind: BLOCKS,
                    bytes,
                } => blocks.push(parse_blocks(bytes)?),
                Record::Note { kind: DATA, bytes } => logged.push(parse_data(bytes)?),
                Record::Note { kind, bytes } => {
                    let (nid, event) = parse_life(*kind, bytes, index)?;
                    events.entry(nid).or_default().push(event);
                }
            }
        }
    }
    let work: Vec<(Nid, Vec<Event<'_>>)> = events.into_iter().collect();
    let nodes = apply_all(base, work, threads.max(1), scan.rules())?;
    let mut data = BTreeMap::new();
    let mut slots = Slots::new(base, &nodes);
    let mut pages = Vec::with_capacity(logged.len());
    for (owner, block, bytes) in logged {
        pages.push((owner, block));
        let slot = slots.get(owner)?;
        if slot.is_some_and(|slot| is_content(slot, block, bytes)) {
            let bytes = bytes.into();
            data.insert(block, LoggedPage { owner, bytes });
        }
    }
    Ok(Replayed {
        nodes,
        blocks,
        pages,
        data,
    })
}

/// Whether the recovered slot names the block with these bytes as its content. If it does not, the
/// block may be another's by now. If it does, the block holds these bytes or, at worst, nothing yet.
fn is_content(slot: Slot, block: BlockNo, bytes: &[u8]) -> bool {
    slot.is_written()
        && slot.has_crc()
        && slot.block() == block
        && slot.crc.get() == dure_block::crc32c::crc32c(bytes)
}

fn bad_record(what: &str, got: u64) -> Error {
    Error::Corrupt {
        what: format!("log record: {what}"),
        at: 0,
        want: 0,
        got,
    }
}

fn parse_blocks(bytes: &[u8]) -> Result<(SlotRef, Run)> {
    let note = Blocks::read_from_bytes(bytes).map_err(|_| bad_record("block note length", 0))?;
    let owner = SlotRef {
        nid: Nid(note.nid.get()),
        granule: note.granule,
        slot: note.slot,
    };
    let count = u32::from(note.count.get());
    if count == 0 || count + u32::from(note.slot) > 256 {
        return Err(bad_record("block note count", u64::from(count)));
    }
    if note.first.get() >= 1 << 48 {
        return Err(bad_record("block note address", note.first.get()));
    }
    Ok((
        owner,
        Run {
            first: BlockNo(note.first.get()),
            count,
        },
    ))
}

fn parse_data(bytes: &[u8]) -> Result<(SlotRef, BlockNo, &[u8])> {
    let short = || bad_record("data note length", crate::units::to_u64(bytes.len()));
    let (head, content) = Data::ref_from_prefix(bytes).map_err(|_| short())?;
    if content.len() != BLOCK_BYTES {
        return Err(short());
    }
    let owner = SlotRef {
        nid: Nid(head.nid.get()),
        granule: head.granule,
        slot: head.slot,
    };
    Ok((owner, BlockNo(head.block.get()), content))
}

fn parse_life(kind: u8, bytes: &[u8], transaction: usize) -> Result<(Nid, Event<'_>)> {
    let life = Life::read_from_bytes(bytes).map_err(|_| bad_record("life note length", 0))?;
    let what = match kind {
        NEW_NODE => What::New(
            NodeKind::from_code(life.kind)
                .ok_or_else(|| bad_record("node kind", u64::from(life.kind)))?,
            Ino(life.owner.get()),
        ),
        FREE_NODE => What::Free,
        other => return Err(bad_record("unknown note", u64::from(other))),
    };
    Ok((
        Nid(life.nid.get()),
        Event {
            version: life.version.get(),
            what,
            transaction,
        },
    ))
}

fn parse_image(nid: Nid, bytes: &[u8], seed: u32, transaction: usize) -> Result<Event<'_>> {
    if bytes.len() != BLOCK_BYTES {
        return Err(bad_record("length of a node", nid.0));
    }
    let image = NodeImage::open(bytes, nid, BlockNo::NONE, seed)?;
    Ok(Event {
        version: image.version_max(),
        what: What::Image(image),
        transaction,
    })
}

fn apply_all(
    base: &impl Base,
    mut work: Vec<(Nid, Vec<Event<'_>>)>,
    threads: usize,
    rules: Rules,
) -> Result<BTreeMap<Nid, Recovered>> {
    // Nodes are independent of each other, so the split does not matter for the result.
    let share = work.len().div_ceil(threads).max(1);
    if threads == 1 || work.len() < 64 {
        return work
            .iter_mut()
            .map(|(nid, events)| Ok((*nid, apply(base, *nid, events, rules)?)))
            .collect();
    }
    let done: Vec<Result<Vec<(Nid, Recovered)>>> = thread::scope(|scope| {
        let handles: Vec<_> = work
            .chunks_mut(share)
            .map(|part| {
                scope.spawn(|| {
                    part.iter_mut()
                        .map(|(nid, events)| Ok((*nid, apply(base, *nid, events, rules)?)))
                        .collect()
                })
            })
            .collect();
        let join = |handle: thread::ScopedJoinHandle<'_, _>| {
            handle
                .join()
                .expect("replay returns errors, it does not panic")
        };
        handles.into_iter().map(join).collect()
    });
    let mut nodes = BTreeMap::new();
    for part in done {
        nodes.extend(part?);
    }
    Ok(nodes)
}

/// Applies the events of one node in the order of their versions.
fn apply(base: &impl Base, nid: Nid, events: &mut [Event<'_>], rules: Rules) -> Result<Recovered> {
    // A life's first version is greater than all before it, and smaller than all in it; the sort is
    // stable, so several ranges of one change stay in the order in which they were logged.
    if rules.by_version {
        events.sort_by_key(|event| event.version);
    }
    for event in &*events {
        let what = || format!("log record: version of node {nid}");
        Error::expect_count(what, 0, event.version)?;
    }
    let entry = base.entry(nid)?;
    let mut node = Recovered {
        image: None,
        tombstone: if rules.tombstones {
            entry.version.get()
        } else {
            0
        },
        changed: false,
        slots: BTreeMap::new(),
    };
    if !entry.block().is_none() {
        node.image = Some(base.image(nid, &entry)?);
        node.tombstone = 0;
    }
    // The version each granule got from a record in this replay: its further ranges belong to it.
    let mut fresh = [0_u64; crate::format::node::GRANULES_MAX];
    for event in events {
        match &event.what {
            What::Image(logged) => apply_image(&mut node, nid, logged, event.transaction)?,
            What::New(kind, owner) => {
                if begin_life(&mut node, *kind, *owner, event.version) {
                    fresh = [0; crate::format::node::GRANULES_MAX];
                }
            }
            What::Free => end_life(&mut node, event.version),
            What::Delta {
                index,
                offset,
                bytes,
            } => {
                let at = (nid, *index, *offset);
                apply_delta(&mut node, &mut fresh, at, bytes, event)?;
            }
        }
    }
    Ok(node)
}

/// The version no change of this node is newer than.
fn newest(node: &Recovered) -> u64 {
    node.image
        .as_ref()
        .map_or(node.tombstone, NodeImage::version_max)
}

fn begin_life(node: &mut Recovered, kind: NodeKind, owner: Ino, version: u64) -> bool {
    // An image of this life has all granules at `version` or above.
    if newest(node) >= version {
        return false;
    }
    node.image = Some(NodeImage {
        owner,
        ..NodeImage::fresh(kind, version)
    });
    node.changed = true;
    node.slots.clear();
    true
}

fn end_life(node: &mut Recovered, version: u64) {
    if newest(node) >= version {
        return;
    }
    node.image = None;
    node.tombstone = version;
    node.changed = true;
    node.slots.clear();
}

fn apply_delta(
    node: &mut Recovered,
    fresh: &mut [u64],
    (nid, index, offset): (Nid, u8, usize),
    bytes: &[u8],
    event: &Event<'_>,
) -> Result<()> {
    let Some(image) = &mut node.image else {
        if event.version <= node.tombstone {
            return Ok(());
        }
        return Err(bad_record("change of a free node", nid.0));
    };
    // All versions of a life are at or above the one it began with: a change below them all is of an
    // earlier life, whose node may have been of another kind, and the image covers it.
    if image
        .versions
        .iter()
        .all(|version| event.version < *version)
    {
        return Ok(());
    }
    let granule = usize::from(index);
    let end = offset + bytes.len();
    if granule >= image.kind.granules() || end > image.kind.payload() {
        return Err(bad_record("change beyond its granule", nid.0));
    }
    let have = image.versions[granule];
    let again = have == event.version && fresh[granule] == event.version;
    if event.version <= have && !again {
        return Ok(());
    }
    if !again && event.version != have + 1 {
        // Every change marks the one before it, so a survivor's predecessor survives: a gap means that
        // an image or a log is not what it says.
        return Err(Error::Corrupt {
            what: format!("version of granule {index} of node {} in the logs", nid.0),
            at: nid.0,
            want: have + 1,
            got: event.version,
        });
    }
    fresh[granule] = event.version;
    image.versions[granule] = event.version;
    image.payloads[granule][offset..end].copy_from_slice(bytes);
    node.changed = true;
    note_slots(node, index, offset, bytes.len(), event.transaction);
    Ok(())
}

/// Takes over each granule that is newer in the log's copy of the node.
fn apply_image(
    node: &mut Recovered,
    nid: Nid,
    logged: &NodeImage,
    transaction: usize,
) -> Result<()> {
    let Some(image) = &node.image else {
        if logged.version_max() <= node.tombstone {
            return Ok(());
        }
        return Err(bad_record("copy of a free node", nid.0));
    };
    // Of an earlier life, as in `apply_delta`.
    let version = logged.version_max();
    if image.versions.iter().all(|have| version < *have) {
        return Ok(());
    }
    if (image.kind, image.owner) != (logged.kind, logged.owner) {
        return Err(bad_record("copy of another kind of node", nid.0));
    }
    for granule in 0..logged.kind.granules() {
        let image = node.image.as_mut().expect("looked at above");
        if logged.versions[granule] <= image.versions[granule] {
            continue;
        }
        image.versions[granule] = logged.versions[granule];
        let new = logged.payloads[granule].clone();
        let old = std::mem::replace(&mut image.payloads[granule], new);
        node.changed = true;
        // Only what differs was written since: a rotten block must not be taken for a lost write of
        // the transaction that happened to log the node.
        let new = &logged.payloads[granule];
        let index = u8::try_from(granule).expect("at most 8");
        let mut slots: Vec<(usize, usize)> = Vec::new();
        crate::op::changed_ranges(&old, new, |range| slots.push((range.start, range.len())));
        for (offset, len) in slots {
            note_slots(node, index, offset, len, transaction);
        }
    }
    Ok(())
}

fn note_slots(node: &mut Recovered, index: u8, offset: usize, len: usize, transaction: usize) {
    let Some(image) = &node.image else { return };
    let body = match image.kind {
        NodeKind::Leaf => 0,
        NodeKind::Inode => image.kind.payload() - crate::format::inode::BODY_BYTES,
        _ => return,
    };
    if offset + len <= body {
        return;
    }
    let first = offset.saturating_sub(body) / SLOT_BYTES;
    let last = (offset + len - 1 - body) / SLOT_BYTES;
    for slot in first..=last {
        let slot = u8::try_from(slot).expect("at most 64 slots");
        node.slots.insert((index, slot), transaction);
    }
}

impl Recovered {
    /// A node that no surviving record changes, as the NAT has it.
    pub(super) fn unchanged(image: NodeImage) -> Recovered {
        Recovered {
            image: Some(image),
            tombstone: 0,
            changed: false,
            slots: BTreeMap::new(),
        }
    }

    /// The slot, if this node has such a one.
    pub(crate) fn slot(&self, granule: u8, slot: u8) -> Option<Slot> {
        slot_of(self.image.as_ref()?, granule, slot)
    }
}

/// Transactions above their journal's `durable_upto` with a surviving slot whose data is not there: with
/// one flush for data and log, their flush had not completed at the crash.
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
            if !slot.has_crc() || slot.is_unordered() {
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

/// Makes unwritten pages of those that may survive without their data (`data=writeback`) and had none when
/// the power failed: they read as zeroes, not as what the block held before. Below `durable_upto` a
/// mismatch is rot, and stays an error of that page.
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
                let image = node.image.as_mut().expect("it has the slot");
                put_slot(image, granule, index, Slot::unwritten(block));
            }
        }
    }
    Ok(())
}
