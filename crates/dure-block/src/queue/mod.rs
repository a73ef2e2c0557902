//! The queue: what the upper layers submit to.
//!
//! **Problem.** Upper layers want to read, write and flush from any core without knowing limits of
//! the device; the device wants bounded, checked requests. **Structure.** Per core a software queue
//! ([`Context`]: counters, trace), a number of hardware queues with `nr_requests` tags each, which
//! serve cores of one node, or of which several serve a core (`map`), the plug that merges (`plug`), and the compound flush; the
//! device has a ring for each core. Synchronous calls borrow the caller's memory and allocate
//! nothing; [`Queue::submit`] takes owned memory and returns it with the completion.
//! **Invariants.** Range and length are checked here, once. Every request in a device has a tag. **Crash.** See
//! [`Queue::flush`].

mod check;
mod context;
mod flush;
mod late;
mod map;
mod plug;
mod submit;
mod tag;
#[cfg(test)]
mod tests;
mod trace;
mod wait;

use std::fmt;

use dure_sync::{Arc, CoreId, PerCore, clock, core_count};

pub(crate) use context::Context;
pub use context::Counters;
use context::Place;
use flush::FlushGate;
pub use flush::FlushPolicy;
use late::Running;
pub use late::{LateRequest, LateWatch};
pub use plug::Merge;
pub(crate) use plug::Plugged;
pub use submit::Ticket;
pub(crate) use tag::{Tag, TagSet};
pub use trace::{Phase, Phases, Trace, TraceRecord};
pub use wait::{Hybrid, Typical, Wait};

use crate::device::{Device, DeviceInfo, Io, Poll};
use crate::{BLOCK_BYTES, Lba, Op, Result, Stamps, WriteFlags, blocks_of};

/// The most hardware queues that a queue can have.
pub const HW_QUEUES_MAX: u32 = 1024;

/// Configuration of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueConfig {
    /// Hardware queues, at most [`HW_QUEUES_MAX`]. If there are more than cores, a core has several,
    /// and gives them its requests in turn.
    pub hw_queues: u32,
    /// Tags of each hardware queue: how many of its requests may be in the device at once.
    pub nr_requests: u32,
    /// Whether bios that are submitted together are merged.
    pub merge: Merge,
    /// Whether requests that are submitted together go to the device in the order of their blocks.
    pub sort: bool,
    /// How callers wait for completions.
    pub wait: Wait,
    /// How flushes are shared.
    pub flush: FlushPolicy,
    /// Whether requests are stamped.
    pub trace: Trace,
}

impl Default for QueueConfig {
    fn default() -> Self {
        Self {
            hw_queues: 1,
            nr_requests: 256,
            merge: Merge::default(),
            sort: false,
            wait: Wait::default(),
            flush: FlushPolicy::default(),
            trace: Trace::default(),
        }
    }
}

/// A hardware queue, at this moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HwQueue {
    /// The cores it serves.
    pub cores: Vec<CoreId>,
    /// Its tags.
    pub nr_requests: u32,
    /// Those in use.
    pub in_flight: u32,
    /// What its cores counted.
    pub counters: Counters,
}

/// The tags of a hardware queue, and the cores that take them.
struct Hardware {
    tags: Arc<TagSet>,
    running: Arc<Running>,
    cores: Vec<CoreId>,
}

/// The queue of a device.
pub struct Queue {
    device: Arc<dyn Device>,
    hardware: Vec<Hardware>,
    merge: Merge,
    sort: bool,
    wait: Wait,
    contexts: PerCore<Arc<Context>>,
    gate: FlushGate,
}

impl Queue {
    /// A queue for `device`.
    ///
    /// # Panics
    /// If `nr_requests` is not between 1 and 2^20, or `hw_queues` not between 1 and
    /// [`HW_QUEUES_MAX`].
    #[must_use]
    pub fn new(device: Arc<dyn Device>, config: QueueConfig) -> Arc<Self> {
        assert!(
            config.hw_queues <= HW_QUEUES_MAX,
            "{} hardware queues, of at most {HW_QUEUES_MAX}",
            config.hw_queues
        );
        let hardware: Vec<_> = map::cores_of_queues(config.hw_queues)
            .into_iter()
            .map(|cores| {
                let tags = TagSet::new(config.nr_requests, cores.len());
                Hardware {
                    running: Arc::new(Running::new(tags.words())),
                    tags: Arc::new(tags),
                    cores,
                }
            })
            .collect();
        let name = device.info().name.clone();
        let contexts = PerCore::new(core_count(), |core| {
            let mut contexts = places(&hardware, core);
            let first = contexts.next().expect("each core has a hardware queue");
            let context = |place, others| Context::new(place, others, config.trace, &name);
            let others = contexts.map(|place| Arc::new(context(place, Vec::new())));
            Arc::new(context(first, others.collect()))
        });
        Arc::new(Self {
            device,
            hardware,
            merge: config.merge,
            sort: config.sort,
            wait: config.wait,
            contexts,
            gate: FlushGate::new(config.flush),
        })
    }

    /// What the device is and can do.
    #[must_use]
    pub fn info(&self) -> &DeviceInfo {
        self.device.info()
    }

    /// Number of tags of all hardware queues.
    #[must_use]
    pub fn nr_requests(&self) -> u32 {
        let tags = self.hardware.iter().map(|queue| queue.tags.nr_requests());
        tags.fold(0, u32::saturating_add)
    }

    /// Requests in the device, at this moment.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        let tags = self.hardware.iter().map(|queue| queue.tags.in_flight());
        tags.fold(0, u32::saturating_add)
    }

    /// The hardware queues: their cores, tags and counters.
    #[must_use]
    pub fn hw_queues(&self) -> Vec<HwQueue> {
        let queues = (0_u16..).zip(&self.hardware);
        queues
            .map(|(number, queue)| {
                let mut counters = Counters::default();
                self.all_contexts()
                    .filter(|context| context.hw_queue() == number)
                    .for_each(|context| context.add_to(&mut counters));
                HwQueue {
                    cores: queue.cores.clone(),
                    nr_requests: queue.tags.nr_requests(),
                    in_flight: queue.tags.in_flight(),
                    counters,
                }
            })
            .collect()
    }

    /// The counters so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        self.all_contexts()
            .for_each(|context| context.add_to(&mut sum));
        sum
    }

    fn all_contexts(&self) -> impl Iterator<Item = &Arc<Context>> {
        self.contexts.iter().flat_map(Context::all)
    }

    /// Takes the traced requests of all cores, in the order in which they were queued.
    #[must_use]
    pub fn take_trace(&self) -> Vec<TraceRecord> {
        let mut records: Vec<_> = self
            .all_contexts()
            .flat_map(|context| context.take_trace())
            .collect();
        records.sort_by_key(|record| record.stamps.queued_ns);
        records
    }

    /// Reads whole blocks from `lba` on into `out`.
    ///
    /// # Errors
    /// `Error::Unaligned`, `Error::OutOfRange`, or the device's error; then the content of
    /// `out` is unspecified.
    pub fn read(&self, lba: Lba, out: &mut [u8]) -> Result<()> {
        check::bytes(self.info(), Op::Read, lba, out.len())?;
        if blocks_of(out.len()) <= self.info().max_blocks_per_request {
            return self.run(Io::Read { lba, out });
        }
        let step = self.bytes_max();
        for (part, chunk) in (0..).zip(out.chunks_mut(step)) {
            self.run(Io::Read {
                lba: lba.offset(part * blocks_of(step)),
                out: chunk,
            })?;
        }
        Ok(())
    }

    /// Writes whole blocks from `lba` on. The data is durable after the next flush, or on return
    /// with [`WriteFlags::FUA`].
    ///
    /// # Errors
    /// `Error::Unaligned`, `Error::OutOfRange`, `Error::ReadOnly`, or the device's error;
    /// then the content of the blocks is unknown, and nothing was retried.
    pub fn write(&self, lba: Lba, data: &[u8], flags: WriteFlags) -> Result<()> {
        self.write_parts(lba, &[data], flags)
    }

    /// Writes `parts`, each of whole blocks, one after the other from `lba` on: in one request if
    /// the device allows its length.
    ///
    /// # Errors
    /// Those of [`Queue::write`].
    pub fn write_vectored(&self, lba: Lba, parts: &[&[u8]]) -> Result<()> {
        self.write_parts(lba, parts, WriteFlags::NONE)
    }

    fn write_parts(&self, lba: Lba, parts: &[&[u8]], flags: WriteFlags) -> Result<()> {
        let mut bytes = 0_usize;
        for part in parts {
            check::whole(self.info(), Op::Write, lba, part.len())?;
            bytes = bytes.saturating_add(part.len());
        }
        check::bytes(self.info(), Op::Write, lba, bytes)?;
        if flags.contains(WriteFlags::PREFLUSH) {
            self.flush()?;
        }
        let flags = flags.without(WriteFlags::PREFLUSH);
        if blocks_of(bytes) <= self.info().max_blocks_per_request {
            return self.run(Io::Write { lba, parts, flags });
        }
        let mut lba = lba;
        for chunk in parts.iter().flat_map(|part| part.chunks(self.bytes_max())) {
            self.run(Io::Write {
                lba,
                parts: &[chunk],
                flags,
            })?;
            lba = lba.offset(blocks_of(chunk.len()));
        }
        Ok(())
    }

    /// Makes every write durable that completed before this call. Concurrent callers share a
    /// device flush, but never one that was already under way when they called.
    ///
    /// # Errors
    /// The device's error, to every caller that shares the flush. Writes since the last successful
    /// flush may then be lost although they were reported complete: the caller must stop relying on
    /// them. A further flush may succeed and proves nothing.
    pub fn flush(&self) -> Result<()> {
        context::bump(&self.contexts.local().flush_requests, 1);
        if !self.info().volatile_cache {
            return Ok(());
        }
        self.gate.flush(|| self.run(Io::Flush))
    }

    /// Tells the device that the content of `blocks` blocks is not needed; they read as zeroes.
    ///
    /// # Errors
    /// `Error::OutOfRange`, `Error::ReadOnly`, or the device's error.
    pub fn discard(&self, lba: Lba, blocks: u64) -> Result<()> {
        check::range(self.info(), Op::Discard, lba, blocks)?;
        self.run(Io::Discard { lba, blocks })
    }

    #[inline]
    fn take_tag(&self, context: &Context) -> Tag {
        context
            .take_tag()
            .unwrap_or_else(|| self.wait_for_tag(context))
    }

    #[cold]
    fn wait_for_tag(&self, context: &Context) -> Tag {
        // Requests held back by the device would never complete while we wait for one.
        self.device.kick();
        context.wait_for_tag(|| self.device.poll(Poll::One))
    }

    /// Runs one checked request synchronously on this core.
    #[inline]
    fn run(&self, io: Io<'_>) -> Result<()> {
        let mut context = self.contexts.local();
        if !context.is_plain() {
            context = Context::next_in_turn(context);
            if context.is_traced() {
                return self.run_traced(context, io);
            }
        }
        let (op, blocks) = (io.op(), io.blocks());
        let tag = self.take_tag(context);
        context.begin(tag, op, io.lba(), blocks);
        let result = self.execute(context, io);
        context.completed(op, blocks, &result);
        context.release(tag);
        result
    }

    #[inline]
    fn execute(&self, context: &Context, io: Io<'_>) -> Result<()> {
        match self.wait {
            Wait::Sleep => self.device.execute(io),
            Wait::Poll | Wait::Hybrid(_) => self.execute_looking(context, io),
        }
    }

    #[cold]
    fn run_traced(&self, context: &Context, io: Io<'_>) -> Result<()> {
        let (op, lba, blocks) = (io.op(), io.lba(), io.blocks());
        let queued_ns = clock::monotonic_ns();
        // A tag that is free takes no time: a look at the clock would take most of it.
        let (tag, tagged_ns) = match context.take_tag() {
            Some(tag) => (tag, queued_ns),
            None => (self.wait_for_tag(context), clock::monotonic_ns()),
        };
        context.begin(tag, op, lba, blocks);
        let result = self.execute(context, io);
        // Insertion and dispatch are one step on the synchronous path, and follow the tag.
        let stamps = Stamps {
            queued_ns,
            merged_ns: 0,
            tagged_ns,
            inserted_ns: tagged_ns,
            dispatched_ns: tagged_ns,
            completed_ns: clock::monotonic_ns(),
            tag_wait_ns: tagged_ns - queued_ns,
        };
        context.trace(op, lba, blocks, tag, stamps);
        context.completed(op, blocks, &result);
        context.release(tag);
        result
    }

    fn bytes_max(&self) -> usize {
        let blocks = usize::try_from(self.info().max_blocks_per_request).unwrap_or(usize::MAX);
        assert!(blocks > 0, "a device takes requests of at least one block");
        blocks.saturating_mul(BLOCK_BYTES)
    }
}

/// Where `core` is among the hardware queues: its place at each that serves it.
fn places(hardware: &[Hardware], core: CoreId) -> impl Iterator<Item = Place> {
    let queues = (0_u16..).zip(hardware);
    queues.filter_map(move |(hw_queue, queue)| {
        let position = queue.cores.iter().position(|own| *own == core)?;
        Some(Place {
            core,
            hw_queue,
            tags: Arc::clone(&queue.tags),
            running: Arc::clone(&queue.running),
            first_word: queue.tags.first_word(position, queue.cores.len()),
        })
    })
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("info", self.info())
            .field("nr_requests", &self.nr_requests())
            .field("in_flight", &self.in_flight())
            .field("counters", &self.counters())
            .finish_non_exhaustive()
    }
}
