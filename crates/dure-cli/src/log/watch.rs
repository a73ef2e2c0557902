//! What is noticed while a mount is served: that the volume has stopped, that a thread has died,
//! that a request met an error, that one to the device does not return.

use std::time::Duration;

use dure_block::LateWatch;
use dure_fuse::MountedVolume;
use dure_sync::{Arc, Condvar, Mutex, thread};

use super::Level;

/// Rank of the lock of whether the watch ends; no other lock is taken while it is held.
const ENDS: u8 = 16;
/// How soon after it happens a stop is written.
const LOOKS: Duration = Duration::from_millis(500);
/// A request to the device that has not returned for so long is told.
const LATE: Duration = Duration::from_secs(10);

/// Panics of any thread and errors that requests are answered with EIO for go to the log. A worker
/// that panics ends the process, so that no caller waits for its answer.
pub(crate) fn failures() {
    let shown = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let name = rustix::thread::name().unwrap_or_default();
        let name = name.to_string_lossy();
        super::write_in_panic(Level::Error, &format!("thread {name} died: {panic}"));
        shown(panic);
    }));
    dure_fuse::report_errors(|error| super::request_error(error));
}

/// Looks for a stop until it is dropped.
#[derive(Debug)]
pub(crate) struct Watch {
    shared: Arc<Shared>,
    thread: Option<thread::JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    ends: Mutex<ENDS, bool>,
    changed: Condvar,
}

impl Watch {
    /// Begins to watch a mounted volume.
    pub(crate) fn begin(volume: &MountedVolume) -> Watch {
        let shared = Arc::new(Shared {
            ends: Mutex::new(false),
            changed: Condvar::new(),
        });
        let (volume, own) = (volume.clone(), Arc::clone(&shared));
        let thread = thread::spawn("dure-log", move || {
            let mut late = LateWatch::new(LATE);
            loop {
                // The last look is after the end was asked for.
                let ends = *own.ends.lock();
                let volume = volume.file_system();
                if let Some(why) = volume.stopped() {
                    return super::write(Level::Error, &format!("stopped: {why}"));
                }
                for request in volume.late_requests(&mut late) {
                    super::write(Level::Warning, &format!("late: {request}"));
                }
                let asked = own.ends.lock();
                if ends {
                    return;
                }
                if !*asked {
                    drop(own.changed.wait_timeout(asked, LOOKS));
                }
            }
        });
        Watch {
            shared,
            thread: Some(thread),
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        *self.shared.ends.lock() = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
