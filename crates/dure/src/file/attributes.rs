//! Attributes of an open file, plain and extended.

use dure_fs::{Extents, XattrMode};
use rustix::io::Errno;

use super::File;
use crate::error::{Cause, Result};
use crate::metadata::{FileTimes, Metadata, Permissions};

impl File {
    /// Attributes.
    ///
    /// # Errors
    /// `EIO`.
    #[inline]
    pub fn metadata(&self) -> Result<Metadata> {
        match self.0.origin.shared().fs.attributes(&self.0.inode) {
            Ok(attributes) => Ok(Metadata::new(attributes)),
            Err(error) => self.told("stat", Err(error.into())),
        }
    }

    /// How many runs of blocks the file has on the device, and how many blocks; what was not
    /// written back yet counts as it was before.
    ///
    /// # Errors
    /// `EINVAL` or `EISDIR` of what is no regular file, `EIO`.
    pub fn extents(&self) -> Result<Extents> {
        let fs = &self.0.origin.shared().fs;
        self.told("map", fs.extents(&self.0.inode).map_err(Cause::from))
    }

    /// Sets permission bits.
    ///
    /// # Errors
    /// `EPERM` unless owner.
    pub fn set_permissions(&self, permissions: impl Into<Permissions>) -> Result<()> {
        let mode = permissions.into().mode();
        self.told("chmod", self.actor().chmod(&self.0.inode, mode))
    }

    /// Sets owner and group; `None` leaves one.
    ///
    /// # Errors
    /// `EPERM` unless allowed.
    pub fn chown(&self, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        self.told("chown", self.actor().chown(&self.0.inode, uid, gid))
    }

    /// Sets times.
    ///
    /// # Errors
    /// `EPERM` or `EACCES` unless owner or, for both to now, writer.
    pub fn set_times(&self, times: FileTimes) -> Result<()> {
        self.told("set times of", self.actor().set_times(&self.0.inode, times))
    }

    /// An extended attribute; `None` if it is not there.
    ///
    /// # Errors
    /// `EACCES`, `EOPNOTSUPP`.
    pub fn get_xattr(&self, name: &[u8]) -> Result<Option<Vec<u8>>> {
        match self.actor().get_xattr(&self.0.inode, name) {
            Err(cause) if cause.errno() == Errno::NODATA.raw_os_error() => Ok(None),
            result => self.told("get attribute of", result.map(Some)),
        }
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// `EPERM`, `EACCES`, `EEXIST`, `ENODATA`, `E2BIG`, `EOPNOTSUPP`.
    pub fn set_xattr(&self, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        let set = self.actor().set_xattr(&self.0.inode, name, value, mode);
        self.told("set attribute of", set)
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// `ENODATA`, `EPERM`, `EACCES`, `EOPNOTSUPP`.
    pub fn remove_xattr(&self, name: &[u8]) -> Result<()> {
        let removed = self.actor().remove_xattr(&self.0.inode, name);
        self.told("remove attribute of", removed)
    }

    /// Names of the extended attributes.
    ///
    /// # Errors
    /// `EIO`.
    pub fn list_xattr(&self) -> Result<Vec<Vec<u8>>> {
        self.told("list attributes of", self.actor().list_xattr(&self.0.inode))
    }
}
