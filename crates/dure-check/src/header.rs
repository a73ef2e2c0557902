//! Pass 2: the volume header and the packs.

use dure_store::format::volume::{STATE_CLEAN, STATE_DIRTY, STATE_UNLOGGED, STATES, VolumeHeader};
use dure_store::impossible_count;
use dure_store::packs::Packs;
use dure_sync::Arc;
use zerocopy::FromBytes;

use crate::context::Context;
use crate::issue::IssueKind;
use crate::owner::PairKind;
use crate::pairs;

/// Reads the volume header; `None` when nothing can be checked without it.
pub(super) fn volume(context: &mut Context<'_>) -> Option<VolumeHeader> {
    let at = context.layout.volume_header;
    let name = pairs::name(PairKind::VolumeHeader, 0_u64);
    let Some(payload) = pairs::read_mirrored(context, name, at) else {
        context.issue(IssueKind::VolumeHeaderLost { at });
        return None;
    };
    let header = VolumeHeader::read_from_bytes(&payload).expect("a pair's payload has this size");
    pairs::expect_zero(context, name, at, &header.reserved);
    let state = header.state.get();
    for (field, got, holds, must) in
        [("state", u64::from(state), STATES.contains(&state), "1 to 3")]
    {
        if !holds {
            context.issue(IssueKind::VolumeHeaderField { field, got, must });
            return None;
        }
    }
    if let Some((field, got, must)) = impossible_count(&header) {
        context.issue(IssueKind::VolumeHeaderField { field, got, must });
        return None;
    }
    context.clean = state != STATE_DIRTY;
    context.quotas.mounts = (state == STATE_CLEAN).then(|| header.mounts.get());
    if state == STATE_UNLOGGED {
        context.issue(IssueKind::Unlogged {});
    }
    context.epoch = header.epoch.get();
    Some(header)
}

/// Reads the packs; false when they cannot be, and so nothing else.
pub(super) fn packs(context: &mut Context<'_>, header: &VolumeHeader) -> bool {
    match Packs::read(&context.region, &context.layout, header) {
        Ok(packs) => {
            context.packs = Arc::new(packs);
            true
        }
        Err(error) => {
            let why = error.to_string();
            context.issue(IssueKind::PackBad { why });
            false
        }
    }
}
