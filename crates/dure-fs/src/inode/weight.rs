//! What an inode owns, and how its granules look once it is free.

use dure_store::format::inode::{AttributesRecord, InodeData};
use dure_store::format::name::FileKind;
use dure_store::op::Op;
use dure_store::units::{Ino, is_zero};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromZeros, IntoBytes};

use super::{Inode, InodeState};

/// How much an inode owns besides its granule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Weight {
    /// Nothing: it can be freed by any operation.
    Light,
    /// Blocks, nodes or pages.
    Heavy,
}

impl Inode {
    /// Whether freeing the inode, which has these attributes, takes more than writing its granules.
    /// A directory's bucket nodes are freed by rmdir itself.
    pub(crate) fn weight(&self, state: &InodeState, attributes: &AttributesRecord) -> Weight {
        let data = self.data_head();
        let map = data.map_root.get() != 0 && self.kind != FileKind::Directory;
        let owns = map || data.blocks.get() != 0 || attributes.xattr_root.get() != 0;
        if owns || !state.is_clean() {
            Weight::Heavy
        } else {
            Weight::Light
        }
    }

    /// Lets `op` free the inode, which has these attributes and owns nothing any more. Number,
    /// generation and what owns nothing stay, so that the deltas of this and the next generation
    /// are short; data goes if any was stored.
    pub(crate) fn store_free(&self, op: &mut Op<'_>, attributes: &mut AttributesRecord) {
        attributes.mode = U32::ZERO;
        attributes.nlink = U32::ZERO;
        attributes.flags = U32::ZERO;
        attributes.rdev = U64::ZERO;
        attributes.parent = U64::ZERO;
        attributes.xattr_bytes = U32::ZERO;
        attributes.xattr_root = U64::ZERO;
        self.store_attributes(op, attributes);
        let (index, number) = (self.ino.data_index(), 0..size_of::<Ino>());
        if !self.node.look_at(index, number, is_zero) {
            op.replace(&self.node, index, InodeData::new_zeroed().as_bytes());
        }
    }
}
