//! Applying the records about a node to its image, per granule, where they are newer.
//!
//! **Structure.** The image is read once; then its records, in the order of their versions.
//! **Invariants.** A node depends on no other node, so each thread applies its own. **On a crash**
//! nothing was written.

use std::collections::BTreeMap;

use dure_journal::Rules;
use dure_journal::recovery::{Record, Scan};

use super::Base;
use super::gather::{Event, Part, on_threads};
use super::notes::{bad_record, parse_life};
use super::slots::{slot_of, slots_begin};
use crate::error::{Error, Result};
use crate::format::node::{GRANULES_MAX, NodeImage, NodeKind};
use crate::format::slot::{SLOT_BYTES, Slot};
use crate::units::{BlockNo, Ino, Nid, to_usize};

/// A node after replay.
#[derive(Debug)]
pub struct Recovered {
    /// Its image, or `None` when it is free at `tombstone`.
    pub image: Option<NodeImage>,
    /// Version of the last tombstone.
    pub(crate) tombstone: u64,
    /// Whether it differs from what the NAT says.
    pub(crate) changed: bool,
    /// Transactions with a change that does not fit (holes in the logs are tolerated).
    pub(super) baseless: Vec<usize>,
    /// (granule, slot) last written by a record, with the transaction that wrote it.
    pub(super) slots: BTreeMap<(u8, u8), usize>,
}

/// Applies all records; `parts` as [`super::gather`] has them.
///
/// # Errors
/// That of the first node with one: `Corrupt` when an image is bad or a record does not follow on
/// its predecessor.
pub(super) fn apply_all(
    base: &impl Base,
    scan: &Scan,
    parts: Vec<Vec<Part>>,
) -> Result<BTreeMap<Nid, Recovered>> {
    let done = on_threads(parts, |part| {
        let nodes = Part::merge(part).into_iter();
        let apply = |(nid, mut events): (Nid, Vec<Event>)| match apply(base, scan, nid, &mut events)
        {
            Ok(node) => Ok((nid, node)),
            Err(error) => Err((nid, error)),
        };
        nodes.map(apply).collect::<std::result::Result<Vec<_>, _>>()
    });
    let mut nodes = Vec::new();
    let mut failed: Option<(Nid, Error)> = None;
    for part in done {
        match part {
            Ok(part) => nodes.extend(part),
            Err(error) if failed.as_ref().is_none_or(|first| error.0 < first.0) => {
                failed = Some(error);
            }
            Err(_) => {}
        }
    }
    match failed {
        Some((_, error)) => Err(error),
        None => Ok(nodes.into_iter().collect()),
    }
}

/// Applies the events of one node in the order of their versions.
fn apply(base: &impl Base, scan: &Scan, nid: Nid, events: &mut [Event]) -> Result<Recovered> {
    let rules: Rules = scan.rules();
    // A node's first version is greater than all of earlier nodes with its nid, and smaller than
    // all of its later ones; the sort is stable, so several ranges of one change stay in the order
    // in which they were logged.
    if rules.by_version.holds() {
        events.sort_by_key(|event| event.version);
    }
    for event in &*events {
        let what = || format!("log record: version of node {nid}");
        Error::expect_count(what, 0, event.version)?;
    }
    let entry = base.entry(nid)?;
    let mut node = Recovered {
        image: None,
        tombstone: if rules.tombstones.holds() {
            entry.version.get()
        } else {
            0
        },
        changed: false,
        baseless: Vec::new(),
        slots: BTreeMap::new(),
    };
    if !entry.block().is_none() {
        node.image = Some(base.image(nid, &entry)?);
        node.tombstone = 0;
    }
    // The version each granule got from a record in this replay: its further ranges belong to it.
    let mut fresh = [0_u64; GRANULES_MAX];
    for event in events {
        let applied = apply_event(base, scan, nid, event, (&mut node, &mut fresh));
        match applied {
            Ok(()) => {}
            // It is lost with its node, and nothing else is.
            Err(_) if base.is_lost(nid) => {}
            // What it was built on is lost: it cannot count.
            Err(_) if scan.tolerates_holes() => {
                node.baseless.push(to_usize(event.transaction.into()));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(node)
}

/// Applies one event.
fn apply_event(
    base: &impl Base,
    scan: &Scan,
    nid: Nid,
    event: &Event,
    (node, fresh): (&mut Recovered, &mut [u64; GRANULES_MAX]),
) -> Result<()> {
    let transaction = to_usize(event.transaction.into());
    let version = event.version;
    match scan.transactions()[transaction].records.at(event.place) {
        Record::Image { bytes, .. } => {
            let logged = NodeImage::open(bytes, nid, BlockNo::NONE, base.seed())?;
            apply_image(node, nid, &logged, transaction)?;
        }
        Record::Note { kind, bytes } => match parse_life(kind, bytes)?.begins {
            Some((kind, owner)) => {
                if begin_life(node, kind, owner, version) {
                    *fresh = [0; GRANULES_MAX];
                }
            }
            None => end_life(node, version),
        },
        Record::Delta {
            granule,
            offset,
            bytes,
            ..
        } => {
            let change = Change {
                nid,
                index: granule.index,
                version,
                offset: usize::from(offset),
                bytes,
                transaction,
            };
            apply_delta(node, fresh, &change)?;
        }
    }
    Ok(())
}

/// Bytes of a granule that changed.
struct Change<'s> {
    nid: Nid,
    index: u8,
    version: u64,
    offset: usize,
    bytes: &'s [u8],
    transaction: usize,
}

/// The version no change of this node is newer than.
fn newest(node: &Recovered) -> u64 {
    node.image
        .as_ref()
        .map_or(node.tombstone, NodeImage::version_max)
}

fn begin_life(node: &mut Recovered, kind: NodeKind, owner: Ino, version: u64) -> bool {
    // An image of this node, not of an earlier one with its nid, has all granules at `version` or
    // above.
    if newest(node) >= version {
        return false;
    }
    node.image = Some(NodeImage::fresh_of(kind, version, owner));
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

fn apply_delta(node: &mut Recovered, fresh: &mut [u64], change: &Change<'_>) -> Result<()> {
    let &Change {
        nid,
        index,
        version,
        offset,
        bytes,
        transaction,
    } = change;
    let Some(image) = &mut node.image else {
        if version <= node.tombstone {
            return Ok(());
        }
        return Err(bad_record("change of a free node", nid.0));
    };
    // All versions of a node are at or above the one it was made with: a change below them all is
    // of an earlier node with this nid, which may have been of another kind, and the image covers
    // it.
    if image.versions().all(|have| version < have) {
        return Ok(());
    }
    let granule = usize::from(index);
    let end = offset + bytes.len();
    if granule >= image.kind.granules() || end > image.kind.payload(granule) {
        return Err(bad_record("change beyond its granule", nid.0));
    }
    let have = image.version(granule);
    let again = have == version && fresh[granule] == version;
    if version <= have && !again {
        return Ok(());
    }
    if !again && version != have + 1 {
        // Every change marks the one before it, so a survivor's predecessor survives: a gap means
        // that an image or a log is not what it says.
        return Err(Error::Corrupt {
            what: format!(
                "version of granule {index} of node {nid} in the logs, whose change before it is \
                 lost (`recover=tolerate` shows the rest)"
            ),
            at: nid.0,
            want: have + 1,
            got: version,
        });
    }
    fresh[granule] = version;
    image.set_version(granule, version);
    image.payload_mut(granule)[offset..end].copy_from_slice(bytes);
    node.changed = true;
    note_slots(node, index, offset, bytes.len(), transaction);
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
    // Of an earlier node with this nid, as in `apply_delta`.
    let version = logged.version_max();
    if image.versions().all(|have| version < have) {
        return Ok(());
    }
    if (image.kind, image.owner) != (logged.kind, logged.owner) {
        return Err(bad_record("copy of another kind of node", nid.0));
    }
    for granule in 0..logged.kind.granules() {
        let image = node.image.as_mut().expect("the node has an image");
        if logged.version(granule) <= image.version(granule) {
            continue;
        }
        image.set_version(granule, logged.version(granule));
        node.changed = true;
        // Only what differs was written since: a rotten block must not be taken for a lost write of
        // the transaction that happened to log the node.
        let new = logged.payload(granule);
        let index = u8::try_from(granule).expect("a node has at most 16 granules");
        let mut slots: Vec<(usize, usize)> = Vec::new();
        crate::diff::ranges(image.payload(granule), new, |range| {
            slots.push((range.start, range.len()));
        });
        image.payload_mut(granule).copy_from_slice(new);
        for (offset, len) in slots {
            note_slots(node, index, offset, len, transaction);
        }
    }
    Ok(())
}

fn note_slots(node: &mut Recovered, index: u8, offset: usize, len: usize, transaction: usize) {
    let Some(image) = &node.image else { return };
    let Some(body) = slots_begin(image.kind, index) else {
        return;
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
            baseless: Vec::new(),
            slots: BTreeMap::new(),
        }
    }

    /// Granule and number of the slots that records have changed.
    pub(super) fn slots_changed(&self) -> impl Iterator<Item = (u8, u8)> {
        self.slots.keys().copied()
    }

    /// The slot, if this node has such a one.
    pub(crate) fn slot(&self, granule: u8, slot: u8) -> Option<Slot> {
        slot_of(self.image.as_ref()?, granule, slot)
    }
}
