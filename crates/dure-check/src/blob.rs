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
        && let Some(offset) = bad_attribute(&stream)
    {
        context.issue(IssueKind::XattrStream { ino, offset });
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

/// Offset of the first thing that is no attribute.
fn bad_attribute(stream: &[u8]) -> Option<usize> {
    let mut rest = stream;
    while !rest.is_empty() {
        let at = stream.len() - rest.len();
        let Ok((head, content)) = AttributeHeader::ref_from_prefix(rest) else {
            return Some(at);
        };
        let value = usize::try_from(head.value_len.get()).unwrap_or(usize::MAX);
        let len = usize::from(head.name_len).saturating_add(value);
        if head.name_len == 0 || head.reserved != [0; 3] || len > content.len() {
            return Some(at);
        }
        if check_name(&content[..usize::from(head.name_len)]).is_err() {
            return Some(at);
        }
        rest = &content[len..];
    }
    None
}
