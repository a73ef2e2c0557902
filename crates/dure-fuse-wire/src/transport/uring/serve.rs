//! The thread of a ring.
//!
//! **Structure.** It registers its entries, and then answers what arrives. The reply goes to the
//! kernel with the call that waits for the next request: one system call a request. **Invariants.**
//! An entry is with the kernel, with this thread or with a helper; the thread ends when all were
//! given back for good. **Crash.** Nothing is kept.

use std::io;

use dure_sync::{Arc, Condvar, Mutex};

use super::entry::{Answered, Desk, Entry, Patience};
use super::helpers::{Helpers, Returns};
use super::port::{Arrival, Port};
use crate::service::{Errno, Service};

/// Rank of the lock of the count of rings that have registered; nothing is taken under it.
const REGISTERED: u8 = 15;

/// How often a ring registers an entry again that the kernel gave back for no reason we know.
const AGAIN_MAX: usize = 16;

/// Which rings have told the kernel about their entries.
#[derive(Debug, Default)]
pub struct Registered {
    told: Mutex<REGISTERED, (usize, Option<Errno>)>,
    changed: Condvar,
}

impl Registered {
    /// One more has, or was refused.
    fn tell(&self, refused: Option<Errno>) {
        let mut told = self.told.lock();
        told.0 += 1;
        told.1 = told.1.or(refused);
        drop(told);
        self.changed.notify_all();
    }

    /// Waits for so many rings; the first refusal, if there was one.
    #[must_use]
    pub fn wait(&self, rings: usize) -> Option<Errno> {
        let mut told = self.told.lock();
        while told.0 < rings {
            told = self.changed.wait(told);
        }
        told.1
    }
}

/// What the threads of all rings share.
#[derive(Clone)]
pub struct Shared {
    /// Answers.
    pub service: Arc<dyn Service>,
    /// Answer what takes long.
    pub helpers: Arc<Helpers>,
    /// Counts the rings.
    pub registered: Arc<Registered>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("helpers", &self.helpers)
            .field("registered", &self.registered)
            .finish_non_exhaustive()
    }
}

/// Serves a ring until the connection ends.
///
/// # Errors
/// The ring is broken: requests of its CPU are no longer answered.
pub fn serve(
    port: &mut impl Port,
    entries: Vec<Entry>,
    returns: &Arc<Returns>,
    shared: &Shared,
) -> io::Result<()> {
    let mut arrived = Vec::new();
    for entry in entries {
        port.register(entry);
    }
    port.submit(&mut arrived)?;
    let refused = arrived.iter().find_map(|arrival| match arrival {
        Arrival::Lost(_, errno) => Some(*errno),
        _ => None,
    });
    shared.registered.tell(refused);
    let mut thread = Thread {
        desk: Desk::default(),
        away: 0,
        again: 0,
        // A kernel that has refused an entry uses `/dev/fuse`.
        ends: refused.is_some(),
        returns,
        shared,
    };
    loop {
        for arrival in arrived.drain(..) {
            thread.handle(port, arrival)?;
        }
        for entry in returns.take() {
            thread.away -= 1;
            port.commit(entry);
        }
        if port.held() == 0 && thread.away == 0 {
            return Ok(());
        }
        port.wait(&mut arrived)?;
    }
}

struct Thread<'a> {
    desk: Desk,
    /// Entries with helpers.
    away: usize,
    /// Entries that were registered again.
    again: usize,
    /// The connection has ended, or takes no entries.
    ends: bool,
    returns: &'a Arc<Returns>,
    shared: &'a Shared,
}

impl Thread<'_> {
    fn handle(&mut self, port: &mut impl Port, arrival: Arrival) -> io::Result<()> {
        match arrival {
            Arrival::Bell => {}
            Arrival::Request(mut entry) => {
                let service = &*self.shared.service;
                match entry.answer(service, &mut self.desk, Patience::Prompt) {
                    Answered::Yes => port.commit(entry),
                    Answered::Later => {
                        self.away += 1;
                        Helpers::take(&self.shared.helpers, entry, self.returns);
                    }
                }
            }
            Arrival::Lost(entry, errno) => {
                self.ends |= is_end(errno);
                if !self.ends {
                    if self.again == AGAIN_MAX {
                        let error = io::Error::from_raw_os_error(errno);
                        return Err(io::Error::other(format!(
                            "the kernel takes no entries of a ring any more: {error}"
                        )));
                    }
                    self.again += 1;
                    port.register(entry);
                }
            }
        }
        Ok(())
    }
}

/// Whether the kernel says so when the connection, or this process, ends.
fn is_end(errno: Errno) -> bool {
    matches!(
        errno,
        libc::ENOTCONN | libc::ECONNABORTED | libc::ENODEV | libc::ECANCELED
    )
}
