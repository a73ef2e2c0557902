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
    let want = slot.crc.get();
    context.report.counts.pages_verified += 1;
    if want != got {
        context.issue(IssueKind::DataChecksum {
            ino,
            page,
            block,
            want,
            got,
        });
    }
}
