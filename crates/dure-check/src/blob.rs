//! Blob chains: extended attribute streams and the targets of long symlinks.

use dure_store::format::attribute::check_name;
use dure_store::format::blob::{AttributeHeader, BLOB_BYTES, BlobHeader};
use dure_store::format::inode::InodeRecord;
use dure_store::format::node::NodeKind;
use dure_store::units::{Ino, Nid, to_u64, to_usize};
use zerocopy::FromBytes;

use crate::context::Context;
use crate::issue::IssueKind;
use crate::owner::NodeUse;
use crate::quota;

/// Checks the extended attributes of an inode.
pub(super) fn xattrs(context: &mut Context<'_>, ino: Ino, record: &InodeRecord) {
    let bytes = u64::from(record.attributes.xattr_bytes.get());
    let root = Nid(record.attributes.xattr_root.get());
    // An unlinked inode may hold a part of a stream: a large change that a crash has cut short.
    if let Some(stream) = chain(
        context,
        root,
        bytes,
        NodeUse::Xattr(record.attributes.xattr_owner()),
    ) && record.attributes.nlink.get() > 0
    {
        let (found, bad) = attributes(&stream);
        if let Some(offset) = bad {
            context.issue(IssueKind::XattrStream { ino, offset });
        }
        if ino == Ino::ROOT {
            found
                .into_iter()
                .for_each(|(name, value)| quota::attribute(context, name, value));
        }
    }
}

/// Checks the target of a long symlink.
pub(super) fn link(context: &mut Context<'_>, ino: Ino, record: &InodeRecord) {
    let root = Nid(record.data.map_root.get());
    let target = chain(context, root, record.data.size.get(), NodeUse::Link(ino));
    if target.is_some_and(|target| target.contains(&0)) {
        context.issue(IssueKind::LinkTarget { ino });
    }
}

/// Follows a chain that holds `bytes` bytes; returns the stream if it is whole.
fn chain(context: &mut Context<'_>, root: Nid, bytes: u64, by: NodeUse) -> Option<Vec<u8>> {
    let want = bytes.div_ceil(to_u64(BLOB_BYTES));
    let mut stream = Vec::new();
    let mut nid = root;
    let mut got = 0;
    // Bounded: one node more than the length needs is enough to know that the chain is too long.
    while nid.0 != 0 && got <= want {
        let image = context.take(nid, NodeKind::Blob, by)?;
        let (head, piece) = BlobHeader::ref_from_prefix(image.payload(0))
            .expect("a blob node is longer than its header");
        stream.extend_from_slice(piece);
        nid = Nid(head.next.get());
        got += 1;
    }
    if got != want {
        context.issue(IssueKind::BlobLength { by, want, got });
        return None;
    }
    stream.truncate(to_usize(bytes));
    Some(stream)
}

/// An attribute's name and its value.
pub(super) type Attribute<'s> = (&'s [u8], &'s [u8]);

/// The attributes of a stream, up to the first thing that is none, and its offset.
pub(super) fn attributes(stream: &[u8]) -> (Vec<Attribute<'_>>, Option<usize>) {
    let (mut found, mut rest) = (Vec::new(), stream);
    while !rest.is_empty() {
        let Some((attribute, behind)) = attribute(rest) else {
            return (found, Some(stream.len() - rest.len()));
        };
        found.push(attribute);
        rest = behind;
    }
    (found, None)
}

/// The attribute that `bytes` begin with, and what follows it.
fn attribute(bytes: &[u8]) -> Option<(Attribute<'_>, &[u8])> {
    let (head, content) = AttributeHeader::ref_from_prefix(bytes).ok()?;
    let value = usize::try_from(head.value_len.get()).unwrap_or(usize::MAX);
    let name = usize::from(head.name_len);
    let len = name.saturating_add(value);
    if head.name_len == 0 || head.reserved != [0; 3] || len > content.len() {
        return None;
    }
    let (content, behind) = content.split_at(len);
    let (name, value) = content.split_at(name);
    check_name(name).is_ok().then_some(((name, value), behind))
}
