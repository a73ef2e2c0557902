//! The functions that a program calls in place of the C library's.
//!
//! **Structure.** [`hook!`] makes a function with each name, that finds the C library's own and calls one
//! of ours with it; a file for each kind of call. **Invariants.** A hook does what the C library's
//! function does; where the library has no part in it, it calls that with the same arguments.
//! **On a crash** see `crate`.

mod children;
mod clone;
mod close;
mod content;
mod identity;
mod mapping;
mod open;
mod signal;
mod vectors;

use std::os::fd::RawFd;

pub(crate) use signal::REAL_SIGACTION;

/// Functions with the names of the C library's: `hook!(name, name: (argument: type, ..) -> type = ours)`.
/// `ours` gets the C library's function and the arguments.
macro_rules! hook {
    ($($name:ident),+ : $arguments:tt -> $result:ty = $ours:path) => {
        $($crate::hooks::hook_one!($name $arguments -> $result = $ours);)+
    };
}

macro_rules! hook_one {
    ($name:ident ($($argument:ident: $kind:ty),*) -> $result:ty = $ours:path) => {
        // SAFETY: it stands in for the C library's function of this name, and calls that.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($argument: $kind),*) -> $result {
            static REAL: $crate::real::Real<unsafe extern "C" fn($($kind),*) -> $result> =
                $crate::real::Real::new(concat!(stringify!($name), "\0"));
            // SAFETY: the caller's arguments, for a function that takes them so.
            unsafe { $ours(REAL.get(), $($argument),*) }
        }
    };
}

use {hook, hook_one};

/// Has children told from the program, from now on.
pub(crate) fn begin() {
    children::begin();
}

/// The C library's way to say what has failed.
fn refuse(errno: i32) -> i32 {
    // SAFETY: it has no precondition.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: the place of this thread.
    unsafe { *place = errno };
    -1
}

/// What a call returns in C.
fn in_c(answer: Result<usize, i32>) -> isize {
    match answer {
        Ok(count) => isize::try_from(count).expect("no call has that many bytes"),
        Err(errno) => {
            refuse(errno);
            -1
        }
    }
}

/// A descriptor of the program that was found in the table.
fn borrowed<'a>(fd: RawFd) -> std::os::fd::BorrowedFd<'a> {
    // SAFETY: it has a description, so it is open and not -1, and whoever closes it waits.
    unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) }
}
