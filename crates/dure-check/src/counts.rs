//! The counts of the volume header: nodes and inodes as the NAT of its checkpoint has them.

use dure_store::census::Census;
use dure_store::format::nat::ENTRIES;
use dure_store::format::volume::VolumeHeader;
use dure_store::units::Nid;

use crate::context::Context;
use crate::issue::IssueKind;

/// Compares them. Runs before the NAT's entries are validated: an invalid entry was counted, too.
pub(super) fn check(context: &mut Context<'_>, header: &VolumeHeader) {
    let mut census = Census::default();
    for (pair, entries) in &context.nat {
        for (nid, entry) in (pair * ENTRIES..).zip(entries) {
            census.change(Census::default(), Census::of_entry(Nid(nid), entry));
        }
    }
    for (field, want, got) in [
        ("nodes", census.nodes, header.nodes.get()),
        ("inodes", census.inodes, header.inodes.get()),
    ] {
        let want = u64::try_from(want).unwrap_or(0);
        if want != got {
            context.issue(IssueKind::HeaderCount { field, want, got });
            context.repairs.counts = Some(census);
        }
    }
}
