//! Changes of nodes in memory: edited images stand where replayed ones do, in front of the tables.
//!
//! **Invariants.** Every changed granule gets one version, greater than all on the volume. A node
//! is written only if it was changed here. **Crash.** Nothing is written here.

use std::collections::{BTreeMap, BTreeSet};

use dure_store::format::fields::DIRECTORY;
use dure_store::format::inode::{AttributesRecord, InodeData, Time};
use dure_store::format::nat::NatEntry;
use dure_store::format::node::{NodeImage, NodeKind};
use dure_store::units::{GranuleId, Ino, Nid};
use zerocopy::little_endian::{I64, U32, U64};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::context::Context;
use crate::loss::Loss;

/// A rebuild under way.
pub(super) struct Edit<'c, 'o> {
    pub(super) context: &'c mut Context<'o>,
    /// The version of every granule that is changed.
    pub(super) version: u64,
    /// Nodes that differ from what the medium has.
    pub(super) edited: BTreeSet<Nid>,
    pub(super) losses: Vec<Loss>,
    /// No nid below it is free.
    free_from: u64,
}

impl<'c, 'o> Edit<'c, 'o> {
    pub(super) fn new(context: &'c mut Context<'o>, version_max: u64) -> Edit<'c, 'o> {
        let mut edit = Edit {
            edited: context.replayed.keys().copied().collect(),
            context,
            version: version_max + 1,
            losses: Vec::new(),
            free_from: 0,
        };
        let replayed = edit.context.replayed.iter();
        let freed = replayed.filter(|(_, image)| image.is_none());
        let freed: Vec<Nid> = freed.map(|(nid, _)| *nid).collect();
        for nid in freed {
            edit.forget(nid);
        }
        edit
    }

    /// Notes that something of `ino` is lost.
    pub(super) fn lose(&mut self, ino: Ino, name: Option<Vec<u8>>, what: impl Into<String>) {
        let loss = Loss {
            ino,
            path: name,
            what: what.into(),
        };
        if !self.losses.contains(&loss) {
            self.losses.push(loss);
        }
    }

    /// Gives a node this image.
    pub(super) fn put(&mut self, nid: Nid, image: NodeImage) {
        self.context.replayed.insert(nid, Some(image));
        self.edited.insert(nid);
    }

    /// Frees a node.
    pub(super) fn free(&mut self, nid: Nid) {
        self.forget(nid);
        self.context.replayed.insert(nid, None);
        self.edited.insert(nid);
    }

    /// The image of a node is lost: nothing is at the block that the table names.
    pub(super) fn forget(&mut self, nid: Nid) {
        let (pair, within) = dure_store::format::nat::place_of(nid);
        if let Some(entries) = self.context.nat.get_mut(&pair) {
            entries[within] = NatEntry::tombstone(self.version);
        }
    }

    /// Changes a granule.
    pub(super) fn granule(&mut self, id: GranuleId, change: impl FnOnce(&mut [u8])) {
        let Some(mut image) = self.context.image(id.nid) else {
            return;
        };
        let index = usize::from(id.index);
        change(image.payload_mut(index));
        image.set_version(index, self.version);
        self.put(id.nid, image);
    }

    /// Changes the attributes of an inode.
    pub(super) fn attributes(&mut self, ino: Ino, change: impl FnOnce(&mut AttributesRecord)) {
        self.granule(ino.granule(), |payload| {
            change(AttributesRecord::mut_from_bytes(payload).expect("attributes are 112 bytes"));
        });
    }

    /// Changes the data of an inode.
    pub(super) fn data(&mut self, ino: Ino, change: impl FnOnce(&mut InodeData)) {
        let Some(image) = self.context.image(ino.nid()) else {
            return;
        };
        let mut data = image.inode(ino.index()).data;
        change(&mut data);
        self.granule(ino.data_granule(), |payload| {
            payload.copy_from_slice(data.as_bytes());
        });
    }

    /// Frees an inode; its nodes and blocks then have no owner.
    pub(super) fn clear(&mut self, ino: Ino) {
        self.granule(ino.granule(), |payload| {
            let record = AttributesRecord::mut_from_bytes(payload);
            let record = record.expect("attributes are 112 bytes");
            let generation = record.generation;
            *record = AttributesRecord::new_zeroed();
            record.generation = generation;
        });
        self.granule(ino.data_granule(), |payload| payload.fill(0));
    }

    /// Makes an empty directory of inode `ino`, whose node may be lost.
    pub(super) fn make_directory(&mut self, ino: Ino, parent: Ino, mode: u32) {
        if !self.context.lives(ino.nid()) || self.context.image(ino.nid()).is_none() {
            self.forget(ino.nid());
            self.put(ino.nid(), NodeImage::fresh(NodeKind::Inode, self.version));
        }
        let now = dure_sync::clock::wall();
        let now = Time {
            secs: I64::new(now.secs),
            nanos: U32::new(now.nanos),
        };
        self.attributes(ino, |record| {
            let generation = record.generation.get().wrapping_add(1).max(1);
            *record = AttributesRecord::new_zeroed();
            record.ino = U64::new(ino.0);
            record.generation = U32::new(generation);
            record.mode = U32::new(u32::from(DIRECTORY) << 12 | mode);
            record.nlink = U32::new(1);
            record.parent = U64::new(parent.0);
            (record.ctime, record.btime) = (now, now);
        });
        self.granule(ino.data_granule(), |payload| payload.fill(0));
    }

    /// A nid that is not in use.
    pub(super) fn free_nid(&mut self) -> Option<Nid> {
        let first = 1 + u64::from(self.context.layout.journals);
        let mut nids = self.free_from.max(first)..self.context.layout.nids();
        let free = nids.find(|nid| {
            let nid = Nid(*nid);
            // One that was freed here keeps its tombstone.
            !self.context.lives(nid) && !self.context.broken.get(nid.0)
        })?;
        self.free_from = free + 1;
        Some(Nid(free))
    }

    /// A free inode, in a node that has one or a new node.
    pub(super) fn free_inode(&mut self) -> Option<Ino> {
        for pair in self.context.pairs_in_use() {
            for nid in self.context.live_in_pair(pair) {
                if !self.context.is_inode_node(nid) {
                    continue;
                }
                let Some(image) = self.context.image(nid) else {
                    continue;
                };
                let free = |ino: &Ino| ino.0 != 0 && image.inode(ino.index()).attributes.is_free();
                if let Some(ino) = Ino::all_of(nid).find(free) {
                    return Some(ino);
                }
            }
        }
        let nid = self.free_nid()?;
        self.put(nid, NodeImage::fresh(NodeKind::Inode, self.version));
        Some(Ino::new(nid, 0))
    }

    /// Bucket nodes by the directory that they name as their owner.
    pub(super) fn buckets(&mut self) -> BTreeMap<Ino, Vec<Nid>> {
        let mut buckets: BTreeMap<Ino, Vec<Nid>> = BTreeMap::new();
        for pair in self.context.pairs_in_use() {
            for nid in self.context.live_in_pair(pair) {
                let is_bucket = match self.context.replayed.get(&nid) {
                    Some(image) => image.as_ref().is_some_and(|i| i.kind == NodeKind::Bucket),
                    None => self.context.entry(nid).kind_code() == NodeKind::Bucket.code(),
                };
                if is_bucket && let Some(image) = self.context.image(nid) {
                    buckets.entry(image.owner).or_default().push(nid);
                }
            }
        }
        buckets
    }
}
