//! Descriptors of `/dev/fuse` that a forked child inherits.
//!
//! **Problem.** The kernel ends a connection when its last descriptor is closed. A child that was
//! forked and does not exec has copies of all, and no thread that reads from them: if the parent is
//! killed, callers of the mount would wait for the child. **Structure.** Descriptors are listed, and a
//! handler of the C library closes them in each child of the process that has opened them: another
//! process that shares its memory has other files at these numbers. **Invariants.** A child uses none of them. More
//! than [`LISTED_MAX`] are not listed; nor is one while it is being opened. **On a crash** the kernel
//! closes all.

use std::os::fd::{AsRawFd, OwnedFd};

use dure_sync::ProcessOnce;
use dure_sync::atomic::{AtomicU32, Ordering};

/// Descriptors of a process that are listed at most.
const LISTED_MAX: usize = 512;
/// In a place that has none; else it has the number of a descriptor, plus 1.
const NONE: u32 = 0;

/// The process that has opened the last one. Likewise.
static OWNER: AtomicU32 = AtomicU32::new(0);

/// The process that forks, as its child sees it. Likewise.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Written by those that open and close, read by a child, which has one thread: Relaxed.
static LISTED: [AtomicU32; LISTED_MAX] = [const { AtomicU32::new(NONE) }; LISTED_MAX];

/// A descriptor that no child keeps.
#[derive(Debug)]
pub(super) struct Listed {
    fd: OwnedFd,
    place: Option<usize>,
}

impl Listed {
    pub(super) fn new(fd: OwnedFd) -> Listed {
        close_in_children();
        OWNER.store(own(), Ordering::Relaxed);
        let number = fd.as_raw_fd().cast_unsigned() + 1;
        let take = |place: &AtomicU32| {
            let taken = place.compare_exchange(NONE, number, Ordering::Relaxed, Ordering::Relaxed);
            taken.is_ok()
        };
        let place = LISTED.iter().position(take);
        Listed { fd, place }
    }

    pub(super) fn fd(&self) -> &OwnedFd {
        &self.fd
    }
}

impl Drop for Listed {
    /// Before the descriptor is closed: its number may be another file's then.
    fn drop(&mut self) {
        if let Some(place) = self.place {
            LISTED[place].store(NONE, Ordering::Relaxed);
        }
    }
}

/// Has the descriptors closed in children from now on.
fn close_in_children() {
    static WATCHED: ProcessOnce<i32> = ProcessOnce::new();
    WATCHED.get_or_init(|| {
        // SAFETY: the handler may be called in any child at any time: it reads atomics and closes.
        // JUSTIFICATION: only the C library knows of forks.
        unsafe { libc::pthread_atfork(Some(note), None, Some(close_all)) }
    });
}

/// Number of this process.
fn own() -> u32 {
    rustix::process::getpid()
        .as_raw_nonzero()
        .get()
        .cast_unsigned()
}

extern "C" fn note() {
    FORKS.store(own(), Ordering::Relaxed);
}

extern "C" fn close_all() {
    if OWNER.load(Ordering::Relaxed) != FORKS.load(Ordering::Relaxed) {
        return;
    }
    for place in &LISTED {
        let number = place.load(Ordering::Relaxed);
        if number != NONE {
            // SAFETY: the child has a copy of it, and uses none.
            // JUSTIFICATION: its owner is of the parent.
            unsafe { libc::close((number - 1).cast_signed()) };
        }
    }
}
