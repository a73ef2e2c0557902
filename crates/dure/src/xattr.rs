//! Extended attributes: which caller may read and change which, and the access lists among them.

use dure_fs::{FileKind, FileSystem, InodeRef, SetGid, XattrMode};
use rustix::io::Errno;

use crate::acl::{self, AccessList};
use crate::actor::Actor;
use crate::permission::{self, Access};
use crate::walk::Result;

const NAME_MAX: usize = 255;
const VALUE_MAX: usize = 65536;
/// A list of nothing but its version.
const EMPTY_LIST_BYTES: usize = 4;

/// Namespace of an attribute, given by the prefix of its name; it decides which callers may use it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Namespace {
    /// `user.*`: like content, for files and directories only.
    User,
    /// `trusted.*`: root only.
    Trusted,
    /// `security.*`: every caller reads, root writes.
    Security,
    /// An access control list.
    List,
}

fn namespace(name: &[u8]) -> std::result::Result<Namespace, Errno> {
    if name.is_empty() || name.len() > NAME_MAX {
        return Err(Errno::RANGE);
    }
    if name.contains(&0) {
        return Err(Errno::INVAL);
    }
    if name == acl::ACCESS || name == acl::DEFAULT {
        return Ok(Namespace::List);
    }
    for (prefix, space) in [
        (&b"user."[..], Namespace::User),
        (b"trusted.", Namespace::Trusted),
        (b"security.", Namespace::Security),
    ] {
        if let Some(rest) = name.strip_prefix(prefix) {
            return if rest.is_empty() {
                Err(Errno::INVAL)
            } else {
                Ok(space)
            };
        }
    }
    Err(Errno::NOTSUP)
}

/// The access list stored as `name`, if there is one.
pub(crate) fn access_list(
    fs: &FileSystem,
    inode: &InodeRef,
    name: &[u8],
) -> Result<Option<AccessList>> {
    match fs.get_xattr(inode, name)? {
        Some(bytes) => Ok(Some(AccessList::parse(&bytes)?)),
        None => Ok(None),
    }
}

impl Actor<'_> {
    pub(crate) fn get_xattr(&self, inode: &InodeRef, name: &[u8]) -> Result<Vec<u8>> {
        match namespace(name)? {
            Namespace::Trusted if !self.caller.is_root() => return Err(Errno::NODATA.into()),
            Namespace::User if !takes_user_attributes(inode) => return Err(Errno::NODATA.into()),
            Namespace::User => self.check(inode, Access::READ)?,
            _ => {}
        }
        Ok(self.fs().get_xattr(inode, name)?.ok_or(Errno::NODATA)?)
    }

    pub(crate) fn list_xattr(&self, inode: &InodeRef) -> Result<Vec<Vec<u8>>> {
        let mut names = self.fs().list_xattr(inode)?;
        if !self.caller.is_root() {
            names.retain(|name| !name.starts_with(b"trusted."));
        }
        Ok(names)
    }

    pub(crate) fn set_xattr(
        &self,
        inode: &InodeRef,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        let space = self.check_change(inode, name)?;
        if value.len() > VALUE_MAX {
            return Err(Errno::TOOBIG.into());
        }
        if space == Namespace::List {
            return self.set_list(inode, name, value, mode);
        }
        let how = (mode, SetGid::Keep);
        Ok(self.shared.set_xattr(inode, (name, value), how)?)
    }

    pub(crate) fn remove_xattr(&self, inode: &InodeRef, name: &[u8]) -> Result<()> {
        self.check_change(inode, name)?;
        Ok(self.shared.remove_xattr(inode, name)?)
    }

    fn check_change(&self, inode: &InodeRef, name: &[u8]) -> Result<Namespace> {
        let space = namespace(name)?;
        match space {
            Namespace::Trusted | Namespace::Security if !self.caller.is_root() => {
                return Err(Errno::PERM.into());
            }
            Namespace::User => {
                if !takes_user_attributes(inode) {
                    return Err(Errno::PERM.into());
                }
                if !self.caller.is_root() {
                    let node = self.permissions(inode)?;
                    if permission::is_sticky_directory(&node) && !self.caller.owns(node.uid) {
                        return Err(Errno::PERM.into());
                    }
                    self.check(inode, Access::WRITE)?;
                }
            }
            Namespace::List => {
                if inode.kind() == FileKind::Symlink {
                    return Err(Errno::NOTSUP.into());
                }
                if !self.caller.owns(self.permissions(inode)?.uid) {
                    return Err(Errno::PERM.into());
                }
            }
            _ => {}
        }
        Ok(space)
    }

    /// Stores an access list (an empty one removes it); the file system keeps mode and list
    /// consistent.
    fn set_list(&self, inode: &InodeRef, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        if name == acl::DEFAULT && inode.kind() != FileKind::Directory {
            return Err(Errno::ACCESS.into());
        }
        if value.len() <= EMPTY_LIST_BYTES {
            return Ok(self.shared.remove_xattr(inode, name)?);
        }
        let list = AccessList::parse(value)?;
        // posix_acl_update_mode: a caller outside the group loses set-group-id.
        let group = self.permissions(inode)?.gid;
        let set_gid = match self.caller.is_root() || self.caller.in_group(group) {
            true => SetGid::Keep,
            false => SetGid::Drop,
        };
        let value = list.to_bytes();
        Ok(self
            .shared
            .set_xattr(inode, (name, &value), (mode, set_gid))?)
    }
}

fn takes_user_attributes(inode: &InodeRef) -> bool {
    matches!(inode.kind(), FileKind::File | FileKind::Directory)
}
