//! Pass 5: every node image: magic, checksum, own number and address, granule count, kind and
//! version as the NAT has them; and the inodes of inode nodes, of which [`super::inodes`] remembers
//! a little.

use dure_store::format::fields;
use dure_store::format::inode::{FLAG_ORPHAN, InodeRecord};
use dure_store::format::node::{HEADER_BYTES, NodeImage, NodeKind};
use dure_store::format::summary::OWNER_NODE;
use dure_store::units::{Ino, Nid, is_zero, to_u64};

use crate::context::Context;
use crate::inode;
use crate::issue::IssueKind;
use crate::owner::NodeUse;
use crate::{quota, summary};

/// Offsets of the reserved bytes of the node header.
const RESERVED: [std::ops::Range<usize>; 2] = [34..40, 48..HEADER_BYTES];

/// Checks all images.
pub(super) fn check(context: &mut Context<'_>) {
    let pairs = context.pairs_in_use();
    for (done, &pair) in (0..).zip(&pairs) {
        context.progress("nodes", done, to_u64(pairs.len()));
        for nid in context.live_in_pair(pair) {
            if let Some(image) = check_image(context, nid) {
                context.report.counts.nodes += 1;
                if image.kind == NodeKind::Inode {
                    check_inodes(context, nid, &image);
                }
            }
        }
    }
}

fn check_image(context: &mut Context<'_>, nid: Nid) -> Option<NodeImage> {
    if let Some(replayed) = context.replayed.get(&nid) {
        return replayed.clone();
    }
    let entry = context.entry(nid);
    let block = entry.block();
    let Some(bytes) = context.read(block.0, 1) else {
        context.broken.set(nid.0);
        return None;
    };
    let image = match NodeImage::open(&bytes, nid, block, context.layout.crc_seed) {
        Ok(image) => image,
        Err(error) => {
            context.broken.set(nid.0);
            let why = error.to_string();
            context.issue(IssueKind::NodeBad {
                nid,
                block: block.0,
                why,
            });
            return None;
        }
    };
    let end = image.kind.offset(image.kind.granules());
    let mut reserved = RESERVED.into_iter().map(|range| &bytes[range]);
    if !is_zero(&bytes[end..]) || reserved.any(|bytes| !is_zero(bytes)) {
        let what = format!("image of node {nid}");
        context.issue(IssueKind::ReservedNotZero { what, at: block.0 });
    }
    if let Some(nat) = NodeKind::from_code(entry.kind_code())
        && nat != image.kind
    {
        context.issue(IssueKind::NodeKindMismatch {
            nid,
            nat,
            image: image.kind,
        });
    }
    let (nat, version) = (entry.version.get(), image.version_max());
    if nat != version {
        context.issue(IssueKind::NodeVersion {
            nid,
            nat,
            image: version,
        });
    }
    summary::expect_owner(context, block, nid, OWNER_NODE, (0, 0));
    Some(image)
}

/// Inodes of a node that are not in use, as its NAT entry counts them.
pub(super) fn free_inodes(nid: Nid, image: &NodeImage) -> u8 {
    if image.kind != NodeKind::Inode {
        return 0;
    }
    let free = |ino: &Ino| image.inode(ino.index()).attributes.is_free() && ino.0 != 0;
    u8::try_from(Ino::all_of(nid).filter(free).count()).expect("a node has at most 8 inodes")
}

fn check_inodes(context: &mut Context<'_>, nid: Nid, image: &NodeImage) {
    context.claimed.set(nid.0);
    context.expect_inode(nid, image, NodeUse::Inodes);
    for ino in Ino::all_of(nid) {
        let record = image.inode(ino.index());
        if record.attributes.is_free() {
            inode::check_free(context, ino, image);
            continue;
        }
        let sound = inode::check_record(context, ino, &record);
        count(context, &record);
        quota::count(context, &record);
        let facts = context.inodes.get_mut(ino);
        facts.kind = fields::kind(&record);
        facts.bad = !sound;
        facts.flagged = record.attributes.flags.get() & FLAG_ORPHAN != 0;
        facts.nlink = record.attributes.nlink.get();
    }
    let (free, got) = (free_inodes(nid, image), context.entry(nid).free_inodes());
    if context.clean && got != free {
        context.repairs.free_inodes.push(nid);
        context.issue(IssueKind::NatFreeInodes {
            nid,
            want: free,
            got,
        });
    }
}

fn count(context: &mut Context<'_>, record: &InodeRecord) {
    let counts = &mut context.report.counts;
    match fields::kind(record) {
        fields::REGULAR => counts.files += 1,
        fields::DIRECTORY => counts.directories += 1,
        fields::SYMLINK => counts.symlinks += 1,
        _ => counts.others += 1,
    }
}

/// The root must be a directory.
pub(super) fn check_root(context: &mut Context<'_>) {
    let root = context.inodes.get(Ino::ROOT.0);
    if root.is_none_or(|root| root.kind != fields::DIRECTORY) {
        context.issue(IssueKind::RootMissing {});
    }
}
