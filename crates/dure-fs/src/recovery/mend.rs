//! After a checkpoint that was cut off between its NAT writes and its headers: the SIT may not know
//! the images it moved.

use zerocopy::FromBytes;

use crate::checkpoint::census::Census;
use crate::error::{Error, Result};
use crate::format::pair_kind;
use crate::format::summary::{OWNER_NODE, SummaryEntry};
use crate::format::volume::{PACK_BITS, Pack};
use crate::layout::Layout;
use crate::node::nat::Nat;
use crate::pair;
use crate::space::Space;
use crate::units::{BlockNo, Nid, Run, to_u64};
use zerocopy::little_endian::U64;

/// The NAT pairs that checkpoint `completed + 1` announced, if it got as far as announcing them
/// all.
///
/// # Errors
/// `Corrupt` when a pack pair is not readable at all.
pub(crate) fn announced(
    queue: &dure_block::Queue,
    layout: &Layout,
    completed: u64,
) -> Result<Vec<u64>> {
    let mut pairs = Vec::new();
    for index in 0..u64::from(layout.pack_pairs) {
        let first = layout.pack + 2 * index;
        let pair = pair::read(queue, first, pair_kind::PACK, layout.crc_seed)?;
        // The older slot counts, too: the header that completes a checkpoint is flushed with the
        // pack of the next one. Crash scenario: that pack lands and the header does not.
        let mut slots = pair.newest().into_iter().chain(pair.older());
        let Some(slot) = slots.find(|slot| slot.generation == completed + 1) else {
            // The images of that checkpoint were never flushed: none of its NAT writes was issued.
            return Ok(Vec::new());
        };
        let pack = Pack::read_from_bytes(&slot.payload).expect("whole payload");
        Error::expect_eq(
            "checkpoint pack number",
            first,
            completed + 1,
            pack.checkpoint.get(),
        )?;
        let bytes = (0_u64..).zip(&pack.bits).filter(|(_, byte)| **byte != 0);
        let here = bytes.flat_map(|(at, byte)| {
            let set = (0..8).filter(move |bit| byte >> bit & 1 == 1);
            set.map(move |bit| index * PACK_BITS + 8 * at + bit)
        });
        pairs.extend(here.filter(|pair| *pair < u64::from(layout.nat_pairs)));
    }
    Ok(pairs)
}

/// Sets the space map right for every image that checkpoint `completed + 1` moved. Gives by how
/// much the header's counts change, `None` when it moved none.
///
/// # Errors
/// Errors of reading the NAT.
pub(crate) fn mend(
    layout: &Layout,
    nat: &Nat,
    space: &Space,
    pairs: &[u64],
    completed: u64,
) -> Result<Option<Census>> {
    let mut census = None;
    for &index in pairs {
        let slots = nat.both_slots(index)?;
        // A pair whose newest slot is older was announced but not written: its slots are two states
        // long past, whose differences may have been used again since.
        if slots.newest_checkpoint != completed + 1 {
            continue;
        }
        let census = census.get_or_insert_with(Census::default);
        for (within, (old, new)) in slots.older.iter().zip(&slots.newest).enumerate() {
            let nid = Nid(index * crate::format::nat::ENTRIES + to_u64(within));
            census.change(Census::of_entry(nid, old), Census::of_entry(nid, new));
            if old.block() == new.block() {
                continue;
            }
            let one = |first: BlockNo| Run { first, count: 1 };
            if !old.block().is_none() {
                space.mend_dead(one(old.block()))?;
            }
            if !new.block().is_none() {
                space.mend_live(one(new.block()))?;
                let entry = SummaryEntry {
                    nid: U64::new(nid.0),
                    kind: OWNER_NODE,
                    granule: 0,
                    slot: 0,
                    reserved: 0,
                };
                space.set_owner(new.block(), entry);
            }
        }
        assert!(index < u64::from(layout.nat_pairs));
    }
    Ok(census)
}
