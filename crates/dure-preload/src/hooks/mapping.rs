//! Mappings of files, and copies by descriptor: the kernel's, which has to know how long a file is.

use libc::{c_int, c_uint, c_void, off64_t, size_t, ssize_t};

use super::{borrowed, hook};
use crate::mapped;
use crate::table::{self, How};

type Copy =
    unsafe extern "C" fn(c_int, *mut off64_t, c_int, *mut off64_t, size_t, c_uint) -> ssize_t;
type Send = unsafe extern "C" fn(c_int, c_int, *mut off64_t, size_t) -> ssize_t;
type Map = unsafe extern "C" fn(*mut c_void, size_t, c_int, c_int, c_int, off64_t) -> *mut c_void;

hook!(mmap, mmap64:
    (at: *mut c_void, len: size_t, access: c_int, how: c_int, fd: c_int, offset: off64_t)
    -> *mut c_void = map);
hook!(copy_file_range, splice:
    (from: c_int, at: *mut off64_t, to: c_int, place: *mut off64_t, len: size_t, flags: c_uint)
    -> ssize_t = copy);
hook!(sendfile, sendfile64:
    (to: c_int, from: c_int, at: *mut off64_t, len: size_t) -> ssize_t = send);

unsafe fn map(
    real: Map,
    at: *mut c_void,
    len: size_t,
    access: c_int,
    how: c_int,
    fd: c_int,
    offset: off64_t,
) -> *mut c_void {
    if how & libc::MAP_ANONYMOUS == 0 {
        crate::server::maps(fd);
    }
    // SAFETY: the caller's arguments.
    unsafe { real(at, len, access, how, fd, offset) }
}

/// The kernel is about to read what `fd` leads to, as far as it knows it.
fn tell(fd: c_int) {
    table::with(fd, |_| {
        mapped::tell(borrowed(fd));
        How::<()>::Long
    });
}

unsafe fn copy(
    real: Copy,
    from: c_int,
    at: *mut off64_t,
    to: c_int,
    place: *mut off64_t,
    len: size_t,
    flags: c_uint,
) -> ssize_t {
    tell(from);
    // SAFETY: the caller's arguments.
    unsafe { real(from, at, to, place, len, flags) }
}

unsafe fn send(real: Send, to: c_int, from: c_int, at: *mut off64_t, len: size_t) -> ssize_t {
    tell(from);
    // SAFETY: the caller's arguments.
    unsafe { real(to, from, at, len) }
}
