//! How the kernel's scheduler treats the thread of a ring.
//!
//! **Problem.** A ring's thread shares its core with its callers, and with whatever else runs there.
//! Each request wakes it for some microseconds, for which it waits until the slices of others, of
//! some milliseconds, have ended. **Structure.** A thread that asks the scheduler for a shorter slice
//! (Linux 6.12) is run earlier, and has no greater share of the CPU. Its policy is set here, too;
//! [`super::idle`] says when. **Invariants.** Nothing else changes, and nothing at all for a thread
//! whose policy was chosen: one that is not `SCHED_OTHER`. **Crash.** Nothing is kept.

use std::io;

/// The least that the scheduler gives.
const SLICE_NS: u64 = 100_000;

const BYTES: u32 = 48;
const _: () = assert!(size_of::<libc::sched_attr>() == 48);

/// Which other threads the scheduler prefers to this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Policy {
    /// `SCHED_OTHER`: none.
    Other,
    /// `SCHED_IDLE`: all of `SCHED_OTHER`.
    Idle,
}

impl Policy {
    fn number(self) -> i32 {
        match self {
            Policy::Other => libc::SCHED_OTHER,
            Policy::Idle => libc::SCHED_IDLE,
        }
    }
}

/// That of the calling thread, unless it is neither.
///
/// # Errors
/// What sched_getattr(2) says.
pub(super) fn policy() -> io::Result<Option<Policy>> {
    let policy = attributes()?.sched_policy.cast_signed();
    let same = |known: &Policy| known.number() == policy;
    Ok([Policy::Other, Policy::Idle].into_iter().find(same))
}

/// For the calling thread, which has one of them already.
///
/// # Errors
/// What sched_getattr(2) or sched_setattr(2) says: EPERM if a user that may not change niceness
/// wants to leave `SCHED_IDLE`. The policy is as before.
pub(super) fn set_policy(policy: Policy) -> io::Result<()> {
    let mut attributes = attributes()?;
    attributes.sched_policy = policy.number().cast_unsigned();
    set(&attributes)
}

/// A shorter slice for the calling thread, unless it is of a class without slices. Earlier kernels
/// take it for the time that only deadlines have, and ignore it.
///
/// # Errors
/// What sched_getattr(2) or sched_setattr(2) says. The thread is as prompt as before.
pub(super) fn shorten() -> io::Result<()> {
    let mut attributes = attributes()?;
    if attributes.sched_policy.cast_signed() != libc::SCHED_OTHER {
        return Ok(());
    }
    attributes.sched_runtime = SLICE_NS;
    set(&attributes)
}

/// Those of the calling thread.
fn attributes() -> io::Result<libc::sched_attr> {
    let mut attributes = libc::sched_attr {
        size: BYTES,
        sched_policy: 0,
        sched_flags: 0,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: 0,
        sched_deadline: 0,
        sched_period: 0,
    };
    let into = &raw mut attributes;
    // SAFETY: the kernel writes at most the bytes that are said to be there; 0 is this thread.
    let got = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, into, BYTES, 0) };
    match got {
        0 => Ok(attributes),
        _ => Err(io::Error::last_os_error()),
    }
}

fn set(attributes: &libc::sched_attr) -> io::Result<()> {
    let from = &raw const *attributes;
    // SAFETY: the kernel reads as many bytes as the size that it has written says: those there are.
    let set = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, from, 0) };
    match set {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use dure_sync::thread;

    use super::*;

    #[test]
    fn a_thread_may_always_ask_for_a_shorter_slice_and_keeps_its_niceness() {
        let asked = thread::spawn("slice", || {
            let before = attributes().unwrap();
            shorten().unwrap();
            let after = attributes().unwrap();
            assert_eq!(after.sched_nice, before.sched_nice);
            // Kernels without slices say 0.
            if before.sched_runtime > 0 {
                assert_eq!(after.sched_runtime, SLICE_NS);
            }
        });
        asked.join().unwrap();
    }

    #[test]
    fn a_thread_that_becomes_idle_keeps_its_niceness_and_its_slice() {
        let asked = thread::spawn("idle", || {
            shorten().unwrap();
            let before = attributes().unwrap();
            set_policy(Policy::Idle).unwrap();
            assert_eq!(policy().unwrap(), Some(Policy::Idle));
            let after = attributes().unwrap();
            assert_eq!(after.sched_nice, before.sched_nice);
            assert_eq!(after.sched_runtime, before.sched_runtime);
        });
        asked.join().unwrap();
    }
}
