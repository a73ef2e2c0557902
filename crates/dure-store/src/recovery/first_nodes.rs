//! The nodes that a mount for writing cannot do without: the root's, and the chains of orphan
//! nodes.
//!
//! **Problem.** The mount reads the orphan slots once the volume is open for writing. If it found
//! only then a node that cannot be read, it would be refused and have written all the same.
//! **Structure.** The chains are walked in the recovered state before anything is written. What the
//! slots ask for is not tried here: where that fails, the mount goes on (`inode/delete.rs`).
//! **Invariants.** No node is followed twice. **On a crash** nothing was written.

use std::collections::BTreeSet;

use zerocopy::FromBytes;
use zerocopy::little_endian::U64;

use super::Base;
use super::replay::Replayed;
use super::slots::read_image;
use crate::error::{Error, Result};
use crate::format::nat::place_of;
use crate::format::node::{NodeImage, NodeKind};
use crate::format::orphan::{self, LINK_GRANULE};
use crate::units::{Ino, Nid};

/// Reads them; `replayed` is what the logs of a volume that was not unmounted say.
///
/// # Errors
/// `Corrupt` for a node that is missing, damaged, of another kind or in a chain twice; failed
/// reads.
pub(crate) fn read(base: &impl Base, replayed: Option<&Replayed>) -> Result<()> {
    node(base, replayed, Ino::ROOT.nid(), NodeKind::Inode)?;
    let mut seen = BTreeSet::new();
    for partition in 0..base.layout().journals {
        let mut nid = Nid(1 + u64::from(partition));
        while nid.0 != 0 {
            if !seen.insert(nid) {
                return Err(orphan::met_twice(nid));
            }
            let image = node(base, replayed, nid, NodeKind::Orphan)?;
            let link = image.payload(usize::from(LINK_GRANULE));
            let (next, _) = U64::read_from_prefix(link).expect("a link has 8 bytes");
            nid = Nid(next.get());
        }
    }
    Ok(())
}

fn node(
    base: &impl Base,
    replayed: Option<&Replayed>,
    nid: Nid,
    kind: NodeKind,
) -> Result<NodeImage> {
    let logged = replayed.and_then(|replayed| replayed.nodes.get(&nid));
    let image = match logged {
        Some(node) => node.image.clone(),
        None => read_image(base, nid)?,
    };
    let image = image.ok_or_else(|| Error::Corrupt {
        what: format!("pointer to free node {nid}"),
        at: base.layout().nat_pair(place_of(nid).0),
        want: 1,
        got: 0,
    })?;
    let (want, got) = (u64::from(kind.code()), u64::from(image.kind.code()));
    Error::expect_eq(&format!("kind of node {nid}"), nid.0, want, got)?;
    Error::expect_eq(&format!("owner of node {nid}"), nid.0, 0, image.owner.0)?;
    Ok(image)
}
