//! What a case leaves out or changes.

use super::change::Read;
use super::tree::Key;

/// Where link counts and times of a directory are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ParentState {
    /// In its inode: create and unlink write it.
    Inode,
    /// In the buckets: create and unlink do not write the inode.
    Buckets,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NidReuse {
    AtOnce,
    WhenValid,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    pub(crate) parent: ParentState,
    pub(crate) mark_parent: bool,
    pub(crate) mark_ancestors: bool,
    pub(crate) mark_empty: bool,
    /// `last_writer` outlives the freed node.
    pub(crate) last_writer_kept: bool,
    pub(crate) reuse: NidReuse,
    /// A rename writes the moved inode.
    pub(crate) rename_writes_inode: bool,
}

impl Rules {
    pub(crate) fn marks(&self, read: Read) -> Option<Key> {
        match read {
            Read::Parent(key) => self.mark_parent.then_some(key),
            Read::Ancestor(key) => self.mark_ancestors.then_some(key),
            Read::Empty(key) => self.mark_empty.then_some(key),
        }
    }
}
