//! The calls of a session that change attributes, plain and extended.

use std::path::Path;

use dure_fs::XattrMode;
use rustix::io::Errno;

use crate::error::{Context, Result};
use crate::metadata::{FileTimes, Permissions};
use crate::session::Session;
use crate::walk::Links;

impl Session {
    /// Sets permission bits.
    ///
    /// # Errors
    /// `EPERM` unless owner.
    ///
    /// ```
    /// # let session = dure::Volume::in_memory(32 << 20)?.root();
    /// session.write("/file", b"sown")?;
    /// session.set_permissions("/file", 0o640)?;
    /// assert_eq!(session.metadata("/file")?.permissions().mode(), 0o640);
    /// # Ok::<(), dure::Error>(())
    /// ```
    pub fn set_permissions(
        &self,
        path: impl AsRef<Path>,
        permissions: impl Into<Permissions>,
    ) -> Result<()> {
        let (path, mode) = (path.as_ref(), permissions.into().mode());
        let change = || self.actor().chmod(&self.find(path, Links::Follow)?, mode);
        change().at("chmod", path)
    }

    /// Sets owner and group; `None` leaves one.
    ///
    /// # Errors
    /// `EPERM` unless allowed.
    pub fn chown(&self, path: impl AsRef<Path>, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        let path = path.as_ref();
        let change = || {
            self.actor()
                .chown(&self.find(path, Links::Follow)?, uid, gid)
        };
        change().at("chown", path)
    }

    /// Sets owner and group of a symbolic link itself; `None` leaves one.
    ///
    /// # Errors
    /// `EPERM` unless allowed.
    pub fn lchown(&self, path: impl AsRef<Path>, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        let path = path.as_ref();
        let change = || self.actor().chown(&self.find(path, Links::Keep)?, uid, gid);
        change().at("chown", path)
    }

    /// Sets times (`utimensat`).
    ///
    /// # Errors
    /// `EPERM` or `EACCES` unless owner or, for both to now, writer.
    ///
    /// ```
    /// # let session = dure::Volume::in_memory(32 << 20)?.root();
    /// use dure::{FileTimes, TimeChange};
    /// session.write("/file", b"sown")?;
    /// let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(7);
    /// let times = FileTimes {
    ///     modified: TimeChange::Set(time.into()),
    ///     ..FileTimes::default()
    /// };
    /// session.set_times("/file", times)?;
    /// assert_eq!(session.metadata("/file")?.modified(), time.into());
    /// # Ok::<(), dure::Error>(())
    /// ```
    pub fn set_times(&self, path: impl AsRef<Path>, times: FileTimes) -> Result<()> {
        let path = path.as_ref();
        let change = || {
            self.actor()
                .set_times(&self.find(path, Links::Follow)?, times)
        };
        change().at("set times of", path)
    }

    /// Like [`Session::set_times`], but does not follow a symbolic link: sets its own times.
    ///
    /// # Errors
    /// `EPERM` or `EACCES` unless owner or, for both to now, writer.
    pub fn set_symlink_times(&self, path: impl AsRef<Path>, times: FileTimes) -> Result<()> {
        let path = path.as_ref();
        let change = || {
            self.actor()
                .set_times(&self.find(path, Links::Keep)?, times)
        };
        change().at("set times of", path)
    }

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
    ///
    /// ```
    /// # let session = dure::Volume::in_memory(32 << 20)?.root();
    /// session.write("/file", b"sown")?;
    /// session.set_xattr("/file", b"user.colour", b"green", dure::XattrMode::Create)?;
    /// assert_eq!(session.get_xattr("/file", b"user.colour")?, Some(b"green".to_vec()));
    /// assert_eq!(session.list_xattr("/file")?, [b"user.colour"]);
    /// # Ok::<(), dure::Error>(())
    /// ```
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
