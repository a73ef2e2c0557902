//! Pass 6: what hangs on each inode: block map, directory trie, symlink target, attributes.

use dure_store::format::fields;
use dure_store::format::inode::FLAG_LONG_LINK;
use dure_store::format::node::NodeKind;
use dure_store::units::{Ino, to_u64};

use crate::context::Context;
use crate::{blob, directory, file};

/// Walks the trees of all inodes.
pub(super) fn check(context: &mut Context<'_>) {
    let pairs = context.pairs_in_use();
    for (done, &pair) in (0..).zip(&pairs) {
        context.progress("files and directories", done, to_u64(pairs.len()));
        for nid in context.live_in_pair(pair) {
            if !context.is_inode_node(nid) {
                continue;
            }
            let Some(image) = context.image(nid) else {
                continue;
            };
            if image.kind != NodeKind::Inode {
                continue;
            }
            for ino in Ino::all_of(nid) {
                let Some(facts) = context.inodes.get(ino.0).filter(|facts| !facts.bad) else {
                    continue;
                };
                let record = image.inode(ino.index());
                match facts.kind {
                    fields::REGULAR => file::check(context, ino, &record, facts.truncating),
                    fields::DIRECTORY => directory::check(context, ino, &record),
                    fields::SYMLINK if record.attributes.flags.get() & FLAG_LONG_LINK != 0 => {
                        blob::link(context, ino, &record);
                    }
                    _ => {}
                }
                if record.attributes.xattr_bytes.get() != 0 {
                    blob::xattrs(context, ino, &record);
                }
            }
        }
    }
}
