//! What is left of a damaged volume: header, packs, tables and logs as far as they can be read, and
//! for the nodes of lost NAT pairs the newest images that lie in the main area.
//!
//! **Structure.** Each table falls back on what is below it: a lost header on the packs and journal
//! headers, a lost pack on the pairs themselves, a lost NAT pair on a scan of the main area, since
//! every image names its node, its own block and its versions. **Invariants.** Nothing is written.
//! An image is believed if its checksum, its address and its node fit, and the SIT, where it can be
//! read, has its block as live: then it is the one of the last checkpoint. Without the SIT the
//! image of the latest checkpoint wins, of those that counted ([`super::belief`]). **Crash.** Nothing is written.

use std::collections::{BTreeMap, BTreeSet};

use dure_block::Lba;
use dure_block::count::Count;
use dure_journal::format::slotted::{self, MIRRORED_BLOCKS};
use dure_journal::format::{JournalHeader, TransactionHeader};
use dure_journal::recovery::{COUNT_MAX, NUMBER_START_MAX};
use dure_store::format::nat::{ENTRIES, NatEntry, place_of};
use dure_store::format::node::{HEADER_BYTES, NodeHeader, NodeImage};
use dure_store::format::pair_kind;
use dure_store::format::volume::{STATE_CLEAN, SlotCode, VolumeHeader};
use dure_store::layout::Layout;
use dure_store::packs::{Packs, PairIndex, Table};
use dure_store::units::{BLOCK_BYTES, BlockNo, Nid, to_u64, to_usize};
use dure_sync::Arc;
use zerocopy::{FromBytes, FromZeros};

use super::belief::{Belief, Found, Witnesses};
use crate::context::{Context, Lost, NatEntries};
use crate::issue::IssueKind;
use crate::owner::PairKind;
use crate::{header, journals, nat, nodes, pairs, replay, sit as segments};

/// "DRtx", what a transaction begins with.
const TRANSACTION_MAGIC: u32 = 0x7874_5244;

/// Blocks read at once by the scan.
const SCAN_BLOCKS: usize = 256;

/// What was found besides the tables of the context.
pub(super) struct Salvage {
    pub(super) header: VolumeHeader,
    /// The header as the medium has it.
    on_medium: VolumeHeader,
    /// Generation of the header, 0 when it was lost.
    pub(super) generation: u64,
    /// The NAT pairs as the medium has them.
    pub(super) original: BTreeMap<u64, NatEntries>,
    /// Pairs of the NAT that must be written whatever they hold.
    pub(super) nat_lost: BTreeSet<u64>,
    /// Pairs of the SIT, likewise.
    pub(super) sit_lost: BTreeSet<u32>,
    /// No granule has a greater version.
    pub(super) version_max: u64,
    /// Journals without a header.
    pub(super) journals_lost: Vec<u32>,
    /// What was lost that belongs to no file.
    pub(super) lost: Vec<String>,
}

impl Salvage {
    /// The blocks of images, destroyed or not, that the NAT of the medium names.
    pub(super) fn named_blocks(&self, layout: &Layout) -> impl Iterator<Item = BlockNo> {
        let entries = self.original.values().flat_map(|entries| entries.iter());
        let blocks = entries.map(|entry| entry.block());
        blocks.filter(|block| !block.is_none() && layout.locate(*block).is_some())
    }
}

/// Reads what is left into `context`.
pub(super) fn load(context: &mut Context<'_>) -> Salvage {
    let mut found = Salvage {
        header: VolumeHeader::new_zeroed(),
        on_medium: VolumeHeader::new_zeroed(),
        generation: 0,
        original: BTreeMap::new(),
        nat_lost: BTreeSet::new(),
        sit_lost: BTreeSet::new(),
        version_max: 1,
        journals_lost: Vec::new(),
        lost: Vec::new(),
    };
    let header = read_header(context, &mut found);
    let packs_lost = read_packs(context, &mut found, header);
    journals::check(context);
    read_journals(context, &mut found);
    nat::load(context);
    segments::load(context);
    found.sit_lost.extend(context.sit_lost.iter().copied());
    for pair in lost_nat_pairs(context) {
        let first = pair * ENTRIES;
        let last = first + ENTRIES - 1;
        found.nat_lost.insert(pair);
        found.lost.push(format!(
            "NAT pair {pair}: of nodes {first} to {last}, those whose images are destroyed too \
             leave no trace"
        ));
    }
    found.original = context.nat.clone();
    if !found.nat_lost.is_empty() || packs_lost || !header {
        scan(context, &mut found, packs_lost);
    }
    if !context.clean {
        apply_logs(context, &mut found);
    }
    let entries = context.nat.values().flat_map(|entries| entries.iter());
    let newest = entries.map(|entry| entry.version.get()).max();
    let replayed = context.replayed.values().flatten();
    let replayed = replayed.map(NodeImage::version_max).max();
    found.version_max = found.version_max.max(newest.max(replayed).unwrap_or(1));
    found
}

fn read_header(context: &mut Context<'_>, found: &mut Salvage) -> bool {
    if let Some(header) = header::volume(context) {
        let (first, seed) = (context.layout.volume_header, context.layout.crc_seed);
        let newest = context.read(first, MIRRORED_BLOCKS).and_then(|bytes| {
            let kind = pairs::slot_kind(PairKind::VolumeHeader);
            let slot = slotted::open_mirrored(&bytes, kind, Lba::new(first), seed);
            slot.map(|slot| slot.generation)
        });
        found.generation = newest.unwrap_or(0);
        (found.header, found.on_medium) = (header, header);
        return true;
    }
    // Nothing says whether the volume was unmounted. Its logs cannot be placed without the epoch:
    // the state is that of the last checkpoint, which is all of it after an unmount.
    found.lost.push(
        "volume header: what was written after the last checkpoint is lost, if anything was".into(),
    );
    context.clean = true;
    found.header.state.set(STATE_CLEAN);
    found.header.epoch.set(1);
    found.header.first_number.set(1);
    false
}

/// Reads every pack that is left; true if one is lost.
fn read_packs(context: &mut Context<'_>, found: &mut Salvage, named: bool) -> bool {
    let packs = Packs::new(&context.layout);
    let mut lost = false;
    for index in 0..u64::from(context.layout.pack_pairs) {
        if !named {
            let first = context.layout.pack_pair(index);
            let code = newest_slot(context, first, pair_kind::PACK, true);
            code.set(&mut found.header.packs, index);
        }
        let unwritten = SlotCode::get(&found.header.packs, index) == Some(SlotCode::Unwritten);
        let (region, layout) = (&context.region, &context.layout);
        let loaded = packs.load(region, layout, &found.header, index);
        if named && loaded.is_ok() || !named && loaded.is_ok() && !unwritten {
            continue;
        }
        lost = true;
        SlotCode::Unwritten.set(&mut found.header.packs, index);
        guess_codes(context, &packs, index, found);
    }
    context.packs = Arc::new(packs);
    lost
}

/// Takes for each pair of a lost pack the newest slot that verifies.
fn guess_codes(context: &mut Context<'_>, packs: &Packs, pack: u64, found: &mut Salvage) {
    let nat_packs = context.layout.nat_packs();
    let pack_pairs = dure_store::format::volume::PACK_PAIRS;
    let (table, from, pairs) = match pack.checked_sub(nat_packs) {
        None => (Table::Nat, pack, u64::from(context.layout.nat_pairs)),
        Some(within) => (Table::Sit, within, u64::from(context.layout.sit_pairs)),
    };
    for index in from * pack_pairs..pairs.min((from + 1) * pack_pairs) {
        let short = u32::try_from(index).expect("pairs of tables are u32");
        let (first, kind) = match table {
            Table::Nat => (context.layout.nat_pair(index), pair_kind::NAT),
            Table::Sit => (context.layout.sit_pair(short), pair_kind::SIT),
        };
        let code = newest_slot(context, first, kind, false);
        packs.set(PairIndex { table, index }, code);
        if code == SlotCode::Unwritten {
            continue;
        }
        // The new pack must name it.
        match table {
            Table::Nat => found.nat_lost.insert(index),
            Table::Sit => found.sit_lost.insert(short),
        };
    }
}

/// The slot of a pair with the greatest generation of those that verify.
fn newest_slot(context: &mut Context<'_>, first: u64, kind: u32, mirrored: bool) -> SlotCode {
    let count = if mirrored { MIRRORED_BLOCKS } else { 2 };
    let seed = context.layout.crc_seed;
    let copies = [Some(BlockNo(first)), context.layout.copy_of(BlockNo(first))];
    let read = copies.into_iter().flatten().filter_map(|at| {
        let mut bytes = vec![0; count * BLOCK_BYTES];
        context.region.read(at, &mut bytes).ok().map(|()| bytes)
    });
    let read: Vec<Vec<u8>> = read.collect();
    let slots = read
        .iter()
        .flat_map(|bytes| (0_u64..).zip(bytes.chunks_exact(BLOCK_BYTES)));
    let valid = slots.filter_map(|(n, block)| {
        let pair = Lba::new(first + n / 2 * 2);
        let slot = slotted::open_slot(block, slotted::SlotKind(kind), pair, n % 2, seed)?;
        Some((slot.generation, n % 2))
    });
    let newest = valid.max();
    newest.map_or(SlotCode::Unwritten, |(_, slot)| SlotCode::Slot(slot))
}

/// Journals without a header, and the greatest epoch and number that the others have.
fn read_journals(context: &mut Context<'_>, found: &mut Salvage) {
    for journal in 0..context.layout.journals {
        let at = context.layout.journal_header(journal);
        let mut bytes = vec![0; MIRRORED_BLOCKS * BLOCK_BYTES];
        let id = dure_store::units::journal_id(journal);
        let read = context.region.read(BlockNo(at), &mut bytes);
        let seed = context.layout.crc_seed;
        let opened = JournalHeader::open(&bytes, Lba::new(at), seed, id);
        match (read, opened) {
            (Ok(()), Ok(header)) => {
                let number = header.tail.number.max(header.durable_upto + 1);
                raise(found, header.epoch, number, header.checkpoint);
            }
            _ => found.journals_lost.push(journal),
        }
    }
}

fn raise(found: &mut Salvage, epoch: u64, number: u64, checkpoint: u64) {
    let header = &mut found.header;
    header.epoch.set(header.epoch.get().max(epoch));
    header
        .first_number
        .set(header.first_number.get().max(number));
    header
        .checkpoint
        .set(header.checkpoint.get().max(checkpoint));
}

/// Pairs of the NAT that were written and cannot be read.
fn lost_nat_pairs(context: &Context<'_>) -> BTreeSet<u64> {
    let lost = context.report.issues().iter().filter_map(|issue| {
        let (IssueKind::PairLost { pair, .. } | IssueKind::PairMisplaced { pair, .. }) =
            &issue.kind
        else {
            return None;
        };
        (pair.kind == PairKind::Nat).then_some(pair.index)
    });
    lost.collect()
}

/// Looks at every block of the main area for images of nodes whose pair is lost (`all`: also of
/// pairs that nothing names), and for the greatest numbers.
fn scan(context: &mut Context<'_>, found: &mut Salvage, all: bool) {
    // The greatest version of two images may be the same though one is older: another granule has
    // changed since. So the checkpoint decides, and then all versions together.
    let mut best: BTreeMap<Nid, (Belief, u64, u64, BlockNo)> = BTreeMap::new();
    let mut witnesses = Witnesses::default();
    let layout = context.layout.clone();
    let blocks = u64::from(layout.segments) * u64::from(layout.segment_blocks);
    let mut bytes = vec![0; SCAN_BLOCKS * BLOCK_BYTES];
    let mut at = 0;
    while at < blocks {
        context.progress("scan for node images", at, blocks);
        let count = to_usize((blocks - at).min(to_u64(SCAN_BLOCKS)));
        let first = layout.main + at;
        read_run(context, first, &mut bytes[..count * BLOCK_BYTES]);
        for (block, bytes) in (first..).zip(bytes[..count * BLOCK_BYTES].chunks_exact(BLOCK_BYTES))
        {
            if let Some((epoch, number)) = transaction_at(block, bytes) {
                raise(found, epoch, number, 0);
            }
            if let Some((nid, image, checkpoint)) = image_at(context, block, bytes) {
                raise(found, 1, 1, checkpoint);
                let version = image.version_max();
                found.version_max = found.version_max.max(version);
                let pair = place_of(nid).0;
                let wanted =
                    !context.nat.contains_key(&pair) && (found.nat_lost.contains(&pair) || all);
                let block = BlockNo(block);
                let image_of = || Found {
                    nid,
                    block,
                    checkpoint,
                };
                let belief = wanted.then(|| witnesses.ask(context, image_of())).flatten();
                if let Some(belief) = belief {
                    let versions = image.versions().fold(0, u64::saturating_add);
                    let new = (belief, checkpoint, versions, block);
                    let entry = best.entry(nid).or_insert(new);
                    *entry = new.max(*entry);
                }
            }
        }
        at += to_u64(count);
    }
    if all {
        let what = "a pack: nodes whose images are destroyed too may leave no trace";
        found.lost.push(what.into());
    }
    for (nid, (.., block)) in best {
        adopt(context, found, nid, block);
    }
}

/// Epoch and last number of a transaction that begins in this block. Its checksum is not compared:
/// numbers that are too great do no harm.
fn transaction_at(block: u64, bytes: &[u8]) -> Option<(u64, u64)> {
    let (header, _) = TransactionHeader::ref_from_prefix(bytes).ok()?;
    let (epoch, number) = (header.epoch.get(), header.last.get());
    let fits = header.magic.get() == TRANSACTION_MAGIC && header.address.get() == block;
    let counted = epoch < COUNT_MAX / 2 && number < NUMBER_START_MAX / 2;
    (fits && counted).then(|| (epoch, number + 1))
}

/// Reads blocks; zeroes where that fails, block by block.
pub(super) fn read_run(context: &Context<'_>, first: u64, bytes: &mut [u8]) {
    if context.region.read(BlockNo(first), bytes).is_ok() {
        return;
    }
    for (block, bytes) in (first..).zip(bytes.chunks_exact_mut(BLOCK_BYTES)) {
        if context.region.read(BlockNo(block), bytes).is_err() {
            bytes.fill(0);
        }
    }
}

fn image_at(context: &Context<'_>, block: u64, bytes: &[u8]) -> Option<(Nid, NodeImage, u64)> {
    let header = NodeHeader::read_from_bytes(&bytes[..HEADER_BYTES]).ok()?;
    let nid = Nid(header.nid.get());
    if header.address.get() != block || nid.0 >= context.layout.nids() {
        return None;
    }
    let image = NodeImage::open(bytes, nid, BlockNo(block), context.layout.crc_seed).ok()?;
    Some((nid, image, header.checkpoint.get()))
}

/// Enters an image into the NAT in memory.
fn adopt(context: &mut Context<'_>, found: &mut Salvage, nid: Nid, block: BlockNo) {
    let mut bytes = vec![0; BLOCK_BYTES];
    read_run(context, block.0, &mut bytes);
    let Some((_, image, _)) = image_at(context, block.0, &bytes) else {
        return;
    };
    let (pair, within) = place_of(nid);
    let empty = || vec![NatEntry::default(); to_usize(ENTRIES)].into_boxed_slice();
    let entries = context.nat.entry(pair).or_insert_with(empty);
    let free = nodes::free_inodes(nid, &image);
    entries[within] = NatEntry::live(block, image.kind, free, image.version_max());
    found.nat_lost.insert(pair);
}

/// The logs of a volume that was not unmounted, on top of what is left.
fn apply_logs(context: &mut Context<'_>, found: &mut Salvage) {
    // An image that is lost is no base for a record, and costs no others.
    let mut lost = Lost {
        nodes: BTreeSet::new(),
        pairs: found.nat_lost.clone(),
    };
    let mut nat = std::mem::take(&mut context.nat);
    for (pair, entries) in &mut nat {
        for (nid, entry) in (pair * ENTRIES..).map(Nid).zip(entries.iter_mut()) {
            let mut bytes = vec![0; BLOCK_BYTES];
            if !entry.block().is_none() && context.layout.locate(entry.block()).is_some() {
                read_run(context, entry.block().0, &mut bytes);
                if image_at(context, entry.block().0, &bytes).is_none_or(|(at, ..)| at != nid) {
                    *entry = NatEntry::tombstone(entry.version.get());
                    lost.nodes.insert(nid);
                }
            }
        }
    }
    (context.nat, context.lost) = (nat, lost);
    // Not with the numbers that were raised since: empty logs begin with that of the medium.
    let header = found.on_medium;
    if !found.journals_lost.is_empty() || !replay::load(context, &header) {
        context.replayed.clear();
        context.logged.clear();
        found
            .lost
            .push("the logs: what was written after the last checkpoint is lost".into());
    }
    // Their NAT entries are gone by now: a file of which no name is left either would be lost without
    // a word.
    let nodes = context.lost.nodes.iter();
    let mut nodes = nodes.filter(|nid| !context.replayed.contains_key(nid));
    if let Some(first) = nodes.next() {
        let count = Count::of(1 + to_u64(nodes.count()), "node");
        found.lost.push(format!(
            "images: {count} destroyed, the first is {first}; what no name leads to leaves no other trace"
        ));
    }
    // A crash leaves incomplete transactions too, and nothing on the medium says which ones were
    // durable.
    if let (dropped @ 1.., all) = context.replay_dropped {
        found.lost.push(format!(
            "the logs: {dropped} of {all} transactions are not whole, or follow one that is not; \
             what only they say is lost, if it was durable"
        ));
    }
    // What follows looks at tables and replayed nodes alike.
    context.clean = true;
    let tail = context.replay_number;
    raise(found, 1, tail + 1, 0);
}
