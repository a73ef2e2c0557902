//! What all handles of a volume share: in which process it was opened, and whether it failed.
//!
//! **Problem.** A forked child has copies of the handles and none of the threads, and must not
//! write to the medium of its parent. After a panic it is not known what state a lock protects.
//! **Structure.** [`FORKS`] counts the forks that lead to this process; a handler of the C library
//! counts in the child. An [`Owner`] has the count of its volume, or a value that is no count.
//! **Invariants.** A call compares two words and writes none. **On a crash** nothing is kept.

use dure_sync::atomic::{AtomicU32, AtomicU64, Ordering};
use dure_sync::{Arc, ProcessOnce};

use crate::answer::{Failure, Outcome};

/// Forks from the process that loaded the library to this one. Relaxed: written only in a child of
/// fork, which has one thread.
static FORKS: AtomicU32 = AtomicU32::new(0);
/// Of a volume that failed.
const FAILED: u32 = u32::MAX;

/// What the handles of one volume share.
#[derive(Debug)]
pub(crate) struct Owner {
    /// [`FORKS`] when the volume was opened, or [`FAILED`]. Relaxed: a call that began before
    /// another one failed may go on.
    forks: AtomicU32,
    /// Tells volumes apart.
    number: u64,
}

extern "C" fn count_fork() {
    // A store of what was loaded: the child has one thread, and this may run in a signal handler.
    FORKS.store(FORKS.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

/// Has forks counted from now on.
fn watch_forks() -> Outcome<()> {
    static WATCHED: ProcessOnce<i32> = ProcessOnce::new();
    let errno = *WATCHED.get_or_init(|| {
        // SAFETY: the handler may be called in any child at any time: it only writes an atomic.
        // JUSTIFICATION: a process id that is asked for costs a system call for each read.
        unsafe { libc::pthread_atfork(None, None, Some(count_fork)) }
    });
    match errno {
        0 => Ok(()),
        errno => Err(Failure::Errno(errno, "forks cannot be noticed")),
    }
}

impl Owner {
    /// Of a volume that this process opens.
    pub(crate) fn new() -> Outcome<Arc<Owner>> {
        // Relaxed: only unique.
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        watch_forks()?;
        Ok(Arc::new(Owner {
            forks: AtomicU32::new(FORKS.load(Ordering::Relaxed)),
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
        }))
    }

    /// Refuses calls in a child, and on a volume that failed.
    #[inline]
    pub(crate) fn check(&self) -> Outcome<()> {
        let forks = self.forks.load(Ordering::Relaxed);
        if forks == FORKS.load(Ordering::Relaxed) {
            return Ok(());
        }
        Err(refusal(forks))
    }

    /// Whether nothing may be done with the volume any more, not even closing it: handles are then
    /// given up without a trace, and their memory with them.
    pub(crate) fn is_given_up(&self) -> bool {
        self.check().is_err()
    }

    /// A call has panicked: no other one is let in.
    pub(crate) fn fail(&self) {
        self.forks.store(FAILED, Ordering::Relaxed);
    }

    /// Refuses a handle of another volume.
    pub(crate) fn same(&self, other: &Owner) -> Outcome<()> {
        match self.number == other.number {
            true => Ok(()),
            false => Err(Failure::Errno(libc::EXDEV, "handles of two volumes")),
        }
    }
}

#[cold]
fn refusal(forks: u32) -> Failure {
    match forks {
        FAILED => Failure::Errno(libc::EIO, "a call on this volume has failed by a bug"),
        _ => Failure::Errno(libc::ENXIO, "the volume was opened before fork()"),
    }
}
