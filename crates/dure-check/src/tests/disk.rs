//! A volume made by hand, written to a RAM disk: changes of bytes, and checks.

use dure_block::ram::RamDevice;
use dure_block::{Device, Io, Lba, WriteFlags, share};
use dure_journal::JournalId;
use dure_journal::format::JournalHeader;
use dure_journal::format::slotted::{self, SlotKind};
use dure_store::format::nat::{NatBlock, NatEntry, place_of};
use dure_store::format::pair_kind;
use dure_store::format::sit::SitBlock;
use dure_store::layout::Layout;
use dure_store::units::{BLOCK_BYTES, BlockNo, Nid};
use dure_sync::Arc;
use zerocopy::FromBytes;

use crate::{CheckOptions, Report, check};

/// A written volume.
pub(crate) struct Disk {
    pub(crate) device: Arc<RamDevice>,
    pub(crate) layout: Layout,
}

impl Disk {
    pub(crate) fn put(&self, lba: u64, bytes: &[u8]) {
        let parts: &[&[u8]] = &[bytes];
        let io = Io::Write {
            lba: Lba::new(lba),
            parts,
            flags: WriteFlags::NONE,
        };
        self.device.execute(io).unwrap();
    }

    pub(crate) fn get(&self, lba: u64) -> Vec<u8> {
        let mut block = vec![0; BLOCK_BYTES];
        self.device
            .execute(Io::Read {
                lba: Lba::new(lba),
                out: &mut block,
            })
            .unwrap();
        block
    }

    /// Changes bytes of a block without mending its checksum.
    pub(crate) fn damage(&self, lba: u64, change: impl FnOnce(&mut [u8])) {
        let mut block = self.get(lba);
        change(&mut block);
        self.put(lba, &block);
    }

    /// Writes a pair; both copies of a mirrored one.
    pub(crate) fn pair(&self, kind: u32, first: u64, generation: u64, payload: &[u8]) {
        let mut block = vec![0; BLOCK_BYTES];
        block[32..].copy_from_slice(payload);
        let seed = self.layout.crc_seed;
        let copies = if [pair_kind::VOLUME, pair_kind::PACK].contains(&kind) {
            2
        } else {
            1
        };
        for pair in slotted::mirrors(Lba::new(first)).into_iter().take(copies) {
            let at = slotted::seal(&mut block, SlotKind(kind), pair, generation, seed);
            self.put(at.number(), &block);
            if let Some(copy) = self.layout.copy_of(BlockNo(at.number())) {
                self.put(copy.0, &block);
            }
        }
    }

    /// Writes the header of journal 0.
    pub(crate) fn journal(&self, header: &JournalHeader) {
        let mut block = vec![0; BLOCK_BYTES];
        for pair in slotted::mirrors(Lba::new(self.layout.journal_headers)) {
            let at = header.seal(&mut block, pair, self.layout.crc_seed);
            self.put(at.number(), &block);
        }
    }

    /// The header of journal 0.
    pub(crate) fn journal_header(&self) -> JournalHeader {
        let at = self.layout.journal_headers;
        let blocks: Vec<u8> = (at..at + 4).flat_map(|at| self.get(at)).collect();
        let (seed, id) = (self.layout.crc_seed, JournalId::new(0).unwrap());
        JournalHeader::open(&blocks, Lba::new(at), seed, id).unwrap()
    }

    /// Changes the payload of a pair (of generation 1) and seals it again.
    pub(crate) fn reseal(&self, kind: u32, first: u64, change: impl FnOnce(&mut [u8])) {
        let block = self.get(first + 1);
        let mut payload = block[32..].to_vec();
        change(&mut payload);
        self.pair(kind, first, 1, &payload);
    }

    /// Puts bytes into the payload of a block with a checksum and makes the checksum right again,
    /// as somebody who wants to be believed would.
    pub(crate) fn forge(&self, lba: u64, at: usize, bytes: &[u8]) {
        let mut block = self.get(lba);
        let room = block.len() - 32 - at;
        let bytes = &bytes[..bytes.len().min(room)];
        block[32 + at..][..bytes.len()].copy_from_slice(bytes);
        let superblock = lba == 0 || lba == self.layout.total_blocks - 1;
        let (field, seed) = if superblock {
            (8, 0)
        } else {
            (4, self.layout.crc_seed)
        };
        block[field..field + 4].fill(0);
        let crc = dure_block::crc32c::crc32c_append(seed, &block);
        block[field..field + 4].copy_from_slice(&crc.to_le_bytes());
        self.put(lba, &block);
    }

    /// Changes the NAT entry of a node.
    pub(crate) fn nat(&self, nid: u64, change: impl FnOnce(&mut NatEntry)) {
        let (pair, within) = place_of(Nid(nid));
        self.reseal(pair_kind::NAT, self.layout.nat_pair(pair), |payload| {
            change(&mut NatBlock::mut_from_bytes(payload).unwrap().entries[within]);
        });
    }

    /// The NAT entry of a node.
    pub(crate) fn nat_entry(&self, nid: u64) -> NatEntry {
        let (pair, within) = place_of(Nid(nid));
        let block = self.get(self.layout.nat_pair(pair) + 1);
        NatBlock::read_from_bytes(&block[32..]).unwrap().entries[within]
    }

    /// Changes the SIT.
    pub(crate) fn sit(&self, change: impl FnOnce(&mut SitBlock)) {
        self.reseal(pair_kind::SIT, self.layout.sit_pair(0), |payload| {
            change(SitBlock::mut_from_bytes(payload).unwrap());
        });
    }

    /// Copies the first blocks to another device.
    pub(crate) fn copy_to(&self, to: &RamDevice, blocks: u64) {
        for lba in 0..blocks {
            let block = self.get(lba);
            let parts: &[&[u8]] = &[&block];
            let io = Io::Write {
                lba: Lba::new(lba),
                parts,
                flags: WriteFlags::NONE,
            };
            to.execute(io).unwrap();
        }
    }

    pub(crate) fn device(&self) -> Arc<dyn Device> {
        share(Arc::clone(&self.device))
    }

    pub(crate) fn check(&self) -> Report {
        self.check_with(&CheckOptions::default())
    }

    pub(crate) fn check_with(&self, options: &CheckOptions<'_>) -> Report {
        check(self.device(), options).unwrap()
    }

    pub(crate) fn issues(&self) -> Vec<String> {
        lines(&self.check())
    }
}

/// The issues of a report, a line each.
pub(crate) fn lines(report: &Report) -> Vec<String> {
    report.issues().iter().map(ToString::to_string).collect()
}
