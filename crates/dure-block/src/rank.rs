//! Ranks of this crate's locks (docs/design/locking.md).
//!
//! **Problem.** Locks are taken in rising rank. **Structure.** Constants. **Invariants.** 190 to
//! 239; a decorator releases its lock before it calls the device below. **Crash.** Nothing.

/// State of the compound flush.
pub(crate) const FLUSH_RANK: u8 = 200;
/// The reaper of a ring; held while completions are run.
pub(crate) const REAPING_RANK: u8 = 210;
/// Table and submission queue of a ring.
pub(crate) const SUBMITTING_RANK: u8 = 212;
/// When the channels of a slow device are free.
pub(crate) const CHANNELS_RANK: u8 = 224;
/// Requests of a core that a slow device delays, or that a null device completes later.
pub(crate) const LANE_RANK: u8 = 223;
/// Requests a recording device holds back.
pub(crate) const HELD_RANK: u8 = 225;
/// Rules of a fault device.
pub(crate) const FAULT_RANK: u8 = 228;
/// Tasks that wait for a tag.
pub(crate) const TAG_RANK: u8 = 229;
/// Trace records of a core.
pub(crate) const TRACE_RANK: u8 = 230;
/// Aligned memory of a core.
pub(crate) const BOUNCE_RANK: u8 = 231;
/// Log of a recording device.
pub(crate) const LOG_RANK: u8 = 232;
/// A completion on its way to the submitter.
pub(crate) const SLOT_RANK: u8 = 234;
/// A shard of an overlay.
pub(crate) const OVERLAY_RANK: u8 = 236;
/// Registered buffers that no task has; a buffer may be dropped under any lock.
pub(crate) const POOL_RANK: u8 = 239;
