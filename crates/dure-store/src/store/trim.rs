//! Telling the device which blocks are free, while the volume is mounted.
//!
//! **Problem.** Any free block may be given to a file at any moment, and what is written there must
//! not be discarded. **Structure.** The free blocks of one segment at a time are allocated as for a
//! file, the device is told of them, and they are free again. **Invariants.** A block is discarded
//! only while it is allocated and nothing points to it. A task that finds no room is not refused
//! for these blocks: it waits for the segment that is being trimmed, and no other one follows
//! meanwhile. **On a crash** a block that is free here was freed by a valid handle, so recovery
//! does not look at what is in it: the same holds for a block that is free and written anew.

use std::ops::Range;

use dure_sync::Mutex;
use dure_sync::atomic::{AtomicU32, Ordering};

use super::Store;
use crate::error::Result;
use crate::ranks::TRIM;
use crate::space::OpClass;
use crate::units::{BlockNo, SegNo};

/// Excludes tasks that take free blocks to trim them while other tasks want them.
#[derive(Debug, Default)]
pub(crate) struct TrimGate {
    /// Held while free blocks of a segment are taken.
    taken: Mutex<TRIM, ()>,
    /// Tasks that find no room.
    wanted: AtomicU32,
}

/// While it lives, no free block is taken to be trimmed.
#[derive(Debug)]
pub(crate) struct NoTrim<'g>(&'g TrimGate);

impl TrimGate {
    /// Waits for the segment that is being trimmed, and keeps others from following.
    pub(crate) fn shut(&self) -> NoTrim<'_> {
        // Relaxed: the mutex orders. A task that takes it after the line below sees the count.
        self.wanted.fetch_add(1, Ordering::Relaxed);
        drop(self.taken.lock());
        NoTrim(self)
    }
}

impl Drop for NoTrim<'_> {
    fn drop(&mut self) {
        // Relaxed: to trim a segment later than possible does no harm.
        self.0.wanted.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Store {
    /// Whether a medium of the volume has something to gain from [`Store::trim`].
    #[must_use]
    pub fn can_trim(&self) -> bool {
        self.region.discards()
    }

    /// Tells the device of free blocks within `blocks`, in runs of at least `least`. Returns how
    /// many blocks that were. Ends early where another task needs the last free blocks. Segments
    /// that the volume has never used are left out: the map of them is not in memory, and what is
    /// not used needs none.
    ///
    /// # Errors
    /// `ReadOnly`, `Stopped`; a failed discard.
    pub fn trim(&self, blocks: Range<u64>, least: u64) -> Result<u64> {
        self.check_writable()?;
        let mut told = 0;
        for segment in self.space.touched() {
            let BlockNo(first) = self.layout.segment_start(segment);
            let end = first + u64::from(self.layout.segment_blocks);
            if first >= blocks.end || end <= blocks.start {
                continue;
            }
            match self.trim_segment(segment, &blocks, least)? {
                Some(count) => told += count,
                None => break,
            }
        }
        Ok(told)
    }

    /// Trims one segment; `None` when its free blocks are needed.
    fn trim_segment(&self, segment: SegNo, within: &Range<u64>, least: u64) -> Result<Option<u64>> {
        let _taken = self.trims.taken.lock();
        let (core, most) = (self.partition(), self.layout.segment_blocks);
        // Relaxed: see `TrimGate::shut`.
        let wanted = self.trims.wanted.load(Ordering::Relaxed) > 0;
        if wanted || !self.space.reserve(core, most, OpClass::Normal) {
            return Ok(None);
        }
        let least = u32::try_from(least).unwrap_or(u32::MAX).max(1);
        let runs = self.space.take_free_runs(segment, least);
        let mut told = 0;
        let mut result = Ok(());
        for run in &runs {
            let start = run.first.0.max(within.start);
            let end = (run.first.0 + u64::from(run.count)).min(within.end);
            if result.is_ok() && end.saturating_sub(start) >= u64::from(least) {
                let discarded = self.region.discard(BlockNo(start), end - start);
                result = discarded.map(|count| told += count);
            }
        }
        runs.into_iter().for_each(|run| self.space.release(run));
        self.space.unreserve(core, most);
        result?;
        Ok(Some(told))
    }
}
