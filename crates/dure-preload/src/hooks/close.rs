//! Calls that close descriptors, or have them lead elsewhere.

use libc::{FILE, c_char, c_int, c_long, c_uint};

use super::{hook, refuse};
use crate::{server, slot, table};

type Of = unsafe extern "C" fn(c_int) -> c_int;
type OfStream = unsafe extern "C" fn(*mut FILE) -> c_int;
type Reopen = unsafe extern "C" fn(*const c_char, *const c_char, *mut FILE) -> *mut FILE;

hook!(close: (fd: c_int) -> c_int = close_);
hook!(close_range: (first: c_uint, last: c_uint, flags: c_int) -> c_int = close_range_);
hook!(closefrom: (first: c_int) -> () = close_from);
hook!(fclose: (stream: *mut FILE) -> c_int = close_stream);
hook!(freopen, freopen64:
    (path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE = reopen);
hook!(dup: (fd: c_int) -> c_int = duplicate);
hook!(dup2: (fd: c_int, place: c_int) -> c_int = duplicate_to);
hook!(dup3: (fd: c_int, place: c_int, flags: c_int) -> c_int = duplicate_to_with);
hook!(fcntl, fcntl64: (fd: c_int, command: c_int, argument: c_long) -> c_int = control);
hook!(syscall:
    (number: c_long, a: c_long, b: c_long, c: c_long, d: c_long, e: c_long, f: c_long) -> c_long
    = direct);

/// Leaves a descriptor to the kernel.
fn leave(fd: c_int) {
    if let Some(description) = table::take(fd) {
        // The end of a file without names is work of the library.
        slot::inside(|| drop(description));
    }
}

unsafe fn close_(real: Of, fd: c_int) -> c_int {
    if slot::is_inside() {
        // SAFETY: the library closes what is its own.
        return unsafe { real(fd) };
    }
    if server::is_ours(fd) {
        return refuse(libc::EBADF);
    }
    leave(fd);
    // SAFETY: the caller's.
    unsafe { real(fd) }
}

unsafe fn close_range_(
    real: unsafe extern "C" fn(c_uint, c_uint, c_int) -> c_int,
    first: c_uint,
    last: c_uint,
    flags: c_int,
) -> c_int {
    let marks = flags & libc::CLOSE_RANGE_CLOEXEC.cast_signed() != 0;
    let kept = server::our_descriptors();
    let (start, end) = (kept.start.cast_unsigned(), kept.end.cast_unsigned());
    if marks || first > last {
        // SAFETY: nothing is closed.
        return unsafe { real(first, last, flags) };
    }
    table::take_range(first..=last);
    if end <= first || last < start || kept.is_empty() {
        // SAFETY: the caller's.
        return unsafe { real(first, last, flags) };
    }
    // What lies below ours, and what above.
    let mut done = 0;
    if first < start {
        // SAFETY: the caller's.
        done = unsafe { real(first, start - 1, flags) };
    }
    if done == 0 && last >= end {
        // SAFETY: the caller's.
        done = unsafe { real(end, last, flags) };
    }
    done
}

unsafe fn close_from(_: unsafe extern "C" fn(c_int), first: c_int) {
    // SAFETY: the caller's.
    unsafe { close_range(first.max(0).cast_unsigned(), c_uint::MAX, 0) };
}

unsafe fn close_stream(real: OfStream, stream: *mut FILE) -> c_int {
    // SAFETY: the caller's.
    leave(unsafe { libc::fileno(stream) });
    // SAFETY: the caller's.
    unsafe { real(stream) }
}

unsafe fn reopen(
    real: Reopen,
    path: *const c_char,
    mode: *const c_char,
    stream: *mut FILE,
) -> *mut FILE {
    // SAFETY: the caller's.
    leave(unsafe { libc::fileno(stream) });
    // SAFETY: the caller's.
    unsafe { real(path, mode, stream) }
}

/// `made` is another descriptor of what `fd` leads to.
fn made_of(fd: c_int, made: c_int) -> c_int {
    if made >= 0
        && made != fd
        && let Some(description) = table::share(fd)
    {
        table::put(made, description);
    }
    made
}

unsafe fn duplicate(real: Of, fd: c_int) -> c_int {
    // SAFETY: no memory.
    made_of(fd, unsafe { real(fd) })
}

/// Has `place` lead to what `fd` leads to, by `real`.
fn lead(fd: c_int, place: c_int, real: impl FnOnce() -> c_int) -> c_int {
    if fd == place || slot::is_inside() {
        return real();
    }
    if server::is_ours(place) {
        return refuse(libc::EBADF);
    }
    let before = table::take(place);
    let made = real();
    match before {
        // It leads where it did.
        Some(before) if made < 0 => table::put(place, before),
        before => slot::inside(|| drop(before)),
    }
    made_of(fd, made)
}

unsafe fn duplicate_to(
    real: unsafe extern "C" fn(c_int, c_int) -> c_int,
    fd: c_int,
    place: c_int,
) -> c_int {
    // SAFETY: no memory.
    lead(fd, place, || unsafe { real(fd, place) })
}

unsafe fn duplicate_to_with(
    real: unsafe extern "C" fn(c_int, c_int, c_int) -> c_int,
    fd: c_int,
    place: c_int,
    flags: c_int,
) -> c_int {
    // SAFETY: no memory.
    lead(fd, place, || unsafe { real(fd, place, flags) })
}

unsafe fn control(
    real: unsafe extern "C" fn(c_int, c_int, c_long) -> c_int,
    fd: c_int,
    command: c_int,
    argument: c_long,
) -> c_int {
    if command == libc::F_SETFL {
        // It may append from now on, or not any more.
        table::take_all_of(fd);
    }
    // SAFETY: the caller's arguments.
    let done = unsafe { real(fd, command, argument) };
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => made_of(fd, done),
        _ => done,
    }
}

/// `syscall(3)`, of a program that closes by it.
#[expect(clippy::too_many_arguments, reason = "the C library's")]
unsafe fn direct(
    real: unsafe extern "C" fn(c_long, c_long, c_long, c_long, c_long, c_long, c_long) -> c_long,
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    let int = |argument: c_long| c_int::try_from(argument).unwrap_or(-1);
    let uint = |argument: c_long| c_uint::try_from(argument).unwrap_or(c_uint::MAX);
    match number {
        // SAFETY: no memory.
        libc::SYS_close => unsafe { close(int(a)) }.into(),
        // SAFETY: no memory.
        libc::SYS_close_range => unsafe { close_range(uint(a), uint(b), int(c)) }.into(),
        // SAFETY: no memory.
        libc::SYS_dup2 => unsafe { dup2(int(a), int(b)) }.into(),
        // SAFETY: no memory.
        libc::SYS_dup3 => unsafe { dup3(int(a), int(b), int(c)) }.into(),
        // SAFETY: the caller's arguments.
        _ => unsafe { real(number, a, b, c, d, e, f) },
    }
}
