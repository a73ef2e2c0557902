//! Calls that set handlers of signals.

use std::mem::MaybeUninit;

use libc::{c_int, sigaction, sighandler_t};

use super::hook;
use crate::real::Real;
use crate::signals::{self, Sigaction};

/// The C library's `sigaction`.
pub(crate) static REAL_SIGACTION: Real<Sigaction> = Real::new("sigaction\0");

// The structure and the function have one name in C, too.
mod hooked {
    use super::{c_int, hook, sigaction as action, signals};

    hook!(sigaction: (signal: c_int, new: *const action, old: *mut action) -> c_int = signals::set);
}

type Signal = unsafe extern "C" fn(c_int, sighandler_t) -> sighandler_t;

hook!(signal, bsd_signal, ssignal: (number: c_int, handler: sighandler_t) -> sighandler_t = set);
hook!(__sysv_signal: (number: c_int, handler: sighandler_t) -> sighandler_t = set_once);

unsafe fn set(_: Signal, number: c_int, handler: sighandler_t) -> sighandler_t {
    set_with(number, handler, libc::SA_RESTART)
}

unsafe fn set_once(_: Signal, number: c_int, handler: sighandler_t) -> sighandler_t {
    set_with(number, handler, libc::SA_RESETHAND | libc::SA_NODEFER)
}

fn set_with(number: c_int, handler: sighandler_t, flags: c_int) -> sighandler_t {
    let mut new = MaybeUninit::<sigaction>::zeroed();
    // SAFETY: zeroes are an action.
    let new = unsafe { new.assume_init_mut() };
    (new.sa_sigaction, new.sa_flags) = (handler, flags);
    let mut old = MaybeUninit::<sigaction>::zeroed();
    // SAFETY: an action, and a place for one.
    match unsafe { signals::set(REAL_SIGACTION.get(), number, new, old.as_mut_ptr()) } {
        // SAFETY: it was written.
        0 => unsafe { old.assume_init() }.sa_sigaction,
        _ => libc::SIG_ERR,
    }
}
