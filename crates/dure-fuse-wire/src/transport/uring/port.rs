//! What a ring is, for the thread that serves it: the kernel's, or that of a test.

use std::io;

use super::entry::Entry;
use crate::service::Errno;

/// What comes out of a ring.
#[derive(Debug)]
pub enum Arrival {
    /// An entry with a request.
    Request(Entry),
    /// An entry that the kernel gives back without one, and why.
    Lost(Entry, Errno),
    /// A task called [`Bell::ring`].
    Bell,
}

/// A ring. Entries are the kernel's from the call that gives them to it until they arrive.
pub trait Port {
    /// Registers an entry.
    fn register(&mut self, entry: Entry);

    /// Sends the reply that the entry holds, and offers it for another request.
    fn commit(&mut self, entry: Entry);

    /// Makes the kernel see everything up to now. Does not wait, but what it refuses has arrived.
    ///
    /// # Errors
    /// The ring is broken.
    fn submit(&mut self, arrived: &mut Vec<Arrival>) -> io::Result<()>;

    /// Like [`Port::submit`], and waits until something arrives.
    ///
    /// # Errors
    /// The ring is broken.
    fn wait(&mut self, arrived: &mut Vec<Arrival>) -> io::Result<()>;

    /// Entries that the kernel has.
    fn held(&self) -> usize;
}

/// Wakes the thread that waits in [`Port::wait`].
pub trait Bell: Send + Sync {
    /// It wakes up, or does not fall asleep.
    fn ring(&self);
}
