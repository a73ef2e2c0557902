//! Reading pages and comparing them with the checksum in their slot.

use dure_store::format::slot::Slot;
use dure_store::units::Ino;

use crate::context::Context;
use crate::issue::IssueKind;

/// Compares one written page with its slot.
pub(super) fn verify(context: &mut Context<'_>, ino: Ino, page: u64, slot: Slot) {
    let block = slot.block().0;
    let got = match context.logged.get(&slot.block()) {
        Some(page) => dure_block::crc32c::crc32c(&page.bytes),
        None => {
            let Some(bytes) = context.read(block, 1) else {
                return;
            };
            dure_block::crc32c::crc32c(&bytes)
        }
    };
    context.report.counts.pages_verified += 1;
    if slot.crc.get() != got {
        if let Some(sharers) = context.shared.blocks.get_mut(&slot.block()) {
            sharers.bad = Some(got);
        }
        differs(context, (ino, page), slot, got);
    }
}

/// Says of a page that shares its block with one that was read before whether that was good: each
/// file with a bad page is named.
pub(super) fn of_shared(context: &mut Context<'_>, ino: Ino, page: u64, slot: Slot) {
    let sharers = context.shared.blocks.get(&slot.block());
    if let Some(got) = sharers.and_then(|sharers| sharers.bad) {
        differs(context, (ino, page), slot, got);
    }
}

fn differs(context: &mut Context<'_>, (ino, page): (Ino, u64), slot: Slot, got: u32) {
    context.issue(IssueKind::DataChecksum {
        ino,
        page,
        block: slot.block().0,
        want: slot.crc.get(),
        got,
    });
}
