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

use dure_block::{
    BLOCK_BYTES, Counters, Device, Lba, Queue, QueueConfig, Result, Wait, WriteFlags,
};
use dure_journal::LogMedium;
use dure_sync::{Arc, Mutex};

use crate::ranks::SUBMITTING;
use crate::units::BlockNo;

/// The queues in front of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueShape {
    /// How many, at least 1; no more are made than there are cores.
    pub hw_queues: u32,
    /// Requests that each lets into the device at once: 1 .. 2^20.
    pub nr_requests: u32,
    /// How callers wait for the device.
    pub wait: Wait,
    /// What is one request of a write of several blocks.
    pub merge: BlockMerge,
    /// Who excludes whom while a request is made.
    pub submit_lock: SubmitLock,
}

/// What is one request of blocks that are written together.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum BlockMerge {
    /// All that lie next to one another.
    #[default]
    Contiguous,
    /// Each block.
    Off,
}

/// Who excludes whom while a request to the log-structured part of a volume is made. A request is
/// made and complete in one call, so the lock is held until then. The journal's logs have none.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum SubmitLock {
    /// Nobody.
    #[default]
    None,
    /// Writers each other.
    Writes,
    /// Readers and writers each other, as F2FS does.
    All,
}

impl Default for QueueShape {
    fn default() -> QueueShape {
        let QueueConfig {
            hw_queues,
            nr_requests,
            wait,
            ..
        } = QueueConfig::default();
        QueueShape {
            hw_queues,
            nr_requests,
            wait,
            merge: BlockMerge::default(),
            submit_lock: SubmitLock::default(),
        }
    }
}

/// Where the blocks of a volume lie.
#[derive(Debug)]
pub enum Region {
    /// On a block device.
    Block(Blocks),
}

/// A block device, and how requests are made to it.
#[derive(Debug)]
pub struct Blocks {
    queue: Arc<Queue>,
    merge: BlockMerge,
    submit_lock: SubmitLock,
    submitting: Mutex<SUBMITTING, ()>,
}

impl Blocks {
    /// Makes a request, alone under one of the policies `locked`.
    fn make<T>(&self, locked: &[SubmitLock], request: impl FnOnce(&Queue) -> T) -> T {
        let _alone = locked
            .contains(&self.submit_lock)
            .then(|| self.submitting.lock());
        request(&self.queue)
    }

    fn write(&self, first: BlockNo, bytes: &[u8]) -> Result<()> {
        let locked = [SubmitLock::Writes, SubmitLock::All];
        let parts = match self.merge {
            BlockMerge::Contiguous => bytes.len().max(BLOCK_BYTES),
            BlockMerge::Off => BLOCK_BYTES,
        };
        if bytes.len() <= parts {
            return self.make(&locked, |queue| write(queue, first, bytes));
        }
        for (block, part) in (first.0..).zip(bytes.chunks(parts)) {
            self.make(&locked, |queue| write(queue, BlockNo(block), part))?;
        }
        Ok(())
    }
}

fn write(queue: &Queue, first: BlockNo, bytes: &[u8]) -> Result<()> {
    queue.write(Lba::new(first.0), bytes, WriteFlags::NONE)
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
            wait: shape.wait,
            ..QueueConfig::default()
        };
        Arc::new(Region::Block(Blocks {
            queue: Queue::new(device, config),
            merge: shape.merge,
            submit_lock: shape.submit_lock,
            submitting: Mutex::new(()),
        }))
    }

    /// Number of blocks.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        match self {
            Region::Block(blocks) => blocks.queue.info().blocks,
        }
    }

    /// Whether a read is a copy of memory, for which nobody needs to wait.
    #[must_use]
    pub fn is_in_memory(&self) -> bool {
        match self {
            Region::Block(blocks) => blocks.queue.info().in_memory,
        }
    }

    /// The requests so far, the journal's included.
    #[must_use]
    pub fn counters(&self) -> Counters {
        match self {
            Region::Block(blocks) => blocks.queue.counters(),
        }
    }

    /// Reads blocks, from `first` on.
    ///
    /// # Errors
    /// A failed read; a range that is not on the medium.
    pub fn read(&self, first: BlockNo, out: &mut [u8]) -> Result<()> {
        match self {
            Region::Block(blocks) => {
                let read = |queue: &Queue| queue.read(Lba::new(first.0), out);
                blocks.make(&[SubmitLock::All], read)
            }
        }
    }

    /// Writes blocks, from `first` on. Not durable before a flush.
    ///
    /// # Errors
    /// As [`Region::read`]; some of the blocks may have been written.
    pub fn write(&self, first: BlockNo, bytes: &[u8]) -> Result<()> {
        match self {
            Region::Block(blocks) => blocks.write(first, bytes),
        }
    }

    /// Makes durable what was written through this region before the call.
    ///
    /// # Errors
    /// A failed flush: nothing is known then of any write since the last one.
    pub fn flush(&self) -> Result<()> {
        match self {
            Region::Block(blocks) => blocks.queue.flush(),
        }
    }

    /// What the journal's logs are on: for scans, fresh headers and the running logs.
    #[must_use]
    pub fn log_medium(&self) -> LogMedium {
        match self {
            Region::Block(blocks) => LogMedium::Blocks(blocks.queue.clone()),
        }
    }
}
