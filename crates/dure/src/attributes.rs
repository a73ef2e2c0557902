//! The calls of a session on extended attributes.

use std::path::Path;

use dure_fs::XattrMode;
use rustix::io::Errno;

use crate::error::{Context, Result};
use crate::session::Session;
use crate::walk::Links;

impl Session {
    /// An extended attribute; `None` if it is not there.
    ///
    /// # Errors
    /// `EACCES`, `EOPNOTSUPP`, those of the walk.
    pub fn get_xattr(&self, path: impl AsRef<Path>, name: &[u8]) -> Result<Option<Vec<u8>>> {
        let path = path.as_ref();
        let get = || {
            self.actor()
                .get_xattr(&self.find(path, Links::Follow)?, name)
        };
        match get() {
            Err(cause) if cause.errno() == Errno::NODATA.raw_os_error() => Ok(None),
            result => result.map(Some).at("get attribute of", path),
        }
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// `EPERM`, `EACCES`, `EEXIST`, `ENODATA`, `E2BIG`, `EOPNOTSUPP`, those of the walk.
    pub fn set_xattr(
        &self,
        path: impl AsRef<Path>,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        let path = path.as_ref();
        let set = || {
            self.actor()
                .set_xattr(&self.find(path, Links::Follow)?, name, value, mode)
        };
        set().at("set attribute of", path)
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// `ENODATA`, `EPERM`, `EACCES`, `EOPNOTSUPP`, those of the walk.
    pub fn remove_xattr(&self, path: impl AsRef<Path>, name: &[u8]) -> Result<()> {
        let path = path.as_ref();
        let remove = || {
            self.actor()
                .remove_xattr(&self.find(path, Links::Follow)?, name)
        };
        remove().at("remove attribute of", path)
    }

    /// Names of the extended attributes.
    ///
    /// # Errors
    /// Those of the walk.
    pub fn list_xattr(&self, path: impl AsRef<Path>) -> Result<Vec<Vec<u8>>> {
        let path = path.as_ref();
        let list = || self.actor().list_xattr(&self.find(path, Links::Follow)?);
        list().at("list attributes of", path)
    }
}
