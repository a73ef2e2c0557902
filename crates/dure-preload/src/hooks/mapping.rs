//! Mappings of files: the kernel's, which has to know how long a file is.

use libc::{c_int, c_void, off64_t, size_t};

use super::{borrowed, hook};
use crate::table::{self, How};

type Map = unsafe extern "C" fn(*mut c_void, size_t, c_int, c_int, c_int, off64_t) -> *mut c_void;

hook!(mmap, mmap64:
    (at: *mut c_void, len: size_t, access: c_int, how: c_int, fd: c_int, offset: off64_t)
    -> *mut c_void = map);

unsafe fn map(
    real: Map,
    at: *mut c_void,
    len: size_t,
    access: c_int,
    how: c_int,
    fd: c_int,
    offset: off64_t,
) -> *mut c_void {
    table::with(fd, |description| {
        description.becomes_mapped(borrowed(fd));
        How::<()>::Long
    });
    // SAFETY: the caller's arguments.
    unsafe { real(at, len, access, how, fd, offset) }
}
