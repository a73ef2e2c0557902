//! Reading a slotted pair with both its slots looked at.

use dure_block::Lba;
use dure_journal::format::slotted::{self, SlotKind};
use dure_journal::recovery::COUNT_MAX;

use crate::format::pair_kind;
use crate::units::{BLOCK_BYTES, is_zero};

use super::context::Context;
use super::issue::IssueKind;
use super::owner::{PairKind, PairName};

/// A valid slot.
#[derive(Debug)]
pub(super) struct ValidSlot {
    pub(super) generation: u64,
    pub(super) payload: Vec<u8>,
}

/// What a pair holds.
#[derive(Debug, Default)]
pub(super) struct PairSlots {
    pub(super) newest: Option<ValidSlot>,
    pub(super) older: Option<ValidSlot>,
}

/// The persistent number of a kind of pair.
pub(super) fn slot_kind(kind: PairKind) -> SlotKind {
    match kind {
        PairKind::VolumeHeader => SlotKind(pair_kind::VOLUME),
        PairKind::Pack => SlotKind(pair_kind::PACK),
        PairKind::JournalHeader => SlotKind::JOURNAL_HEADER,
        PairKind::Nat => SlotKind(pair_kind::NAT),
        PairKind::Sit => SlotKind(pair_kind::SIT),
        PairKind::Summary => SlotKind(pair_kind::SUMMARY),
    }
}

/// Reads the pair at `first`. A pair of zeroes was never written and holds nothing; a slot with
/// anything else in it must be valid.
pub(super) fn read(context: &mut Context<'_>, pair: PairName, first: u64) -> PairSlots {
    let Some(bytes) = context.read(first, 2) else {
        return PairSlots::default();
    };
    let kind = slot_kind(pair.kind);
    let (slots, bad) = parse(&bytes, kind, first, context.layout.crc_seed);
    if slots.newest.is_none() && !bad.is_empty() {
        context.issue(IssueKind::PairLost { pair, at: first });
    } else {
        for at in bad {
            context.issue(IssueKind::PairSlotBad { pair, at });
        }
    }
    for generation in slots
        .newest
        .iter()
        .chain(&slots.older)
        .map(|slot| slot.generation)
    {
        expect_count(
            context,
            || format!("generation of {pair}"),
            first,
            generation,
        );
    }
    slots
}

/// Reports a counter from which nothing may count on.
pub(super) fn expect_count(
    context: &mut Context<'_>,
    what: impl FnOnce() -> String,
    at: u64,
    got: u64,
) {
    if got > COUNT_MAX {
        let what = what();
        context.issue(IssueKind::CountTooLarge { what, at, got });
    }
}

/// The valid slots, and the blocks of those that hold something else.
pub(super) fn parse(bytes: &[u8], kind: SlotKind, first: u64, seed: u32) -> (PairSlots, Vec<u64>) {
    assert_eq!(bytes.len(), 2 * BLOCK_BYTES, "a pair has two blocks");
    let mut valid = Vec::new();
    let mut bad = Vec::new();
    for (slot, block) in (0_u64..).zip(bytes.chunks_exact(BLOCK_BYTES)) {
        match slotted::open_slot(block, kind, Lba::new(first), slot, seed) {
            Some(found) => valid.push(ValidSlot {
                generation: found.generation,
                payload: found.body.to_vec(),
            }),
            None if !is_zero(block) => bad.push(first + slot),
            None => {}
        }
    }
    // From generation 2 on both slots were written: one of zeroes is lost.
    if let ([only], true) = (&valid[..], bad.is_empty())
        && only.generation > 1
    {
        bad.push(first + 1 - only.generation % 2);
    }
    valid.sort_by_key(|slot| std::cmp::Reverse(slot.generation));
    let mut valid = valid.into_iter();
    (
        PairSlots {
            newest: valid.next(),
            older: valid.next(),
        },
        bad,
    )
}

/// Reports bytes behind `used` in a payload that must be zero.
pub(super) fn expect_zero(context: &mut Context<'_>, pair: PairName, at: u64, bytes: &[u8]) {
    if !is_zero(bytes) {
        context.issue(IssueKind::ReservedNotZero {
            what: pair.to_string(),
            at,
        });
    }
}

/// The number of a pair of table `kind`.
pub(super) fn name(kind: PairKind, index: impl TryInto<u64>) -> PairName {
    PairName {
        kind,
        index: index.try_into().unwrap_or(u64::MAX),
    }
}
