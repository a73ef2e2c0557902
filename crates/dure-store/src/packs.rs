//! Which slot counts, of every pair of the NAT and of the SIT.
//!
//! **Problem.** A slot that does not verify may be a write that a crash has torn, or the newest
//! state, damaged; the older slot next to it looks the same in both cases. And a table that mkfs
//! does not write must not be taken for what an earlier volume left there.
//!
//! **Structure.** A tree: the volume header names the slot that counts of every pack, a pack that
//! of [`PACK_PAIRS`] pairs of the NAT or the SIT, a SIT entry that of its segment's summaries. Two
//! bits for each, and one of their values says that the pair was never written. All packs in use
//! are in memory. Packs are few, and whole tables depend on them: each is written to both copies of
//! a mirrored pair.
//!
//! # Invariants
//! A checkpoint writes only slots that do not count, flushes, and then writes the volume header:
//! that one write makes everything count at once. So a slot that is named was flushed before, and
//! one that does not verify is damage. Only the one checkpoint changes codes, and only of pairs
//! that are in memory; the first read of a pair uses the code of the last checkpoint.
//!
//! **Crash.** Before the header: everything is as the last checkpoint left it, whatever lies in the
//! other slots. The logs, whose tails move only after the header is durable, have the rest.

use std::collections::BTreeSet;

use dure_block::Lba;
use dure_journal::format::slotted;
use dure_sync::OnceLock;
use dure_sync::atomic::{AtomicU64, Ordering};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::error::{Error, Result};
use crate::format::pair_kind;
use crate::format::volume::{PACK_PAIRS, Pack, SlotCode, VolumeHeader};
use crate::layout::Layout;
use crate::media::Region;
use crate::pair;
use crate::units::{is_zero, to_usize};

/// A table of pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Table {
    /// Node address table.
    Nat,
    /// Segment information table.
    Sit,
}

/// A pair of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PairIndex {
    /// The table.
    pub table: Table,
    /// The pair's number in it.
    pub index: u64,
}

/// Codes in a word.
const WORD_CODES: u64 = 32;
const PACK_WORDS: usize = 504;
const _: () = assert!(PACK_WORDS as u64 * WORD_CODES == PACK_PAIRS);

/// The codes of one pack. Written by the one checkpoint, read by tasks that read a pair for the
/// first time: Relaxed, since the code of a pair that is not in memory yet never changes.
type Codes = Box<[AtomicU64; PACK_WORDS]>;

/// All packs.
#[derive(Debug)]
pub struct Packs {
    layout: Layout,
    /// Those that were ever written.
    codes: Box<[OnceLock<Codes>]>,
}

impl Packs {
    /// The packs of a new volume: no pair was ever written.
    pub fn new(layout: &Layout) -> Packs {
        Packs {
            layout: layout.clone(),
            codes: (0..layout.pack_pairs).map(|_| OnceLock::new()).collect(),
        }
    }

    /// Reads the packs that the header names.
    ///
    /// # Errors
    /// `Corrupt`, naming pack and block; `Block` when reading fails.
    pub fn read(region: &Region, layout: &Layout, header: &VolumeHeader) -> Result<Packs> {
        let packs = Packs::new(layout);
        for index in 0..u64::from(layout.pack_pairs) {
            packs.load(region, layout, header, index)?;
        }
        Ok(packs)
    }

    fn fill(&self, index: u64, pack: &Pack) {
        let words = pack.slots.as_chunks::<8>().0;
        let codes = self.codes[to_usize(index)].get_or_init(no_codes);
        for (word, bytes) in codes.iter().zip(words) {
            // Relaxed: no other task has the packs yet.
            word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
        }
    }

    /// Says what counts of a pair whose pack is lost; for a repair, before the pair is read.
    pub fn set(&self, pair: PairIndex, code: SlotCode) {
        let (pack, within) = self.place(pair);
        let codes = self.codes[to_usize(pack)].get_or_init(no_codes);
        let word = &codes[to_usize(within / WORD_CODES)];
        let shift = within % WORD_CODES * 2;
        // Relaxed: see `Codes`.
        let others = word.load(Ordering::Relaxed) & !(3 << shift);
        word.store(others | u64::from(code.bits()) << shift, Ordering::Relaxed);
    }

    /// Reads one pack that the header names; what it says counts from now on.
    ///
    /// # Errors
    /// Those of [`Packs::read`].
    pub fn load(
        &self,
        region: &Region,
        layout: &Layout,
        header: &VolumeHeader,
        index: u64,
    ) -> Result<()> {
        if let Some(pack) = read_pack(region, layout, header, index)? {
            self.fill(index, &pack);
        }
        Ok(())
    }

    fn place(&self, pair: PairIndex) -> (u64, u64) {
        let (before, pairs) = match pair.table {
            Table::Nat => (0, u64::from(self.layout.nat_pairs)),
            Table::Sit => (self.layout.nat_packs(), u64::from(self.layout.sit_pairs)),
        };
        assert!(pair.index < pairs, "{pair:?} of {pairs} pairs");
        (before + pair.index / PACK_PAIRS, pair.index % PACK_PAIRS)
    }

    /// What counts of this pair.
    pub fn code(&self, pair: PairIndex) -> SlotCode {
        let (pack, within) = self.place(pair);
        let Some(codes) = self.codes[to_usize(pack)].get() else {
            return SlotCode::Unwritten;
        };
        // Relaxed: see `Codes`.
        let word = codes[to_usize(within / WORD_CODES)].load(Ordering::Relaxed);
        let bits = word >> (within % WORD_CODES * 2) & 3;
        let code = SlotCode::from_bits(u8::try_from(bits).expect("two bits fit in 8"));
        code.expect("checked when the pack was read")
    }

    /// The pairs of `table` that were ever written, ascending.
    pub fn written(&self, table: Table) -> impl Iterator<Item = u64> {
        let (before, pairs) = match table {
            Table::Nat => (0, u64::from(self.layout.nat_pairs)),
            Table::Sit => (self.layout.nat_packs(), u64::from(self.layout.sit_pairs)),
        };
        let packs = before..before + pairs.div_ceil(PACK_PAIRS);
        let made = packs.filter(|pack| self.codes[to_usize(*pack)].get().is_some());
        made.flat_map(move |pack| {
            let first = (pack - before) * PACK_PAIRS;
            first..pairs.min(first + PACK_PAIRS)
        })
        .filter(move |&index| self.code(PairIndex { table, index }) != SlotCode::Unwritten)
    }

    /// Names the slots just written, in memory, on the medium (in packs that do not count yet) and
    /// in the header, which the caller writes after a flush.
    ///
    /// # Errors
    /// A failed write.
    pub(crate) fn write(
        &self,
        region: &Region,
        header: &mut VolumeHeader,
        checkpoint: u64,
        written: &[(PairIndex, u64)],
    ) -> Result<()> {
        let mut changed = BTreeSet::new();
        for &(pair, slot) in written {
            self.set(pair, SlotCode::Slot(slot));
            changed.insert(self.place(pair).0);
        }
        for index in changed {
            let codes = self.codes[to_usize(index)]
                .get()
                .expect("the pack was changed above");
            let mut pack = Pack::new_zeroed();
            pack.checkpoint.set(checkpoint);
            pack.index.set(index);
            for (bytes, word) in pack
                .slots
                .as_chunks_mut::<8>()
                .0
                .iter_mut()
                .zip(codes.iter())
            {
                *bytes = word.load(Ordering::Relaxed).to_le_bytes();
            }
            let now = SlotCode::get(&header.packs, index).expect("checked when it was read");
            let slot = now.next();
            for first in slotted::mirrors(Lba::new(self.layout.pack_pair(index))) {
                let content = (checkpoint, pack.as_bytes());
                let (kind, seed) = (pair_kind::PACK, self.layout.crc_seed);
                pair::write_slot(region, first.number(), slot, kind, content, seed)?;
            }
            SlotCode::Slot(slot).set(&mut header.packs, index);
        }
        Ok(())
    }
}

fn no_codes() -> Codes {
    Box::new([const { AtomicU64::new(0) }; PACK_WORDS])
}

/// Pack `index`; `None` if it was never written. One good copy is enough.
///
/// # Errors
/// `Corrupt`, naming pack and block; `Block` when reading fails.
pub fn read_pack(
    region: &Region,
    layout: &Layout,
    header: &VolumeHeader,
    index: u64,
) -> Result<Option<Pack>> {
    let code = SlotCode::get(&header.packs, index).ok_or_else(|| Error::Corrupt {
        what: format!("volume header: slot of pack {index}"),
        at: layout.volume_header,
        want: 2,
        got: 3,
    })?;
    let SlotCode::Slot(slot) = code else {
        return Ok(None);
    };
    let [first, second] = slotted::mirrors(Lba::new(layout.pack_pair(index)));
    let (kind, seed) = (pair_kind::PACK, layout.crc_seed);
    let copy = |at: Lba| pair::read_slot(region, at.number(), slot, kind, seed);
    let payload = copy(first).or_else(|error| copy(second).map_err(|_| error))?;
    let pack = Pack::read_from_bytes(&payload).expect("a pair's payload has this size");
    let at = first.number() + slot;
    Error::expect_eq("pack index", at, index, pack.index.get())?;
    let dirt = u64::from(!is_zero(&pack.reserved));
    Error::expect_eq("pack: reserved bytes", at, 0, dirt)?;
    let nat = layout.nat_packs();
    let (within, pairs) = match index.checked_sub(nat) {
        None => (index, u64::from(layout.nat_pairs)),
        Some(within) => (within, u64::from(layout.sit_pairs)),
    };
    let pairs = pairs - within * PACK_PAIRS;
    // Four codes a byte; a byte of zeroes is four unwritten pairs, and most are.
    let bytes = (0..).zip(&pack.slots).filter(|(_, byte)| **byte != 0);
    let mut codes = bytes.flat_map(|(byte, _): (u64, &u8)| byte * 4..byte * 4 + 4);
    let wrong = codes.find(|&n| match SlotCode::get(&pack.slots, n) {
        None => true,
        Some(code) => n >= pairs && code != SlotCode::Unwritten,
    });
    match wrong {
        None => Ok(Some(pack)),
        Some(n) => Err(Error::Corrupt {
            what: format!("pack {index}: slot of pair {}", within * PACK_PAIRS + n),
            at,
            want: 0,
            got: 3,
        }),
    }
}
