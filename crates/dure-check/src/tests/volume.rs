//! A small volume made by hand from format structures alone, so that tests can put any
//! inconsistency into it and see exactly what the check says.

use std::collections::BTreeMap;

use dure_block::Lba;
use dure_block::ram::RamDevice;
use dure_journal::JournalId;
use dure_journal::format::{JournalHeader, TailPosition};
use dure_store::census::Census;
use dure_store::format::bucket::{BucketHeader, ENTRY_HEADER_BYTES, EntryHeader, HEADER_BYTES};
use dure_store::format::inode::{FLAG_LONG_LINK, FLAG_ORPHAN, InodeRecord};
use dure_store::format::nat::{ENTRIES, NatBlock, NatEntry, place_of};
use dure_store::format::node::{NodeImage, NodeKind};
use dure_store::format::orphan::{INTENT_DELETE, OrphanSlot};
use dure_store::format::pair_kind;
use dure_store::format::sit::{self, SegmentUse, SitBlock};
use dure_store::format::slot::Slot;
use dure_store::format::summary::{self, OWNER_NODE, OWNER_SLOT, SummaryBlock, SummaryEntry};
use dure_store::format::trie;
use dure_store::format::volume::{Pack, STATE_CLEAN, SlotCode, VolumeHeader};
use dure_store::layout::{FormatOptions, Layout, TableCopies};
use dure_store::units::{BLOCK_BYTES, BlockNo, Ino, Nid, SegNo, to_usize};
use dure_sync::Arc;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::disk::Disk;
use crate::Report;

/// What lies where.
pub(crate) mod place {
    pub(crate) const ORPHANS: u64 = 1;
    pub(crate) const ROOT_BUCKETS: u64 = 2;
    pub(crate) const SUB_BUCKETS: u64 = 3;
    pub(crate) const LEAF: u64 = 4;
    pub(crate) const LINK_BLOB: u64 = 5;
    pub(crate) const XATTR_BLOB: u64 = 6;
    pub(crate) const MORE_INODES: u64 = 7;
    pub(crate) const INDEX: u64 = 9;
    pub(crate) const DEEP_LEAF: u64 = 10;

    /// A file with two names, a written and a preallocated page, and attributes.
    pub(crate) const SMALL: u64 = 2;
    pub(crate) const SUB: u64 = 3;
    pub(crate) const SHORT_LINK: u64 = 4;
    /// A file with a leaf.
    pub(crate) const BIG: u64 = 5;
    pub(crate) const LONG_LINK: u64 = 6;
    pub(crate) const FIFO: u64 = 7;
    /// A file without a name, in an orphan slot.
    pub(crate) const ORPHAN: u64 = 56;
    /// A file with an index node.
    pub(crate) const DEEP: u64 = 57;
}
use place::*;

/// A volume before it is written.
#[derive(Clone)]
pub(crate) struct TestVolume {
    pub(crate) layout: Layout,
    /// Its counts are those of `nodes`, unless a test sets others.
    pub(crate) header: VolumeHeader,
    pub(crate) nodes: BTreeMap<Nid, (NodeImage, BlockNo)>,
    /// Data blocks and their owners.
    pub(crate) data: BTreeMap<BlockNo, (SummaryEntry, Vec<u8>)>,
    pub(crate) ring: Vec<u64>,
    next: u64,
}

/// A page with something in it.
pub(crate) fn page(seed: u8) -> Vec<u8> {
    (0..=255)
        .cycle()
        .take(BLOCK_BYTES)
        .map(|n: u8| n.wrapping_mul(seed))
        .collect()
}

impl TestVolume {
    /// The sample.
    pub(crate) fn new() -> TestVolume {
        TestVolume::with(TableCopies::One)
    }

    /// The sample, on a volume with so many copies of NAT and SIT.
    pub(crate) fn with(table_copies: TableCopies) -> TestVolume {
        let options = FormatOptions {
            table_copies,
            journals: Some(1),
            uuid: Some([7; 16]),
            ..Default::default()
        };
        let mut superblock = Layout::plan(1024, &options, 1).unwrap().superblock;
        superblock.created.set(0);
        let layout = Layout::from_superblock(superblock).unwrap();
        let segment = u64::from(layout.segment_blocks);
        let mut header = VolumeHeader::new_zeroed();
        header.epoch.set(3);
        header.first_number.set(10);
        header.checkpoint.set(5);
        header.state.set(STATE_CLEAN);
        let mut volume = TestVolume {
            header,
            nodes: BTreeMap::new(),
            data: BTreeMap::new(),
            ring: vec![layout.main, layout.main + segment],
            next: layout.main + 2 * segment,
            layout,
        };
        volume.fill();
        volume
    }

    fn fill(&mut self) {
        for (nid, kind) in [
            (0, NodeKind::Inode),
            (ORPHANS, NodeKind::Orphan),
            (ROOT_BUCKETS, NodeKind::Bucket),
            (SUB_BUCKETS, NodeKind::Bucket),
            (LEAF, NodeKind::Leaf),
            (LINK_BLOB, NodeKind::Blob),
            (XATTR_BLOB, NodeKind::Blob),
            (MORE_INODES, NodeKind::Inode),
            (INDEX, NodeKind::Index),
            (DEEP_LEAF, NodeKind::Leaf),
        ] {
            self.add(nid, kind);
        }
        for (nid, ino) in [
            (ROOT_BUCKETS, 1),
            (SUB_BUCKETS, SUB),
            (LEAF, BIG),
            (LINK_BLOB, LONG_LINK),
            (XATTR_BLOB, SMALL),
            (INDEX, DEEP),
            (DEEP_LEAF, DEEP),
        ] {
            self.nodes.get_mut(&Nid(nid)).unwrap().0.owner = Ino(ino);
        }
        self.inode(1, 0o040_755, |root| {
            root.attributes.parent.set(1);
            root.data.map_root.set(ROOT_BUCKETS);
        });
        self.inode(SUB, 0o040_700, |sub| {
            sub.attributes.parent.set(1);
            sub.data.map_root.set(SUB_BUCKETS);
        });
        self.inode(SHORT_LINK, 0o120_777, |link| {
            link.data.size.set(5);
            link.data.body[..5].copy_from_slice(b"small");
        });
        self.inode(LONG_LINK, 0o120_777, |link| {
            link.data.size.set(300);
            link.attributes.flags.set(FLAG_LONG_LINK);
            link.data.map_root.set(LINK_BLOB);
        });
        self.payload(LINK_BLOB, 0)[8..308].fill(b'x');
        self.inode(FIFO, 0o010_600, |_| {});
        self.fill_files();
        for (ino, name, kind) in [
            (SMALL, "small", 8),
            (SUB, "sub", 4),
            (SHORT_LINK, "short", 10),
            (BIG, "big", 8),
            (LONG_LINK, "long", 10),
            (FIFO, "fifo", 1),
            (DEEP, "deep", 8),
        ] {
            self.entry(ROOT_BUCKETS, ino, name, kind);
        }
        self.entry(SUB_BUCKETS, SMALL, "again", 8);
    }

    fn fill_files(&mut self) {
        self.inode(SMALL, 0o100_644, |file| {
            file.attributes.nlink.set(2);
            file.data.size.set(100);
            file.attributes.xattr_bytes.set(8 + 6 + 3);
            file.attributes.xattr_root.set(XATTR_BLOB);
        });
        self.payload(XATTR_BLOB, 0)[8..25].copy_from_slice(b"\x03\0\0\0\x06\0\0\0user.aabc");
        self.written(SMALL, 0, 0, 3);
        let block = self.take();
        self.set_slot(SMALL, 0, 1, Slot::unwritten(BlockNo(block)));
        let granule = Ino(SMALL).data_index();
        self.own(block, 0, granule, 1, vec![0; BLOCK_BYTES]);
        self.inode(BIG, 0o100_644, |file| {
            file.data.size.set(30 * 4096);
            file.data.map_root.set(LEAF);
            file.data.map_height.set(1);
        });
        self.written(BIG, 0, 0, 5);
        self.written(BIG, LEAF, 2, 7);
        self.inode(ORPHAN, 0o100_600, |file| {
            file.attributes.nlink.set(0);
            file.attributes.flags.set(FLAG_ORPHAN);
            file.data.size.set(4096);
        });
        self.written(ORPHAN, 0, 0, 9);
        self.orphan(0, ORPHAN, INTENT_DELETE);
        self.inode(DEEP, 0o100_600, |file| {
            file.data.size.set(1000 * 4096);
            file.data.map_root.set(INDEX);
            file.data.map_height.set(2);
        });
        // Page 24 + 320 + 70: child 1, granule 1, slot 6.
        self.payload(INDEX, 0)[8..16].copy_from_slice(&DEEP_LEAF.to_le_bytes());
        self.written(DEEP, DEEP_LEAF, 70, 11);
    }

    /// A free block of the main area.
    pub(crate) fn take(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// A new node of inode `owner`.
    pub(crate) fn add_of(&mut self, nid: u64, kind: NodeKind, owner: u64) {
        self.add(nid, kind);
        self.nodes.get_mut(&Nid(nid)).unwrap().0.owner = Ino(owner);
    }

    /// A new node of no inode.
    pub(crate) fn add(&mut self, nid: u64, kind: NodeKind) {
        let block = BlockNo(self.take());
        self.nodes
            .insert(Nid(nid), (NodeImage::fresh(kind, 2), block));
    }

    pub(crate) fn payload(&mut self, nid: u64, granule: usize) -> &mut [u8] {
        self.nodes
            .get_mut(&Nid(nid))
            .unwrap()
            .0
            .payload_mut(granule)
    }

    /// Fills an inode in and changes it.
    pub(crate) fn inode(&mut self, ino: u64, mode: u32, change: impl FnOnce(&mut InodeRecord)) {
        self.edit(ino, |record| {
            record.attributes.ino.set(ino);
            record.attributes.generation.set(1);
            record.attributes.mode.set(mode);
            record.attributes.nlink.set(1);
            change(record);
        });
    }

    /// Changes an inode.
    pub(crate) fn edit(&mut self, ino: u64, change: impl FnOnce(&mut InodeRecord)) {
        let ino = Ino(ino);
        let (image, _) = self.nodes.get_mut(&ino.nid()).unwrap();
        let mut record = image.inode(ino.index());
        record.data.ino.set(ino.0);
        change(&mut record);
        let mut store = |granule: u8, bytes: &[u8]| {
            image
                .payload_mut(usize::from(granule))
                .copy_from_slice(bytes);
        };
        store(ino.index(), record.attributes.as_bytes());
        store(ino.data_index(), record.data.as_bytes());
    }

    /// Puts a slot into an inode (`leaf` 0) or a leaf.
    pub(crate) fn set_slot(&mut self, ino: u64, leaf: u64, slot: usize, value: Slot) {
        if leaf == 0 {
            self.edit(ino, |record| {
                record.data.body[slot * 12..][..12].copy_from_slice(value.as_bytes());
                record.data.blocks += 1;
            });
        } else {
            let payload = self.payload(leaf, slot / 64);
            payload[slot % 64 * 12..][..12].copy_from_slice(value.as_bytes());
            self.edit(ino, |record| record.data.blocks += 1);
        }
    }

    /// A page with content in a slot of its own.
    pub(crate) fn written(&mut self, ino: u64, leaf: u64, slot: usize, seed: u8) -> u64 {
        let block = self.take();
        let bytes = page(seed);
        self.set_slot(
            ino,
            leaf,
            slot,
            Slot::written(BlockNo(block), dure_block::crc32c::crc32c(&bytes)),
        );
        let (nid, granule) = match leaf {
            0 => (Ino(ino).nid().0, Ino(ino).data_index()),
            leaf => (leaf, u8::try_from(slot / 64).unwrap()),
        };
        self.own(block, nid, granule, u8::try_from(slot % 64).unwrap(), bytes);
        block
    }

    /// Notes the owner of a data block.
    pub(crate) fn own(&mut self, block: u64, nid: u64, granule: u8, slot: u8, bytes: Vec<u8>) {
        let owner = SummaryEntry {
            nid: nid.into(),
            kind: OWNER_SLOT,
            granule,
            slot,
            reserved: 0,
        };
        self.data.insert(BlockNo(block), (owner, bytes));
    }

    pub(crate) fn orphan(&mut self, slot: usize, ino: u64, intent: u64) {
        let value = OrphanSlot {
            ino: ino.into(),
            intent: intent.into(),
        };
        self.payload(ORPHANS, 0)[slot * 16..][..16].copy_from_slice(value.as_bytes());
    }

    /// The bucket of `name` in the top node `buckets`.
    pub(crate) fn bucket_of(&self, name: &str) -> usize {
        to_usize(trie::name_hash(self.layout.hash_seed, name.as_bytes()) >> 61)
    }

    /// Appends an entry to the bucket its hash leads to; its ordinal tells it from those before it.
    pub(crate) fn entry(&mut self, buckets: u64, ino: u64, name: &str, kind: u8) {
        let index = self.bucket_of(name);
        self.entry_at(buckets, index, ino, name, kind);
    }

    /// Appends an entry to a bucket.
    pub(crate) fn entry_at(&mut self, buckets: u64, index: usize, ino: u64, name: &str, kind: u8) {
        let payload = self.payload(buckets, index);
        let (header, area) = BucketHeader::mut_from_prefix(payload).unwrap();
        let at = usize::from(header.used.get());
        let space = u16::try_from(ENTRY_HEADER_BYTES + name.len()).unwrap();
        let head = EntryHeader {
            ino: ino.into(),
            space: space.into(),
            kind,
            name_len: u8::try_from(name.len()).unwrap(),
        };
        area[at..at + 12].copy_from_slice(head.as_bytes());
        area[at + 12..at + 12 + name.len()].copy_from_slice(name.as_bytes());
        header.used += space;
        header.entries += 1;
        header.subdirectories += u32::from(kind == 4);
    }

    /// The header of a bucket, to be changed.
    pub(crate) fn bucket(&mut self, buckets: u64, index: usize) -> &mut BucketHeader {
        BucketHeader::mut_from_bytes(&mut self.payload(buckets, index)[..HEADER_BYTES]).unwrap()
    }

    /// Where `name` stands in its bucket of `buckets`: offset of its entry in the payload.
    pub(crate) fn find(&mut self, buckets: u64, name: &str) -> usize {
        let index = self.bucket_of(name);
        let payload = self.payload(buckets, index);
        let found = payload
            .windows(name.len())
            .position(|bytes| bytes == name.as_bytes());
        found.unwrap() - ENTRY_HEADER_BYTES
    }

    /// Writes everything, tables derived from what is there.
    pub(crate) fn write(&self) -> Disk {
        let disk = Disk {
            device: Arc::new(RamDevice::new("check", self.layout.total_blocks)),
            layout: self.layout.clone(),
        };
        for address in [0, self.layout.total_blocks - 1] {
            disk.put(address, &self.layout.superblock.seal(address));
        }
        let mut counted = self.header;
        if counted.nodes.get() == 0 {
            for (nid, (image, _)) in &self.nodes {
                Census::of_image(*nid, image).apply(&mut counted);
            }
        }
        for index in 0..u64::from(self.layout.pack_pairs) {
            SlotCode::Slot(1).set(&mut counted.packs, index);
        }
        let first = self.layout.volume_header;
        disk.pair(pair_kind::VOLUME, first, 1, counted.as_bytes());
        let tables = [self.layout.nat_pairs, self.layout.sit_pairs];
        for (index, pairs) in (0..).zip(tables) {
            let mut pack = Pack::new_zeroed();
            pack.checkpoint.set(5);
            pack.index.set(index);
            for n in 0..u64::from(pairs) {
                SlotCode::Slot(1).set(&mut pack.slots, n);
            }
            let first = self.layout.pack_pair(index);
            disk.pair(pair_kind::PACK, first, 1, pack.as_bytes());
        }
        let mut header = JournalHeader {
            epoch: 3,
            journal: JournalId::new(0).unwrap(),
            generation: 1,
            segment_blocks: self.layout.segment_blocks,
            tail: TailPosition {
                segment: 0,
                offset: 0,
                sequence: 1,
                number: 10,
            },
            durable_upto: 9,
            checkpoint: 5,
            segments: self.ring.iter().map(|block| Lba::new(*block)).collect(),
        };
        for generation in [1, 2] {
            header.generation = generation;
            disk.journal(&header);
        }
        for (nid, (image, block)) in &self.nodes {
            let mut bytes = vec![0; BLOCK_BYTES];
            image.seal(&mut bytes, *nid, *block, 5, self.layout.crc_seed);
            disk.put(block.0, &bytes);
        }
        for (block, (_, bytes)) in &self.data {
            disk.put(block.0, bytes);
        }
        self.write_nat(&disk);
        self.write_space(&disk);
        disk
    }

    fn write_nat(&self, disk: &Disk) {
        for index in 0..u64::from(self.layout.nat_pairs) {
            let mut pair = NatBlock::new_zeroed();
            pair.index.set(index);
            pair.checkpoint.set(5);
            for (nid, (image, block)) in &self.nodes {
                if nid.0 / ENTRIES == index {
                    let free = crate::nodes::free_inodes(*nid, image);
                    let entry = NatEntry::live(*block, image.kind, free, image.version_max());
                    pair.entries[place_of(*nid).1] = entry;
                }
            }
            disk.pair(
                pair_kind::NAT,
                self.layout.nat_pair(index),
                1,
                pair.as_bytes(),
            );
        }
    }

    fn owners(&self) -> BTreeMap<BlockNo, SummaryEntry> {
        let images = self.nodes.iter().map(|(nid, (_, block))| {
            let nid = nid.0.into();
            (
                *block,
                SummaryEntry {
                    nid,
                    kind: OWNER_NODE,
                    granule: 0,
                    slot: 0,
                    reserved: 0,
                },
            )
        });
        images
            .chain(self.data.iter().map(|(block, (owner, _))| (*block, *owner)))
            .collect()
    }

    fn write_space(&self, disk: &Disk) {
        let owners = self.owners();
        let segments = self.layout.segments;
        let mut sits = vec![SitBlock::new_zeroed(); to_usize(self.layout.sit_pairs.into())];
        let mut summaries = vec![SummaryBlock::new_zeroed(); to_usize(segments.into())];
        for (block, owner) in owners {
            let Some((segment, index)) = self.layout.locate(block) else {
                continue;
            };
            let n = to_usize(segment.0.into());
            let entry = &mut sits[n / 50].entries[n % 50];
            entry.live[to_usize((index / 8).into())] |= 1 << (index % 8);
            entry.valid += 1;
            entry.usage = SegmentUse::Data.code();
            summaries[n].entries[to_usize(index.into())] = owner;
        }
        for segment in &self.ring {
            if let Some((segment, _)) = self.layout.locate(BlockNo(*segment)) {
                let n = to_usize(segment.0.into());
                sits[n / 50].entries[n % 50].usage = SegmentUse::Log.code();
            }
        }
        for (index, sit) in (0..).zip(&mut sits) {
            let exist = segments
                .saturating_sub(index * sit::ENTRIES)
                .min(sit::ENTRIES);
            for entry in &mut sit.entries[..to_usize(exist.into())] {
                entry.summaries = SlotCode::Slot(1).bits();
            }
            sit.index.set(u64::from(index));
            disk.pair(
                pair_kind::SIT,
                self.layout.sit_pair(index),
                1,
                sit.as_bytes(),
            );
        }
        for (segment, summary) in (0..).zip(&mut summaries) {
            summary.segment.set(u64::from(segment));
            let first = self.layout.summary_pair(SegNo(segment), 0);
            disk.pair(pair_kind::SUMMARY, first, 1, summary.as_bytes());
        }
        assert_eq!(self.layout.summary_pairs, 1);
        assert!(summary::ENTRIES >= self.layout.segment_blocks && sit::ENTRIES == 50);
    }

    /// Writes the volume and checks it.
    pub(crate) fn check(&self) -> Report {
        self.write().check()
    }

    /// Writes the volume, checks it, and gives the issues as lines.
    pub(crate) fn issues(&self) -> Vec<String> {
        self.write().issues()
    }
}
