//! A job: keeps its requests under way until the time is over.
//!
//! **Structure.** With one request under way it makes synchronous calls; with more it submits all
//! that are missing at once, waits until one is complete, and takes those that are, but no more
//! than a quarter of its requests: the device gets new ones before it has done the others.
//! **Invariants.** A latency is what the job sees: from the submission until it has the result.
//! Requests under way at the end are waited for, and count. **On a crash** nothing is kept.

use std::collections::VecDeque;
use std::ops::Range;

use anyhow::{Result, ensure};
use dure_block::{Bio, BlockBuf, Lba, Op, Queue, Ticket, WriteFlags};
use dure_fs::{FileSystem, InodeRef, ReadMode, Stamp, SyncScope};
use dure_sync::random::Seeded;
use dure_sync::{Arc, clock};
use hdrhistogram::Histogram;

use super::choices::Pattern;
use super::load::{Load, block_bytes};
use crate::interrupt;
use crate::measure::histogram;

/// What a job did.
#[derive(Debug)]
pub(super) struct Tally {
    /// Latencies of reads and writes, in ns: one for each request.
    pub(super) reads: Histogram<u64>,
    pub(super) writes: Histogram<u64>,
    pub(super) cpu: CpuTime,
}

/// CPU time of a job, and the time that it could have used but others had its core.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct CpuTime {
    pub(super) used_ns: u64,
    pub(super) waited_ns: u64,
}

impl CpuTime {
    /// The CPU time of this thread so far, see proc(5); zeros where the kernel does not tell.
    fn of_this_thread() -> Self {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        let mut numbers = text.split_ascii_whitespace().map(|word| word.parse().ok());
        let mut next = || numbers.next().flatten().unwrap_or_default();
        Self {
            used_ns: next(),
            waited_ns: next(),
        }
    }

    fn since(self, before: Self) -> Self {
        Self {
            used_ns: self.used_ns.saturating_sub(before.used_ns),
            waited_ns: self.waited_ns.saturating_sub(before.waited_ns),
        }
    }
}

/// Which request is next.
struct Choice {
    pattern: Pattern,
    random: Seeded,
    /// Requests that fit on the device, and those of this job if they are sequential.
    places: u64,
    own: Range<u64>,
    next: u64,
    blocks: u64,
}

impl Choice {
    fn next(&mut self) -> (Op, Lba) {
        let place = match self.pattern {
            Pattern::Read | Pattern::Write => {
                let place = self.next;
                self.next += 1;
                if self.next == self.own.end {
                    self.next = self.own.start;
                }
                place
            }
            Pattern::RandRead | Pattern::RandWrite | Pattern::RandRw => {
                self.random.below(self.places)
            }
        };
        let write = match self.pattern {
            Pattern::RandRw => self.random.coin(),
            pattern => pattern.writes(),
        };
        let op = if write { Op::Write } else { Op::Read };
        (op, Lba::new(place * self.blocks))
    }
}

struct Flight {
    ticket: Ticket,
    op: Op,
    submitted_ns: u64,
}

/// What a job reads and writes.
pub(super) enum Access {
    /// The blocks of a device.
    Device(Arc<Queue>),
    /// Those of a file, which no other job uses; a write is synced.
    File(Arc<FileSystem>, InodeRef),
}

impl Access {
    fn buffer(&self, blocks: usize) -> BlockBuf {
        match self {
            Self::Device(queue) => queue.buffer(blocks),
            Self::File(..) => BlockBuf::zeroed(blocks),
        }
    }

    fn read(&self, lba: Lba, out: &mut [u8]) -> Result<()> {
        match self {
            Self::Device(queue) => queue.read(lba, out)?,
            Self::File(fs, file) => {
                let at = lba.number() * block_bytes();
                let read = fs.read(file, at, out, ReadMode::Bypass)?;
                ensure!(read == out.len(), "the file ends at {at} and {read} bytes");
            }
        }
        Ok(())
    }

    fn write(&self, lba: Lba, data: &[u8]) -> Result<()> {
        match self {
            Self::Device(queue) => queue.write(lba, data, WriteFlags::NONE)?,
            Self::File(fs, file) => {
                fs.write(file, lba.number() * block_bytes(), data, Stamp::Set)?;
                fs.fsync(file, SyncScope::Data)?;
            }
        }
        Ok(())
    }
}

/// One job.
pub(super) struct Job {
    access: Access,
    choice: Choice,
    depth: usize,
    tally: Tally,
}

impl Job {
    /// Job `number` of those of `load`, on the first `size` blocks.
    pub(super) fn new(load: &Load, access: Access, number: u16, size: u64) -> Result<Self> {
        let (jobs, number) = (u64::from(load.jobs), u64::from(number));
        let places = size / load.blocks();
        let own = match access {
            Access::Device(_) => number * places / jobs..(number + 1) * places / jobs,
            Access::File(..) => 0..places,
        };
        Ok(Self {
            access,
            choice: Choice {
                pattern: load.work.rw,
                random: Seeded::new(number + 1),
                places,
                next: own.start,
                own,
                blocks: load.blocks(),
            },
            depth: usize::try_from(load.work.iodepth)?,
            tally: Tally {
                reads: histogram()?,
                writes: histogram()?,
                cpu: CpuTime::default(),
            },
        })
    }

    /// Works for `ns` from now on: a thread may take its time to start.
    pub(super) fn work(mut self, ns: u64) -> Result<Tally> {
        let (before, end_ns) = (CpuTime::of_this_thread(), clock::monotonic_ns() + ns);
        match &self.access {
            Access::Device(queue) if self.depth > 1 => {
                let queue = Arc::clone(queue);
                self.submit(&queue, end_ns)?;
            }
            _ => self.call(end_ns)?,
        }
        self.tally.cpu = CpuTime::of_this_thread().since(before);
        Ok(self.tally)
    }

    fn buffer(&self) -> Result<BlockBuf> {
        let mut buffer = self.access.buffer(usize::try_from(self.choice.blocks)?);
        buffer.as_mut_slice().fill(0xa5);
        Ok(buffer)
    }

    fn count(&mut self, op: Op, ns: u64) {
        let latencies = match op {
            Op::Write => &mut self.tally.writes,
            _ => &mut self.tally.reads,
        };
        latencies.saturating_record(ns.max(1));
    }

    fn call(&mut self, end_ns: u64) -> Result<()> {
        let mut buffer = self.buffer()?;
        let mut now = clock::monotonic_ns();
        while now < end_ns {
            interrupt::check()?;
            let (op, lba) = self.choice.next();
            if op == Op::Write {
                self.access.write(lba, buffer.as_slice())?;
            } else {
                self.access.read(lba, buffer.as_mut_slice())?;
            }
            let after = clock::monotonic_ns();
            self.count(op, after - now);
            now = after;
        }
        Ok(())
    }

    fn submit(&mut self, queue: &Queue, end_ns: u64) -> Result<()> {
        let buffers = (0..self.depth).map(|_| self.buffer());
        let mut buffers = buffers.collect::<Result<Vec<_>>>()?;
        let mut flying: VecDeque<Flight> = VecDeque::with_capacity(self.depth);
        loop {
            interrupt::check()?;
            let submitted_ns = clock::monotonic_ns();
            if submitted_ns < end_ns {
                self.send(queue, &mut buffers, &mut flying, submitted_ns)?;
            }
            // Whichever is complete first. If another job of this core waits for it, the oldest.
            let done = |flying: &VecDeque<Flight>| flying.iter().any(|f| f.ticket.is_done());
            if !done(&flying) && queue.wait_any() == 0 {
                let Some(oldest) = flying.pop_front() else {
                    return Ok(());
                };
                self.take(queue, oldest, &mut buffers)?;
            }
            let most = match submitted_ns < end_ns {
                true => self.depth.div_ceil(4),
                false => self.depth,
            };
            let mut index = 0;
            while let Some(flight) = flying.get(index).filter(|_| buffers.len() < most) {
                if flight.ticket.is_done() {
                    let flight = flying.remove(index).expect("it is there");
                    self.take(queue, flight, &mut buffers)?;
                } else {
                    index += 1;
                }
            }
        }
    }

    /// Submits a request for each free buffer.
    fn send(
        &mut self,
        queue: &Queue,
        buffers: &mut Vec<BlockBuf>,
        flying: &mut VecDeque<Flight>,
        submitted_ns: u64,
    ) -> Result<()> {
        let mut ops = Vec::with_capacity(buffers.len());
        let choice = &mut self.choice;
        let bios = buffers.drain(..).map(|buffer| {
            let (op, lba) = choice.next();
            ops.push(op);
            match op {
                Op::Write => Bio::write(lba, buffer),
                _ => Bio::read(lba, buffer),
            }
        });
        let tickets = queue.submit_all(bios)?;
        let flights = tickets.into_iter().zip(ops);
        flying.extend(flights.map(|(ticket, op)| Flight {
            ticket,
            op,
            submitted_ns,
        }));
        Ok(())
    }

    fn take(&mut self, queue: &Queue, flight: Flight, buffers: &mut Vec<BlockBuf>) -> Result<()> {
        let completion = queue.wait(flight.ticket);
        buffers.extend(completion.into_segments()?);
        self.count(flight.op, clock::monotonic_ns() - flight.submitted_ns);
        Ok(())
    }
}
