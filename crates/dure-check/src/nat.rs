//! Pass 4: the NAT. Entries lie in the main area, name a kind, and no two nodes share a block.

use dure_store::format::nat::{ENTRIES, NatBlock, NatEntry};
use dure_store::format::node::NodeKind;
use dure_store::packs::{PairIndex, Table};
use dure_store::units::{Nid, to_u64};
use zerocopy::FromBytes;

use crate::context::{Context, NatEntries};
use crate::issue::IssueKind;
use crate::owner::{BlockUse, PairKind};
use crate::pairs;

/// Reads the whole NAT into the context; pairs without entries take no memory.
pub(super) fn load(context: &mut Context<'_>) {
    let packs = context.packs.clone();
    let written: Vec<u64> = packs.written(Table::Nat).collect();
    for (done, &index) in (0..).zip(&written) {
        context.progress("node address table", done, to_u64(written.len()));
        if let Some(entries) = load_pair(context, index) {
            context.nat.insert(index, entries);
        }
    }
}

fn load_pair(context: &mut Context<'_>, index: u64) -> Option<NatEntries> {
    let at = context.layout.nat_pair(index);
    let name = pairs::name(PairKind::Nat, index);
    let table = Table::Nat;
    let code = context.packs.code(PairIndex { table, index });
    let payload = pairs::read(context, name, at, code)?;
    let block = NatBlock::read_from_bytes(&payload).expect("a pair's payload has this size");
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

/// Checks every entry, and claims the blocks of images of live nodes. Entries with a fault are
/// removed, so that later passes see a node that does not exist.
pub(super) fn check(context: &mut Context<'_>) {
    let mut nat = std::mem::take(&mut context.nat);
    for (pair, entries) in &mut nat {
        let first = pair * ENTRIES;
        for (nid, entry) in (first..).map(Nid).zip(entries.iter_mut()) {
            if !entry_is_sound(context, nid, entry) {
                *entry = NatEntry::tombstone(entry.version.get());
                context.broken.set(nid.0);
            }
        }
    }
    context.nat = nat;
}

/// Whether [`check`] removes an entry of which it says this.
pub(super) fn takes_out(kind: &IssueKind) -> bool {
    matches!(
        kind,
        IssueKind::NatKind { .. } | IssueKind::NatBlockOutside { .. }
    )
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
        // The logs free the node: the recovery frees its block.
        return true;
    }
    context.own(block, BlockUse::Image(nid));
    true
}
