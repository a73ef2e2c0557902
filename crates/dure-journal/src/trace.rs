//! The trace: what happened in the journals, event by event.
//!
//! **Problem.** Counters tell how often and how long, not in which order. **Structure.** A bounded
//! ring of [`TraceRecord`]s per core; new records overwrite the oldest. Each record has a number in
//! its ring, so that several readers follow the trace, each at its own pace, and learn how much
//! they missed.
//!
//! **Invariants.** While off, an event costs a load of a word that no task writes and a branch; no
//! clock is read and no event is built. While on, it writes lines of its own core only. Times
//! within a ring never go back. **Crash.** Nothing is kept.

use std::collections::VecDeque;

use dure_sync::{CoreId, Mutex, PerCore, Tally, clock, core_count, current_core};

use crate::ids::JournalId;
use crate::log::{TRACE_READERS, TRACE_RING};
use crate::statistics::Stall;
use crate::units::to_u64;

/// The most events per core that are kept.
pub const TRACE_EVENTS_MAX: usize = 1 << 20;

/// Something that happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TraceEvent {
    /// A handle was begun.
    Begin {
        /// Bytes it reserved.
        bytes: u32,
    },
    /// `begin` found the log full.
    BeginFull,
    /// A handle joined.
    Join {
        /// Its number.
        number: u64,
        /// Bytes of its records and marks.
        bytes: u32,
        /// What [`crate::Handle::set_operation`] was given.
        operation: u8,
    },
    /// A handle was dropped.
    Drop,
    /// A commit begins.
    CommitBegin,
    /// The commit has returned.
    CommitEnd {
        /// Journals in its closure.
        journals: u32,
    },
    /// A transaction goes to the device.
    Write {
        /// Its sequence.
        sequence: u64,
        /// Its first handle.
        first: u64,
        /// Its last handle.
        last: u64,
        /// Its length.
        blocks: u32,
    },
    /// Its write has completed.
    Written {
        /// Its sequence.
        sequence: u64,
    },
    /// A commit asks for a flush.
    FlushBegin,
    /// The flush has completed.
    FlushEnd,
    /// Handles have become valid.
    Valid {
        /// The last of them.
        upto: u64,
    },
    /// The tail has moved.
    Tail {
        /// Sequence of the transaction that is now the first.
        sequence: u64,
    },
    /// A checkpoint has come this far.
    Checkpoint {
        /// Its number.
        checkpoint: u64,
        /// What is done.
        step: &'static str,
    },
    /// A task has waited.
    Stall {
        /// What for.
        stall: Stall,
        /// How long.
        ns: u64,
    },
}

/// An event with its time and place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceRecord {
    /// Nanoseconds of the monotonic clock.
    pub ns: u64,
    /// The core it happened on.
    pub core: CoreId,
    /// The journal it concerns; if it concerns no single journal, that of the core.
    pub journal: Option<JournalId>,
    /// What happened.
    pub event: TraceEvent,
}

/// The result of a read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceBatch {
    /// The events, in the order of time.
    pub records: Vec<TraceRecord>,
    /// By core, the number of the next event: where the next read starts.
    pub next: Vec<u64>,
    /// Events that were overwritten before they were read.
    pub lost: u64,
}

#[derive(Debug)]
struct Ring {
    records: VecDeque<TraceRecord>,
    /// Number of the next record.
    next: u64,
}

/// Events of all journals of a volume.
#[derive(Debug)]
pub struct Trace {
    /// Records per core; 0 is off. Written under `readers`, read at every event.
    capacity: Tally,
    /// How many callers have it on, and the most events they asked for.
    readers: Mutex<TRACE_READERS, u32>,
    rings: PerCore<Mutex<TRACE_RING, Ring>>,
}

impl Trace {
    pub(crate) fn new() -> Self {
        let ring = |_| {
            Mutex::new(Ring {
                records: VecDeque::new(),
                next: 0,
            })
        };
        Self {
            capacity: Tally::new(0),
            readers: Mutex::new(0),
            rings: PerCore::new(core_count(), ring),
        }
    }

    /// Turns it on, with room for this many events per core (at least 1, at most
    /// [`TRACE_EVENTS_MAX`]; more if another caller asked for more). Each call needs a call of
    /// [`Trace::stop`].
    pub fn start(&self, events_per_core: usize) {
        let mut readers = self.readers.lock();
        *readers += 1;
        let wanted = to_u64(events_per_core.clamp(1, TRACE_EVENTS_MAX));
        self.capacity.raise(wanted);
    }

    /// Ends one [`Trace::start`]; the last one turns it off and drops all events.
    ///
    /// # Panics
    /// If it is off.
    pub fn stop(&self) {
        let mut readers = self.readers.lock();
        assert!(*readers > 0, "a trace that is off cannot be stopped");
        *readers -= 1;
        if *readers == 0 {
            self.capacity.set(0);
            for ring in self.rings.iter() {
                ring.lock().records = VecDeque::new();
            }
        }
    }

    /// Whether it is on.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.capacity.get() != 0
    }

    /// Records an event, if it is on.
    #[inline]
    pub fn record(&self, journal: Option<JournalId>, event: impl FnOnce() -> TraceEvent) {
        if self.is_on() {
            self.keep(journal, event());
        }
    }

    #[cold]
    fn keep(&self, journal: Option<JournalId>, event: TraceEvent) {
        let core = current_core();
        let mut ring = self.rings.get(core).lock();
        let capacity =
            usize::try_from(self.capacity.get()).expect("a trace has at most 2^20 events");
        while ring.records.len() >= capacity.max(1) {
            ring.records.pop_front();
        }
        // Under the lock, so that times within a ring rise.
        let ns = clock::monotonic_ns();
        ring.records.push_back(TraceRecord {
            ns,
            core,
            journal,
            event,
        });
        ring.next += 1;
    }

    /// All events from the numbers in `from` on, by core; from the oldest kept for cores that
    /// `from` does not cover. Removes none.
    #[must_use]
    pub fn read(&self, from: &[u64]) -> TraceBatch {
        let mut batch = TraceBatch {
            records: Vec::new(),
            next: Vec::with_capacity(self.rings.len()),
            lost: 0,
        };
        for (core, ring) in self.rings.iter().enumerate() {
            let ring = ring.lock();
            let oldest = ring.next - to_u64(ring.records.len());
            let wanted = from.get(core).copied().unwrap_or(oldest);
            batch.lost += oldest.saturating_sub(wanted);
            let skip = usize::try_from(wanted.saturating_sub(oldest)).unwrap_or(usize::MAX);
            batch.records.extend(ring.records.iter().skip(skip));
            batch.next.push(ring.next);
        }
        // Stable: events of one core at one instant stay in their order.
        batch.records.sort_by_key(|record| record.ns);
        batch
    }
}
