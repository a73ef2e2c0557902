//! Pass 8: what users, groups and projects have, as an unmount has stored it, against what their
//! inodes have.

use std::collections::BTreeMap;

use dure_store::format::inode::InodeRecord;
use dure_store::format::quota::{
    LIMITS, QuotaKind, Subject, USAGE, Usage, parse_limits, parse_usage,
};

use crate::context::Context;
use crate::issue::IssueKind;

/// Counts an inode for its owners.
pub(super) fn count(context: &mut Context<'_>, record: &InodeRecord) {
    let attributes = &record.attributes;
    let owners = [
        (QuotaKind::User, attributes.uid),
        (QuotaKind::Group, attributes.gid),
        (QuotaKind::Project, attributes.project),
    ];
    for (kind, id) in owners {
        let subject = Subject { kind, id: id.get() };
        if kind == QuotaKind::Project && id.get() == 0 {
            continue;
        }
        let usage = context.quotas.used.entry(subject).or_default();
        usage.blocks = usage.blocks.saturating_add(record.data.blocks.get());
        usage.inodes += 1;
    }
}

/// An attribute of the root directory.
pub(super) fn attribute(context: &mut Context<'_>, name: &[u8], value: &[u8]) {
    if name == LIMITS
        && let Err(error) = parse_limits(value)
    {
        let why = error.to_string();
        context.issue(IssueKind::QuotaLimits { why });
    }
    if name == USAGE {
        match parse_usage(value) {
            Ok((mounts, kept)) if Some(mounts) == context.quotas.mounts => {
                context.quotas.kept = Some(kept);
            }
            // A later mount does not believe it.
            Ok(_) => {}
            Err(error) => {
                let why = error.to_string();
                context.issue(IssueKind::QuotaUsage { why });
            }
        }
    }
}

/// Compares.
pub(super) fn check(context: &mut Context<'_>) {
    let Some(kept) = context.quotas.kept.take() else {
        return;
    };
    let kept: BTreeMap<Subject, Usage> = kept.into_iter().collect();
    let used = std::mem::take(&mut context.quotas.used);
    let mut all: Vec<Subject> = kept.keys().chain(used.keys()).copied().collect();
    all.sort_unstable();
    all.dedup();
    for subject in all {
        let of = |map: &BTreeMap<Subject, Usage>| map.get(&subject).copied().unwrap_or_default();
        let (want, got) = (of(&used), of(&kept));
        if want != got {
            let why = format!(
                "{subject} has {} blocks and {} inodes, not {} and {}",
                want.blocks, want.inodes, got.blocks, got.inodes
            );
            context.issue(IssueKind::QuotaUsage { why });
        }
    }
}
