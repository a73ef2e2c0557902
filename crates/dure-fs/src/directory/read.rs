//! Reading a directory: lookup of a name, and the walk of readdir.

use dure_sync::Arc;

use super::bucket::{self, Entry};
use super::{corrupt, hash, too_deep};
use crate::error::Result;
use crate::format::bucket::LEVELS_MAX;
use crate::format::node::NodeKind;
use crate::inode::InodeState;
use crate::node::Node;
use crate::units::{Ino, Nid};
use crate::volume::Volume;

/// What a name leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
    /// The inode.
    pub(crate) ino: Ino,
    /// `st_mode >> 12`.
    pub(crate) kind: u8,
}

/// An entry copied out of its bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) cookie: u64,
    pub(crate) ino: Ino,
    pub(crate) kind: u8,
    pub(crate) name: Vec<u8>,
}

impl Volume {
    /// The entry called `name`. The caller holds the directory.
    pub(crate) fn find(&self, directory: &InodeState, name: &[u8]) -> Result<Option<Found>> {
        let Some(root) = directory.first_bucket_node(self)? else {
            return Ok(None);
        };
        let hash = hash::name_hash(self.layout.hash_seed, name);
        self.with_bucket(&root, hash, |node, payload, _| {
            let entry = bucket::find(payload, name).map_err(|error| corrupt(node, error))?;
            Ok(entry.map(|Entry { ino, kind, .. }| Found { ino, kind }))
        })
    }

    /// Entries with cookies above `cookie` of the first bucket that may have some, in order, and the hash
    /// at which the next bucket begins. The caller holds the directory.
    pub(crate) fn list_bucket(
        &self,
        directory: &InodeState,
        from: u64,
        cookie: u64,
        listed: &mut Vec<Listed>,
    ) -> Result<Option<u64>> {
        let Some(root) = directory.first_bucket_node(self)? else {
            return Ok(None);
        };
        let seed = self.layout.hash_seed;
        self.with_bucket(&root, from, |node, payload, level| {
            for entry in bucket::entries(payload).map_err(|error| corrupt(node, error))? {
                let entry = entry.map_err(|error| corrupt(node, error))?;
                let own = hash::cookie(hash::name_hash(seed, entry.name), entry.ordinal);
                if own > cookie {
                    let (ino, kind, name) = (entry.ino, entry.kind, entry.name.to_vec());
                    listed.push(Listed {
                        cookie: own,
                        ino,
                        kind,
                        name,
                    });
                }
            }
            listed.sort_unstable_by_key(|entry| entry.cookie);
            Ok(hash::bucket_end(from, level))
        })
    }

    /// Shows the bucket that holds `hash`, and its level.
    fn with_bucket<R>(
        &self,
        root: &Arc<Node>,
        hash: u64,
        look: impl FnOnce(&Node, &[u8], u32) -> Result<R>,
    ) -> Result<R> {
        let mut below: Option<Arc<Node>> = None;
        let mut look = Some(look);
        for level in 0..LEVELS_MAX {
            let node = below.as_ref().unwrap_or(root);
            let found = node.look(hash::slot(hash, level), |payload| {
                match bucket::header(payload).child.get() {
                    0 => {
                        let look = look.take().expect("it is shown one bucket");
                        Err(look(node, payload, level))
                    }
                    child => Ok(Nid(child)),
                }
            });
            let child = match found {
                Ok(child) => child,
                Err(seen) => return seen,
            };
            below = Some(self.node(child, NodeKind::Bucket)?);
        }
        Err(too_deep(root))
    }
}
