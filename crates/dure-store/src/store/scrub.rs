//! What a scrub asks of the store: the volume's own structures, compared with their checksums while
//! the volume is in use, and the owners of blocks.
//!
//! **Structure.** Neighbouring pairs are read in one request, without a lock. What does not verify is
//! read once more by itself under the checkpoint lock.
//!
//! **Invariants.** Only a checkpoint changes which slot counts, and writes slots. Race without the
//! second look: a scrub reads a pair while the second checkpoint from then on writes the slot that
//! counted. The block is torn, and in order. **Crash.** Nothing is written, but for
//! [`Store::write_again`].

use std::ops::Range;

use dure_block::Lba;
use dure_journal::format::slotted::{self, SlotKind};

use super::Store;
use crate::error::{Error, Result};
use crate::format::volume::{SlotCode, VolumeHeader};
use crate::format::{pair_kind, sit};
use crate::headers;
use crate::node::nat::open as open_nat;
use crate::packs::{self, PairIndex, Table};
use crate::pair;
use crate::space::{SegmentInUse, Summaries, check_pair};
use crate::units::{BLOCK_BYTES, BlockNo, SegNo, to_u64, to_usize};

/// Pairs of a table that are read in one request: 1 MiB.
const PAIRS_TOGETHER: u64 = 128;
/// Blocks of summaries that are read in one request: 1 MiB.
const SUMMARY_BLOCKS_TOGETHER: u32 = 256;
/// How often summaries are read anew because a checkpoint came between, before one has to wait.
const TRIES: u32 = 3;
/// Looks at a header whose copies differ, and the time between them: a write takes no two seconds.
const LOOKS: u32 = 200;
const PAUSE: std::time::Duration = std::time::Duration::from_millis(10);

/// Which structure is damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A superblock, or one of the two copies of a header or a pack: the other one serves.
    Copy,
    /// Pair of the NAT or the SIT.
    Pair(PairIndex),
    /// One of the two copies of such a pair: the other one serves.
    PairCopy(PairIndex),
    /// Summary of a segment.
    Summary(SegNo),
}

/// What is wrong with a structure.
#[derive(Debug)]
pub struct Damage {
    /// What it is.
    pub place: Place,
    /// The block.
    pub block: BlockNo,
    /// Names it, and says what is wrong.
    pub error: Error,
}

impl Damage {
    fn of(place: Place, block: u64, error: Error) -> Damage {
        let block = match &error {
            Error::Corrupt { at, .. } => *at,
            _ => block,
        };
        Damage {
            place,
            block: BlockNo(block),
            error,
        }
    }
}

/// What one step of a scrub read.
#[derive(Debug, Default)]
pub struct Scrubbed {
    /// Blocks read: those of pairs that were ever written.
    pub blocks: u64,
    /// Structures that were compared.
    pub compared: u64,
    /// What is wrong.
    pub damage: Vec<Damage>,
    /// Of segments: their blocks that count.
    pub segments: Vec<SegmentInUse>,
}

impl Scrubbed {
    fn compare(&mut self, place: Place, block: u64, found: Result<()>) {
        self.compared += 1;
        let damage = found.err().map(|error| Damage::of(place, block, error));
        self.damage.extend(damage);
    }
}

impl Store {
    /// Superblocks, volume header, packs and journal headers: both copies of each. Few blocks,
    /// which are read with the checkpoint lock held.
    pub fn scrub_headers(&self) -> Scrubbed {
        let mut scrubbed = Scrubbed::default();
        let layout = &self.layout;
        for copy in [0, layout.total_blocks - 1] {
            let found = headers::superblock(&self.region, copy).map(drop);
            // The volume is one: the other copy says so.
            let found = found.map_err(|error| match error {
                Error::NotDure => Error::NoSuperblock { at: copy },
                other => other,
            });
            scrubbed.compare(Place::Copy, copy, found);
        }
        {
            let state = self.lock_checkpoint();
            let (first, name) = (layout.volume_header, "copy of the volume header");
            for (copy, generation) in self.newest(first, SlotKind(pair_kind::VOLUME)) {
                let found = Error::expect_eq(name, copy, state.generation, generation);
                scrubbed.compare(Place::Copy, copy, found);
            }
            for index in 0..u64::from(layout.pack_pairs) {
                self.scrub_pack(index, &state.header, &mut scrubbed);
            }
        }
        for journal in 0..layout.journals {
            let first = layout.journal_header(journal);
            let look = || self.newest(first, SlotKind::JOURNAL_HEADER);
            let mut seen = look();
            // A header that a journal is writing is in one copy only, as long as the device takes: it
            // is damaged if it stays so.
            let mut same = 0;
            while seen[0].1 != seen[1].1 && same < LOOKS {
                dure_sync::thread::sleep(PAUSE);
                let now = look();
                same = if now == seen { same + 1 } else { 0 };
                seen = now;
            }
            let newest = seen[0].1.max(seen[1].1);
            for (copy, generation) in seen {
                let name = format!("copy of the header of journal {journal}");
                let found = Error::expect_eq(&name, copy, newest.max(1), generation);
                scrubbed.compare(Place::Copy, copy, found);
            }
        }
        scrubbed.blocks = 2 + 4 * u64::from(1 + layout.pack_pairs + layout.journals);
        scrubbed
    }

    /// The generation of each copy of a mirrored pair, 0 if no slot of it is valid, and its block.
    fn newest(&self, first: u64, kind: SlotKind) -> [(u64, u64); 2] {
        slotted::mirrors(Lba::new(first)).map(|copy| {
            let mut bytes = [0; 2 * BLOCK_BYTES];
            let read = self.region.read(BlockNo(copy.number()), &mut bytes);
            let (one, two) = bytes.split_at(BLOCK_BYTES);
            let newest = slotted::open(one, two, kind, copy, self.layout.crc_seed);
            let generation = newest.map_or(0, |newest| newest.generation);
            (copy.number(), read.map_or(0, |()| generation))
        })
    }

    fn scrub_pack(&self, index: u64, header: &VolumeHeader, scrubbed: &mut Scrubbed) {
        let first = self.layout.pack_pair(index);
        if let Err(error) = packs::read_pack(&self.region, &self.layout, header, index) {
            return scrubbed.compare(Place::Copy, first, Err(error));
        }
        let Some(SlotCode::Slot(slot)) = SlotCode::get(&header.packs, index) else {
            return;
        };
        let (kind, seed) = (pair_kind::PACK, self.layout.crc_seed);
        for copy in slotted::mirrors(Lba::new(first)).map(Lba::number) {
            let found = pair::read_slot(&self.region, copy, slot, kind, seed);
            scrubbed.compare(Place::Copy, copy + slot, found.map(drop));
        }
    }

    /// Pairs of a table.
    #[must_use]
    pub fn pairs(&self, table: Table) -> u64 {
        match table {
            Table::Nat => u64::from(self.layout.nat_pairs),
            Table::Sit => u64::from(self.layout.sit_pairs),
        }
    }

    /// Pairs of a table that were ever written.
    #[must_use]
    pub fn written_pairs(&self, table: Table) -> u64 {
        to_u64(self.nat.packs.written(table).count())
    }

    /// The next pairs of a table from number `from` on, as many as lie in `blocks_max`
    /// blocks or in 1 MiB, and the number behind them; `None` at the end.
    pub fn scrub_pairs(
        &self,
        table: Table,
        from: u64,
        blocks_max: usize,
    ) -> Option<(u64, Scrubbed)> {
        let mut written = self.nat.packs.written(table).skip_while(|n| *n < from);
        let start = written.next()?;
        let most = to_u64(blocks_max / 2).clamp(1, PAIRS_TOGETHER);
        let end = (start + most).min(self.pairs(table));
        let last = written.take_while(|n| *n < end).last().unwrap_or(start);
        let first = self.pair_start(table, start);
        let mut bytes = vec![0; to_usize(2 * (last - start + 1)) * BLOCK_BYTES];
        let read = self.region.read(BlockNo(first), &mut bytes).is_ok();
        let copies = self.region.copy_of(BlockNo(first)).map(|copy| {
            let mut copies = vec![0; bytes.len()];
            // What cannot be read is not as the first.
            let _ = self.region.read(copy, &mut copies);
            copies
        });
        let mut scrubbed = Scrubbed::default();
        for index in start..=last {
            let pair = PairIndex { table, index };
            let SlotCode::Slot(slot) = self.nat.packs.code(pair) else {
                continue;
            };
            let at = to_usize(self.pair_start(table, index) + slot - first) * BLOCK_BYTES;
            let block = &bytes[at..at + BLOCK_BYTES];
            let same = copies
                .as_ref()
                .is_none_or(|copies| copies[at..at + BLOCK_BYTES] == *block);
            let right = read && same && self.open_pair(pair, slot, block).is_ok();
            let (place, found) = match right {
                true => (Place::Pair(pair), Ok(())),
                false => self.pair_again(pair),
            };
            scrubbed.compare(place, self.pair_start(table, index), found);
        }
        let each = if copies.is_some() { 4 } else { 2 };
        scrubbed.blocks = each * scrubbed.compared;
        Some((end, scrubbed))
    }

    pub(super) fn pair_start(&self, table: Table, index: u64) -> u64 {
        match table {
            Table::Nat => self.layout.nat_pair(index),
            Table::Sit => {
                let index = u32::try_from(index).expect("SIT pairs are u32");
                self.layout.sit_pair(index)
            }
        }
    }

    /// Compares the slot that counts of a pair, in its block.
    pub(super) fn open_pair(&self, pair: PairIndex, slot: u64, block: &[u8]) -> Result<()> {
        let first = self.pair_start(pair.table, pair.index);
        let kind = match pair.table {
            Table::Nat => pair_kind::NAT,
            Table::Sit => pair_kind::SIT,
        };
        let payload = pair::open_slot(block, first, slot, kind, self.layout.crc_seed)?;
        match pair.table {
            Table::Nat => open_nat(first + slot, pair.index, payload).map(drop),
            Table::Sit => check_pair(&self.layout, pair.index, (BlockNo(first + slot), payload)),
        }
    }

    /// Reads a pair, and its copy, while no checkpoint writes.
    fn pair_again(&self, pair: PairIndex) -> (Place, Result<()>) {
        let no_checkpoint = self.lock_checkpoint();
        if let Some((_, error, _)) = self.wrong_copy(pair, &no_checkpoint) {
            return (Place::PairCopy(pair), Err(error));
        }
        let SlotCode::Slot(slot) = self.nat.packs.code(pair) else {
            return (Place::Pair(pair), Ok(()));
        };
        let mut block = [0; BLOCK_BYTES];
        let at = self.pair_start(pair.table, pair.index) + slot;
        let read = self.region.read(BlockNo(at), &mut block);
        let found = read
            .map_err(Error::from)
            .and_then(|()| self.open_pair(pair, slot, &block));
        (Place::Pair(pair), found)
    }

    /// How many segments have summaries that one request reads.
    #[must_use]
    pub fn segments_together(&self) -> u32 {
        SUMMARY_BLOCKS_TOGETHER / (2 * self.layout.summary_pairs)
    }

    /// The blocks that count of these segments, and their summaries, compared.
    pub fn scrub_summaries(&self, segments: Range<u32>) -> Scrubbed {
        for _ in 0..TRIES {
            let before = self.lock_checkpoint().header.checkpoint;
            let read = self.space.read_summaries(&segments);
            let state = self.lock_checkpoint();
            // Else owners have moved from memory to slots that were not read.
            if state.header.checkpoint == before {
                return self.summaries_of(segments, &read);
            }
        }
        let _no_checkpoint = self.lock_checkpoint();
        let read = self.space.read_summaries(&segments);
        self.summaries_of(segments, &read)
    }

    fn summaries_of(&self, segments: Range<u32>, read: &Summaries) -> Scrubbed {
        let mut damage = Vec::new();
        let in_use = |segment| self.space.in_use(SegNo(segment), read, &mut damage);
        let segments: Vec<_> = segments.map(in_use).collect();
        let of = |(segment, error)| {
            let first = self.layout.summary_pair(segment, 0);
            Damage::of(Place::Summary(segment), first, error)
        };
        Scrubbed {
            blocks: read.blocks(),
            compared: to_u64(segments.len()),
            damage: damage.into_iter().map(of).collect(),
            segments,
        }
    }

    /// Lets the next checkpoint write a damaged pair anew, from memory, or writes one of two copies anew,
    /// from the other; false if it has no good copy
    /// there, or a snapshot would get the damaged one.
    ///
    /// # Errors
    /// Those of [`Store::checkpoint`], which makes it; those of writing a copy.
    pub fn write_again(&self, place: Place) -> Result<bool> {
        match place {
            Place::PairCopy(pair) => return self.mend_copy(pair),
            Place::Pair(pair) if pair.table == Table::Sit && self.snapshots.is_empty() => {
                let first = pair.index * u64::from(sit::ENTRIES);
                let segment = u32::try_from(first).expect("segments are u32");
                self.space.rewrite(SegNo(segment));
            }
            _ => return Ok(false),
        }
        self.checkpoint()?;
        Ok(true)
    }
}
