//! Pass 7: what the trees add up to: link counts, parents, one tree of directories without cycles,
//! and nodes that nothing refers to.

use dure_store::format::fields::DIRECTORY;
use dure_store::units::{Ino, Nid};

use crate::bits::Bits;
use crate::context::Context;
use crate::inodes::InodeFacts;
use crate::issue::IssueKind;

/// Checks names and links of all inodes.
pub(super) fn check(context: &mut Context<'_>) {
    let all: Vec<(Ino, InodeFacts)> = context.inodes.all().collect();
    for (ino, facts) in &all {
        if *ino != Ino::ROOT {
            check_links(context, *ino, facts);
        } else if facts.nlink != 1 || facts.names != 0 {
            context.issue(IssueKind::LinkCount {
                ino: *ino,
                want: 1,
                got: facts.nlink,
            });
        }
    }
    check_parents(context);
    check_reachable(context);
}

fn check_links(context: &mut Context<'_>, ino: Ino, facts: &InodeFacts) {
    if facts.flagged && !facts.orphan {
        context.issue(IssueKind::OrphanUnlisted { ino });
    }
    if facts.names == 0 && facts.nlink == 0 && facts.orphan {
        return;
    }
    if facts.names == 0 && !facts.orphan && !facts.flagged {
        context.issue(IssueKind::InodeDetached { ino });
        return;
    }
    // A second name of a directory was reported where it was found.
    let want = if facts.kind == DIRECTORY {
        facts.names.min(1)
    } else {
        facts.names
    };
    if facts.nlink != want {
        context.issue(IssueKind::LinkCount {
            ino,
            want,
            got: facts.nlink,
        });
        if want > 0 && !facts.orphan && !facts.flagged {
            context.repairs.links.insert(ino, want);
        }
    }
}

fn check_parents(context: &mut Context<'_>) {
    let found: Vec<(Ino, Ino)> = context
        .inodes
        .found_in
        .iter()
        .map(|(a, b)| (*a, *b))
        .collect();
    let mut node: Option<(Nid, dure_store::format::node::NodeImage)> = None;
    for (ino, want) in found {
        if node.as_ref().is_none_or(|(nid, _)| *nid != ino.nid()) {
            node = context.image(ino.nid()).map(|image| (ino.nid(), image));
        }
        let Some((_, image)) = &node else { continue };
        let got = image.inode(ino.index()).attributes.parent.get();
        let bad = context.inodes.get(ino.0).is_some_and(|facts| facts.bad);
        if !bad && got != want.0 {
            context.issue(IssueKind::ParentPointer { ino, want, got });
        }
    }
}

/// Every directory that has a name must be reachable from the root: reports cycles. A directory
/// without a name was reported already, with all that is below it.
fn check_reachable(context: &mut Context<'_>) {
    let mut done = Bits::new(context.layout.nids() * Ino::PER_NODE);
    done.set(Ino::ROOT.0);
    let starts: Vec<Ino> = context.inodes.found_in.keys().copied().collect();
    for start in starts {
        let mut path = Vec::new();
        let mut at = start;
        // Bounded: every directory is marked once.
        let cycle = loop {
            if done.get(at.0) {
                break path.contains(&at).then_some(at);
            }
            done.set(at.0);
            path.push(at);
            match context.inodes.found_in.get(&at) {
                Some(parent) => at = *parent,
                None => break None,
            }
        };
        if let Some(ino) = cycle {
            context.issue(IssueKind::DirectoryCycle { ino });
        }
    }
}

/// Reports nodes that nothing refers to.
pub(super) fn check_leaks(context: &mut Context<'_>) {
    for pair in context.pairs_in_use() {
        for nid in context.live_in_pair(pair) {
            if context.claimed.get(nid.0) || context.broken.get(nid.0) {
                continue;
            }
            if let Some(image) = context.image(nid) {
                context.issue(IssueKind::NodeLeaked {
                    nid,
                    kind: image.kind,
                });
            }
        }
    }
}
