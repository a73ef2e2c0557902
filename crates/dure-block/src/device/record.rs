//! A decorator that keeps a log of every write, flush and discard.
//!
//! **Problem.** To test every crash, one must know for each instant which writes had been
//! submitted, which had completed, and which a flush had made durable. **Structure.** Each event
//! (submission, completion) takes the next *step* of the log. Asynchronous requests are held until
//! their submitter waits for them, so that a write whose completion no task awaited is visibly
//! incomplete when a flush passes. **Invariants.** Steps are dense and start at 1; the content of a
//! write is copied at submission. **Crash.** `crash` cuts the log at a step.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;

use dure_sync::{Arc, Mutex};

use crate::ram::SharedBlock;
use crate::rank::{HELD_RANK, LOG_RANK};
use crate::{
    BLOCK_BYTES, Bio, Device, DeviceInfo, Io, Lba, Op, Poll, Request, Result, Slot, WriteFlags,
};

mod nvm;

pub use nvm::{LostStores, NvmRecord};

/// What one entry did to the medium.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Wrote blocks.
    Write {
        /// First block.
        lba: Lba,
        /// The content, block by block.
        data: Vec<SharedBlock>,
        /// Whether it was durable on completion.
        fua: bool,
    },
    /// Stored bytes in persistent memory: durable on completion, which is a fence, and until then
    /// there or not word by word.
    Store {
        /// First block.
        lba: Lba,
        /// What the blocks hold then.
        data: Vec<SharedBlock>,
        /// The bytes of them that were stored.
        bytes: Range<usize>,
    },
    /// Made the writes durable that had completed when it was submitted.
    Flush,
    /// Made blocks zeroes.
    Discard {
        /// First block.
        lba: Lba,
        /// Number of blocks.
        blocks: u64,
    },
}

impl Effect {
    /// Number of blocks it changes.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        match self {
            Self::Write { data, .. } | Self::Store { data, .. } => {
                u64::try_from(data.len()).expect("a usize fits in 64 bits")
            }
            Self::Flush => 0,
            Self::Discard { blocks, .. } => *blocks,
        }
    }
}

/// The outcome of a recorded request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It had not completed when the log was read.
    InFlight,
    /// It completed at this step.
    Completed(u64),
    /// It failed at this step: anything may have happened to its blocks.
    Failed(u64),
}

/// One write, flush or discard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// What it did.
    pub effect: Effect,
    /// The step of its submission.
    pub submitted: u64,
    /// How it ended.
    pub outcome: Outcome,
}

impl Entry {
    /// Whether it completed successfully at or before `step`.
    #[must_use]
    pub fn completed_by(&self, step: u64) -> bool {
        matches!(self.outcome, Outcome::Completed(at) if at <= step)
    }
}

#[derive(Debug, Default)]
struct Log {
    step: u64,
    entries: Vec<Entry>,
}

/// What was written, in order.
#[derive(Debug, Default)]
pub struct RecordLog {
    log: Mutex<LOG_RANK, Log>,
}

impl RecordLog {
    /// The last step taken. What the caller was promised so far must hold in every state that a
    /// crash at or after this step leaves.
    #[must_use]
    pub fn step(&self) -> u64 {
        self.log.lock().step
    }

    /// A copy of the entries, in order of submission; the data is shared.
    #[must_use]
    pub fn entries(&self) -> Vec<Entry> {
        self.log.lock().entries.clone()
    }

    pub(super) fn submit(&self, effect: Effect) -> usize {
        let mut log = self.log.lock();
        log.step += 1;
        let submitted = log.step;
        log.entries.push(Entry {
            effect,
            submitted,
            outcome: Outcome::InFlight,
        });
        log.entries.len() - 1
    }

    /// All of these end in one step.
    pub(super) fn complete_all(&self, indices: &[usize]) {
        let mut log = self.log.lock();
        log.step += 1;
        let step = log.step;
        for index in indices {
            let outcome = &mut log.entries[*index].outcome;
            assert_eq!(*outcome, Outcome::InFlight, "a store is fenced once");
            *outcome = Outcome::Completed(step);
        }
    }

    fn complete(&self, index: usize, result: &Result<()>) {
        let mut log = self.log.lock();
        log.step += 1;
        let step = log.step;
        let entry = &mut log.entries[index];
        assert_eq!(entry.outcome, Outcome::InFlight, "a request completes once");
        entry.outcome = match result {
            Ok(()) => Outcome::Completed(step),
            Err(_) => Outcome::Failed(step),
        };
    }
}

/// Which flushes are lost: reported as done, but neither done nor recorded.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum LostFlushes {
    /// None: a device that keeps its promises.
    #[default]
    None,
    /// All of them. A canary: crash tests must fail on such a device.
    All,
    /// Only this one, counted from 1.
    Nth(u64),
}

/// When a recorded write is durable.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Cache {
    /// After a flush: the device has a volatile cache.
    #[default]
    Volatile,
    /// When it has completed, as in persistent memory: the device has none.
    None,
    /// After a flush, but the device says that it has no cache, so no caller flushes. A canary:
    /// crash tests must fail on such a device, as on persistent memory without fences.
    Hidden,
}

#[derive(Debug, Default)]
struct Held {
    /// Asynchronous requests that no task has waited for, with their log entries.
    requests: VecDeque<(Request, Option<usize>)>,
    flushes: u64,
}

/// The decorator.
pub struct RecordDevice {
    inner: Arc<dyn Device>,
    info: DeviceInfo,
    log: Arc<RecordLog>,
    lost: LostFlushes,
    cache: Cache,
    held: Mutex<HELD_RANK, Held>,
}

impl RecordDevice {
    /// Records the requests to `inner`.
    #[must_use]
    pub fn new(inner: Arc<dyn Device>) -> Self {
        Self::with_lost_flushes(inner, LostFlushes::None)
    }

    /// Like [`RecordDevice::new`], but the device loses flushes.
    #[must_use]
    pub fn with_lost_flushes(inner: Arc<dyn Device>, lost: LostFlushes) -> Self {
        Self::with_cache(inner, Cache::Volatile, lost)
    }

    /// Like [`RecordDevice::new`], of a device with such a cache that loses these flushes.
    #[must_use]
    pub fn with_cache(inner: Arc<dyn Device>, cache: Cache, lost: LostFlushes) -> Self {
        Self::into_log(inner, cache, lost, Arc::default())
    }

    /// Like [`RecordDevice::with_cache`], recording into a log that others record into.
    #[must_use]
    pub fn into_log(
        inner: Arc<dyn Device>,
        cache: Cache,
        lost: LostFlushes,
        log: Arc<RecordLog>,
    ) -> Self {
        let mut info = inner.info().clone();
        // The recorded device guarantees only flushes and the atomicity of sectors, or of words.
        info.volatile_cache = cache == Cache::Volatile;
        info.atomic_write_blocks = 0;
        // Submitted requests are held back, as by a device that takes its time.
        info.in_memory = false;
        Self {
            inner,
            info,
            log,
            lost,
            cache,
            held: Mutex::new(Held::default()),
        }
    }

    /// The log, which outlives the device.
    #[must_use]
    pub fn log(&self) -> Arc<RecordLog> {
        Arc::clone(&self.log)
    }

    fn loses_this_flush(&self) -> bool {
        let mut held = self.held.lock();
        held.flushes += 1;
        match self.lost {
            LostFlushes::None => false,
            LostFlushes::All => true,
            LostFlushes::Nth(number) => held.flushes == number,
        }
    }

    fn finish(&self, (mut request, entry): (Request, Option<usize>)) {
        if request.bio().op() == Op::Flush && entry.is_none() {
            return request.complete(Ok(()));
        }
        if let Some(index) = entry {
            let log = self.log();
            request.on_complete(move |_, result| log.complete(index, result));
        }
        request.run_on(&*self.inner);
    }
}

fn shared_blocks<'a>(parts: impl Iterator<Item = &'a [u8]>) -> Vec<SharedBlock> {
    parts
        .flat_map(|part| part.chunks_exact(BLOCK_BYTES))
        .map(SharedBlock::new)
        .collect()
}

fn effect_of_io(io: &Io<'_>, cache: Cache) -> Option<Effect> {
    Some(match io {
        Io::Read { .. } => return None,
        Io::Write { lba, parts, flags } => Effect::Write {
            lba: *lba,
            data: shared_blocks(parts.iter().copied()),
            fua: flags.contains(WriteFlags::FUA) || cache == Cache::None,
        },
        Io::Flush => Effect::Flush,
        Io::Discard { lba, blocks } => Effect::Discard {
            lba: *lba,
            blocks: *blocks,
        },
    })
}

fn effect_of_bio(bio: &Bio, cache: Cache) -> Option<Effect> {
    Some(match bio.op() {
        Op::Read => return None,
        Op::Write => Effect::Write {
            lba: bio.lba(),
            data: shared_blocks(bio.segments().iter().map(crate::BlockBuf::as_slice)),
            fua: bio.flags().contains(WriteFlags::FUA) || cache == Cache::None,
        },
        Op::Flush => Effect::Flush,
        Op::Discard => Effect::Discard {
            lba: bio.lba(),
            blocks: bio.blocks(),
        },
    })
}

impl Device for RecordDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn execute(&self, io: Io<'_>) -> Result<()> {
        let Some(effect) = effect_of_io(&io, self.cache) else {
            return self.inner.execute(io);
        };
        if effect == Effect::Flush && self.loses_this_flush() {
            return Ok(());
        }
        let index = self.log.submit(effect);
        let result = self.inner.execute(io);
        self.log.complete(index, &result);
        result
    }

    fn submit(&self, request: Request) {
        let effect = effect_of_bio(request.bio(), self.cache)
            .filter(|effect| *effect != Effect::Flush || !self.loses_this_flush());
        let entry = effect.map(|effect| self.log.submit(effect));
        self.held.lock().requests.push_back((request, entry));
    }

    fn poll(&self, mode: Poll) -> usize {
        // A poll makes the oldest request complete.
        let (Poll::Ready | Poll::One | Poll::Own | Poll::OwnReady) = mode;
        let first = self.held.lock().requests.pop_front();
        first.map_or(0, |request| {
            self.finish(request);
            1
        })
    }

    fn wait(&self, slot: &Slot) {
        let mine = {
            let mut held = self.held.lock();
            let index = held
                .requests
                .iter()
                .position(|(request, _)| request.is_for(slot));
            index.and_then(|index| held.requests.remove(index))
        };
        match mine {
            Some(request) => self.finish(request),
            None => slot.sleep(),
        }
    }
}

impl fmt::Debug for RecordDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordDevice")
            .field("inner", &self.inner)
            .field("lost", &self.lost)
            .field("step", &self.log.step())
            .finish_non_exhaustive()
    }
}
