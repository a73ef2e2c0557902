//! A job: keeps its requests under way until the time is over.
//!
//! **Structure.** With one request under way it makes synchronous calls; with more it submits all
//! that are missing at once, waits until one is complete, and takes all that are.
//! **Invariants.** A latency is what the job sees: from the submission until it has the result.
//! Requests under way at the end are waited for, and count. **On a crash** nothing is kept.

use std::collections::VecDeque;
use std::ops::Range;

use anyhow::Result;
use dure_block::{Bio, BlockBuf, Lba, Op, Queue, Ticket, WriteFlags};
use dure_sync::random::Seeded;
use dure_sync::{Arc, clock};
use hdrhistogram::Histogram;

use super::load::{Load, Pattern};
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
    /// Of this thread so far, see proc(5); zeros where the kernel does not tell.
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

/// One job.
pub(super) struct Job {
    queue: Arc<Queue>,
    choice: Choice,
    depth: usize,
    tally: Tally,
}

impl Job {
    /// Job `number` of those of `load`, on the first `size` blocks.
    pub(super) fn new(load: &Load, queue: Arc<Queue>, number: u16, size: u64) -> Result<Self> {
        let (jobs, number) = (u64::from(load.jobs), u64::from(number));
        let places = size / load.blocks();
        let own = number * places / jobs..(number + 1) * places / jobs;
        Ok(Self {
            queue,
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
        if self.depth == 1 {
            self.call(end_ns)?;
        } else {
            self.submit(end_ns)?;
        }
        self.tally.cpu = CpuTime::of_this_thread().since(before);
        Ok(self.tally)
    }

    fn buffer(&self) -> Result<BlockBuf> {
        let mut buffer = BlockBuf::zeroed(usize::try_from(self.choice.blocks)?);
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
                self.queue.write(lba, buffer.as_slice(), WriteFlags::NONE)?;
            } else {
                self.queue.read(lba, buffer.as_mut_slice())?;
            }
            let after = clock::monotonic_ns();
            self.count(op, after - now);
            now = after;
        }
        Ok(())
    }

    fn submit(&mut self, end_ns: u64) -> Result<()> {
        let buffers = (0..self.depth).map(|_| self.buffer());
        let mut buffers = buffers.collect::<Result<Vec<_>>>()?;
        let mut flying: VecDeque<Flight> = VecDeque::with_capacity(self.depth);
        loop {
            interrupt::check()?;
            let submitted_ns = clock::monotonic_ns();
            if submitted_ns < end_ns {
                self.send(&mut buffers, &mut flying, submitted_ns)?;
            }
            // Whichever is complete first. If another job of this core waits for it, the oldest.
            let done = |flying: &VecDeque<Flight>| flying.iter().any(|f| f.ticket.is_done());
            if !done(&flying) && self.queue.wait_any() == 0 {
                let Some(oldest) = flying.pop_front() else {
                    return Ok(());
                };
                self.take(oldest, &mut buffers)?;
            }
            let mut index = 0;
            while let Some(flight) = flying.get(index) {
                if flight.ticket.is_done() {
                    let flight = flying.remove(index).expect("it is there");
                    self.take(flight, &mut buffers)?;
                } else {
                    index += 1;
                }
            }
        }
    }

    /// Submits a request for each free buffer.
    fn send(
        &mut self,
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
        let tickets = self.queue.submit_all(bios)?;
        let flights = tickets.into_iter().zip(ops);
        flying.extend(flights.map(|(ticket, op)| Flight {
            ticket,
            op,
            submitted_ns,
        }));
        Ok(())
    }

    fn take(&mut self, flight: Flight, buffers: &mut Vec<BlockBuf>) -> Result<()> {
        let completion = self.queue.wait(flight.ticket);
        buffers.extend(completion.into_segments()?);
        self.count(flight.op, clock::monotonic_ns() - flight.submitted_ns);
        Ok(())
    }
}
