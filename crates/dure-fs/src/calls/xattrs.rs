//! Extended attributes.

use dure_store::error::{Error, Result};
use dure_store::format::quota::{LIMITS, USAGE};

use crate::inode::InodeRef;
use crate::volume::FileSystem;
use crate::xattr::SetGid;
use crate::xattr::stream::XattrMode;

/// Whether an attribute keeps quotas: no call shows it.
fn is_own(name: &[u8]) -> bool {
    name == LIMITS || name == USAGE
}

fn check_own(name: &[u8]) -> Result<()> {
    match is_own(name) {
        true => Err(Error::NotPermitted("an attribute that keeps quotas")),
        false => Ok(()),
    }
}

impl FileSystem {
    /// The value of an extended attribute; `None` when it is not there.
    ///
    /// # Errors
    /// `Invalid`, `NameTooLong`, `NotSupported` for the name; of reading its nodes.
    pub fn get_xattr(&self, inode: &InodeRef, name: &[u8]) -> Result<Option<Vec<u8>>> {
        match is_own(name) {
            true => Ok(None),
            false => self.0.xattrs.get(inode, name),
        }
    }

    /// The names of all extended attributes.
    ///
    /// # Errors
    /// Those of reading its nodes.
    pub fn list_xattr(&self, inode: &InodeRef) -> Result<Vec<Vec<u8>>> {
        let mut names = self.0.xattrs.list(inode)?;
        names.retain(|name| !is_own(name));
        Ok(names)
    }

    /// Sets an extended attribute, in one operation. An access control list also sets the mode
    /// bits.
    ///
    /// # Errors
    /// Those of [`FileSystem::set_xattr_by`].
    pub fn set_xattr(
        &self,
        inode: &InodeRef,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        self.set_xattr_by(inode, name, value, (mode, SetGid::Keep))
    }

    /// Like `FileSystem::set_xattr`, for a caller that may have to clear set-group-id.
    ///
    /// # Errors
    /// `Exists`, `NoAttribute` by `mode`; `AttributeTooLarge` beyond 64 KiB, `NoSpace` beyond 128
    /// KiB in all; `NotPermitted` for `trusted.dure.quota` and `.usage`; `Invalid`, `NameTooLong`, `NotSupported` for the name or a malformed list.
    pub fn set_xattr_by(
        &self,
        inode: &InodeRef,
        name: &[u8],
        value: &[u8],
        how: (XattrMode, SetGid),
    ) -> Result<()> {
        check_own(name)?;
        self.0.xattrs.set(inode, name, value, how)
    }

    /// Removes an extended attribute. Removing an access control list that is not there succeeds:
    /// every inode has the one of its mode bits.
    ///
    /// # Errors
    /// `NoAttribute` when it is not there, `NotPermitted` for `trusted.dure.quota` and `.usage`.
    pub fn remove_xattr(&self, inode: &InodeRef, name: &[u8]) -> Result<()> {
        check_own(name)?;
        self.0.xattrs.remove(inode, name)
    }
}
