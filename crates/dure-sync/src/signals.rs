//! Signals of a program that dure is a library of.
//!
//! **Problem.** A thread lets in the signals that the thread which started it did, so a program's
//! signals could end up in threads that it does not know. **Structure.** [`without_signals`] blocks
//! them around what starts threads. **Invariants.** The caller has the mask that it had, also after a
//! panic. **Crash.** Nothing is kept.

use std::mem::MaybeUninit;

/// Restores the signals that a thread lets in.
struct Restore(libc::sigset_t);

impl Drop for Restore {
    fn drop(&mut self) {
        // SAFETY: the set is one that the call below has returned.
        // JUSTIFICATION: no crate of ours has signal masks.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut())
        };
    }
}

/// Threads that are started by `body` let no signal in: those of the program are for its own threads.
pub fn without_signals<T>(body: impl FnOnce() -> T) -> T {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the set is written only.
    // JUSTIFICATION: as above.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: `all` was filled, `before` is written only.
    // JUSTIFICATION: as above.
    let errno =
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
    assert_eq!(errno, 0, "a set of all signals can be blocked");
    // SAFETY: it was written, since the call has succeeded.
    // JUSTIFICATION: as above.
    let _restore = Restore(unsafe { before.assume_init() });
    body()
}
