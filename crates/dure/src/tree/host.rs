//! The host's side of a copy: what std does not offer.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, SeekFrom, Timespec, Timestamps, XattrFlags, mknodat, seek,
    utimensat,
};
use rustix::io::Errno;

use crate::metadata::{FileTimes, Metadata, TimeChange, Timestamp};

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
pub(super) fn times(metadata: &std::fs::Metadata) -> FileTimes {
    let time = |secs: i64, nanos: i64| {
        TimeChange::Set(Timestamp {
            secs,
            nanos: u32::try_from(nanos).unwrap_or(0),
        })
    };
    FileTimes {
        accessed: time(metadata.atime(), metadata.atime_nsec()),
        modified: time(metadata.mtime(), metadata.mtime_nsec()),
    }
}

/// Sets access and modification time; a symbolic link's own.
pub(super) fn set_times(path: &Path, metadata: &Metadata) -> io::Result<()> {
    let spec = |time: Timestamp| Timespec {
        tv_sec: time.secs,
        tv_nsec: time.nanos.into(),
    };
    let times = Timestamps {
        last_access: spec(metadata.accessed()),
        last_modification: spec(metadata.modified()),
    };
    Ok(utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}

/// Makes a special file.
pub(super) fn make_special(path: &Path, kind: FileType, rdev: u64) -> io::Result<()> {
    Ok(mknodat(CWD, path, kind, Mode::RUSR | Mode::WUSR, rdev)?)
}

/// Extended attributes of `path` itself; none where the file system has none.
pub(super) fn attributes(path: &Path) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let names = match grown(|room| rustix::fs::llistxattr(path, room)) {
        Ok(names) => names,
        Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
        Err(errno) => return Err(errno.into()),
    };
    let mut all = Vec::new();
    for name in names
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
    {
        let text = CString::new(name).expect("split at every zero");
        match grown(|room| rustix::fs::lgetxattr(path, text.as_c_str(), room)) {
            Ok(value) => all.push((name.to_vec(), value)),
            // Removed meanwhile, or not for this caller.
            Err(Errno::NODATA) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(all)
}

/// Sets an extended attribute; says whether the file system takes it.
pub(super) fn set_attribute(path: &Path, name: &[u8], value: &[u8]) -> io::Result<bool> {
    let name = CString::new(name).map_err(|_| Errno::INVAL)?;
    match rustix::fs::lsetxattr(path, name.as_c_str(), value, XattrFlags::empty()) {
        Ok(()) => Ok(true),
        Err(Errno::OPNOTSUPP) => Ok(false),
        Err(errno) => Err(errno.into()),
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
