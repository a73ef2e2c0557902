//! The journal as a whole: configuration, start, `begin` and stop.
//!
//! **Problem.** One object stands for all per-core journals. **Structure.** A [`CoreLog`] per
//! journal, the medium they are on, and the reason for a stop. **Invariants.** Which journal a
//! core uses is decided only by [`Order`] and never changes while the volume is mounted. **Crash.**
//! [`Journal::start`] writes nothing: an epoch's log begins empty, in the segments that the durable
//! headers of the epoch before list.

use dure_block::Lba;
use dure_sync::atomic::{AtomicBool, Ordering};
use dure_sync::{Arc, CachePadded, CoreId, Mutex};
use smallvec::SmallVec;

use crate::counters::{Counters, Usage};
use crate::error::{BeginError, Error, Result, StopReason};
use crate::format::SEGMENTS_MAX;
use crate::handle::Handle;
use crate::ids::{JournalId, Mark};
use crate::log::{Buffers, CoreLog, HEADERS, STOP};
use crate::medium::LogMedium;
use crate::records::Records;
use crate::ring::Ring;
use crate::rules::Rules;
use crate::space::{
    HANDLE_BYTES, SEGMENT_BLOCKS_MAX, SEGMENT_BLOCKS_MIN, handle_bytes_max, segment_bytes_usable,
};
use crate::trace::{Trace, TraceEvent};
use crate::units::to_u64;
use crate::valid::Seen;

/// Consequences of handles that have become valid; a few take no memory from the heap.
pub type Effects<E> = SmallVec<[E; 4]>;

/// What happens when a handle has become valid.
pub trait Settle: Send + Sync {
    /// One consequence, given to a handle with [`Handle::effect`].
    type Effect: Send;

    /// Carries out the effects of handles that have become valid: each exactly once, in join order
    /// per journal; several journals may settle at once. No journal lock is held. A committer may
    /// wait for this call, so it must take no lock that any task holds over a commit.
    fn settle(&self, effects: Effects<Self::Effect>);
}

/// Which journal a core uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// One journal per core, chained by marks. With more cores than journals, cores share one.
    #[default]
    PerCore,
    /// One journal for all cores: the baseline.
    Single,
}

/// The ring of one journal at the start of an epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RingStart {
    /// The pair of header blocks.
    pub header: Lba,
    /// Generation of the newest valid header.
    pub generation: u64,
    /// First block of each log segment, in the order of that header.
    pub segments: Vec<Lba>,
}

/// Configuration of a journal.
#[derive(Debug, Clone)]
pub struct JournalConfig {
    /// Epoch of the volume, durable in the volume header.
    pub epoch: u64,
    /// First handle number of this epoch in every journal, durable in the volume header. Greater
    /// than every number of earlier epochs.
    pub first_number: u64,
    /// Which journal a core uses.
    pub order: Order,
    /// What the log holds of a change.
    pub records: Records,
    /// Seed of all checksums: the volume's.
    pub seed: u32,
    /// Blocks of a log segment.
    pub segment_blocks: u32,
    /// The rings, by journal.
    pub journals: Vec<RingStart>,
    /// Test-only.
    #[doc(hidden)]
    pub rules: Rules,
}

impl JournalConfig {
    fn check(&self) -> Result<()> {
        let config = |what, got, must| Err(Error::Config { what, got, must });
        let journals = to_u64(self.journals.len());
        if journals == 0 || journals > u64::from(JournalId::COUNT_MAX) {
            return config("number of journals", journals, "1 to 1024");
        }
        if self.segment_blocks < SEGMENT_BLOCKS_MIN || self.segment_blocks > SEGMENT_BLOCKS_MAX {
            return config(
                "blocks of a segment",
                self.segment_blocks.into(),
                "8 to 2048",
            );
        }
        if self.first_number == 0 || self.first_number > Mark::NUMBER_MAX {
            return config("first handle number", self.first_number, "1 to 2^54 - 1");
        }
        if let Records::Image { image_bytes_max } = self.records {
            let got = u64::from(image_bytes_max);
            let handle = handle_bytes_max(self.segment_blocks);
            if got + 64 > u64::from(handle) {
                return config("bytes of an image", got, "at most a handle's, less 64");
            }
            // Else no log would have room for a handle, however empty it is.
            if usable(self.records, self.segment_blocks, self.journals.len()) < i64::from(handle) {
                return config(
                    "number of journals that log images",
                    journals,
                    "so few that a segment has room for their marks",
                );
            }
        }
        for ring in &self.journals {
            let count = ring.segments.len();
            if !(2..=SEGMENTS_MAX).contains(&count) {
                return config("segments of a ring", to_u64(count), "2 to 480");
            }
        }
        Ok(())
    }
}

/// State of the header pair of one journal.
#[derive(Debug)]
pub(crate) struct HeaderState {
    pub(crate) pair: Lba,
    pub(crate) generation: u64,
    pub(crate) checkpoint: u64,
}

/// All journals of a volume. See the crate's documentation.
pub struct Journal<S: Settle> {
    pub(crate) medium: LogMedium,
    pub(crate) settle: Arc<S>,
    pub(crate) epoch: u64,
    pub(crate) seed: u32,
    pub(crate) segment_blocks: u32,
    pub(crate) order: Order,
    pub(crate) records: Records,
    pub(crate) rules: Rules,
    pub(crate) logs: Vec<CoreLog<S::Effect>>,
    /// What the cores have seen of the validity in `logs`.
    pub(crate) seen: Seen,
    /// By journal. Held over header writes and the flush after them, so that a pair gets a new
    /// generation only after the previous one is durable.
    pub(crate) headers: CachePadded<Mutex<HEADERS, Vec<HeaderState>>>,
    /// Set after `stop` holds the reason; read by every caller.
    pub(crate) is_stopped: AtomicBool,
    pub(crate) stop: Mutex<STOP, Option<StopReason>>,
    pub(crate) trace: Trace,
}

impl<S: Settle> std::fmt::Debug for Journal<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal")
            .field("epoch", &self.epoch)
            .field("order", &self.order)
            .field("journals", &self.logs.len())
            .finish_non_exhaustive()
    }
}

impl<S: Settle> Journal<S> {
    /// Starts the journals of an epoch, all empty. Nothing is written.
    ///
    /// # Errors
    /// [`Error::Config`] if the configuration cannot work.
    pub fn start(medium: LogMedium, settle: Arc<S>, config: JournalConfig) -> Result<Self> {
        config.check()?;
        let usable = usable(config.records, config.segment_blocks, config.journals.len());
        let sharing = match config.records {
            Records::Delta | Records::None => 0,
            Records::Image { .. } => config.journals.len(),
        };
        let mut headers = Vec::with_capacity(config.journals.len());
        let mut logs = Vec::with_capacity(config.journals.len());
        for (index, start) in config.journals.into_iter().enumerate() {
            let id = JournalId::from_index(index);
            let generation = start.generation;
            headers.push(HeaderState {
                pair: start.header,
                generation,
                checkpoint: 0,
            });
            let ring = Ring::new(start.segments, config.segment_blocks);
            logs.push(CoreLog::new(
                id,
                ring,
                config.first_number,
                (usable, sharing),
            ));
        }
        Ok(Self {
            medium,
            settle,
            epoch: config.epoch,
            seed: config.seed,
            segment_blocks: config.segment_blocks,
            order: config.order,
            records: config.records,
            rules: config.rules,
            seen: Seen::new(logs.len()),
            logs,
            headers: CachePadded::new(Mutex::new(headers)),
            is_stopped: AtomicBool::new(false),
            stop: Mutex::new(None),
            trace: Trace::new(),
        })
    }

    /// The journal that `core` uses.
    #[must_use]
    pub fn journal_of(&self, core: CoreId) -> JournalId {
        match self.order {
            Order::Single => JournalId::from_index(0),
            Order::PerCore => {
                let (index, count) = (core.index(), self.logs.len());
                JournalId::from_index(if index < count { index } else { index % count })
            }
        }
    }

    /// How many journals there are.
    #[must_use]
    pub fn journal_count(&self) -> usize {
        self.logs.len()
    }

    pub(crate) fn log(&self, id: JournalId) -> &CoreLog<S::Effect> {
        &self.logs[id.index()]
    }

    /// Bytes the greatest handle may reserve: records, and 8 per mark.
    #[must_use]
    pub fn handle_bytes_max(&self) -> usize {
        crate::units::to_usize(handle_bytes_max(self.segment_blocks) - HANDLE_BYTES)
    }

    /// Opens a handle in the journal of `core` that will need at most `bytes_max` bytes: for each
    /// delta its bytes and [`crate::format::DELTA_HEAD_BYTES`], for each note its bytes and
    /// [`crate::format::NOTE_HEAD_BYTES`], for each mark 8. Never blocks. The caller holds no lock
    /// that a checkpoint needs, so that it can checkpoint when the log is full.
    ///
    /// # Errors
    /// [`BeginError::LogFull`]: checkpoint and begin again. [`BeginError::Stopped`].
    ///
    /// # Panics
    /// If `bytes_max` is above [`Journal::handle_bytes_max`]: no checkpoint could ever make room.
    pub fn begin(
        &self,
        core: CoreId,
        bytes_max: usize,
    ) -> std::result::Result<Handle<'_, S>, BeginError> {
        self.begin_reserved(core, bytes_max, 0)
    }

    /// Like `begin`, with `images` further bytes for images.
    pub(crate) fn begin_reserved(
        &self,
        core: CoreId,
        bytes_max: usize,
        images: u32,
    ) -> std::result::Result<Handle<'_, S>, BeginError> {
        assert!(
            bytes_max <= self.handle_bytes_max(),
            "a handle of {bytes_max} bytes is above the maximum of {}",
            self.handle_bytes_max()
        );
        if let Some(reason) = self.stopped() {
            return Err(BeginError::Stopped(reason));
        }
        let id = self.journal_of(core);
        let reserved = crate::units::to_u32(bytes_max) + HANDLE_BYTES;
        let log = self.log(id);
        let (mut joined, open) = self.start_handle(log);
        let promised = i64::from(reserved) + i64::from(images);
        if joined.room < promised {
            self.end_handle(log, &mut joined);
            log.tallies.join.log_full.add(1);
            drop(joined);
            self.trace.record(Some(id), || TraceEvent::BeginFull);
            return Err(BeginError::LogFull);
        }
        joined.room -= promised;
        let half_full =
            joined.room < joined.half && !std::mem::replace(&mut joined.told_half, true);
        let waiting = joined.bytes_waiting();
        log.tallies.join.begun.add(1);
        let buffers = joined.spare.pop().unwrap_or(const { Buffers::new() });
        drop(joined);
        self.trace
            .record(Some(id), || TraceEvent::Begin { bytes: reserved });
        Ok(Handle::new(
            self,
            id,
            (reserved, images),
            (half_full, waiting),
            (buffers, open),
        ))
    }

    /// Bytes of handles that always fit a free segment.
    pub(crate) fn usable(&self) -> i64 {
        usable(self.records, self.segment_blocks, self.logs.len())
    }

    /// Stops the journal for the file system's own reasons. The first reason is kept.
    pub fn stop(&self, reason: StopReason) {
        let mut stop = self.stop.lock();
        if stop.is_none() {
            *stop = Some(reason);
            // Release: pairs with the Acquire in `stopped`; publishes the reason.
            self.is_stopped.store(true, Ordering::Release);
        }
    }

    /// Why the journal has stopped, if it has.
    #[must_use]
    pub fn stopped(&self) -> Option<StopReason> {
        // Acquire: pairs with the Release in `stop`.
        if !self.is_stopped.load(Ordering::Acquire) {
            return None;
        }
        self.stop.lock().clone()
    }

    /// How full the ring of a journal is.
    #[must_use]
    pub fn usage(&self, id: JournalId) -> Usage {
        let log = self.log(id);
        let (used, capacity) = log.writer.lock().ring.used_and_capacity();
        let joined = log.joined.lock();
        let pending = &joined.pending;
        let end = pending.start_of(pending.ends.len());
        let charge = end.charge(crate::space::HandleEnd::START, pending.ends.len());
        Usage {
            used,
            capacity,
            pending: charge,
        }
    }

    /// Sums of all counters.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let mut counters = Counters::default();
        for statistics in self.statistics() {
            counters.add(&statistics);
        }
        counters
    }

    /// The trace of all journals, off at first.
    #[must_use]
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// The state of every journal, a line each, for humans.
    #[must_use]
    pub fn dump(&self) -> String {
        use std::fmt::Write as _;
        let mut out = format!("epoch {} order {:?}\n", self.epoch, self.order);
        for log in &self.logs {
            let writer = log.writer.lock();
            let (used, capacity) = writer.ring.used_and_capacity();
            let (tail, sequence) = (writer.tail, writer.sequence);
            let between = writer.placed.len();
            let joined = log.joined.lock();
            let line = format!(
                "journal {}: joined {} written {} durable {} valid {}; sequence {sequence}, tail \
                 segment {} offset {} sequence {} number {}; transactions {between}, not valid \
                 {}; blocks {used} of {capacity}; room {} effects {}",
                log.id,
                joined.next() - 1,
                log.reached.written(),
                log.reached.durable(),
                log.reached.valid(),
                tail.segment,
                tail.offset,
                tail.sequence,
                tail.number,
                joined.links.len(),
                joined.room,
                joined.effects.len(),
            );
            writeln!(out, "{line}").expect("writing to a string cannot fail");
        }
        out
    }
}

fn usable(records: Records, segment_blocks: u32, journals: usize) -> i64 {
    let bytes = i64::from(segment_bytes_usable(segment_blocks));
    match records {
        Records::Delta | Records::None => bytes,
        // Marks that no handle reserves, of each transaction that a checkpoint closes: one per
        // other journal and a handle's overhead for them, one per piece.
        Records::Image { .. } => {
            let marks = i64::from(crate::units::to_u32(journals)) + 2;
            let marks = marks * i64::from(crate::space::CUT_COMMITS_MAX);
            bytes - marks * i64::from(crate::space::MARK_BYTES)
        }
    }
}

#[cfg(test)]
mod tests;
