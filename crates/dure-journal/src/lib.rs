//! The journal: per-core logs of deltas, chained by marks.
//!
//! **Problem.** One running and one committing transaction for a whole file system make every core
//! wait for every other. With a log per core they do not contend; but then a crash may keep one
//! core's changes and lose those of another core that they were based on.
//!
//! **Structure.**
//! * [`Handle`]: one atomic operation. Its records are private until [`Handle::join`] appends them
//!   to its core's journal and gives it a number. It carries *marks*: the last writers of all it
//!   wrote, and of all it read to decide.
//! * [`Journal::commit`]: the caller is the committer. It takes the closure of what it needs over
//!   marks, writes a prefix of each journal in the closure, one contiguous *transaction* each, and
//!   flushes once.
//! * [`LogMedium`]: what the logs are on, and all that the journal asks of it.
//! * [`recovery`]: reads all logs, keeps the greatest set of complete transactions that is closed
//!   under marks.
//! * [`Journal::cut`], [`Journal::commit_cut`], [`Journal::checkpoint_done`]: how a checkpoint,
//!   which the file system does, frees log space.
//! * [`Journal::statistics`], [`Trace`]: what each journal counts, and the order of its events.
//! * [`Settle`]: what happens when handles have become *valid*: durable, with all they depend on.
//! * [`format`](mod@format): the bytes on the medium, and slotted pairs for other crates too.
//!
//! **Invariants.**
//! * A handle survives wholly or not at all, and only with everything its marks name.
//! * Handles that `commit` has returned for survive every crash.
//! * Cores that use different journals and different granules share no written line in `begin`,
//!   [`Handle`] and `join`.
//! * A failed log write, header write or flush stops the journal; nothing is retried.
//! * Handles that the tail has passed are valid, and their changes durable elsewhere.
//!
//! **Crash.** Of the writes since the last flush any subset may be on the medium. A transaction
//! whose checksum, epoch, sequence or place is wrong ends the scan of its log; one with a mark
//! whose handle is missing is skipped. Recovery writes nothing here: a new epoch in the volume
//! header empties all logs at once.
//!
//! ```
//! use dure_block::ram::RamDevice;
//! use dure_block::{Lba, Media, QueueConfig, share};
//! use dure_journal::recovery::{LogLayout, scan, write_fresh_headers};
//! use dure_journal::{
//!     Effects, GranuleId, Journal, JournalConfig, LogMedium, Nid, Order, Records, RingStart, Rules, Settle,
//! };
//! use dure_sync::{Arc, CoreId};
//!
//! struct Nothing;
//! impl Settle for Nothing {
//!     type Effect = ();
//!     fn settle(&self, _: Effects<()>) {}
//! }
//!
//! let media = Media::open(share(RamDevice::new("ram0", 64)), QueueConfig::default());
//! let medium = LogMedium::on(media);
//! let ring = RingStart {
//!     header: Lba::new(0),
//!     generation: 1,
//!     segments: vec![Lba::new(16), Lba::new(24)],
//! };
//! write_fresh_headers(&medium, 7, 8, &[ring.clone()])?;
//! let config = JournalConfig {
//!     epoch: 1,
//!     first_number: 1,
//!     order: Order::PerCore,
//!     records: Records::Delta,
//!     seed: 7,
//!     segment_blocks: 8,
//!     journals: vec![ring],
//!     rules: Rules::default(),
//! };
//! let journal = Journal::start(medium.clone(), Arc::new(Nothing), config)?;
//! let mut handle = journal.begin(CoreId::new(0), 100)?;
//! handle.delta(GranuleId { nid: Nid(3), index: 0 }, 1, 0, b"hello");
//! let mark = handle.join();
//! journal.commit(&[mark])?;
//! assert!(journal.is_valid(mark));
//!
//! // After a crash:
//! let layout = LogLayout {
//!     seed: 7,
//!     segment_blocks: 8,
//!     first_number: 1,
//!     device_blocks: 64,
//!     headers: vec![Lba::new(0)],
//!     clean: false,
//!     rules: Rules::default(),
//! };
//! let scan = scan(&medium, &layout, 1, 1)?;
//! assert_eq!(scan.transactions().len(), 1);
//! assert_eq!(scan.survivors(), [true]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod checkpoint;
mod closure;
mod commit;
mod counters;
mod error;
pub mod format;
mod gate;
mod handle;
mod ids;
mod journal;
mod log;
mod medium;
mod records;
pub mod recovery;
mod ring;
mod rules;
mod space;
mod statistics;
mod trace;
mod units;
mod valid;

pub use commit::Cut;
pub use counters::{Counters, Usage};
pub use error::{BeginError, CommitError, Error, Result, StopCause, StopReason};
pub use gate::ClosedGate;
pub use handle::Handle;
pub use ids::{GranuleId, JournalId, Mark, Nid};
pub use journal::{Effects, Journal, JournalConfig, Order, RingStart, Settle};
pub use medium::LogMedium;
pub use records::{
    Buffer, BufferUse, Change, CommitTask, Hold, ImageJoin, Records, TransactionId,
    TransactionState, TransactionView, WriteAccess,
};
#[doc(hidden)]
pub use rules::Rules;
pub use statistics::{
    LogStatistics, OPERATION_KINDS, OperationCounts, Stall, StateTimes, TransactionCounts,
};
pub use trace::{TRACE_EVENTS_MAX, Trace, TraceBatch, TraceEvent, TraceRecord};
