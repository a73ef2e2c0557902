//! The media of a volume: one linear space of blocks.
//!
//! **Problem.** A volume lies on a block device, in persistent memory, or on both. What reads and
//! writes it must not ask which. **Structure.** A [`Region`] names blocks, never requests; which
//! medium a block is on, and what it takes there to write and to flush, is known
//! only to [`dure_block::Media`]. The journal writes its logs itself: [`Region::log_medium`].
//!
//! **Invariants.** A flush covers every write that was complete before it began, whichever caller
//! made it through this region, the journal included: one flush makes data and log durable. **On a
//! crash** each block written since the last flush has its old or its new content, or both in
//! sectors; one in persistent memory is durable when the write returns.

use std::collections::BTreeSet;
use std::ops::Range;

use dure_block::{
    BLOCK_BYTES, Bio, BlockBuf, Counters, Device, LateRequest, LateWatch, Lba, Media, NodeCounters,
    QueueConfig, Result, UnderWay, Wait,
};
use dure_journal::LogMedium;
use dure_sync::atomic::{AtomicU64, Ordering};
use dure_sync::{Arc, CachePadded, Mutex, MutexGuard, Topology, clock};

use crate::ranks::SUBMITTING;
use crate::units::BlockNo;

mod twice;

use self::twice::Twice;

/// What a volume lies on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VolumeMedia {
    /// A block device; if there is persistent memory too, the logs are not in it, or it is not mapped.
    Device,
    /// Persistent memory.
    Nvm,
    /// A block device, and mapped persistent memory that the logs are in.
    NvmBesideDevice,
}

/// The queues in front of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueShape {
    /// How many: 1 .. 1024.
    pub hw_queues: u32,
    /// Requests that each lets into the device at once: 1 .. 2^20.
    pub nr_requests: u32,
    /// How callers wait for the device.
    pub wait: Wait,
    /// What is one request of a write of several blocks.
    pub merge: BlockMerge,
    /// Which requests exclude each other while they are made.
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

/// Which requests to the log-structured part of a volume exclude each other while they are made. A
/// request is made and complete in one call, so the lock is held until then. The journal's logs
/// have none.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum SubmitLock {
    /// None.
    #[default]
    None,
    /// Writes, each other.
    Writes,
    /// Reads and writes, each other, as F2FS does.
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

/// What tasks waited for the submission lock.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct SubmitLockWaits {
    /// Requests that found it taken.
    pub waits: u64,
    /// How long they waited.
    pub wait_ns: u64,
    /// The CPU time of their tasks meanwhile: spinning, going to sleep and waking up.
    pub cpu_ns: u64,
}

impl SubmitLockWaits {
    /// Those after `before`, which was read of the same volume.
    #[must_use]
    pub fn since(self, before: SubmitLockWaits) -> SubmitLockWaits {
        SubmitLockWaits {
            waits: self.waits - before.waits,
            wait_ns: self.wait_ns - before.wait_ns,
            cpu_ns: self.cpu_ns - before.cpu_ns,
        }
    }
}

/// Adds up [`SubmitLockWaits`]. Written by tasks that waited. Relaxed: statistics.
#[derive(Debug, Default)]
struct Waits {
    waits: AtomicU64,
    wait_ns: AtomicU64,
    cpu_ns: AtomicU64,
}

/// Where the blocks of a volume lie, and how requests are made there.
#[derive(Debug)]
pub struct Region {
    media: Arc<Media>,
    /// The configuration of the queues.
    config: QueueConfig,
    merge: BlockMerge,
    submit_lock: SubmitLock,
    submitting: Mutex<SUBMITTING, ()>,
    twice: Twice,
    waits: CachePadded<Waits>,
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
        Arc::new(Region {
            media: Media::open(device, config),
            config,
            merge: shape.merge,
            submit_lock: shape.submit_lock,
            submitting: Mutex::new(()),
            twice: Twice::default(),
            waits: CachePadded::default(),
        })
    }

    /// These blocks, of which those of each medium are on a NUMA node, if on one: what cores copy
    /// there is counted.
    pub(crate) fn on_nodes(
        &self,
        device: Arc<dyn Device>,
        nodes: &[Option<u32>],
        topology: Arc<Topology>,
    ) -> Arc<Region> {
        Arc::new(Region {
            media: Media::open_on_nodes(device, self.config, nodes, topology),
            config: self.config,
            merge: self.merge,
            submit_lock: self.submit_lock,
            submitting: Mutex::new(()),
            twice: self.twice.again(),
            waits: CachePadded::default(),
        })
    }

    /// What was copied from and to persistent memory near and far, if it is counted.
    #[must_use]
    pub fn node_counters(&self) -> Option<NodeCounters> {
        self.media.node_counters()
    }

    /// Number of blocks.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.media.blocks()
    }

    /// Whether a read is a copy of memory, for which no task needs to wait.
    #[must_use]
    pub fn is_in_memory(&self) -> bool {
        self.media.is_in_memory()
    }

    /// Whether all of it is in persistent memory: see [`Media::is_nvm`].
    #[must_use]
    pub fn is_nvm(&self) -> bool {
        self.media.is_nvm()
    }

    /// Whether all blocks before `end` are in persistent memory.
    #[must_use]
    pub fn is_nvm_before(&self, end: BlockNo) -> bool {
        self.media.is_nvm_before(Lba::new(end.0))
    }

    /// Requests that have become late since the last look of `watch`.
    #[must_use]
    pub fn late(&self, watch: &mut LateWatch) -> Vec<LateRequest> {
        self.media
            .queues()
            .flat_map(|queue| queue.late(watch))
            .collect()
    }

    /// The requests so far, the journal's included.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.media.counters()
    }

    /// Reads blocks, from `first` on.
    ///
    /// # Errors
    /// A failed read; a range that is not on the media.
    pub fn read(&self, first: BlockNo, out: &mut [u8]) -> Result<()> {
        self.make(&[SubmitLock::All], |media| {
            media.read(Lba::new(first.0), out)
        })
    }

    /// Fills `out` with bytes of one block, from its byte `within` on.
    ///
    /// # Errors
    /// Those of [`Region::read`].
    pub fn read_part(&self, (block, within): (BlockNo, usize), out: &mut [u8]) -> Result<()> {
        self.make(&[SubmitLock::All], |media| {
            media.read_part((Lba::new(block.0), within), out)
        })
    }

    /// Writes blocks, from `first` on. Not durable before a flush.
    ///
    /// # Errors
    /// Those of [`Region::read`]; some of the blocks may have been written.
    pub fn write(&self, first: BlockNo, bytes: &[u8]) -> Result<()> {
        self.write_once(first, bytes)?;
        match self.twice.of(first, bytes) {
            None => Ok(()),
            Some((copy, part)) => self.write_once(copy, part),
        }
    }

    /// Like [`Region::write`], without the second copy: for a copy that is to become like the other.
    ///
    /// # Errors
    /// Those of [`Region::write`].
    pub fn write_once(&self, first: BlockNo, bytes: &[u8]) -> Result<()> {
        let locked = [SubmitLock::Writes, SubmitLock::All];
        let write = |media: &Media, at: u64, bytes| media.write(Lba::new(at), bytes);
        let parts = match self.merge {
            BlockMerge::Contiguous => bytes.len().max(BLOCK_BYTES),
            BlockMerge::Off => BLOCK_BYTES,
        };
        if bytes.len() <= parts {
            return self.make(&locked, |media| write(media, first.0, bytes));
        }
        for (block, part) in (first.0..).zip(bytes.chunks(parts)) {
            self.make(&locked, |media| write(media, block, part))?;
        }
        Ok(())
    }

    /// From now on these blocks are written twice, also from block `copies` on; none if there are none.
    /// What was said first counts.
    pub fn write_twice(&self, copied: Option<(Range<u64>, u64)>) {
        if let Some((blocks, copies)) = copied {
            self.twice.begin(&blocks, copies);
        }
    }

    /// The second copy of this block, if it has one.
    #[must_use]
    pub fn copy_of(&self, block: BlockNo) -> Option<BlockNo> {
        self.twice.copy_of(block)
    }

    /// A read found this block damaged, and used its copy.
    pub(crate) fn note_damaged(&self, block: BlockNo) {
        self.twice.note(block);
    }

    /// Takes what was noted.
    pub(crate) fn take_damaged(&self) -> BTreeSet<BlockNo> {
        self.twice.take()
    }

    /// Begins to read blocks, from these on and as many as each buffer has, and returns while that
    /// is under way, in the order of the buffers.
    #[must_use]
    pub fn begin_reads(&self, reads: Vec<(BlockNo, BlockBuf)>) -> Vec<UnderWay> {
        let bio = |(first, buf): (BlockNo, BlockBuf)| Bio::read(Lba::new(first.0), buf);
        if self.has_plain_requests() {
            return self.media.submit_all(reads.into_iter().map(bio));
        }
        let now = |(first, mut buf): (BlockNo, BlockBuf)| {
            let result = self.read(first, buf.as_mut_slice());
            UnderWay::done(bio((first, buf)), result)
        };
        reads.into_iter().map(now).collect()
    }

    /// Like [`Region::begin_reads`], for writes of blocks that have no second copy: durable after a flush that begins when they have
    /// been waited for.
    #[must_use]
    pub fn begin_writes(&self, writes: Vec<(BlockNo, BlockBuf)>) -> Vec<UnderWay> {
        let bio = |(first, buf): (BlockNo, BlockBuf)| Bio::write(Lba::new(first.0), buf);
        if self.has_plain_requests() {
            return self.media.submit_all(writes.into_iter().map(bio));
        }
        let now = |(first, buf): (BlockNo, BlockBuf)| {
            let result = self.write(first, buf.as_slice());
            UnderWay::done(bio((first, buf)), result)
        };
        writes.into_iter().map(now).collect()
    }

    /// Writes all of these, together; each is tried. Blocks that have a second copy are written twice.
    ///
    /// # Errors
    /// The first failure.
    pub fn write_all(&self, mut writes: Vec<(BlockNo, BlockBuf)>) -> Result<()> {
        if self.twice.is_used() {
            let of = |(first, buf): &(BlockNo, BlockBuf)| {
                let (copy, part) = self.twice.of(*first, buf.as_slice())?;
                Some((copy, BlockBuf::from_slice(part)))
            };
            let copies: Vec<_> = writes.iter().filter_map(of).collect();
            writes.extend(copies);
            return self.end_all(writes);
        }
        if let [(first, buf)] = &writes[..] {
            return self.write(*first, buf.as_slice());
        }
        self.end_all(writes)
    }

    fn end_all(&self, writes: Vec<(BlockNo, BlockBuf)>) -> Result<()> {
        let mut result = Ok(());
        for request in self.begin_writes(writes) {
            result = result.and(self.end(request).1);
        }
        result
    }

    /// Waits for what was begun. Returns its buffer, and how it ended: as [`Region::read`] and
    /// [`Region::write`] do.
    pub fn end(&self, request: UnderWay) -> (BlockBuf, Result<()>) {
        let mut completion = self.media.wait(request);
        let buf = completion.segments.pop();
        (buf.expect("it has one buffer"), completion.result)
    }

    /// Waits until something that this core has begun is complete. False: none of it is under way,
    /// or another task of this core waits already.
    #[must_use]
    pub fn wait_any(&self) -> bool {
        // It is unknown which of several queues is the next to have something.
        let mut queues = self.media.queues();
        let only = queues.next().filter(|_| queues.next().is_none());
        only.is_some_and(|queue| queue.wait_any() > 0)
    }

    /// Takes what is complete of what was begun, and waits for nothing.
    pub fn poll(&self) {
        self.media.queues().for_each(|queue| {
            queue.poll();
        });
    }

    /// Whether no request is excluded while another is made, and blocks that lie next to one
    /// another are one request: else a request is made and complete in one call.
    fn has_plain_requests(&self) -> bool {
        self.merge == BlockMerge::Contiguous && self.submit_lock == SubmitLock::None
    }

    /// Makes durable what was written through this region before the call.
    ///
    /// # Errors
    /// A failed flush: nothing is known then of any write since the last one.
    pub fn flush(&self) -> Result<()> {
        self.media.flush()
    }

    /// How many media there are, whose blocks before their runs can be read and written; 0 if it is
    /// one.
    #[must_use]
    pub fn heads(&self) -> usize {
        self.media.heads()
    }

    /// Reads blocks of medium `medium`, which lie before its run.
    ///
    /// # Errors
    /// Those of [`Region::read`].
    pub fn read_head(&self, medium: usize, first: BlockNo, out: &mut [u8]) -> Result<()> {
        self.media.read_head(medium, Lba::new(first.0), out)
    }

    /// Writes blocks of medium `medium`, which lie before its run. Durable on return.
    ///
    /// # Errors
    /// Those of [`Region::write`].
    pub fn write_head(&self, medium: usize, first: BlockNo, bytes: &[u8]) -> Result<()> {
        self.media.write_head(medium, Lba::new(first.0), bytes)
    }

    /// Tells the media that these blocks are free, and may be anything from now on. Returns how many
    /// of them lie where that is of use.
    ///
    /// # Errors
    /// Those of [`Region::read`].
    pub(crate) fn discard(&self, first: BlockNo, blocks: u64) -> Result<u64> {
        self.make(&[SubmitLock::Writes, SubmitLock::All], |media| {
            media.discard(Lba::new(first.0), blocks)
        })
    }

    /// Whether there is a medium that a discard is of use to.
    pub(crate) fn discards(&self) -> bool {
        self.media.discards()
    }

    /// What the journal's logs are on: for scans, fresh headers and the running logs.
    #[must_use]
    pub fn log_medium(&self) -> LogMedium {
        LogMedium::on(self.media.clone())
    }

    /// What tasks waited for the submission lock; `None` if there is none.
    #[must_use]
    pub fn submit_lock_waits(&self) -> Option<SubmitLockWaits> {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (self.submit_lock != SubmitLock::None).then(|| SubmitLockWaits {
            waits: get(&self.waits.waits),
            wait_ns: get(&self.waits.wait_ns),
            cpu_ns: get(&self.waits.cpu_ns),
        })
    }

    /// Makes a request; no other one is made meanwhile if the policy is one of `locked`.
    fn make<T>(&self, locked: &[SubmitLock], request: impl FnOnce(&Media) -> T) -> T {
        let _alone = locked
            .contains(&self.submit_lock)
            .then(|| self.exclude_others());
        request(&self.media)
    }

    /// Takes the submission lock, and counts what it took.
    #[cold]
    fn exclude_others(&self) -> MutexGuard<'_, SUBMITTING, ()> {
        if let Some(alone) = self.submitting.try_lock() {
            return alone;
        }
        let (begun_ns, cpu_ns) = (clock::monotonic_ns(), clock::thread_cpu_ns());
        let alone = self.submitting.lock();
        let add = |counter: &AtomicU64, by| counter.fetch_add(by, Ordering::Relaxed);
        add(&self.waits.waits, 1);
        add(&self.waits.wait_ns, clock::monotonic_ns() - begun_ns);
        add(&self.waits.cpu_ns, clock::thread_cpu_ns() - cpu_ns);
        alone
    }
}
