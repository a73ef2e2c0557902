//! The host's side of a copy: open inodes, and names in open directories.
//!
//! **Problem.** A user that may write in a directory of the host can put a symbolic link in the
//! place of an entry the copy has just made or examined, and so redirect the copy. **Structure.** A
//! copy walks by descriptors: [`Inode::enter`] opens one name of an open directory and follows no
//! link, and everything else is done to open inodes. **Invariants.** A name is one component. Only
//! the directory that the caller names is reached by a path, through links if it has them.
//! **Crash.** Nothing is kept.

use std::ffi::{CString, OsStr, OsString};
use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, SeekFrom, Stat, Timespec, Timestamps, Uid,
    XattrFlags, chownat, fstat, linkat, mkdirat, mknodat, openat, readlinkat, seek, symlinkat,
    unlinkat, utimensat,
};
use rustix::io::Errno;

use crate::metadata::{FileTimes, Metadata, TimeChange, Timestamp};

/// An inode of the host, open whatever its type and permissions are. Data is read and written
/// through [`Inode::reopen`].
#[derive(Debug)]
pub(super) struct Inode(OwnedFd);

/// How existing entries are opened: follows no link, reads nothing, never blocks.
const LOOK: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Mode of a new file until it is complete: only the owner may use it.
const PRIVATE_FILE: Mode = Mode::RUSR.union(Mode::WUSR);

/// Requires a name of one component: the volume's are checked where they are read, the host's by
/// the kernel.
fn one(name: &OsStr) -> &OsStr {
    let bytes = name.as_bytes();
    assert!(!bytes.contains(&b'/') && bytes != b".." && bytes != b".");
    name
}

impl Inode {
    /// Opens the inode at `path`; a link itself.
    pub(super) fn at(path: &Path) -> io::Result<Inode> {
        Ok(Inode(openat(CWD, path, LOOK, Mode::empty())?))
    }

    /// The directory at `path`, which the caller named: links are followed.
    pub(super) fn directory_at(path: &Path) -> io::Result<Inode> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Inode(openat(CWD, path, flags, Mode::empty())?))
    }

    /// Opens the entry `name` of this directory; a link itself, not its target.
    pub(super) fn enter(&self, name: &OsStr) -> io::Result<Inode> {
        Ok(Inode(openat(&self.0, one(name), LOOK, Mode::empty())?))
    }

    /// Its attributes.
    pub(super) fn stat(&self) -> io::Result<Stat> {
        Ok(fstat(&self.0)?)
    }

    /// Its type.
    pub(super) fn kind(&self) -> io::Result<FileType> {
        Ok(FileType::from_raw_mode(self.stat()?.st_mode))
    }

    /// The names in this directory, sorted.
    pub(super) fn names(&self) -> io::Result<Vec<OsString>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut names = Vec::new();
        for entry in Dir::new(openat(&self.0, ".", flags, Mode::empty())?)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(OsStr::from_bytes(name).to_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    /// The target of this link.
    pub(super) fn target(&self) -> io::Result<OsString> {
        let target = readlinkat(&self.0, "", Vec::new())?;
        Ok(OsStr::from_bytes(target.as_bytes()).to_owned())
    }

    /// This regular file, to read its content.
    pub(super) fn reopen(&self) -> io::Result<File> {
        OpenOptions::new().read(true).open(self.path())
    }

    /// A path that opens this inode, and no other.
    fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.0.as_raw_fd()).into()
    }

    /// Makes a directory in this one, or finds an existing one. A new one is accessible to its
    /// owner only.
    pub(super) fn make_directory(&self, name: &OsStr) -> io::Result<Inode> {
        let made = mkdirat(&self.0, one(name), Mode::RWXU);
        let directory = match made {
            Ok(()) | Err(Errno::EXIST) => self.enter(name)?,
            Err(errno) => return Err(errno.into()),
        };
        match directory.kind()? {
            FileType::Directory => Ok(directory),
            _ => Err(Errno::EXIST.into()),
        }
    }

    /// Makes a regular file, which must not exist, accessible to its owner only.
    pub(super) fn make_file(&self, name: &OsStr) -> io::Result<(File, Inode)> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let file = openat(&self.0, one(name), flags | OFlags::CLOEXEC, PRIVATE_FILE)?;
        let inode = Inode(file.as_fd().try_clone_to_owned()?);
        Ok((file.into(), inode))
    }

    /// Makes a symbolic link.
    pub(super) fn make_link(&self, name: &OsStr, target: &Path) -> io::Result<Inode> {
        symlinkat(target, &self.0, one(name))?;
        self.just_made(name, FileType::Symlink)
    }

    /// Makes a special file, accessible to its owner only.
    pub(super) fn make_special(
        &self,
        name: &OsStr,
        kind: FileType,
        rdev: u64,
    ) -> io::Result<Inode> {
        mknodat(&self.0, one(name), kind, PRIVATE_FILE, rdev)?;
        self.just_made(name, kind)
    }

    /// Opens an inode that was just made without a descriptor. Another user that may write here may
    /// have replaced it since, for instance by a hard link to a file of that user: fails unless the
    /// inode is ours, has one name and the right type.
    fn just_made(&self, name: &OsStr, kind: FileType) -> io::Result<Inode> {
        let made = self.enter(name)?;
        let found = made.stat()?;
        let ours = found.st_uid == rustix::process::geteuid().as_raw() && found.st_nlink == 1;
        if !ours || FileType::from_raw_mode(found.st_mode) != kind {
            return Err(io::Error::other("somebody else replaced it meanwhile"));
        }
        Ok(made)
    }

    /// Gives the inode at `name` in `directory` another name here.
    pub(super) fn make_name(
        &self,
        name: &OsStr,
        directory: &Inode,
        first: &OsStr,
    ) -> io::Result<()> {
        let (first, name) = (one(first), one(name));
        Ok(linkat(
            &directory.0,
            first,
            &self.0,
            name,
            AtFlags::empty(),
        )?)
    }

    /// Removes a name, if it exists and is not a directory's.
    pub(super) fn clear(&self, name: &OsStr) -> io::Result<()> {
        match unlinkat(&self.0, one(name), AtFlags::empty()) {
            Err(errno) if errno != Errno::NOENT => Err(errno.into()),
            _ => Ok(()),
        }
    }

    /// Sets its owner and group.
    pub(super) fn set_owner(&self, uid: u32, gid: u32) -> io::Result<()> {
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        Ok(chownat(
            &self.0,
            "",
            Some(uid),
            Some(gid),
            AtFlags::EMPTY_PATH,
        )?)
    }

    /// Sets its permission bits; it is no link.
    pub(super) fn set_permissions(&self, permissions: Permissions) -> io::Result<()> {
        std::fs::set_permissions(self.path(), permissions)
    }

    /// Sets its access and modification time.
    pub(super) fn set_times(&self, metadata: &Metadata) -> io::Result<()> {
        let spec = |time: Timestamp| Timespec {
            tv_sec: time.secs,
            tv_nsec: time.nanos.into(),
        };
        let times = Timestamps {
            last_access: spec(metadata.accessed()),
            last_modification: spec(metadata.modified()),
        };
        Ok(utimensat(&self.0, "", &times, AtFlags::EMPTY_PATH)?)
    }

    /// Its extended attributes; none where the file system does not support them. The inode is no
    /// link.
    pub(super) fn attributes(&self) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let path = self.path();
        let names = match grown(|room| rustix::fs::listxattr(&path, room)) {
            Ok(names) => names,
            Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
            Err(errno) => return Err(errno.into()),
        };
        let mut all = Vec::new();
        for name in names
            .split(|byte| *byte == 0)
            .filter(|name| !name.is_empty())
        {
            let text = CString::new(name).expect("a name that was split at every zero holds none");
            match grown(|room| rustix::fs::getxattr(&path, text.as_c_str(), room)) {
                Ok(value) => all.push((name.to_vec(), value)),
                // Removed meanwhile, or not readable for this caller.
                Err(Errno::NODATA) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(all)
    }

    /// Sets an extended attribute; returns whether the file system supports it. The inode is no
    /// link.
    pub(super) fn set_attribute(&self, name: &[u8], value: &[u8]) -> io::Result<bool> {
        let name = CString::new(name).map_err(|_| Errno::INVAL)?;
        match rustix::fs::setxattr(self.path(), name.as_c_str(), value, XattrFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::OPNOTSUPP) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// The next range of data at or after `offset`, before `end`. Where the file system knows no holes,
/// all is data.
pub(super) fn next_data(file: &File, offset: u64, end: u64) -> io::Result<Option<(u64, u64)>> {
    if offset >= end {
        return Ok(None);
    }
    let start = match seek(file, SeekFrom::Data(offset)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Some((offset, end))),
        Err(errno) => return Err(errno.into()),
    };
    if start >= end {
        return Ok(None);
    }
    Ok(Some((start, seek(file, SeekFrom::Hole(start))?.min(end))))
}

/// Access and modification time, exactly.
pub(super) fn times(found: &Stat) -> FileTimes {
    let time = |secs: i64, nanos: u64| {
        TimeChange::Set(Timestamp {
            secs,
            nanos: u32::try_from(nanos).unwrap_or(0),
        })
    };
    FileTimes {
        accessed: time(found.st_atime, found.st_atime_nsec),
        modified: time(found.st_mtime, found.st_mtime_nsec),
    }
}

/// Calls `fill` with more room until the answer fits.
fn grown(fill: impl Fn(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
    let mut room = vec![0; 1 << 10];
    loop {
        match fill(&mut room) {
            Ok(len) => {
                room.truncate(len);
                return Ok(room);
            }
            Err(Errno::RANGE) if room.len() <= 1 << 17 => room.resize(room.len() * 4, 0),
            Err(errno) => return Err(errno),
        }
    }
}
