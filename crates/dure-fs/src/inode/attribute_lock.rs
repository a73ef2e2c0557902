//! The attributes of an inode, and the lock of the tasks that change them.
//!
//! **Problem.** chmod and setxattr, link, unlink and rename commute with reads and overwrites of
//! the file's data. They must not keep these out, nor write a line that all of them read.
//! **Structure.** Attributes are a granule of their own, and no task keeps a copy of it: readers
//! load it under its sequence count ([`Inode::attributes`]). A task that changes attributes holds
//! their lock ([`Inode::lock_attributes`]) until its operation has finished.
//!
//! # Invariants
//! * Only a holder of the lock stores attributes. [`AttributeState`] changes with them.
//! * Attributes of a directory decide about its entries (set-group-id, the default access control
//!   list, whether it was removed). A task that changes them holds the directory's state
//!   exclusively as well; so they stay as they are for a holder of the shared state.
//! * Locks of states come first, then those of attributes, both in ascending inode number.
//! * An operation stores its granules one by one. One that changes extended attributes finishes
//!   within their sequence count ([`Inode::xattrs`]): a reader that finds it as it was has read
//!   what belongs together.
//!
//! **On a crash** the operation is in the log, or not at all.

use dure_store::format::inode::AttributesRecord;
use dure_store::format::name::FileKind;
use dure_store::units::Mark;
use dure_sync::{MutexGuard, RwLockWriteGuard, SequenceCount};

use super::{Access, Inode, InodeState, OrphanPlace};
use crate::ranks::{ATTRIBUTES, INODE};
use crate::volume::AttributeRule;

/// What changes with the attributes, and is in memory only.
#[derive(Debug, Default)]
pub(crate) struct AttributeState {
    /// The orphan slot that names the inode.
    pub(crate) orphan: Option<OrphanPlace>,
    /// Created without a name and never linked: `link` may give it one.
    pub(crate) linkable: bool,
}

/// The attributes of an inode, held to be changed.
#[derive(Debug)]
pub(crate) struct HeldAttributes<'i> {
    // Dropped before the state.
    attributes: MutexGuard<'i, ATTRIBUTES, AttributeState>,
    state: Option<RwLockWriteGuard<'i, INODE, InodeState>>,
}

impl HeldAttributes<'_> {
    /// The inode's state, if it is held exclusively.
    pub(crate) fn state(&mut self) -> Option<&mut InodeState> {
        self.state.as_deref_mut()
    }

    /// What changes with the attributes.
    pub(crate) fn get(&mut self) -> &mut AttributeState {
        &mut self.attributes
    }
}

impl Inode {
    /// The attributes as they are at one moment. They change meanwhile, unless the caller holds
    /// their lock, or is to see those of a directory whose state it holds.
    #[inline]
    pub(crate) fn attributes(&self) -> AttributesRecord {
        self.node.attributes(self.ino)
    }

    /// How `LockedInodes` is to lock this inode for a change of its attributes.
    pub(crate) fn attributes_access(&self, rule: AttributeRule) -> Access {
        match rule {
            AttributeRule::Apart | AttributeRule::KeptCached(_)
                if self.kind != FileKind::Directory =>
            {
                Access::Attributes
            }
            _ => Access::Whole,
        }
    }

    /// Locks the attributes to change them; `access` is `Access::Whole` (the state as well), or as
    /// `Inode::attributes_access` says.
    pub(crate) fn lock_attributes(&self, access: Access) -> HeldAttributes<'_> {
        let state = (access == Access::Whole).then(|| self.state().write());
        HeldAttributes {
            attributes: self.state().attributes().lock(),
            state,
        }
    }

    /// Locks the attributes of an inode that no other task knows yet.
    pub(crate) fn lock_new_attributes(&self) -> MutexGuard<'_, ATTRIBUTES, AttributeState> {
        let attributes = self.state().attributes().try_lock();
        attributes.expect("no other task knows a new inode")
    }

    /// Counts changes of the extended attributes; changed by holders of the attributes.
    pub(crate) fn xattrs(&self) -> &SequenceCount {
        self.state().xattrs()
    }

    /// The last writer of the attributes.
    pub(crate) fn attribute_writer(&self) -> Mark {
        let look = || self.node.last_writer(self.index);
        self.state().attribute_writer().get(look)
    }

    /// An operation that stored attributes has finished. The caller holds their lock.
    pub(crate) fn attributes_stored(&self, rule: AttributeRule, mark: Mark) {
        self.state().attribute_writer().set(mark);
        if !matches!(rule, AttributeRule::KeptCached(_)) {
            self.state().attributes_changed();
        }
    }
}
