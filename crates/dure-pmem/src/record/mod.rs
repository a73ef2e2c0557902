//! A recorded run on a region, and every state in which a crash may leave the memory.
//!
//! **Problem.** What a power cut leaves of stores that were not fenced cannot be tried out.
//! **Structure.** A [`Recorder`] keeps stores, write-backs and fences in their order, with the
//! thread of each. [`Crash`] is the run cut after some of them: what is durable by then, and for
//! each cache line what is *open*. [`Crash::states`] makes memories of it.
//!
//! **Invariants** (the processor's rules). A store is durable once its thread, or any other, wrote
//! its line back after it and then fenced; a non-temporal one, once its own thread fenced. Until
//! then it may be there or not: of the ordinary stores to one line any first so many, of the
//! non-temporal ones any words, each line for itself. Words of 8 bytes are whole.
//!
//! **On a crash**: this module is the model of one.
//!
//! ```
//! use dure_pmem::Region;
//! use dure_pmem::record::Selection;
//!
//! let (region, recorder) = Region::recording(&[0; 4096])?;
//! let record = region.copy(64, &[7; 8])?.fence();
//! let promised = recorder.events();
//! region.publish(0, 64, record)?.write_back().fence();
//! for event in 0..=recorder.events() {
//!     for state in recorder.crash_after(event).states(&Selection::default()) {
//!         let points = state[..8] == 64_u64.to_le_bytes();
//!         assert!(!points || state[64..72] == [7; 8], "it points to what is not there");
//!     }
//! }
//! # assert!(promised > 0);
//! # Ok::<(), dure_pmem::Error>(())
//! ```

mod crash;
#[cfg(test)]
mod tests;

use std::fmt::Debug;
use std::ops::Range;

use dure_sync::{Arc, Mutex, thread};

use crate::{LINE_BYTES, WORD_BYTES};

pub use crash::{Crash, Selection};

/// Rank of the log of a recorded region: held for no other lock.
const LOG_RANK: u8 = 240;

/// Is told what is done to a region, in the order in which it is done: by the task that does it,
/// before a store and after a write-back or a fence.
pub trait Observer: Send + Sync + Debug {
    /// Bytes are stored from offset `at` on, through the cache.
    fn stored(&self, at: usize, bytes: &[u8]);
    /// Bytes are stored from offset `at` on, past the cache.
    fn streamed(&self, at: usize, bytes: &[u8]);
    /// The lines of these bytes were written back.
    fn written_back(&self, bytes: &Range<usize>);
    /// The task waited for what it had streamed and written back.
    fn fenced(&self);
}

/// Whether a store went through the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Cached,
    Streamed,
}

/// A word as it was stored: the bytes of `bytes` within the word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stored {
    /// Offset in the region.
    pub(crate) at: usize,
    /// At most a word, within one.
    pub(crate) bytes: Vec<u8>,
    pub(crate) way: Way,
}

/// What was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Act {
    Store(Vec<Stored>),
    /// The lines with these numbers.
    WriteBack(Range<usize>),
    Fence,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) thread: u64,
    pub(crate) act: Act,
}

/// Which fences do nothing.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum LostFences {
    /// None: a processor that keeps its rules.
    #[default]
    None,
    /// All. A canary: crash tests must fail.
    All,
}

/// What was done to a region, in order.
#[derive(Debug)]
pub struct Recorder {
    content: Vec<u8>,
    log: Mutex<LOG_RANK, Vec<Event>>,
}

impl Recorder {
    pub(crate) fn new(content: &[u8]) -> Recorder {
        Recorder {
            content: content.to_vec(),
            log: Mutex::new(Vec::new()),
        }
    }

    fn push(&self, act: Act) {
        let thread = thread::current_id();
        self.log.lock().push(Event { thread, act });
    }

    /// How much was done so far. What was promised by then must hold in every state that a crash
    /// after so many events, or later, leaves.
    #[must_use]
    pub fn events(&self) -> usize {
        self.log.lock().len()
    }

    /// The power fails after the first `events` events.
    ///
    /// # Panics
    /// If there are not so many.
    #[must_use]
    pub fn crash_after(&self, events: usize) -> Crash {
        self.crash_with(events, LostFences::None)
    }

    /// Like [`Recorder::crash_after`], of a processor that loses fences.
    ///
    /// # Panics
    /// If there are not so many events.
    #[must_use]
    pub fn crash_with(&self, events: usize, lost: LostFences) -> Crash {
        let log = self.log.lock();
        Crash::of(&self.content, &log[..events], lost)
    }

    /// The numbers of events after which a fence has ended: between two of them states only become
    /// more, so these, and the last event, show all that a crash before the fence may leave.
    #[must_use]
    pub fn fences(&self) -> Vec<usize> {
        let log = self.log.lock();
        let events = log.iter().enumerate();
        let fences = events.filter(|(_, event)| event.act == Act::Fence);
        fences.map(|(index, _)| index + 1).collect()
    }
}

impl Observer for Arc<Recorder> {
    fn stored(&self, at: usize, bytes: &[u8]) {
        self.push(Act::Store(words(at, bytes, Way::Cached)));
    }

    fn streamed(&self, at: usize, bytes: &[u8]) {
        self.push(Act::Store(words(at, bytes, Way::Streamed)));
    }

    fn written_back(&self, bytes: &Range<usize>) {
        let lines = bytes.start / LINE_BYTES..bytes.end.div_ceil(LINE_BYTES);
        self.push(Act::WriteBack(lines));
    }

    fn fenced(&self) {
        self.push(Act::Fence);
    }
}

/// Cuts a store into its words.
fn words(at: usize, bytes: &[u8], way: Way) -> Vec<Stored> {
    let mut stored = Vec::with_capacity(bytes.len() / WORD_BYTES + 2);
    let (mut at, mut left) = (at, bytes);
    while !left.is_empty() {
        let room = WORD_BYTES - at % WORD_BYTES;
        let (word, rest) = left.split_at(room.min(left.len()));
        let bytes = word.to_vec();
        stored.push(Stored { at, bytes, way });
        at += word.len();
        left = rest;
    }
    stored
}
