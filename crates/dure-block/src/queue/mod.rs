//! The queue: what the upper layers submit to.
//!
//! **Problem.** Upper layers want to read, write and flush from any core without knowing limits of
//! the device; the device wants bounded, checked requests. **Structure.** Per core a software queue
//! ([`Context`]: counters, trace), one hardware queue (the device, with `nr_requests` tags), and
//! the compound flush. Synchronous calls borrow the caller's memory and allocate nothing;
//! [`Queue::submit`] takes owned memory and returns it with the completion. **Invariants.** Range
//! and length are checked here, once. Every request in a device has a tag. **Crash.** See
//! [`Queue::flush`].

mod context;
mod flush;
mod tag;
#[cfg(test)]
mod tests;

use std::fmt;

use dure_sync::{Arc, PerCore, clock, core_count, current_core};

pub(crate) use context::Context;
pub use context::{Counters, Phases, Trace, TraceRecord};
use flush::FlushGate;
pub use flush::FlushPolicy;
pub(crate) use tag::{Tag, TagSet};

use crate::device::{Device, DeviceInfo, Io, Poll};
use crate::{
    BLOCK_BYTES, Bio, Completion, Error, Lba, Op, Request, Result, Slot, Stamps, WriteFlags,
    blocks_of,
};

/// Configuration of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueConfig {
    /// Tags: how many requests may be in the device at once.
    pub nr_requests: u32,
    /// How flushes are shared.
    pub flush: FlushPolicy,
    /// Whether requests are stamped.
    pub trace: Trace,
}

impl Default for QueueConfig {
    fn default() -> Self {
        Self {
            nr_requests: 256,
            flush: FlushPolicy::default(),
            trace: Trace::default(),
        }
    }
}

/// A handle for the completion of one submitted request. Dropping it discards the result.
#[must_use = "the result of the request is learned by Queue::wait"]
pub struct Ticket {
    slot: Arc<Slot>,
}

impl Ticket {
    /// Whether the request has completed.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.slot.is_done()
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Ticket({})",
            if self.is_done() { "done" } else { "in flight" }
        )
    }
}

/// The queue of a device.
pub struct Queue {
    device: Arc<dyn Device>,
    tags: Arc<TagSet>,
    contexts: PerCore<Arc<Context>>,
    gate: FlushGate,
}

impl Queue {
    /// A queue for `device`.
    ///
    /// # Panics
    /// If `nr_requests` is not between 1 and 2^20.
    #[must_use]
    pub fn new(device: Arc<dyn Device>, config: QueueConfig) -> Arc<Self> {
        let tags = Arc::new(TagSet::new(config.nr_requests));
        let name = device.info().name.clone();
        let contexts = PerCore::new(core_count(), |_| {
            Arc::new(Context::new(Arc::clone(&tags), config.trace, &name))
        });
        Arc::new(Self {
            device,
            tags,
            contexts,
            gate: FlushGate::new(config.flush),
        })
    }

    /// What the device is and can do.
    #[must_use]
    pub fn info(&self) -> &DeviceInfo {
        self.device.info()
    }

    /// Number of tags.
    #[must_use]
    pub fn nr_requests(&self) -> u32 {
        self.tags.nr_requests()
    }

    /// Requests in the device, at this moment.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.tags.in_flight()
    }

    /// The counters so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        self.contexts
            .iter()
            .for_each(|context| context.add_to(&mut sum));
        sum
    }

    /// Takes the traced requests of all cores, in the order in which they were queued.
    #[must_use]
    pub fn take_trace(&self) -> Vec<TraceRecord> {
        let mut records: Vec<_> = self
            .contexts
            .iter()
            .flat_map(|context| context.take_trace())
            .collect();
        records.sort_by_key(|record| record.stamps.queued_ns);
        records
    }

    /// Reads whole blocks from `lba` on into `out`.
    ///
    /// # Errors
    /// [`Error::Unaligned`], [`Error::OutOfRange`], or the device's error; then the content of
    /// `out` is unspecified.
    pub fn read(&self, lba: Lba, out: &mut [u8]) -> Result<()> {
        self.check_bytes(Op::Read, lba, out.len())?;
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
    /// [`Error::Unaligned`], [`Error::OutOfRange`], [`Error::ReadOnly`], or the device's error;
    /// then the content of the blocks is unknown, and nothing was retried.
    pub fn write(&self, lba: Lba, data: &[u8], flags: WriteFlags) -> Result<()> {
        self.write_parts(lba, &[data], flags)
    }

    /// Writes `parts`, each of whole blocks, one after the other from `lba` on: in one request if
    /// the device allows its length.
    ///
    /// # Errors
    /// As [`Queue::write`].
    pub fn write_vectored(&self, lba: Lba, parts: &[&[u8]]) -> Result<()> {
        self.write_parts(lba, parts, WriteFlags::NONE)
    }

    fn write_parts(&self, lba: Lba, parts: &[&[u8]], flags: WriteFlags) -> Result<()> {
        let mut bytes = 0_usize;
        for part in parts {
            self.check_whole(Op::Write, lba, part.len())?;
            bytes = bytes.saturating_add(part.len());
        }
        self.check_bytes(Op::Write, lba, bytes)?;
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
    /// [`Error::OutOfRange`], [`Error::ReadOnly`], or the device's error.
    pub fn discard(&self, lba: Lba, blocks: u64) -> Result<()> {
        self.check_range(Op::Discard, lba, blocks)?;
        self.run(Io::Discard { lba, blocks })
    }

    /// Submits a request and returns while it is under way; waits only when no tag is free. A
    /// [`WriteFlags::PREFLUSH`] is done before this returns. The bio must not be longer than
    /// [`DeviceInfo::max_blocks_per_request`].
    ///
    /// # Errors
    /// [`Error::TooLong`], and the errors of the synchronous calls that can be checked beforehand;
    /// the bio is then dropped.
    pub fn submit(&self, bio: Bio) -> Result<Ticket> {
        let ticket = self.enqueue(bio)?;
        self.device.kick();
        Ok(ticket)
    }

    /// Submits several requests at the cost of one submission.
    ///
    /// # Errors
    /// The first error found beforehand; the bios before it are under way (their results are
    /// discarded), those after it are dropped.
    pub fn submit_all(&self, bios: impl IntoIterator<Item = Bio>) -> Result<Vec<Ticket>> {
        let tickets = bios.into_iter().map(|bio| self.enqueue(bio)).collect();
        self.device.kick();
        tickets
    }

    fn enqueue(&self, mut bio: Bio) -> Result<Ticket> {
        if bio.op() != Op::Flush {
            self.check_range(bio.op(), bio.lba(), bio.blocks())?;
            self.check_length(&bio)?;
        }
        if bio.flags().contains(WriteFlags::PREFLUSH) {
            self.flush()?;
            bio = Bio {
                flags: bio.flags().without(WriteFlags::PREFLUSH),
                ..bio
            };
        }
        let context = self.contexts.local();
        let (tag, stamps) = self.take_tag(context);
        let stamps = stamps.map(|stamps| {
            // There is no scheduler between G and I yet.
            Stamps {
                inserted_ns: clock::monotonic_ns(),
                ..stamps
            }
        });
        if bio.op() == Op::Flush {
            context::bump(&context.flush_requests, 1);
        }
        let (request, slot) = Request::new(bio, tag, stamps, Arc::clone(context));
        self.device.submit(request);
        Ok(Ticket { slot })
    }

    /// Waits for a submitted request, running completions on this core.
    pub fn wait(&self, ticket: Ticket) -> Completion {
        if !ticket.slot.is_done() {
            self.device.wait(&ticket.slot);
        }
        ticket.slot.take()
    }

    /// Runs the completions that have arrived, on this core; returns how many.
    pub fn poll(&self) -> usize {
        self.device.poll(Poll::Ready)
    }

    fn take_tag(&self, context: &Context) -> (Tag, Option<Stamps>) {
        let core = current_core();
        let queued_ns = context.is_traced().then(clock::monotonic_ns);
        let tag = self.tags.take_now(core).unwrap_or_else(|| {
            context.waited_for_tag();
            // Requests held back by the device would never complete while we wait for one.
            self.device.kick();
            self.tags.wait(core, || self.device.poll(Poll::One))
        });
        let stamps = queued_ns.map(|queued_ns| Stamps {
            queued_ns,
            tagged_ns: clock::monotonic_ns(),
            ..Stamps::default()
        });
        (tag, stamps)
    }

    /// Runs one checked request synchronously on this core.
    #[inline]
    fn run(&self, io: Io<'_>) -> Result<()> {
        let context = self.contexts.local();
        let (tag, stamps) = self.take_tag(context);
        let (op, lba, blocks) = (io.op(), io.lba(), io.blocks());
        let dispatched = stamps.map(|stamps| {
            // Insertion and dispatch are one step on the synchronous path.
            let now = clock::monotonic_ns();
            Stamps {
                inserted_ns: now,
                dispatched_ns: now,
                ..stamps
            }
        });
        let result = self.device.execute(io);
        if let Some(stamps) = dispatched {
            let stamps = Stamps {
                completed_ns: clock::monotonic_ns(),
                ..stamps
            };
            context.trace_request(op, lba, blocks, tag, stamps);
        }
        context.completed(op, blocks, &result);
        self.tags.release(tag);
        result
    }

    fn bytes_max(&self) -> usize {
        let blocks = usize::try_from(self.info().max_blocks_per_request).unwrap_or(usize::MAX);
        assert!(blocks > 0, "a device takes requests of at least one block");
        blocks.saturating_mul(BLOCK_BYTES)
    }

    fn check_whole(&self, op: Op, lba: Lba, bytes: usize) -> Result<()> {
        if bytes.is_multiple_of(BLOCK_BYTES) {
            return Ok(());
        }
        Err(Error::Unaligned {
            device: self.info().name.clone(),
            op,
            lba,
            bytes,
        })
    }

    fn check_bytes(&self, op: Op, lba: Lba, bytes: usize) -> Result<()> {
        self.check_whole(op, lba, bytes)?;
        self.check_range(op, lba, blocks_of(bytes))
    }

    fn check_length(&self, bio: &Bio) -> Result<()> {
        let DeviceInfo {
            name,
            max_blocks_per_request: blocks_max,
            ..
        } = self.info();
        let (op, lba, blocks) = (bio.op(), bio.lba(), bio.blocks());
        if blocks <= *blocks_max || op == Op::Discard {
            return Ok(());
        }
        let (device, blocks_max) = (name.clone(), *blocks_max);
        Err(Error::TooLong {
            device,
            op,
            lba,
            blocks,
            blocks_max,
        })
    }

    fn check_range(&self, op: Op, lba: Lba, blocks: u64) -> Result<()> {
        let info = self.info();
        if info.read_only && op != Op::Read {
            return Err(Error::ReadOnly {
                device: info.name.clone(),
                op,
                lba,
            });
        }
        if lba
            .number()
            .checked_add(blocks)
            .is_some_and(|end| end <= info.blocks)
        {
            return Ok(());
        }
        Err(Error::OutOfRange {
            device: info.name.clone(),
            op,
            lba,
            blocks,
            device_blocks: info.blocks,
        })
    }
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
