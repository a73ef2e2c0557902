//! Content and size of files.

use std::slice;

use libc::{c_int, c_void, off64_t, size_t, ssize_t, stat};

use super::{borrowed, hook, in_c, refuse};
use crate::description::Answer;
use crate::table::{self, How};

/// What Linux reads or writes in one call at most.
pub(super) const MOST: usize = 0x7fff_f000;

type Move = unsafe extern "C" fn(c_int, *mut c_void, size_t) -> ssize_t;
type MoveAt = unsafe extern "C" fn(c_int, *mut c_void, size_t, off64_t) -> ssize_t;
type Of = unsafe extern "C" fn(c_int) -> c_int;

hook!(read: (fd: c_int, to: *mut c_void, count: size_t) -> ssize_t = read_);
hook!(__read_chk: (fd: c_int, to: *mut c_void, count: size_t, room: size_t) -> ssize_t = read_checked);
hook!(write: (fd: c_int, from: *mut c_void, count: size_t) -> ssize_t = write_);
hook!(pread, pread64:
    (fd: c_int, to: *mut c_void, count: size_t, offset: off64_t) -> ssize_t = read_at);
hook!(__pread_chk, __pread64_chk:
    (fd: c_int, to: *mut c_void, count: size_t, offset: off64_t, room: size_t) -> ssize_t
    = read_at_checked);
hook!(pwrite, pwrite64:
    (fd: c_int, from: *mut c_void, count: size_t, offset: off64_t) -> ssize_t = write_at);
hook!(fsync: (fd: c_int) -> c_int = sync);
hook!(fdatasync: (fd: c_int) -> c_int = sync_data);
hook!(ftruncate, ftruncate64: (fd: c_int, len: off64_t) -> c_int = truncate);
hook!(lseek, lseek64: (fd: c_int, offset: off64_t, whence: c_int) -> off64_t = seek);
hook!(fstat, fstat64: (fd: c_int, to: *mut stat) -> c_int = attributes);

/// Memory of a caller that is read from. Nothing and what cannot be memory are the kernel's.
pub(super) unsafe fn source<'a>(from: *const c_void, count: size_t) -> Option<&'a [u8]> {
    let usable = !from.is_null() && (1..=MOST).contains(&count);
    // SAFETY: the caller says that so many bytes are there.
    usable.then(|| unsafe { slice::from_raw_parts(from.cast(), count) })
}

/// Memory of a caller that is written to.
pub(super) unsafe fn target<'a>(to: *mut c_void, count: size_t) -> Option<&'a mut [u8]> {
    let usable = !to.is_null() && (1..=MOST).contains(&count);
    // SAFETY: the caller says that so many bytes are there.
    usable.then(|| unsafe { slice::from_raw_parts_mut(to.cast(), count) })
}

pub(super) fn offset_of(offset: off64_t) -> Option<u64> {
    u64::try_from(offset).ok()
}

unsafe fn read_(real: Move, fd: c_int, to: *mut c_void, count: size_t) -> ssize_t {
    // SAFETY: the caller's memory.
    let done = unsafe { target(to, count) }
        .and_then(|bytes| table::with(fd, |description| description.read(borrowed(fd), bytes)));
    // SAFETY: the caller's arguments.
    done.map_or_else(|| unsafe { real(fd, to, count) }, in_c)
}

unsafe fn read_checked(
    real: MoveAtChecked3,
    fd: c_int,
    to: *mut c_void,
    count: size_t,
    room: size_t,
) -> ssize_t {
    if count <= room {
        // SAFETY: the caller's memory.
        let done = unsafe { target(to, count) }
            .and_then(|bytes| table::with(fd, |description| description.read(borrowed(fd), bytes)));
        if let Some(done) = done {
            return in_c(done);
        }
    }
    // SAFETY: the caller's arguments.
    unsafe { real(fd, to, count, room) }
}

type MoveAtChecked3 = unsafe extern "C" fn(c_int, *mut c_void, size_t, size_t) -> ssize_t;
type MoveAtChecked = unsafe extern "C" fn(c_int, *mut c_void, size_t, off64_t, size_t) -> ssize_t;

unsafe fn write_(real: Move, fd: c_int, from: *mut c_void, count: size_t) -> ssize_t {
    // SAFETY: the caller's memory.
    let done = unsafe { source(from, count) }
        .and_then(|bytes| table::with(fd, |description| description.write(borrowed(fd), bytes)));
    // SAFETY: the caller's arguments.
    done.map_or_else(|| unsafe { real(fd, from, count) }, in_c)
}

/// Reads at an offset, if the library has the file.
#[inline]
unsafe fn read_short(fd: c_int, to: *mut c_void, count: size_t, offset: off64_t) -> Option<Answer> {
    let offset = offset_of(offset)?;
    // SAFETY: the caller's memory.
    let bytes = unsafe { target(to, count) }?;
    table::with(fd, |description| {
        How::Short(description.read_at(bytes, offset))
    })
}

unsafe fn read_at(
    real: MoveAt,
    fd: c_int,
    to: *mut c_void,
    count: size_t,
    offset: off64_t,
) -> ssize_t {
    // SAFETY: the caller's memory.
    let done = unsafe { read_short(fd, to, count, offset) };
    // SAFETY: the caller's arguments.
    done.map_or_else(|| unsafe { real(fd, to, count, offset) }, in_c)
}

unsafe fn read_at_checked(
    real: MoveAtChecked,
    fd: c_int,
    to: *mut c_void,
    count: size_t,
    offset: off64_t,
    room: size_t,
) -> ssize_t {
    if count <= room {
        // SAFETY: the caller's memory.
        if let Some(done) = unsafe { read_short(fd, to, count, offset) } {
            return in_c(done);
        }
    }
    // SAFETY: the caller's arguments.
    unsafe { real(fd, to, count, offset, room) }
}

unsafe fn write_at(
    real: MoveAt,
    fd: c_int,
    from: *mut c_void,
    count: size_t,
    offset: off64_t,
) -> ssize_t {
    let done = offset_of(offset).and_then(|offset| {
        // SAFETY: the caller's memory.
        let bytes = unsafe { source(from, count) }?;
        table::with(fd, |description| {
            How::Short(description.write_at(borrowed(fd), bytes, offset))
        })
    });
    // SAFETY: the caller's arguments.
    done.map_or_else(|| unsafe { real(fd, from, count, offset) }, in_c)
}

unsafe fn sync(real: Of, fd: c_int) -> c_int {
    // SAFETY: no memory.
    sync_short(fd, false).unwrap_or_else(|| unsafe { real(fd) })
}

unsafe fn sync_data(real: Of, fd: c_int) -> c_int {
    // SAFETY: no memory.
    sync_short(fd, true).unwrap_or_else(|| unsafe { real(fd) })
}

fn sync_short(fd: c_int, data_only: bool) -> Option<c_int> {
    let done = table::with(fd, |description| How::Short(description.sync(data_only)))?;
    Some(done.map_or_else(refuse, |_| 0))
}

unsafe fn truncate(
    real: unsafe extern "C" fn(c_int, off64_t) -> c_int,
    fd: c_int,
    len: off64_t,
) -> c_int {
    let done = offset_of(len).and_then(|len| {
        table::with(fd, |description| {
            How::Short(description.truncate(borrowed(fd), len))
        })
    });
    match done {
        Some(done) => done.map_or_else(refuse, |_| 0),
        // SAFETY: the caller's arguments.
        None => unsafe { real(fd, len) },
    }
}

/// From the end the kernel would ask for the size; all else it knows.
unsafe fn seek(
    real: unsafe extern "C" fn(c_int, off64_t, c_int) -> off64_t,
    fd: c_int,
    offset: off64_t,
    whence: c_int,
) -> off64_t {
    let size = (whence == libc::SEEK_END)
        .then(|| table::with(fd, |description| How::Short(description.metadata())))
        .flatten()
        .and_then(|found| off64_t::try_from(found.ok()?.0.len()).ok())
        .and_then(|size| size.checked_add(offset));
    match size {
        // SAFETY: no memory.
        Some(place) => unsafe { real(fd, place, libc::SEEK_SET) },
        // SAFETY: no memory.
        None => unsafe { real(fd, offset, whence) },
    }
}

unsafe fn attributes(
    real: unsafe extern "C" fn(c_int, *mut stat) -> c_int,
    fd: c_int,
    to: *mut stat,
) -> c_int {
    let found = table::with(fd, |description| How::Short(description.metadata()));
    // SAFETY: the caller's place, if there is one.
    let (Some(found), Some(to)) = (found, unsafe { to.as_mut() }) else {
        // SAFETY: the caller's arguments.
        return unsafe { real(fd, to) };
    };
    match found {
        Ok((found, device)) => {
            *to = in_c_of(&found, device);
            0
        }
        Err(errno) => refuse(errno),
    }
}

/// As stat(2) shows it.
fn in_c_of(found: &dure::Metadata, device: u64) -> stat {
    // SAFETY: a structure of numbers, of which zeroes are values.
    let mut stat = unsafe { std::mem::zeroed::<stat>() };
    let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    stat.st_dev = device;
    stat.st_ino = found.ino();
    stat.st_mode = found.kind().mode() | found.mode();
    stat.st_nlink = found.nlink().into();
    stat.st_uid = found.uid();
    stat.st_gid = found.gid();
    stat.st_rdev = found.rdev();
    stat.st_size = signed(found.len());
    stat.st_blksize = signed(found.blksize());
    stat.st_blocks = signed(found.blocks());
    let (access, modify, change) = (found.accessed(), found.modified(), found.changed());
    (stat.st_atime, stat.st_atime_nsec) = (access.secs, access.nanos.into());
    (stat.st_mtime, stat.st_mtime_nsec) = (modify.secs, modify.nanos.into());
    (stat.st_ctime, stat.st_ctime_nsec) = (change.secs, change.nanos.into());
    stat
}
