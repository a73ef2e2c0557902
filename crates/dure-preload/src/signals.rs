//! Signals of the program: a call is interrupted by no handler, and by no end of the program but a kill.
//!
//! **Problem.** A handler may call what the interrupted call has locked, or jump out of it; and a
//! program that is ended within a call leaves locks that its server needs. **Structure.** A handler of
//! ours stands in front of each of the program's, and of those ends that are nobody's fault. Within a
//! call it blocks the signal and sends it again; the call lets it in when it ends ([`crate::slot`]).
//! **Invariants.** What `sigaction` tells the program is what the program has set. Signals that a thread
//! causes by what it does (`SIGSEGV` and its like) are left as they are. **On a crash** nothing is kept.

use std::mem::MaybeUninit;

use dure_sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use libc::{c_int, c_void, sigaction, siginfo_t};

use crate::slot;

/// Signals have numbers below.
const SIGNALS: usize = 65;

/// What the program wants done with a signal that it handles.
struct Wanted {
    /// Its last handler: a signal that came before it was taken back may be on its way. Written before
    /// ours is set, which the kernel orders: Relaxed.
    handler: AtomicUsize,
    flags: AtomicU32,
}

static WANTED: [Wanted; SIGNALS] = [const {
    Wanted {
        handler: AtomicUsize::new(libc::SIG_DFL),
        flags: AtomicU32::new(0),
    }
}; SIGNALS];

/// The C library's function.
pub(crate) type Sigaction = unsafe extern "C" fn(c_int, *const sigaction, *mut sigaction) -> c_int;

fn wanted(signal: c_int) -> Option<&'static Wanted> {
    let place = usize::try_from(signal).ok()?;
    WANTED.get(place).filter(|_| place > 0)
}

/// Whether it comes from what its thread does, or cannot be handled.
fn is_left(signal: c_int) -> bool {
    matches!(
        signal,
        libc::SIGKILL
            | libc::SIGSTOP
            | libc::SIGSEGV
            | libc::SIGBUS
            | libc::SIGFPE
            | libc::SIGILL
            | libc::SIGTRAP
            | libc::SIGSYS
    )
}

/// Whether it ends a program that does not handle it.
fn ends(signal: c_int) -> bool {
    !matches!(
        signal,
        libc::SIGCHLD
            | libc::SIGURG
            | libc::SIGWINCH
            | libc::SIGCONT
            | libc::SIGTSTP
            | libc::SIGTTIN
            | libc::SIGTTOU
    ) && !is_left(signal)
}

type Handler = extern "C" fn(c_int, *mut siginfo_t, *mut c_void);

/// Ours, before one of the program's.
fn before_its() -> usize {
    came as Handler as usize
}

/// Ours, before the end of the program.
fn before_its_end() -> usize {
    ends_it as Handler as usize
}

/// From now on a signal that ends the program does so outside of calls.
pub(crate) fn begin(real: Sigaction) {
    for signal in 1..=libc::SIGRTMAX() {
        if !ends(signal) {
            continue;
        }
        let mut now = MaybeUninit::<sigaction>::uninit();
        // SAFETY: the place is written only.
        if unsafe { real(signal, std::ptr::null(), now.as_mut_ptr()) } != 0 {
            continue;
        }
        // SAFETY: it was written.
        let now = unsafe { now.assume_init() };
        if now.sa_sigaction == libc::SIG_DFL {
            let with_ours = instead(&now);
            // SAFETY: the same action, with our handler.
            unsafe { real(signal, &raw const with_ours, std::ptr::null_mut()) };
        }
    }
}

/// The action with our handler.
fn instead(action: &sigaction) -> sigaction {
    let mut ours = *action;
    ours.sa_sigaction = before_its();
    ours.sa_flags = (action.sa_flags | libc::SA_SIGINFO) & !libc::SA_RESETHAND;
    if action.sa_sigaction == libc::SIG_DFL {
        ours.sa_sigaction = before_its_end();
        ours.sa_flags |= libc::SA_RESTART | libc::SA_ONSTACK;
    }
    ours
}

/// `sigaction(2)`.
///
/// # Safety
/// As the C library's.
pub(crate) unsafe fn set(
    real: Sigaction,
    signal: c_int,
    new: *const sigaction,
    old: *mut sigaction,
) -> c_int {
    let Some(wanted) = wanted(signal).filter(|_| !is_left(signal)) else {
        // SAFETY: the caller's arguments.
        return unsafe { real(signal, new, old) };
    };
    let before = (
        wanted.handler.load(Ordering::Relaxed),
        wanted.flags.load(Ordering::Relaxed).cast_signed(),
    );
    // SAFETY: null, or an action of the caller's.
    let new = unsafe { new.as_ref() };
    let done = match new {
        None => {
            // SAFETY: the caller's place.
            unsafe { real(signal, std::ptr::null(), old) }
        }
        Some(new) => {
            // A handler that the program was told before it could ask.
            let mut new = *new;
            if new.sa_sigaction == before_its() {
                new.sa_sigaction = before.0;
            } else if new.sa_sigaction == before_its_end() {
                new.sa_sigaction = libc::SIG_DFL;
            }
            let handles = new.sa_sigaction != libc::SIG_IGN
                && (new.sa_sigaction != libc::SIG_DFL || ends(signal));
            let action = if handles { instead(&new) } else { new };
            if handles && new.sa_sigaction != libc::SIG_DFL {
                wanted.handler.store(new.sa_sigaction, Ordering::Relaxed);
                wanted
                    .flags
                    .store(new.sa_flags.cast_unsigned(), Ordering::Relaxed);
            }
            // SAFETY: an action, and the caller's place.
            unsafe { real(signal, &raw const action, old) }
        }
    };
    // SAFETY: null, or written by the call if it has succeeded.
    if let Some(old) = unsafe { old.as_mut() }
        && done == 0
    {
        if old.sa_sigaction == before_its() {
            (old.sa_sigaction, old.sa_flags) = before;
        } else if old.sa_sigaction == before_its_end() {
            (old.sa_sigaction, old.sa_flags) = (libc::SIG_DFL, 0);
        }
    }
    done
}

/// Ends the program, outside of calls.
extern "C" fn ends_it(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    if slot::defer(signal.cast_unsigned()) {
        come_again(signal, info, context);
    } else {
        end_by(signal);
    }
}

/// Calls the program's handler, outside of calls.
extern "C" fn came(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    if slot::defer(signal.cast_unsigned()) {
        come_again(signal, info, context);
        return;
    }
    let Some(wanted) = wanted(signal) else { return };
    let handler = wanted.handler.load(Ordering::Relaxed);
    if wanted.flags.load(Ordering::Relaxed) & libc::SA_RESETHAND.cast_unsigned() != 0 {
        take_back(signal);
    }
    // SAFETY: a handler that the program has set; one that takes the number only finds no more.
    let handler: Handler = unsafe { std::mem::transmute(handler) };
    handler(signal, info, context);
}

/// A handler was for one signal.
fn take_back(signal: c_int) {
    // SAFETY: zeroes are an action: the default one.
    let default = unsafe { MaybeUninit::<sigaction>::zeroed().assume_init() };
    let action = if ends(signal) {
        instead(&default)
    } else {
        default
    };
    // SAFETY: an action for a signal that has a handler.
    unsafe { crate::hooks::REAL_SIGACTION.get()(signal, &raw const action, std::ptr::null_mut()) };
}

/// Blocks a signal in the interrupted thread, and sends it to it again.
fn come_again(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel has passed the context of the interrupted thread, whose mask it restores.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    // SAFETY: a set of signals.
    unsafe { libc::sigaddset(&raw mut context.uc_sigmask, signal) };
    let process = rustix::process::getpid().as_raw_nonzero().get();
    let thread = rustix::thread::gettid().as_raw_nonzero().get();
    // SAFETY: what the kernel has passed, for this thread.
    unsafe {
        libc::syscall(
            libc::SYS_rt_tgsigqueueinfo,
            process,
            thread,
            signal,
            info.cast_const(),
        )
    };
}

/// Ends the program as the signal does, when no thread is within a call.
fn end_by(signal: c_int) {
    crate::server::leave();
    let mut default = MaybeUninit::<sigaction>::zeroed();
    // SAFETY: zeroes are an action: the default one.
    let default = unsafe { default.assume_init_mut() };
    // SAFETY: an action for a signal that may have one. The hook's `real` is not at hand here.
    unsafe { crate::hooks::REAL_SIGACTION.get()(signal, default, std::ptr::null_mut()) };
    // SAFETY: a signal to itself, which is blocked until this handler returns.
    unsafe { libc::raise(signal) };
}

/// Lets deferred signals in, a bit each.
pub(crate) fn unblock(signals: u64) {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the set is written only.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    for signal in (1..65).filter(|signal| signals & 1 << (signal - 1) != 0) {
        // SAFETY: the set was made.
        unsafe { libc::sigaddset(set.as_mut_ptr(), signal) };
    }
    // SAFETY: the set was made.
    unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), std::ptr::null_mut()) };
}
