//! A panic whose unwinding cannot end.
//!
//! **Problem.** A destructor that runs while a task unwinds may have to wait for a lock, whose holder
//! cannot run: all tasks share the panic count of one thread. The run has failed, and is to end with
//! the message of the panic, which only the end of the unwinding hands out. **Structure.** A panic hook
//! notes the message of the last panic of each thread. [`give_up`] returns it for a panic whose stack
//! is abandoned, and notes that the thread counts a panic for good. **Invariants.** From then on
//! `std::thread::panicking` says nothing on this thread, and later runs on it do not ask: their tasks
//! switch while one unwinds, and [`reason`] finds the panic behind a wait without end. **Crash.** Nothing
//! is kept.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::current::panic_message;
use crate::report::FailureKind;

thread_local! {
    static LAST: RefCell<String> = const { RefCell::new(String::new()) };
    static GIVEN_UP: Cell<bool> = const { Cell::new(false) };
}

/// Has the panics of the run that begins noted; the hook that was there goes on to tell them.
pub(crate) fn note_panics() {
    LAST.take();
    static IS_SET: AtomicBool = AtomicBool::new(false);
    // Relaxed: it only chooses who sets the hook. A run of another thread that panics until that is done
    // has no message.
    if !IS_SET.swap(true, Ordering::Relaxed) {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let message = panic_message(panic.payload());
            // A panic of a thread that is ending has nothing to be noted in.
            let _ = LAST.try_with(|last| last.replace(message));
            before(panic);
        }));
    }
}

/// The unwinding of this thread's panic is given up: what the panic said.
pub(crate) fn give_up() -> String {
    GIVEN_UP.set(true);
    LAST.take()
}

/// Why a run has failed: a task that unwinds on a thread that does not tell it may wait for ever.
pub(crate) fn reason(kind: FailureKind) -> FailureKind {
    let message = LAST.take();
    if matches!(kind, FailureKind::Panic { .. }) || message.is_empty() || !was_given_up() {
        return kind;
    }
    FailureKind::Panic {
        task: "a task that could not unwind".to_owned(),
        message,
    }
}

/// Whether the thread counts a panic that was given up.
pub(crate) fn was_given_up() -> bool {
    GIVEN_UP.get()
}
