//! Reading pairs: the newest slot of a mirrored pair, the current slot of a named one.

use dure_block::Lba;
use dure_journal::format::slotted::{self, SlotKind};
use dure_journal::recovery::COUNT_MAX;
use dure_store::format::pair_kind;
use dure_store::format::volume::SlotCode;
use dure_store::units::{BLOCK_BYTES, BlockNo, is_zero};

use crate::context::Context;
use crate::issue::IssueKind;
use crate::owner::{PairKind, PairName};

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

/// The payload of the current slot of the pair at `first`; `None` when it was never written, or
/// after reporting that it is lost.
pub(super) fn read(
    context: &mut Context<'_>,
    pair: PairName,
    first: u64,
    code: SlotCode,
) -> Option<Vec<u8>> {
    let SlotCode::Slot(slot) = code else {
        return None;
    };
    let at = first + slot;
    if let Some(copy) = context.layout.copy_of(BlockNo(at)) {
        return read_copies(context, pair, (first, slot), copy);
    }
    let block = context.read(at, 1)?;
    let (kind, seed) = (slot_kind(pair.kind), context.layout.crc_seed);
    let found = slotted::open_slot(&block, kind, Lba::new(first), slot, seed);
    let payload = found.map(|found| found.body.to_vec());
    if payload.is_none() {
        context.issue(IssueKind::PairLost { pair, at });
    }
    payload
}

/// Like [`read`], of a pair with two copies: from the first that verifies. What is wrong with the other
/// is reported.
fn read_copies(
    context: &mut Context<'_>,
    pair: PairName,
    (first, slot): (u64, u64),
    copy: BlockNo,
) -> Option<Vec<u8>> {
    let (kind, seed) = (slot_kind(pair.kind), context.layout.crc_seed);
    let at = BlockNo(first + slot);
    let open = |block: &[u8]| {
        let found = slotted::open_slot(block, kind, Lba::new(first), slot, seed);
        found.map(|found| found.body.to_vec())
    };
    let [one, two] = [at, copy].map(|at| {
        let mut block = vec![0; BLOCK_BYTES];
        let read = context.region.read(at, &mut block);
        let payload = read.ok().and_then(|()| open(&block))?;
        Some((block, payload))
    });
    let (bad, block, payload) = match (one, two) {
        (Some((block, payload)), Some((other, _))) if block == other => return Some(payload),
        (Some((block, payload)), _) => (copy, block, payload),
        (None, Some((block, payload))) => (at, block, payload),
        (None, None) => {
            context.issue(IssueKind::PairLost { pair, at: at.0 });
            return None;
        }
    };
    context.issue(IssueKind::PairCopyBad { pair, at: bad.0 });
    context.repairs.copies.insert(bad, block);
    Some(payload)
}

/// The payload of the newest slot of the mirrored pair at `first`; `None` after reporting why not.
/// Slots that hold something invalid are reported, too.
pub(super) fn read_mirrored(
    context: &mut Context<'_>,
    pair: PairName,
    first: u64,
) -> Option<Vec<u8>> {
    let bytes = context.read(first, slotted::MIRRORED_BLOCKS)?;
    let (kind, seed) = (slot_kind(pair.kind), context.layout.crc_seed);
    let newest = slotted::open_mirrored(&bytes, kind, Lba::new(first), seed);
    let Some(newest) = newest else {
        context.issue(IssueKind::PairLost { pair, at: first });
        return None;
    };
    expect_count(
        context,
        || format!("generation of {pair}"),
        first,
        newest.generation,
    );
    let payload = newest.body.to_vec();
    for at in bad_slots(&bytes, kind, first, seed) {
        context.issue(IssueKind::PairSlotBad { pair, at });
    }
    Some(payload)
}

/// The blocks of a mirrored pair that hold something, but no valid slot.
pub(super) fn bad_slots(bytes: &[u8], kind: SlotKind, first: u64, seed: u32) -> Vec<u64> {
    let mut bad = Vec::new();
    for (n, block) in (0_u64..).zip(bytes.chunks_exact(BLOCK_BYTES)) {
        let pair = Lba::new(first + n / 2 * 2);
        let valid = slotted::open_slot(block, kind, pair, n % 2, seed).is_some();
        if !valid && !is_zero(block) {
            bad.push(first + n);
        }
    }
    bad
}

/// Reports a counter so large that increments could overflow it.
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
