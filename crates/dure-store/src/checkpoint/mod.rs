//! What a checkpoint writes: images, NAT, SIT, summaries, packs, and the volume header that makes
//! them count. Checkpoints of a mount, recovery and mkfs write in the same way; the checkpoint of a
//! mount (`store/checkpoint.rs`) says which step must come before which, and has tasks that share the
//! work (`crew`).

pub(crate) mod crew;

use std::collections::BTreeSet;

use dure_block::BlockBuf;
use dure_journal::{Journal, TraceEvent};
use dure_sync::CoreId;
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, IntoBytes};

use crate::census::{Census, free_inodes};
use crate::error::{Error, Result};
use crate::format::nat::{NatEntry, place_of};
use crate::format::node::NodeImage;
use crate::format::pair_kind;
use crate::format::stamp::Turn;
use crate::format::summary::{OWNER_NODE, SummaryEntry};
use crate::format::volume::VolumeHeader;
use crate::layout::Layout;
use crate::media::Region;
use crate::members::stamps;
use crate::node::NodeRef;
use crate::node::nat::Nat;
use crate::packs::{PairIndex, Table};
use crate::pair;
use crate::placement::contiguous;
use crate::rules::StoreRules;
use crate::settle::Settler;
use crate::snapshot::{Keeper, Snapshots};
use crate::space::{Space, pair_index};
use crate::units::{BLOCK_BYTES, BlockNo, Nid};

/// Images written by one device write at most.
const IMAGES_PER_WRITE: usize = 256;
/// Blocks that lie anywhere and are written together.
const BLOCKS_TOGETHER: usize = 256;

/// What the one running checkpoint owns: the volume header as last written.
#[derive(Debug)]
pub struct CheckpointState {
    /// The header's content.
    pub(crate) header: VolumeHeader,
    /// Its generation.
    pub(crate) generation: u64,
    /// The last checkpoint found other blocks for pages of the data log, by operations behind its
    /// cut: the log is not empty.
    pub(crate) replaced: bool,
}

/// What is to become durable of one nid.
#[derive(Debug)]
pub enum Target {
    /// The image.
    Image(NodeImage),
    /// The node is freed; the NAT keeps the version.
    Tombstone(u64),
    /// The image stays where it lies; its pair of the NAT is written again (a repair).
    Keep(NatEntry),
}

/// An image and the block that it goes to.
type Placed = (BlockNo, Nid, NodeImage);

/// What was written and does not count yet.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// Pairs of NAT and SIT, with the slots written.
    slots: Vec<(PairIndex, u64)>,
    /// Nodes and inodes that the NAT has more than before.
    pub(crate) census: Census,
    /// Images of nodes.
    pub(crate) images: usize,
}

/// Writes images, NAT, SIT, summaries and packs; used by checkpoints, by recovery and by mkfs.
#[derive(Debug)]
pub struct Writer<'v> {
    /// Where the blocks of the volume lie.
    pub region: &'v Region,
    /// Where everything lies.
    pub layout: &'v Layout,
    /// Where images of nodes lie.
    pub nat: &'v Nat,
    /// Which blocks are free.
    pub space: &'v Space,
    /// What snapshots need.
    pub snapshots: &'v Snapshots,
    /// Number of this checkpoint.
    pub checkpoint: u64,
    /// All on, but in tests.
    pub rules: &'v StoreRules,
    /// The journal of a mounted volume, for its trace.
    pub journal: Option<&'v Journal<Settler>>,
}

impl<'v> Writer<'v> {
    /// Writes all of these in one partition, and flushes before the header, which the caller
    /// writes: `state` has what it is to say. The caller holds a reserved block for every image.
    ///
    /// # Errors
    /// `Corrupt` when the space map contradicts the NAT: nothing has been written then. Any failed
    /// write or flush; the volume must stop then.
    pub fn write(
        &self,
        core: CoreId,
        state: &mut CheckpointState,
        targets: Vec<(Nid, Target)>,
    ) -> Result<()> {
        self.check_images(targets.iter().map(|(nid, _)| *nid))?;
        let mut written = Written::default();
        let entries = self.write_images(core, targets.into_iter(), &mut written)?;
        let keeper = self.keeper(core);
        keeper.keep(nat_pairs(&entries))?;
        self.write_nat(entries, &mut written)?;
        self.space.write_shared(core, self.checkpoint)?;
        let changed = self.space.changed_pairs();
        keeper.keep(changed.iter().copied().map(pair_index))?;
        self.write_space(&changed, &mut written)?;
        keeper.name(&mut state.header, None)?;
        self.space.name_shared(&mut state.header);
        self.complete(state, std::iter::once(&written))
    }

    /// What it does for snapshots.
    pub(crate) fn keeper(&self, core: CoreId) -> Keeper<'v> {
        Keeper {
            snapshots: self.snapshots,
            region: self.region,
            layout: self.layout,
            space: self.space,
            packs: &self.nat.packs,
            core,
            checkpoint: self.checkpoint,
            rules: self.rules,
        }
    }

    /// What was written is named: in packs, and in the header, which the caller writes after the
    /// flush that this ends with.
    ///
    /// # Errors
    /// Those of [`Writer::write`].
    pub(crate) fn complete<'w>(
        &self,
        state: &mut CheckpointState,
        written: impl Iterator<Item = &'w Written>,
    ) -> Result<()> {
        let mut slots = Vec::new();
        for written in written {
            written.census.apply(&mut state.header);
            slots.extend_from_slice(&written.slots);
        }
        let packs = &self.nat.packs;
        packs.write(self.region, &mut state.header, self.checkpoint, &slots)?;
        state.header.checkpoint.set(self.checkpoint);
        // Crash scenario without this flush: the header is on the medium, and names a slot or an
        // image that is not.
        if self.rules.tables_before_header.holds() {
            self.region.flush()?;
        }
        self.trace("space");
        Ok(())
    }

    /// The images that are replaced must be live in the space map: if one is not, the map is wrong,
    /// and what it calls free may be anything.
    ///
    /// # Errors
    /// `Corrupt`, naming the block.
    pub(crate) fn check_images(&self, nids: impl Iterator<Item = Nid>) -> Result<()> {
        for nid in nids {
            let old = self.nat.entry(nid)?.block();
            if !old.is_none() {
                self.space.expect_image(old)?;
            }
        }
        Ok(())
    }

    /// Tells the trace that this step is done.
    pub(crate) fn trace(&self, step: &'static str) {
        let checkpoint = self.checkpoint;
        if let Some(journal) = self.journal {
            let event = || TraceEvent::Checkpoint { checkpoint, step };
            journal.trace().record(None, event);
        }
    }

    /// Writes images, and returns what the NAT is to say of the nodes. Asks for a target when what it
    /// holds of those before is written, but for one write's: the first touch of memory for
    /// thousands of copies takes longer than all the rest.
    ///
    /// # Errors
    /// Those of [`Writer::write`].
    pub(crate) fn write_images(
        &self,
        core: CoreId,
        mut targets: impl Iterator<Item = (Nid, Target)>,
        written: &mut Written,
    ) -> Result<Vec<(Nid, NatEntry)>> {
        let mut entries = Vec::with_capacity(targets.size_hint().0);
        let (mut placed, mut bytes) = (Vec::new(), Vec::new());
        loop {
            let known = entries.len();
            for (nid, target) in targets.by_ref().take(IMAGES_PER_WRITE) {
                entries.push((nid, self.place(core, nid, target, &mut placed)?));
            }
            if entries.len() == known {
                return Ok(entries);
            }
            written.images += placed.len();
            self.write_placed(&mut placed, &mut bytes)?;
        }
    }

    /// What the NAT is to say of the node, and a block for its image, if it has one.
    fn place(
        &self,
        core: CoreId,
        nid: Nid,
        target: Target,
        placed: &mut Vec<Placed>,
    ) -> Result<NatEntry> {
        let image = match target {
            Target::Tombstone(version) => return Ok(NatEntry::tombstone(version)),
            Target::Keep(entry) => return Ok(entry),
            Target::Image(image) => image,
        };
        let block = self.space.alloc_node(core).ok_or(Error::NoSpace {
            what: "blocks reserved for node images",
        })?;
        let free = free_inodes(nid, &image);
        let entry = NatEntry::live(block, image.kind, free, image.version_max());
        placed.push((block, nid, image));
        Ok(entry)
    }

    /// Writes these images, each run of blocks in one request and all of them together, and frees
    /// them.
    fn write_placed(&self, placed: &mut Vec<Placed>, bytes: &mut Vec<u8>) -> Result<()> {
        placed.sort_unstable_by_key(|(block, _, _)| *block);
        let mut rest = placed.as_slice();
        let mut writes = Vec::new();
        while let Some(&(first, ..)) = rest.first() {
            let blocks = rest.iter().map(|(block, _, _)| *block);
            let (run, after) = rest.split_at(contiguous(blocks, IMAGES_PER_WRITE));
            let is_only = run.len() == placed.len();
            if is_only {
                // Memory that was touched before.
                bytes.resize(bytes.len().max(run.len() * BLOCK_BYTES), 0);
                let bytes = &mut bytes[..run.len() * BLOCK_BYTES];
                self.seal_all(run, bytes);
                self.region.write(first, bytes)?;
            } else {
                let mut buf = BlockBuf::zeroed(run.len());
                self.seal_all(run, buf.as_mut_slice());
                writes.push((first, buf));
            }
            rest = after;
        }
        self.write_blocks(writes)?;
        placed.clear();
        Ok(())
    }

    fn seal_all(&self, run: &[Placed], out: &mut [u8]) {
        for (image, out) in run.iter().zip(out.chunks_exact_mut(BLOCK_BYTES)) {
            self.seal(image, out);
        }
    }

    /// The image as it is to lie in `block`, whose owner it is from now on.
    fn seal(&self, (block, nid, image): &Placed, out: &mut [u8]) {
        image.seal(out, *nid, *block, self.checkpoint, self.layout.crc_seed);
        let owner = SummaryEntry {
            nid: U64::new(nid.0),
            kind: OWNER_NODE,
            granule: 0,
            slot: 0,
            reserved: 0,
        };
        self.space.set_owner(*block, owner);
    }

    /// Writes the NAT pairs with these entries, moves the images in the space map and counts nodes
    /// and inodes. No other task writes these pairs.
    ///
    /// # Errors
    /// Those of [`Writer::write`].
    pub(crate) fn write_nat(
        &self,
        mut sorted: Vec<(Nid, NatEntry)>,
        written: &mut Written,
    ) -> Result<()> {
        sorted.sort_by_key(|(nid, _)| *nid);
        let mut blocks = Vec::new();
        for group in sorted.chunk_by(|(a, _), (b, _)| place_of(*a).0 == place_of(*b).0) {
            let (index, _) = place_of(group[0].0);
            let write = self.nat.change(index, group, self.checkpoint)?;
            let first = self.layout.nat_pair(index);
            let (kind, seed) = (pair_kind::NAT, self.layout.crc_seed);
            let content = (self.checkpoint, &write.payload[..]);
            blocks.push(pair::slot_block(first, write.slot, kind, content, seed));
            written.slots.push((write.named, write.slot));
            for (old, (nid, new)) in write.before.iter().zip(group) {
                let (before, after) = (Census::of_entry(*nid, old), Census::of_entry(*nid, new));
                written.census.change(before, after);
                if old.block() != new.block() {
                    self.space.image_moved(old.block(), new.block())?;
                }
            }
        }
        self.write_blocks(blocks)
    }

    /// Writes blocks that lie anywhere.
    fn write_blocks(&self, mut blocks: Vec<(BlockNo, BlockBuf)>) -> Result<()> {
        while !blocks.is_empty() {
            let rest = blocks.split_off(blocks.len().min(BLOCKS_TOGETHER));
            self.region
                .write_all(std::mem::replace(&mut blocks, rest))?;
        }
        Ok(())
    }

    /// Writes these SIT pairs, and what has changed in the summaries of their segments. The caller
    /// has written all nodes.
    ///
    /// # Errors
    /// Those of [`Writer::write`].
    pub(crate) fn write_space(&self, pairs: &[u32], written: &mut Written) -> Result<()> {
        let mut blocks = Vec::new();
        for write in self.space.collect(self.checkpoint, pairs)? {
            let (first, slot, kind) = (write.first, write.slot, write.kind);
            let seed = self.layout.crc_seed;
            let content = (self.checkpoint, &write.payload[..]);
            blocks.push(pair::slot_block(first, slot, kind, content, seed));
            written.slots.extend(write.named.map(|named| (named, slot)));
        }
        self.write_blocks(blocks)
    }
}

/// The pairs of the NAT that these entries are in.
pub(crate) fn nat_pairs<'e>(
    entries: impl IntoIterator<Item = &'e (Nid, NatEntry)>,
) -> BTreeSet<PairIndex> {
    let pair = |(nid, _): &(Nid, NatEntry)| PairIndex {
        table: Table::Nat,
        index: place_of(*nid).0,
    };
    entries.into_iter().map(pair).collect()
}

impl CheckpointState {
    /// The header as it is on the medium.
    pub fn new(header: VolumeHeader, generation: u64) -> CheckpointState {
        CheckpointState {
            header,
            generation,
            replaced: false,
        }
    }

    /// Refuses to go on when the header on the medium is not the one this mount wrote last: another
    /// process has mounted the volume too, by a name that no lock covers, and what is written now
    /// would go into its structures.
    ///
    /// # Errors
    /// `TakenOver`, or a failed read.
    pub(crate) fn check_own(&self, region: &Region, layout: &Layout) -> Result<()> {
        let (first, seed) = (layout.volume_header, layout.crc_seed);
        let newest = pair::read_newest(region, first, pair_kind::VOLUME, seed)?;
        let own = newest.is_some_and(|newest| {
            let found = VolumeHeader::read_from_bytes(&newest.payload)
                .expect("a pair's payload has this size");
            newest.generation == self.generation && found.mount == self.header.mount
        });
        if own { Ok(()) } else { Err(Error::TakenOver) }
    }

    /// Mounts the volume for writing, or unmounts it, as `change` says in the header, whose write
    /// makes it so. Durable on return.
    ///
    /// # Errors
    /// A failed read, write or flush; media that are hidden.
    pub(crate) fn turn(
        &mut self,
        region: &Region,
        layout: &Layout,
        rules: &StoreRules,
        change: impl FnOnce(&mut VolumeHeader),
    ) -> Result<()> {
        let old = Turn::of(&self.header);
        change(&mut self.header);
        self.header.mount.set(dure_sync::random::u64().max(1));
        let turns = (old, Turn::of(&self.header));
        stamps::turn(region, layout, turns, rules, || {
            self.write(region, layout)?;
            Ok(region.flush()?)
        })
    }

    /// Writes the header's next generation. Not flushed.
    ///
    /// # Errors
    /// A failed write.
    pub fn write(&mut self, region: &Region, layout: &Layout) -> Result<()> {
        self.generation += 1;
        self.header
            .written
            .set(dure_sync::clock::wall().secs.try_into().unwrap_or(0));
        let (kind, seed) = (pair_kind::VOLUME, layout.crc_seed);
        pair::write_mirrored(
            region,
            layout.volume_header,
            kind,
            self.generation,
            self.header.as_bytes(),
            seed,
        )
    }
}

/// What is to become durable of these nodes, which a checkpoint has taken off their lists: one
/// target per nid, ascending. Each is made when the iterator gets to it, so that no more copies are
/// in memory than the caller keeps.
pub(crate) fn targets_of(nodes: &mut [NodeRef]) -> impl Iterator<Item = (Nid, Target)> {
    nodes.sort_unstable_by_key(|node| node.nid);
    nodes
        .chunk_by(|one, next| one.nid == next.nid)
        .map(|lives| {
            // Before the copy: a change that comes later puts the node on a list again.
            lives.iter().for_each(|node| node.clear_dirty());
            // A life begins when the free that ended the one before is valid, above its version.
            let last = lives.iter().max_by_key(|node| node.read(0).version());
            target_of(last.expect("a chunk is not empty"))
        })
}

fn target_of(node: &NodeRef) -> (Nid, Target) {
    let image = node.copy();
    // Asked after the copy: a node freed meanwhile must get a tombstone, not an image.
    let target = match node.freed_and_joined() {
        Some(version) => Target::Tombstone(version),
        None => Target::Image(image),
    };
    (node.nid, target)
}
