//! The calls of a session that make names.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use dure_fs::{FileKind, InodeRef, NewInode};
use rustix::io::Errno;

use crate::error::{Context, Result};
use crate::file::File;
use crate::options::OpenOptions;
use crate::path::Last;
use crate::permission::{self, Access};
use crate::session::Session;
use crate::walk::{self, Links, Place};

pub(crate) const WRITE_AND_SEARCH: Access = Access::WRITE.and(Access::EXECUTE);
const TARGET_MAX: usize = 4095;

/// A special file to be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Special {
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device with this number.
    CharacterDevice(u64),
    /// A block device with this number.
    BlockDevice(u64),
    /// An ordinary, empty file.
    File,
}

impl Special {
    fn kind_and_rdev(self) -> (FileKind, u64) {
        match self {
            Special::Fifo => (FileKind::Fifo, 0),
            Special::Socket => (FileKind::Socket, 0),
            Special::CharacterDevice(rdev) => (FileKind::CharacterDevice, rdev),
            Special::BlockDevice(rdev) => (FileKind::BlockDevice, rdev),
            Special::File => (FileKind::File, 0),
        }
    }
}

impl Session {
    /// Owner, group and mode of a new inode in `dir`, which the caller must be able to write. The
    /// file system applies the directory's set-group-id bit and default list.
    fn new_inode(
        &self,
        dir: &InodeRef,
        kind: FileKind,
        rdev: u64,
        mode: u32,
    ) -> walk::Result<NewInode> {
        let actor = self.actor();
        actor.check(dir, WRITE_AND_SEARCH)?;
        let caller = self.credentials();
        let mut mode = mode & 0o7777;
        if permission::runs_as_group(mode) && kind != FileKind::Directory {
            mode = permission::mode_of_new(caller, &actor.permissions(dir)?, mode);
        }
        let (umask, uid, gid) = (caller.umask, caller.uid, caller.gid);
        Ok(NewInode {
            mode: kind.mode() | mode,
            umask,
            uid,
            gid,
            rdev,
        })
    }

    /// The name that `place` has for something new.
    fn free_name<'p>(&self, place: &Place<'p>, kind: FileKind) -> walk::Result<&'p [u8]> {
        let Last::Name(name) = place.last else {
            return Err(Errno::EXIST.into());
        };
        if self.walk().is_taken(&place.dir, name)? {
            return Err(Errno::EXIST.into());
        }
        if place.slash && kind != FileKind::Directory {
            return Err(Errno::NOENT.into());
        }
        Ok(name)
    }

    fn make(&self, path: &Path, kind: FileKind, rdev: u64, mode: u32) -> walk::Result<()> {
        let place = self.place(path)?;
        let name = self.free_name(&place, kind)?;
        let new = self.new_inode(&place.dir, kind, rdev, mode)?;
        match kind {
            FileKind::Directory => self.shared().mkdir(&place.dir, name, &new)?,
            _ => drop(self.shared().create(&place.dir, name, &new)?),
        }
        Ok(())
    }

    /// Makes a directory; `mode` is before the umask.
    ///
    /// # Errors
    /// `EEXIST`, `EACCES`, `ENOSPC`, those of the walk.
    pub fn create_dir_with_mode(&self, path: impl AsRef<Path>, mode: u32) -> Result<()> {
        let path = path.as_ref();
        self.make(path, FileKind::Directory, 0, mode)
            .at("make directory", path)
    }

    /// Makes a directory with mode 0o777 before the umask.
    ///
    /// # Errors
    /// `EEXIST`, `EACCES`, `ENOSPC`, those of the walk.
    pub fn create_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        self.create_dir_with_mode(path, 0o777)
    }

    /// Makes a directory and its missing ancestors.
    ///
    /// # Errors
    /// Those of `create_dir`, `ENOTDIR`.
    ///
    /// ```
    /// # let session = dure::Volume::in_memory(32 << 20)?.root();
    /// session.create_dir_all("/notes/2026/may")?;
    /// session.create_dir_all("/notes/2026/may")?; // it is there: no error
    /// # Ok::<(), dure::Error>(())
    /// ```
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        match self.create_dir(path) {
            Err(error) if error.errno() == Errno::NOENT.raw_os_error() => {
                let parent = path
                    .parent()
                    .filter(|parent| !parent.as_os_str().is_empty());
                let Some(parent) = parent else {
                    return Err(error);
                };
                self.create_dir_all(parent)?;
                match self.create_dir(path) {
                    Err(error) if self.is_dir_after(&error, path) => Ok(()),
                    result => result,
                }
            }
            Err(error) if self.is_dir_after(&error, path) => Ok(()),
            result => result,
        }
    }

    fn is_dir_after(&self, error: &crate::Error, path: &Path) -> bool {
        error.errno() == Errno::EXIST.raw_os_error()
            && self.metadata(path).is_ok_and(|metadata| metadata.is_dir())
    }

    /// Makes a special file (`mknod`). Devices are made by root only.
    ///
    /// # Errors
    /// `EPERM`, `EEXIST`, `EACCES`, those of the walk.
    ///
    /// ```
    /// # let session = dure::Volume::in_memory(32 << 20)?.root();
    /// session.mknod("/pipe", dure::Special::Fifo, 0o600)?;
    /// assert_eq!(session.metadata("/pipe")?.kind(), dure::FileKind::Fifo);
    /// # Ok::<(), dure::Error>(())
    /// ```
    pub fn mknod(&self, path: impl AsRef<Path>, special: Special, mode: u32) -> Result<()> {
        let path = path.as_ref();
        let (kind, rdev) = special.kind_and_rdev();
        let device = matches!(
            special,
            Special::CharacterDevice(_) | Special::BlockDevice(_)
        );
        if device && !self.credentials().is_root() {
            return Err(Errno::PERM).at("make node", path);
        }
        self.make(path, kind, rdev, mode).at("make node", path)
    }

    /// Makes `path` a symbolic link to `target`.
    ///
    /// # Errors
    /// `ENOENT` for an empty target, `EEXIST`, `EACCES`, those of the walk.
    ///
    /// ```
    /// # let session = dure::Volume::in_memory(32 << 20)?.root();
    /// session.symlink("/notes/today", "/now")?;
    /// assert_eq!(session.read_link("/now")?, std::path::Path::new("/notes/today"));
    /// assert!(session.symlink_metadata("/now")?.is_symlink());
    /// # Ok::<(), dure::Error>(())
    /// ```
    pub fn symlink(&self, target: impl AsRef<Path>, path: impl AsRef<Path>) -> Result<()> {
        let (target, path) = (target.as_ref().as_os_str().as_bytes(), path.as_ref());
        let make = || {
            if target.is_empty() {
                return Err(Errno::NOENT.into());
            }
            if target.len() > TARGET_MAX {
                return Err(Errno::NAMETOOLONG.into());
            }
            if target.contains(&0) {
                return Err(Errno::INVAL.into());
            }
            let place = self.place(path)?;
            let name = self.free_name(&place, FileKind::Symlink)?;
            let new = self.new_inode(&place.dir, FileKind::Symlink, 0, 0o777)?;
            self.shared().symlink(&place.dir, (name, target), &new)?;
            walk::Result::Ok(())
        };
        make().at("make symbolic link", path)
    }

    /// Gives the file at `from` (a symbolic link itself is not followed) another name.
    ///
    /// # Errors
    /// `EPERM` for a directory, `EEXIST`, `EACCES`, those of the walk.
    ///
    /// ```
    /// # let session = dure::Volume::in_memory(32 << 20)?.root();
    /// session.write("/file", b"sown")?;
    /// session.hard_link("/file", "/same")?;
    /// assert_eq!(session.metadata("/same")?.nlink(), 2);
    /// # Ok::<(), dure::Error>(())
    /// ```
    pub fn hard_link(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        let to = to.as_ref();
        let from = from.as_ref();
        let source = self.find(from, Links::Keep).at("link", from)?;
        self.link_inode(&source, to).at("link to", to)
    }

    /// Gives an open file a name: how a file of [`Session::temporary`] becomes visible.
    ///
    /// # Errors
    /// `ENOENT` if the file had names and has none left, `EEXIST`, `EACCES`, those of the walk.
    pub fn link_file(&self, file: &File, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        self.link_inode(file.inode(), path).at("link to", path)
    }

    fn link_inode(&self, source: &InodeRef, path: &Path) -> walk::Result<()> {
        let place = self.place(path)?;
        let name = self.free_name(&place, source.kind())?;
        if place.slash {
            return Err(Errno::NOENT.into());
        }
        self.actor().check(&place.dir, WRITE_AND_SEARCH)?;
        if source.kind() == FileKind::Directory {
            return Err(Errno::PERM.into());
        }
        self.shared().link(source, &place.dir, name)?;
        Ok(())
    }

    /// A new file without a name, open for reading and writing (`O_TMPFILE`); gone when closed
    /// unless [`Session::link_file`] names it.
    ///
    /// # Errors
    /// `ENOTDIR`, `EACCES`, `ENOSPC`, those of the walk.
    ///
    /// ```
    /// # let session = dure::Volume::in_memory(32 << 20)?.root();
    /// let file = session.temporary("/", 0o644)?;
    /// file.write_all_at(b"sown", 0)?;
    /// session.link_file(&file, "/file")?;
    /// assert_eq!(session.read("/file")?, b"sown");
    /// # Ok::<(), dure::Error>(())
    /// ```
    pub fn temporary(&self, directory: impl AsRef<Path>, mode: u32) -> Result<File> {
        let path = directory.as_ref();
        let make = || {
            let dir = self.find(path, Links::Follow)?;
            if dir.kind() != FileKind::Directory {
                return Err(Errno::NOTDIR.into());
            }
            let new = self.new_inode(&dir, FileKind::File, 0, mode)?;
            walk::Result::Ok(self.fs().temporary(&dir, &new)?)
        };
        let made = make().at("make temporary file in", path)?;
        let options = OpenOptions::new().read(true).write(true);
        Ok(File::new(self, made, path, &options))
    }

    /// Makes a file at a place where nothing is.
    pub(crate) fn create_at(
        &self,
        dir: &InodeRef,
        name: &[u8],
        mode: u32,
    ) -> walk::Result<InodeRef> {
        let new = self.new_inode(dir, FileKind::File, 0, mode)?;
        Ok(self.shared().create(dir, name, &new)?)
    }
}
