//! A job of requests as a worker: a simulation runs it on cores of its own.

use std::collections::VecDeque;

use anyhow::Result;
use dure_block::{Bio, BlockBuf, Lba, Queue, Ticket};
use dure_sync::Arc;
use dure_sync::random::Seeded;

use crate::measure::Worker;

/// Keeps random writes of a block under way. A work is a request that is complete.
#[derive(Debug)]
pub struct Requester {
    queue: Arc<Queue>,
    random: Seeded,
    /// Those that are free.
    buffers: Vec<BlockBuf>,
    flying: VecDeque<Ticket>,
    /// Requests that are taken at once, at most: the device gets new ones before it has done all.
    most: usize,
}

impl Requester {
    /// A job with a number that has `depth` requests under way.
    #[must_use]
    pub fn new(queue: Arc<Queue>, number: u64, depth: usize) -> Requester {
        Requester {
            random: Seeded::new(number + 1),
            buffers: (0..depth).map(|_| queue.buffer(1)).collect(),
            flying: VecDeque::with_capacity(depth),
            most: depth.div_ceil(4),
            queue,
        }
    }

    fn take(&mut self, ticket: Ticket) -> Result<()> {
        let completion = self.queue.wait(ticket);
        self.buffers.extend(completion.into_segments()?);
        Ok(())
    }
}

impl Worker for Requester {
    fn operate(&mut self) -> Result<Option<u64>> {
        let blocks = self.queue.info().blocks;
        let buffers = self.buffers.drain(..);
        let bios = buffers.map(|buffer| Bio::write(Lba::new(self.random.below(blocks)), buffer));
        self.flying.extend(self.queue.submit_all(bios)?);
        let oldest = self.flying.pop_front();
        self.take(oldest.expect("a depth of one at least"))?;
        while self.buffers.len() < self.most && self.flying.front().is_some_and(Ticket::is_done) {
            let next = self.flying.pop_front().expect("it was looked at");
            self.take(next)?;
        }
        Ok(Some(u64::try_from(self.buffers.len())?))
    }
}

impl Drop for Requester {
    /// The device has none of its requests when it is gone.
    fn drop(&mut self) {
        while let Some(ticket) = self.flying.pop_front() {
            drop(self.queue.wait(ticket));
        }
    }
}

#[cfg(test)]
mod tests {
    use dure_block::null::NullDevice;
    use dure_block::{QueueConfig, share};

    use super::*;

    #[test]
    fn works_are_requests_that_are_complete() {
        let queue = Queue::new(share(NullDevice::new("null", 64)), QueueConfig::default());
        let mut job = Requester::new(Arc::clone(&queue), 0, 8);
        let mut works = 0;
        for _ in 0..10 {
            works += job.operate().unwrap().unwrap();
        }
        assert_eq!(works, 20);
        assert_eq!(job.flying.len() + job.buffers.len(), 8);
    }
}
