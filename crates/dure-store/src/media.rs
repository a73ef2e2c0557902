//! The media of a volume: one linear space of blocks.
//!
//! **Problem.** A volume lies on a block device today and may lie in persistent memory. What reads
//! and writes it must not ask which. **Structure.** A [`Region`] is one kind of medium; its methods
//! are the only places that ask for the kind. Others name blocks, never requests. The journal
//! writes its logs itself: [`Region::log_medium`] says to what.
//!
//! **Invariants.** A flush covers every write that was complete before it began, whoever made it
//! through this region, the journal included: one flush makes data and log durable. **On a crash**
//! each block written since the last flush has its old or its new content, or both in sectors.

use dure_block::{Counters, Device, Lba, Queue, QueueConfig, Result, WriteFlags};
use dure_journal::LogMedium;
use dure_sync::Arc;

use crate::units::BlockNo;

/// The queues in front of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueShape {
    /// How many, at least 1; no more are made than there are cores.
    pub hw_queues: u32,
    /// Requests that each lets into the device at once: 1 .. 2^20.
    pub nr_requests: u32,
}

impl Default for QueueShape {
    fn default() -> QueueShape {
        let QueueConfig {
            hw_queues,
            nr_requests,
            ..
        } = QueueConfig::default();
        QueueShape {
            hw_queues,
            nr_requests,
        }
    }
}

/// Where the blocks of a volume lie.
#[derive(Debug)]
pub enum Region {
    /// On a block device.
    Block(Arc<Queue>),
}

impl Region {
    /// The blocks of `device`.
    #[must_use]
    pub fn open(device: Arc<dyn Device>) -> Arc<Region> {
        Region::open_with(device, QueueShape::default())
    }

    /// The blocks of `device`, behind queues of this shape.
    pub(crate) fn open_with(device: Arc<dyn Device>, shape: QueueShape) -> Arc<Region> {
        let config = QueueConfig {
            hw_queues: shape.hw_queues,
            nr_requests: shape.nr_requests,
            ..QueueConfig::default()
        };
        Arc::new(Region::Block(Queue::new(device, config)))
    }

    /// Number of blocks.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        match self {
            Region::Block(queue) => queue.info().blocks,
        }
    }

    /// The requests so far, the journal's included.
    #[must_use]
    pub fn counters(&self) -> Counters {
        match self {
            Region::Block(queue) => queue.counters(),
        }
    }

    /// Reads blocks, from `first` on.
    ///
    /// # Errors
    /// A failed read; a range that is not on the medium.
    pub fn read(&self, first: BlockNo, out: &mut [u8]) -> Result<()> {
        match self {
            Region::Block(queue) => queue.read(Lba::new(first.0), out),
        }
    }

    /// Writes blocks, from `first` on. Not durable before a flush.
    ///
    /// # Errors
    /// As [`Region::read`]; some of the blocks may have been written.
    pub fn write(&self, first: BlockNo, bytes: &[u8]) -> Result<()> {
        match self {
            Region::Block(queue) => queue.write(Lba::new(first.0), bytes, WriteFlags::NONE),
        }
    }

    /// Makes durable what was written through this region before the call.
    ///
    /// # Errors
    /// A failed flush: nothing is known then of any write since the last one.
    pub fn flush(&self) -> Result<()> {
        match self {
            Region::Block(queue) => queue.flush(),
        }
    }

    /// What the journal's logs are on: for scans, fresh headers and the running logs.
    #[must_use]
    pub fn log_medium(&self) -> LogMedium {
        match self {
            Region::Block(queue) => LogMedium::Blocks(queue.clone()),
        }
    }
}
