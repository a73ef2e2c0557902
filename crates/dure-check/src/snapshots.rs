//! Snapshots: the table, the pairs that are kept, and the nodes that each shows.

use dure_store::format::volume::VolumeHeader;
use dure_store::snapshot::{Snapshots, verify};
use dure_store::units::BlockNo;
use dure_sync::Arc;

use crate::context::Context;
use crate::issue::IssueKind;

/// What is reported of one snapshot at most.
const ISSUES_MAX: usize = 20;

/// Whether this says that snapshots are damaged.
pub(super) fn are_damaged(kind: &IssueKind) -> bool {
    matches!(
        kind,
        IssueKind::SnapshotsLost { .. } | IssueKind::SnapshotBad { .. }
    )
}

/// Reads them. Runs when the packs are known.
pub(super) fn check(context: &mut Context<'_>, header: &VolumeHeader) {
    let snapshots = match Snapshots::read(&context.region, &context.layout, header) {
        Ok(snapshots) => Arc::new(snapshots),
        Err(error) => {
            let why = error.to_string();
            context.issue(IssueKind::SnapshotsLost { why });
            return;
        }
    };
    for one in snapshots.list() {
        let medium = (&*context.region, &context.layout, &*context.packs);
        for error in verify(&snapshots, &one.name, medium, ISSUES_MAX) {
            let (name, why) = (one.name.clone(), error.to_string());
            context.issue(IssueKind::SnapshotBad { name, why });
        }
    }
    let count = snapshots.list().len();
    context.report.counts.snapshots = u64::try_from(count).unwrap_or(u64::MAX);
    context.snapshots = snapshots;
}

/// A block of the snapshots' own is in no SIT. Runs when the SIT is loaded.
pub(super) fn own(context: &mut Context<'_>) {
    let own = context.snapshots.own();
    if let Some(BlockNo(block)) = own.into_iter().find(|block| context.is_live(*block)) {
        let why = format!("block {block} is theirs, and the SIT has it as live");
        context.issue(IssueKind::SnapshotsLost { why });
    }
}
