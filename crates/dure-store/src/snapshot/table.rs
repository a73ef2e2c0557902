//! The table of snapshots and the lists of kept pairs on the medium.
//!
//! **Structure.** Chains of blocks; nothing on them is believed before it is checked, and each chain
//! has a bound. **Invariants.** A block is in one chain at most: one that is met a second time is
//! damage. **Crash.** The volume header names the first block of the table, and so all of it.

use std::collections::BTreeSet;

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::{Snapshot, SnapshotInfo, Snapshots, State, check_name};
use crate::error::{Result, expect, wrong};
use crate::format::pair_kind;
use crate::format::snapshot::{
    KeptList, LIST_ENTRIES, SIT_PAIR, SNAPSHOTS_MAX, SnapshotEntry, SnapshotTable, TABLE_ENTRIES,
};
use crate::format::volume::VolumeHeader;
use crate::layout::Layout;
use crate::media::Region;
use crate::packs::{PairIndex, Table};
use crate::pair;
use crate::units::{BlockNo, is_zero, to_u64, to_usize};

/// Numbers are below: a mount makes node ids of them.
const NUMBERS: u64 = 1 << 40;
impl Snapshots {
    /// Those that the volume header names.
    ///
    /// # Errors
    /// `Corrupt`, naming block and field; `Block` when reading fails.
    pub fn read(region: &Region, layout: &Layout, header: &VolumeHeader) -> Result<Snapshots> {
        let mut reader = Reader {
            region,
            layout,
            checkpoint: header.checkpoint.get(),
            seen: BTreeSet::new(),
        };
        let snapshots = Snapshots::default();
        *snapshots.state.lock() = reader.table(header.snapshots.get())?;
        Ok(snapshots)
    }
}

struct Reader<'v> {
    region: &'v Region,
    layout: &'v Layout,
    /// The last that was made.
    checkpoint: u64,
    /// Blocks that were met.
    seen: BTreeSet<BlockNo>,
}

impl Reader<'_> {
    fn table(&mut self, first: u64) -> Result<State> {
        let mut state = State::default();
        let mut next = BlockNo(first);
        while !next.is_none() {
            let at = self.own("block of the table of snapshots", next)?;
            let payload = self.payload(next, pair_kind::SNAPSHOTS)?;
            let table = SnapshotTable::read_from_bytes(&payload).expect("the size is a slot's");
            state.table.push(next);
            let count = usize::try_from(table.count.get()).unwrap_or(usize::MAX);
            let fits = 1..=TABLE_ENTRIES.min(SNAPSHOTS_MAX - state.all.len());
            expect("table of snapshots: entries", at, fits.contains(&count))?;
            expect(
                "table of snapshots: reserved bytes",
                at,
                is_zero(&table.reserved) && is_zero(table.entries[count..].as_bytes()),
            )?;
            for entry in &table.entries[..count] {
                let one = self.snapshot(entry, at)?;
                let before = state.all.last().map(|one: &Snapshot| &one.info);
                let later = before.is_none_or(|before| {
                    before.id < one.info.id && before.checkpoint < one.info.checkpoint
                });
                expect("table of snapshots: order", at, later)?;
                let mut names = state.all.iter().map(|one| &one.info.name);
                let new = !names.any(|name| *name == one.info.name);
                expect("table of snapshots: a name that is there once", at, new)?;
                state.all.push(one);
            }
            next = BlockNo(table.next.get());
        }
        Ok(state)
    }

    fn snapshot(&mut self, entry: &SnapshotEntry, at: u64) -> Result<Snapshot> {
        let end = entry.name.iter().position(|byte| *byte == 0);
        let (name, rest) = entry.name.split_at(end.unwrap_or(entry.name.len()));
        let name = std::str::from_utf8(name).ok();
        let name = name.filter(|name| check_name(name).is_ok() && is_zero(rest));
        let Some(name) = name else {
            return Err(wrong("table of snapshots: a name that can be", at));
        };
        let checkpoint = entry.checkpoint.get();
        let made = checkpoint <= self.checkpoint;
        expect("table of snapshots: a checkpoint that was made", at, made)?;
        let is_number = (1..NUMBERS).contains(&entry.id.get());
        expect("number of a snapshot", at, is_number)?;
        let mut one = Snapshot::new(SnapshotInfo {
            id: entry.id.get(),
            name: name.to_owned(),
            created: entry.created.get().cast_signed(),
            inodes: entry.inodes.get(),
            blocks: entry.blocks.get(),
            checkpoint,
            nodes: entry.nodes.get(),
        });
        self.list(&mut one, entry)?;
        Ok(one)
    }

    /// Reads the list, which begins with its last block.
    fn list(&mut self, one: &mut Snapshot, entry: &SnapshotEntry) -> Result<()> {
        let pairs = u64::from(self.layout.nat_pairs) + u64::from(self.layout.sit_pairs);
        let mut left = entry.kept.get();
        expect("pairs kept for a snapshot", entry.list.get(), left <= pairs)?;
        let mut blocks = Vec::new();
        let mut next = BlockNo(entry.list.get());
        while left > 0 {
            let at = self.own("block of a list of kept pairs", next)?;
            let payload = self.payload(next, pair_kind::KEPT_LIST)?;
            let list = KeptList::read_from_bytes(&payload).expect("the size is a slot's");
            let count = match left % to_u64(LIST_ENTRIES) {
                0 => to_u64(LIST_ENTRIES),
                rest => rest,
            };
            let sound = u64::from(list.count.get()) == count
                && list.snapshot.get() == one.info.id
                && is_zero(&list.reserved)
                && is_zero(list.entries[to_usize(count)..].as_bytes());
            expect("list of kept pairs", at, sound)?;
            left -= count;
            one.list.push(next);
            next = BlockNo(list.before.get());
            blocks.push((at, list));
        }
        expect(
            "end of a list of kept pairs",
            entry.list.get(),
            next.is_none(),
        )?;
        one.list.reverse();
        for (at, list) in blocks.iter().rev() {
            for kept in &list.entries[..to_usize(u64::from(list.count.get()))] {
                let pair = self.pair(kept.pair.get(), *at)?;
                let block = BlockNo(kept.block.get());
                if !block.is_none() {
                    self.own("pair kept for a snapshot", block)?;
                }
                let new = !one.kept.contains_key(&pair);
                expect("list of kept pairs: a pair that is there once", *at, new)?;
                one.keep(pair, block);
            }
        }
        one.listed = one.order.len();
        Ok(())
    }

    fn pair(&self, code: u64, at: u64) -> Result<PairIndex> {
        let index = code & !SIT_PAIR;
        let (table, pairs) = match code & SIT_PAIR {
            0 => (Table::Nat, self.layout.nat_pairs),
            _ => (Table::Sit, self.layout.sit_pairs),
        };
        let exists = index < u64::from(pairs);
        expect("list of kept pairs: number of a pair", at, exists)?;
        Ok(PairIndex { table, index })
    }

    /// A block of the snapshots' own: of the main area, and met for the first time.
    fn own(&mut self, what: &str, block: BlockNo) -> Result<u64> {
        let fine = self.layout.locate(block).is_some() && self.seen.insert(block);
        expect(what, block.0, fine)?;
        Ok(block.0)
    }

    fn payload(&self, block: BlockNo, kind: u32) -> Result<Vec<u8>> {
        pair::read_single(self.region, block, kind, self.layout.crc_seed)
    }
}

/// What is written of a pair in a list.
fn code_of(pair: PairIndex) -> u64 {
    match pair.table {
        Table::Nat => pair.index,
        Table::Sit => pair.index | SIT_PAIR,
    }
}

/// Block `n` of the list of a snapshot.
pub(super) fn list_block(one: &Snapshot, n: usize) -> KeptList {
    let mut list = KeptList::new_zeroed();
    let before = n.checked_sub(1).map_or(BlockNo::NONE, |n| one.list[n]);
    list.before = U64::new(before.0);
    list.snapshot = U64::new(one.info.id);
    let rest = &one.order[n * LIST_ENTRIES..];
    let mut count = 0;
    for (entry, pair) in list.entries.iter_mut().zip(rest) {
        entry.pair = U64::new(code_of(*pair));
        entry.block = U64::new(one.kept[pair].0);
        count += 1;
    }
    list.count = U32::new(count);
    list
}

/// The table, block by block, with the places `at`.
pub(super) fn table_blocks(all: &[Snapshot], at: &[BlockNo]) -> Vec<SnapshotTable> {
    let chunks = all.chunks(TABLE_ENTRIES).enumerate();
    let block = |(n, chunk): (usize, &[Snapshot])| {
        let mut table = SnapshotTable::new_zeroed();
        table.next = U64::new(at.get(n + 1).map_or(0, |block| block.0));
        table.count = U32::new(u32::try_from(chunk.len()).expect("a chunk has few entries"));
        for (entry, one) in table.entries.iter_mut().zip(chunk) {
            *entry = entry_of(one);
        }
        table
    };
    chunks.map(block).collect()
}

fn entry_of(one: &Snapshot) -> SnapshotEntry {
    let mut entry = SnapshotEntry::new_zeroed();
    let info = &one.info;
    entry.id = U64::new(info.id);
    entry.checkpoint = U64::new(info.checkpoint);
    entry.created = U64::new(info.created.cast_unsigned());
    entry.nodes = U64::new(info.nodes);
    entry.inodes = U64::new(info.inodes);
    entry.blocks = U64::new(info.blocks);
    entry.list = U64::new(one.list.last().map_or(0, |block| block.0));
    entry.kept = U64::new(to_u64(one.order.len()));
    entry.name.as_mut_bytes()[..info.name.len()].copy_from_slice(info.name.as_bytes());
    entry
}
