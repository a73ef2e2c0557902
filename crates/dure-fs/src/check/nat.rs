//! Pass 4: the NAT. Entries lie in the main area, name a kind, and no two nodes share a block.

use zerocopy::FromBytes;

use crate::format::nat::{ENTRIES, NatBlock, NatEntry};
use crate::format::node::NodeKind;
use crate::units::Nid;

use super::context::Context;
use super::issue::IssueKind;
use super::owner::{BlockUse, PairKind};
use super::pairs;

/// Reads the whole NAT into the context; pairs without entries take no memory.
pub(super) fn load(context: &mut Context<'_>) {
    let count = u64::from(context.layout.nat_pairs);
    for index in 0..count {
        context.progress("node address table", index, count);
        let entries = load_pair(context, index);
        context.nat.push(entries);
    }
}

fn load_pair(context: &mut Context<'_>, index: u64) -> Option<Box<[NatEntry]>> {
    let at = context.layout.nat_pair(index);
    let name = pairs::name(PairKind::Nat, index);
    let newest = pairs::read(context, name, at).newest?;
    let block = NatBlock::read_from_bytes(&newest.payload).expect("a whole payload");
    if block.index.get() != index {
        context.issue(IssueKind::PairMisplaced {
            pair: name,
            at,
            got: block.index.get(),
        });
        return None;
    }
    pairs::expect_zero(context, name, at, &block.reserved);
    for (nid, entry) in (index * ENTRIES..).zip(&block.entries) {
        let what = || format!("version of node {nid} in the NAT");
        pairs::expect_count(context, what, at, entry.version.get());
    }
    let empty = block
        .entries
        .iter()
        .all(|entry| *entry == NatEntry::default());
    (!empty).then(|| block.entries.to_vec().into_boxed_slice())
}

/// Checks every entry, and claims the blocks of images of nodes that live. Entries that cannot be
/// are taken out, so that later passes see a node that does not exist.
pub(super) fn check(context: &mut Context<'_>) {
    for pair in 0..context.nat.len() {
        let Some(entries) = context.nat[pair].take() else {
            continue;
        };
        let first = crate::units::to_u64(pair) * crate::format::nat::ENTRIES;
        let mut entries = entries;
        for (nid, entry) in (first..).map(Nid).zip(entries.iter_mut()) {
            if !entry_is_sound(context, nid, entry) {
                *entry = NatEntry::tombstone(entry.version.get());
                context.broken.set(nid.0);
            }
        }
        context.nat[pair] = Some(entries);
    }
}

fn entry_is_sound(context: &mut Context<'_>, nid: Nid, entry: &NatEntry) -> bool {
    let block = entry.block();
    let code = entry.kind_code();
    if block.is_none() {
        if code != 0 || entry.free_inodes() != 0 {
            context.issue(IssueKind::NatKind { nid, got: code });
        }
        return true;
    }
    if NodeKind::from_code(code).is_none() {
        context.issue(IssueKind::NatKind { nid, got: code });
        return false;
    }
    let Some(_) = context.layout.locate(block) else {
        context.issue(IssueKind::NatBlockOutside {
            nid,
            block: block.0,
        });
        return false;
    };
    if matches!(context.replayed.get(&nid), Some(None)) {
        // The logs free the node: its block is the recovery's to free.
        return true;
    }
    context.own(block, BlockUse::Image(nid));
    true
}
