//! The tree of an inode: the trie of a directory, the map of a file.

use std::collections::BTreeSet;

use dure_store::error::{Error, Result};
use dure_store::format::bucket::{BucketHeader, LEVELS_MAX};
use dure_store::format::node::{NodeImage, NodeKind};
use dure_store::format::slot::{DIRECT_SLOTS, INDEX_CHILDREN, INDEX_GRANULE_CHILDREN};
use dure_store::format::slot::{LEAF_GRANULE_SLOTS, LEAF_SLOTS};
use dure_store::units::{Ino, Nid};
use zerocopy::FromBytes;

use super::node::{self, find};
use super::source::Source;
use super::{Out, line};

/// Greatest height of a map.
const HEIGHT_MAX: u32 = 4;

/// A node of the wanted kind that was not seen yet, or a line that says why not.
fn take(
    source: &Source,
    out: &mut Out<'_>,
    seen: &mut BTreeSet<Nid>,
    nid: Nid,
    kind: NodeKind,
) -> Result<Option<NodeImage>> {
    if !seen.insert(nid) {
        line!(out, "node {nid}: reached twice")?;
        return Ok(None);
    }
    match source.image(nid) {
        Ok(Some((_, image))) if image.kind == kind => Ok(Some(image)),
        Ok(Some((_, image))) => {
            line!(out, "node {nid}: is {:?}, must be {kind:?}", image.kind)?;
            Ok(None)
        }
        Ok(None) => {
            line!(out, "node {nid}: no image")?;
            Ok(None)
        }
        Err(error) => {
            line!(out, "node {nid}: {error}")?;
            Ok(None)
        }
    }
}

/// All buckets of a directory, in the order of the hash.
pub(super) fn directory(source: &Source, out: &mut Out<'_>, ino: Ino) -> Result<()> {
    let Some(record) = find(source, ino)?.filter(|record| record.attributes.mode.get() >> 12 == 4)
    else {
        return Err(Error::BadOption {
            option: "directory",
            why: format!("{ino} is no directory"),
        });
    };
    line!(
        out,
        "directory {ino}: parent {}",
        record.attributes.parent.get()
    )?;
    let mut seen = BTreeSet::new();
    let mut stack = Vec::new();
    if record.data.map_root.get() != 0 {
        stack.push((Nid(record.data.map_root.get()), 0_u32));
    }
    while let Some((nid, level)) = stack.pop() {
        let Some(image) = take(source, out, &mut seen, nid, NodeKind::Bucket)? else {
            continue;
        };
        let at = stack.len();
        for (index, payload) in image.payloads().enumerate() {
            let (header, _) =
                BucketHeader::ref_from_prefix(payload).expect("a bucket is longer than its header");
            line!(out, "bucket {nid}.{index}, level {level}")?;
            node::bucket(out, payload)?;
            if header.child.get() != 0 && level + 1 < LEVELS_MAX {
                stack.push((Nid(header.child.get()), level + 1));
            }
        }
        stack[at..].reverse();
    }
    Ok(())
}

/// All slots of a file.
pub(super) fn map(source: &Source, out: &mut Out<'_>, ino: Ino) -> Result<()> {
    let Some(record) = find(source, ino)?.filter(|record| record.attributes.mode.get() >> 12 == 8)
    else {
        return Err(Error::BadOption {
            option: "map",
            why: format!("{ino} is no regular file"),
        });
    };
    line!(
        out,
        "file {ino}: {} bytes, {} blocks",
        record.data.size.get(),
        record.data.blocks.get()
    )?;
    node::slots(out, &record.data.body, "page", 0)?;
    let height = record.data.map_height.get();
    if height > HEIGHT_MAX {
        return line!(out, "map height {height} is beyond {HEIGHT_MAX}");
    }
    let mut seen = BTreeSet::new();
    let mut stack = Vec::new();
    if height > 0 {
        stack.push((Nid(record.data.map_root.get()), height, DIRECT_SLOTS));
    }
    while let Some((nid, height, page)) = stack.pop() {
        let kind = if height == 1 {
            NodeKind::Leaf
        } else {
            NodeKind::Index
        };
        let Some(image) = take(source, out, &mut seen, nid, kind)? else {
            continue;
        };
        line!(out, "node {nid}: {kind:?}, pages from {page}")?;
        if height == 1 {
            let mut page = page;
            for payload in image.payloads() {
                node::slots(out, payload, "page", page)?;
                page += LEAF_GRANULE_SLOTS;
            }
            continue;
        }
        let below = LEAF_SLOTS * INDEX_CHILDREN.pow(height - 2);
        let at = stack.len();
        for (granule, payload) in (0..).zip(image.payloads()) {
            for (n, child) in node::children(payload) {
                let n = granule * INDEX_GRANULE_CHILDREN + n;
                stack.push((child, height - 1, page + below * n));
            }
        }
        stack[at..].reverse();
    }
    Ok(())
}
