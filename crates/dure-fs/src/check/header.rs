//! Pass 2: the volume header and the checkpoint pack.

use zerocopy::FromBytes;

use crate::format::volume::{PACK_BITS, Pack, STATE_CLEAN, STATE_DIRTY, VolumeHeader};
use crate::units::to_usize;
use crate::volume::impossible_count;

use super::context::Context;
use super::issue::IssueKind;
use super::owner::PairKind;
use super::pairs;

/// Reads the volume header; `None` when nothing can be checked without it.
pub(super) fn volume(context: &mut Context<'_>) -> Option<VolumeHeader> {
    let at = context.layout.volume_header;
    let name = pairs::name(PairKind::VolumeHeader, 0_u64);
    let Some(newest) = pairs::read(context, name, at).newest else {
        context.issue(IssueKind::VolumeHeaderLost { at });
        return None;
    };
    let (header, rest) =
        VolumeHeader::read_from_prefix(&newest.payload).expect("a payload is longer");
    pairs::expect_zero(context, name, at, rest);
    pairs::expect_zero(context, name, at, &header.reserved);
    let state = header.state.get();
    for (field, got, holds, must) in [(
        "state",
        u64::from(state),
        state == STATE_CLEAN || state == STATE_DIRTY,
        "1 or 2",
    )] {
        if !holds {
            context.issue(IssueKind::VolumeHeaderField { field, got, must });
            return None;
        }
    }
    if let Some((field, got, must)) = impossible_count(&header) {
        context.issue(IssueKind::VolumeHeaderField { field, got, must });
        return None;
    }
    context.clean = state == STATE_CLEAN;
    context.epoch = header.epoch.get();
    Some(header)
}

/// Checks the pack. Which NAT pairs a checkpoint that was cut short announced is the recovery's
/// business.
pub(super) fn pack(context: &mut Context<'_>, completed: u64) {
    for index in 0..u64::from(context.layout.pack_pairs) {
        let at = context.layout.pack + 2 * index;
        let name = pairs::name(PairKind::Pack, index);
        let Some(newest) = pairs::read(context, name, at).newest else {
            continue;
        };
        let pack = Pack::read_from_bytes(&newest.payload).expect("a whole payload");
        if pack.index.get() != index {
            context.issue(IssueKind::PairMisplaced {
                pair: name,
                at,
                got: pack.index.get(),
            });
        }
        pairs::expect_zero(context, name, at, &pack.reserved);
        let ahead = pack.checkpoint.get();
        if context.clean && ahead > completed {
            context.issue(IssueKind::PackAhead {
                pack: ahead,
                completed,
            });
        }
        let pairs = u64::from(context.layout.nat_pairs).saturating_sub(index * PACK_BITS);
        // Byte by byte: nearly all are zero.
        let beyond = (pairs / 8..PACK_BITS / 8)
            .filter(|byte| pack.bits[to_usize(*byte)] != 0)
            .flat_map(|byte| 8 * byte..8 * byte + 8)
            .find(|bit| *bit >= pairs && pack.bits[to_usize(bit / 8)] >> (bit % 8) & 1 == 1);
        if let Some(bit) = beyond {
            context.issue(IssueKind::PackBits {
                nat_pair: index * PACK_BITS + bit,
            });
        }
    }
}
