//! Reads into several places, and writes from several.

use std::slice;

use libc::{c_int, iovec, off64_t, ssize_t};

use super::content::{MOST, offset_of, source, target};
use super::{borrowed, hook, in_c};
use crate::description::Answer;
use crate::table::{self, How};

/// Parts of a vector at most.
const PARTS: c_int = 1024;

type Plain = unsafe extern "C" fn(c_int, *const iovec, c_int) -> ssize_t;
type At = unsafe extern "C" fn(c_int, *const iovec, c_int, off64_t) -> ssize_t;
type For = unsafe extern "C" fn(c_int, *const iovec, c_int, off64_t, c_int) -> ssize_t;

hook!(readv: (fd: c_int, parts: *const iovec, count: c_int) -> ssize_t = plain::<Reads>);
hook!(writev: (fd: c_int, parts: *const iovec, count: c_int) -> ssize_t = plain::<Writes>);
hook!(preadv, preadv64:
    (fd: c_int, parts: *const iovec, count: c_int, offset: off64_t) -> ssize_t = at::<Reads>);
hook!(pwritev, pwritev64:
    (fd: c_int, parts: *const iovec, count: c_int, offset: off64_t) -> ssize_t = at::<Writes>);
hook!(preadv2, preadv64v2:
    (fd: c_int, parts: *const iovec, count: c_int, offset: off64_t, flags: c_int) -> ssize_t
    = with_flags::<Reads>);
hook!(pwritev2, pwritev64v2:
    (fd: c_int, parts: *const iovec, count: c_int, offset: off64_t, flags: c_int) -> ssize_t
    = with_flags::<Writes>);

/// What is done with the parts.
trait Direction {
    /// At an offset, or at the position; if the library has the file.
    ///
    /// # Safety
    /// The parts are memory of the caller's.
    unsafe fn short(
        fd: c_int,
        vector: *const iovec,
        count: c_int,
        offset: Option<u64>,
    ) -> Option<Answer>;
}

struct Reads;
struct Writes;

impl Direction for Reads {
    /// Reads into several places at an offset, or at the position: in one read, so that no write comes
    /// between.
    unsafe fn short(
        fd: c_int,
        vector: *const iovec,
        count: c_int,
        offset: Option<u64>,
    ) -> Option<Answer> {
        // SAFETY: the caller's memory.
        let vector = unsafe { parts(vector, count) }?;
        let len = vector
            .iter()
            .try_fold(0_usize, |sum, part| sum.checked_add(part.iov_len))?;
        if !(1..=MOST).contains(&len) {
            return None;
        }
        table::with(fd, |description| {
            let mut all = vec![0; len];
            let read = match offset {
                Some(offset) => How::Short(description.read_at(&mut all, offset)),
                None => description.read(borrowed(fd), &mut all),
            };
            if let How::Short(Ok(count)) = read {
                // SAFETY: the caller's memory.
                unsafe { scatter(&all[..count], vector) };
            }
            read
        })
    }
}

impl Direction for Writes {
    /// Writes from several places at an offset, or at the position.
    unsafe fn short(
        fd: c_int,
        vector: *const iovec,
        count: c_int,
        offset: Option<u64>,
    ) -> Option<Answer> {
        // SAFETY: the caller's memory.
        let vector = unsafe { parts(vector, count) }?;
        table::with(fd, |description| {
            // SAFETY: the caller's memory.
            let Some(all) = (unsafe { gather(vector) }) else {
                return How::Long;
            };
            match offset {
                Some(offset) => How::Short(description.write_at(borrowed(fd), &all, offset)),
                None => description.write(borrowed(fd), &all),
            }
        })
    }
}

unsafe fn plain<D: Direction>(
    real: Plain,
    fd: c_int,
    vector: *const iovec,
    count: c_int,
) -> ssize_t {
    // SAFETY: the caller's memory.
    let done = unsafe { D::short(fd, vector, count, None) };
    // SAFETY: the caller's arguments.
    done.map_or_else(|| unsafe { real(fd, vector, count) }, in_c)
}

unsafe fn at<D: Direction>(
    real: At,
    fd: c_int,
    vector: *const iovec,
    count: c_int,
    offset: off64_t,
) -> ssize_t {
    let done = offset_of(offset)
        // SAFETY: the caller's memory.
        .and_then(|offset| unsafe { D::short(fd, vector, count, Some(offset)) });
    // SAFETY: the caller's arguments.
    done.map_or_else(|| unsafe { real(fd, vector, count, offset) }, in_c)
}

unsafe fn with_flags<D: Direction>(
    real: For,
    fd: c_int,
    vector: *const iovec,
    count: c_int,
    offset: off64_t,
    flags: c_int,
) -> ssize_t {
    let done = match (flags, offset) {
        // SAFETY: the caller's memory.
        (0, -1) => unsafe { D::short(fd, vector, count, None) },
        (0, _) => offset_of(offset)
            // SAFETY: the caller's memory.
            .and_then(|offset| unsafe { D::short(fd, vector, count, Some(offset)) }),
        _ => None,
    };
    // SAFETY: the caller's arguments.
    done.map_or_else(|| unsafe { real(fd, vector, count, offset, flags) }, in_c)
}

/// The parts of a vector.
unsafe fn parts<'a>(parts: *const iovec, count: c_int) -> Option<&'a [iovec]> {
    let usable = !parts.is_null() && (1..=PARTS).contains(&count);
    // SAFETY: the caller says that so many are there.
    usable.then(|| unsafe { slice::from_raw_parts(parts, usize::try_from(count).unwrap_or(0)) })
}

/// All that the parts have, in order: a write of several is one.
unsafe fn gather(parts: &[iovec]) -> Option<Vec<u8>> {
    let len = parts
        .iter()
        .try_fold(0_usize, |sum, part| sum.checked_add(part.iov_len))?;
    if !(1..=MOST).contains(&len) {
        return None;
    }
    let mut all = Vec::with_capacity(len);
    for part in parts.iter().filter(|part| part.iov_len > 0) {
        // SAFETY: as for the parts.
        all.extend_from_slice(unsafe { source(part.iov_base, part.iov_len) }?);
    }
    Some(all)
}

/// Fills the parts, in order.
unsafe fn scatter(bytes: &[u8], parts: &[iovec]) {
    let mut rest = bytes;
    for part in parts {
        let (now, later) = rest.split_at(part.iov_len.min(rest.len()));
        // SAFETY: as for the parts.
        if let Some(to) = unsafe { target(part.iov_base, now.len()) } {
            to.copy_from_slice(now);
        }
        rest = later;
    }
}
