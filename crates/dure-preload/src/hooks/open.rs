//! Calls that make descriptors.

use libc::{c_char, c_int, mode_t};

use super::hook;
use crate::server::opened;

type Open = unsafe extern "C" fn(*const c_char, c_int, mode_t) -> c_int;
type OpenAt = unsafe extern "C" fn(c_int, *const c_char, c_int, mode_t) -> c_int;

// The C library reads `mode` only where `flags` make a file; a caller that passes none leaves what
// happens to stand there.
hook!(open, open64: (path: *const c_char, flags: c_int, mode: mode_t) -> c_int = plain);
hook!(openat, openat64:
    (folder: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int = at);
hook!(__open_2, __open64_2: (path: *const c_char, flags: c_int) -> c_int = checked);
hook!(__openat_2, __openat64_2:
    (folder: c_int, path: *const c_char, flags: c_int) -> c_int = checked_at);
hook!(creat, creat64: (path: *const c_char, mode: mode_t) -> c_int = create);
hook!(mkstemp, mkstemp64: (template: *mut c_char) -> c_int = temporary);
hook!(mkostemp, mkostemp64: (template: *mut c_char, flags: c_int) -> c_int = temporary_for);
hook!(mkstemps, mkstemps64: (template: *mut c_char, suffix: c_int) -> c_int = temporary_for);
hook!(mkostemps, mkostemps64:
    (template: *mut c_char, suffix: c_int, flags: c_int) -> c_int = temporary_with);

fn made(fd: c_int, flags: c_int) -> c_int {
    opened(fd, flags);
    fd
}

unsafe fn plain(real: Open, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller's arguments.
    made(unsafe { real(path, flags, mode) }, flags)
}

unsafe fn at(
    real: OpenAt,
    folder: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
) -> c_int {
    // SAFETY: the caller's arguments.
    made(unsafe { real(folder, path, flags, mode) }, flags)
}

/// What programs that are built with `_FORTIFY_SOURCE` call.
unsafe fn checked(
    real: unsafe extern "C" fn(*const c_char, c_int) -> c_int,
    path: *const c_char,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller's arguments.
    made(unsafe { real(path, flags) }, flags)
}

unsafe fn checked_at(
    real: unsafe extern "C" fn(c_int, *const c_char, c_int) -> c_int,
    folder: c_int,
    path: *const c_char,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller's arguments.
    made(unsafe { real(folder, path, flags) }, flags)
}

unsafe fn create(
    real: unsafe extern "C" fn(*const c_char, mode_t) -> c_int,
    path: *const c_char,
    mode: mode_t,
) -> c_int {
    // SAFETY: the caller's arguments.
    made(unsafe { real(path, mode) }, libc::O_WRONLY)
}

unsafe fn temporary(
    real: unsafe extern "C" fn(*mut c_char) -> c_int,
    template: *mut c_char,
) -> c_int {
    // SAFETY: the caller's arguments.
    made(unsafe { real(template) }, libc::O_RDWR)
}

unsafe fn temporary_for(
    real: unsafe extern "C" fn(*mut c_char, c_int) -> c_int,
    template: *mut c_char,
    number: c_int,
) -> c_int {
    // SAFETY: the caller's arguments.
    let fd = unsafe { real(template, number) };
    made_as_it_says(fd)
}

unsafe fn temporary_with(
    real: unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int,
    template: *mut c_char,
    suffix: c_int,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller's arguments.
    let fd = unsafe { real(template, suffix, flags) };
    made_as_it_says(fd)
}

/// With the flags that the kernel says: the caller's are not at hand in all forms.
fn made_as_it_says(fd: c_int) -> c_int {
    // SAFETY: it asks about a number.
    let flags = unsafe { libc::syscall(libc::SYS_fcntl, fd, libc::F_GETFL) };
    made(fd, c_int::try_from(flags).unwrap_or(libc::O_RDWR))
}
