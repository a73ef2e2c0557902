//! The software queue of a core: what a queue keeps for each core.
//!
//! **Problem.** Counters and traces of a queue must not be lines that all cores write.
//! **Structure.** A [`Context`] per core with counters, a bounded ring of trace records and a
//! reference to the tags. A request keeps a reference to the context of the core it came from. A
//! core that several hardware queues serve has a context for each, and uses them in turn.
//! **Invariants.** Memory is bounded by the trace setting. **Crash.** Nothing is kept.

use std::collections::VecDeque;

use dure_sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use dure_sync::{Arc, CoreId, Mutex, clock};

use crate::queue::late::Running;
use crate::queue::wait::Times;
use crate::queue::{Tag, TagSet, Trace, TraceRecord};
use crate::rank::TRACE_RANK;
use crate::{Lba, Op, Result, Stamps};

/// The counters of a queue. Each request counts when it completes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Counters {
    /// Read requests.
    pub reads: u64,
    /// Blocks of them.
    pub blocks_read: u64,
    /// Write requests.
    pub writes: u64,
    /// Blocks of them.
    pub blocks_written: u64,
    /// Discard requests.
    pub discards: u64,
    /// Calls that needed a flush.
    pub flush_requests: u64,
    /// Flushes sent to the device.
    pub device_flushes: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Requests that had to wait for a tag.
    pub tag_waits: u64,
    /// Bios that became part of another's request.
    pub merges: u64,
    /// Waits for a request that ended before it: the request was late.
    pub timeouts: u64,
}

impl Counters {
    /// The sum with those of another queue.
    pub(crate) fn add(&mut self, other: &Counters) {
        let Counters {
            reads,
            blocks_read,
            writes,
            blocks_written,
            discards,
            flush_requests,
            device_flushes,
            errors,
            tag_waits,
            merges,
            timeouts,
        } = other;
        self.reads += reads;
        self.blocks_read += blocks_read;
        self.writes += writes;
        self.blocks_written += blocks_written;
        self.discards += discards;
        self.flush_requests += flush_requests;
        self.device_flushes += device_flushes;
        self.errors += errors;
        self.tag_waits += tag_waits;
        self.merges += merges;
        self.timeouts += timeouts;
    }
}

/// Where a core is among the hardware queues.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) core: CoreId,
    pub(super) hw_queue: u16,
    pub(super) tags: Arc<TagSet>,
    pub(super) running: Arc<Running>,
    pub(super) first_word: usize,
}

/// The software queue of one core. Counters are written by the core's tasks (rarely by others,
/// after migration) and summed on demand by any task; they publish nothing, hence Relaxed.
#[derive(Debug)]
pub(crate) struct Context {
    reads: AtomicU64,
    blocks_read: AtomicU64,
    writes: AtomicU64,
    blocks_written: AtomicU64,
    discards: AtomicU64,
    pub(super) flush_requests: AtomicU64,
    device_flushes: AtomicU64,
    errors: AtomicU64,
    tag_waits: AtomicU64,
    pub(super) merges: AtomicU64,
    pub(super) timeouts: AtomicU64,
    trace: Trace,
    /// Requests are not stamped, and the core has one hardware queue.
    is_plain: bool,
    /// Those of the core's other hardware queues.
    others: Box<[Arc<Context>]>,
    /// Requests of this core, if it has `others`. Relaxed: a number.
    turn: AtomicUsize,
    records: Mutex<TRACE_RANK, VecDeque<TraceRecord>>,
    core: u16,
    hw_queue: u16,
    tags: Arc<TagSet>,
    running: Arc<Running>,
    /// Where this core looks for tags first.
    first_word: usize,
    /// What reads and what other requests take, for hybrid polling.
    times: [Times; 2],
    device_name: String,
}

/// Adds to a statistic.
pub(super) fn bump(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

impl Context {
    /// The context of a core with this place, and with `others`.
    pub(super) fn new(
        place: Place,
        others: Vec<Arc<Context>>,
        trace: Trace,
        device_name: &str,
    ) -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            reads: zero(),
            blocks_read: zero(),
            writes: zero(),
            blocks_written: zero(),
            discards: zero(),
            flush_requests: zero(),
            device_flushes: zero(),
            errors: zero(),
            tag_waits: zero(),
            merges: zero(),
            timeouts: zero(),
            is_plain: trace == Trace::Off && others.is_empty(),
            trace,
            others: others.into_boxed_slice(),
            turn: AtomicUsize::new(0),
            records: Mutex::new(VecDeque::new()),
            core: place.core.number(),
            hw_queue: place.hw_queue,
            tags: place.tags,
            running: place.running,
            first_word: place.first_word,
            times: Default::default(),
            device_name: device_name.to_owned(),
        }
    }

    pub(crate) fn device_name(&self) -> &str {
        &self.device_name
    }

    pub(super) fn hw_queue(&self) -> u16 {
        self.hw_queue
    }

    /// Whether requests of this core go to its only hardware queue, and are not stamped.
    #[inline]
    pub(super) fn is_plain(&self) -> bool {
        self.is_plain
    }

    /// The context whose hardware queue gets the next request of the core that `first` is of.
    #[cold]
    pub(super) fn next_in_turn(first: &Arc<Self>) -> &Arc<Self> {
        if first.others.is_empty() {
            return first;
        }
        let turn = first.turn.fetch_add(1, Ordering::Relaxed) % (first.others.len() + 1);
        turn.checked_sub(1)
            .map_or(first, |other| &first.others[other])
    }

    /// All contexts of the core that `first` is of.
    pub(super) fn all(first: &Arc<Self>) -> impl Iterator<Item = &Arc<Self>> {
        std::iter::once(first).chain(&first.others)
    }

    pub(super) fn times(&self, op: Op) -> &Times {
        &self.times[usize::from(op != Op::Read)]
    }

    /// A free tag of the core's hardware queue, unless others wait for one.
    #[inline]
    pub(super) fn take_tag(&self) -> Option<Tag> {
        self.tags.take_now(self.first_word)
    }

    /// A tag, behind the tasks that wait already.
    pub(super) fn wait_for_tag(&self, poll: impl FnMut() -> usize) -> Tag {
        bump(&self.tag_waits, 1);
        self.tags.wait(self.first_word, poll)
    }

    /// The holder of `tag` is about to ask for that.
    #[inline]
    pub(super) fn begin(&self, tag: Tag, op: Op, lba: Lba, blocks: u64) {
        self.running.begin(tag, op, lba, blocks);
    }

    pub(crate) fn release(&self, tag: Tag) {
        self.tags.release(tag);
    }

    #[inline]
    pub(crate) fn completed(&self, op: Op, blocks: u64, result: &Result<()>) {
        match op {
            Op::Read => {
                bump(&self.reads, 1);
                bump(&self.blocks_read, blocks);
            }
            Op::Write => {
                bump(&self.writes, 1);
                bump(&self.blocks_written, blocks);
            }
            Op::Flush => bump(&self.device_flushes, 1),
            Op::Discard => bump(&self.discards, 1),
        }
        if result.is_err() {
            bump(&self.errors, 1);
        }
    }

    /// The time, if requests are stamped.
    #[inline]
    pub(super) fn now(&self) -> u64 {
        if self.is_traced() {
            clock::monotonic_ns()
        } else {
            0
        }
    }

    #[inline]
    pub(crate) fn is_traced(&self) -> bool {
        self.trace != Trace::Off
    }

    pub(crate) fn trace(&self, op: Op, lba: Lba, blocks: u64, tag: Tag, stamps: Stamps) {
        let Trace::Ring { records_per_core } = self.trace else {
            return;
        };
        let mut records = self.records.lock();
        while records.len() >= records_per_core.max(1) {
            records.pop_front();
        }
        records.push_back(TraceRecord {
            op,
            lba,
            blocks,
            tag: tag.number(),
            core: self.core,
            hw_queue: self.hw_queue,
            stamps,
        });
    }

    pub(super) fn take_trace(&self) -> Vec<TraceRecord> {
        self.records.lock().drain(..).collect()
    }

    pub(super) fn add_to(&self, sum: &mut Counters) {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        sum.reads += get(&self.reads);
        sum.blocks_read += get(&self.blocks_read);
        sum.writes += get(&self.writes);
        sum.blocks_written += get(&self.blocks_written);
        sum.discards += get(&self.discards);
        sum.flush_requests += get(&self.flush_requests);
        sum.device_flushes += get(&self.device_flushes);
        sum.errors += get(&self.errors);
        sum.tag_waits += get(&self.tag_waits);
        sum.merges += get(&self.merges);
        sum.timeouts += get(&self.timeouts);
    }
}
