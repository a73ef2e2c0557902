//! Threads, and their ends, which may have to do without the C library.
//!
//! **Problem.** A process that shares the memory of another one must not use locks of the C library once
//! that is killed: one of its threads may have had them. A thread takes one when it ends, and who
//! waits for that waits for ever. **Structure.** A thread leaves its result in a packet.
//! After [`leave_threads`] it sleeps then, and who joins it waits for the packet. **Invariants.** The
//! packet is filled once, by the
//! thread, which says there whether it ends. **On a crash** nothing is kept.

#![expect(
    clippy::disallowed_types,
    reason = "the locks of this crate are above its threads"
)]

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

type Outcome<T> = Result<T, Box<dyn Any + Send>>;

/// Threads that are over stay.
static STAY: AtomicBool = AtomicBool::new(false);
/// One of the sleeps of a thread that stays.
const LONG: Duration = Duration::from_secs(3600);

/// From now on no thread of this process ends before that does.
pub(crate) fn leave_threads() {
    STAY.store(true, Ordering::SeqCst);
}

/// A started thread.
pub(crate) struct Thread<T> {
    thread: thread::JoinHandle<()>,
    packet: Arc<Packet<T>>,
}

struct Packet<T> {
    left: Mutex<Option<Left<T>>>,
    filled: Condvar,
}

/// What a thread leaves.
struct Left<T> {
    outcome: Outcome<T>,
    /// It does not end.
    stays: bool,
}

impl<T> Packet<T> {
    fn lock(&self) -> MutexGuard<'_, Option<Left<T>>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Send + 'static> Thread<T> {
    pub(crate) fn start(
        name: &str,
        body: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<Thread<T>> {
        let packet = Arc::new(Packet {
            left: Mutex::new(None),
            filled: Condvar::new(),
        });
        let own = Arc::clone(&packet);
        let builder = thread::Builder::new().name(name.to_owned());
        let thread = builder.spawn(move || {
            // Who joins it gets the panic.
            let outcome = catch_unwind(AssertUnwindSafe(body));
            let stays = STAY.load(Ordering::SeqCst);
            *own.lock() = Some(Left { outcome, stays });
            own.filled.notify_all();
            if stays {
                loop {
                    thread::sleep(LONG);
                }
            }
        })?;
        Ok(Thread { thread, packet })
    }
}

impl<T> Thread<T> {
    pub(crate) fn is_finished(&self) -> bool {
        self.packet.lock().is_some()
    }

    pub(crate) fn join(self) -> Outcome<T> {
        let none = |left: &mut Option<Left<T>>| left.is_none();
        let filled = self.packet.filled.wait_while(self.packet.lock(), none);
        let left = filled.unwrap_or_else(PoisonError::into_inner).take();
        let left = left.expect("it was waited for");
        if !left.stays {
            // The body's panics are caught.
            let _ = self.thread.join();
        }
        left.outcome
    }
}
