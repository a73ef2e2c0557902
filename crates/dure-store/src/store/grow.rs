//! Log rings grow and shrink by segments.
//!
//! **Structure.** A journal whose log made a checkpoint necessary gets more room, as long as all
//! logs together stay below an eighth of the volume and the volume has room to spare. What a ring
//! has beyond the least counts as available ([`Store::spare_log_blocks`]): it goes back when
//! something else finds no room, when the volume is at rest, and at unmount
//! ([`Store::shrink_rings`]).
//!
//! **Invariants.** A segment is in the ring before or after a durable header says so, never the
//! other way round: a header that lists it is durable before the log uses it, and one that does not
//! before anything else does.
//!
//! **On a crash** recovery believes the headers: what they list is log.

use dure_block::Lba;
use dure_journal::{JournalId, Stall};
use dure_sync::{CoreId, clock};

use super::{RING_SEGMENTS, Store};
use crate::error::{Error, Result};
use crate::options::RecordPolicy;
use crate::units::{BlockNo, journal_id, to_usize};

/// Logs take at most one segment in this many.
const SHARE: u32 = 8;
/// Rings grow while this part of the volume is available.
const ROOM_SHARE: u64 = 16;
/// Segments of one ring; a journal header lists up to 480.
const RING_SEGMENTS_MAX: u64 = 256;

/// Most nodes of an operation that does not adapt to the log.
pub const IMAGES_MIN: u32 = 24;

impl Store {
    /// Lets the rings grow until they hold `blocks` blocks together, as full logs do in time. For
    /// benches.
    pub fn grow_rings(&self, blocks: u64) -> Result<()> {
        let capacity = |id| self.journal().usage(id).capacity;
        let ids = || (0..self.layout.journals).map(journal_id);
        while ids().map(capacity).sum::<u64>() < blocks {
            let smallest = ids().min_by_key(|id| capacity(*id));
            if !self.add_log_segment(smallest.expect("a volume has journals"))? {
                return Err(Error::NoSpace {
                    what: "log segments",
                });
            }
        }
        Ok(())
    }

    /// The log of `journal` is full: a checkpoint empties it, and its ring grows. Of many callers
    /// that find it full at once one does that; the others find its work done and try again.
    ///
    /// # Errors
    /// Those of [`Store::checkpoint`].
    pub(crate) fn make_log_room(&self, journal: JournalId) -> Result<()> {
        let start = clock::monotonic_ns();
        self.make_log_room_since(journal, self.counters.checkpoints.sum())?;
        let waited = clock::monotonic_ns().saturating_sub(start);
        self.journal()
            .stalled(self.partition(), Stall::LogFull, waited);
        Ok(())
    }

    /// Like `make_log_room`, for a caller that found the log full, or half full, when `checkpoints`
    /// checkpoints had been made.
    ///
    /// # Errors
    /// Those of [`Store::checkpoint`].
    pub fn make_log_room_since(&self, journal: JournalId, checkpoints: i64) -> Result<()> {
        let Some(_state) = self.checkpoint_since(checkpoints)? else {
            return self.check_writable();
        };
        self.grow_ring(journal)
            .inspect_err(|error| self.stop(error))
    }

    /// Segments that a ring never gives back. With compound transactions an operation announces whole
    /// nodes: its ring holds the greatest operation that cannot be made smaller.
    fn ring_segments_min(&self) -> u32 {
        match (self.options.records, self.journal_if_any()) {
            (RecordPolicy::Image, Some(journal)) => {
                let greatest = journal.segments_for(journal.handle_bytes_max(), IMAGES_MIN);
                greatest.max(RING_SEGMENTS)
            }
            _ => RING_SEGMENTS,
        }
    }

    /// Lets every ring grow to the least.
    ///
    /// # Errors
    /// `NoSpace` when the volume is too small or too full for that; errors of writing a header.
    pub fn grow_to_least(&self) -> Result<()> {
        let least = u64::from(self.ring_segments_min()) * u64::from(self.layout.segment_blocks);
        for index in 0..self.layout.journals {
            let id = journal_id(index);
            while self.journal().usage(id).capacity < least {
                if !self.add_log_segment(id)? {
                    return Err(Error::NoSpace {
                        what: "log segments, of which journal=jbd2 and zjournal need more",
                    });
                }
            }
        }
        Ok(())
    }

    /// Blocks of log rings beyond the least: `Store::shrink_rings` gives them back.
    pub fn spare_log_blocks(&self) -> u64 {
        let least = self.layout.journals * self.ring_segments_min();
        let spare = self.space.log_segments().saturating_sub(least);
        u64::from(spare) * u64::from(self.layout.segment_blocks)
    }

    /// Empties the logs, if rings have more than the least, and makes them as small as can be.
    ///
    /// # Errors
    /// Those of [`Store::checkpoint`].
    pub fn give_logs_back(&self) -> Result<()> {
        if self.spare_log_blocks() == 0 {
            return Ok(());
        }
        self.checkpoint()?;
        self.shrink_rings().map(drop)
    }

    /// Returns free segments that rings have beyond the least to the volume; says whether there
    /// were any. The caller holds no inode lock.
    ///
    /// # Errors
    /// A failed write or flush of a journal's header.
    pub(crate) fn shrink_rings(&self) -> Result<bool> {
        if self.spare_log_blocks() == 0 {
            return Ok(false);
        }
        let _no_checkpoint = self.checkpoint.lock();
        let least = u64::from(self.ring_segments_min());
        let mut given = false;
        for id in (0..self.layout.journals).map(journal_id) {
            let has = self.journal().usage(id).capacity / u64::from(self.layout.segment_blocks);
            let spare = to_usize(has.saturating_sub(least));
            if spare == 0 {
                continue;
            }
            // Only what no durable header lists comes back. Crash scenario otherwise: file data is
            // written into a segment, and recovery takes the segment for log and the data for gone.
            let segments = self.journal().shrink(id, spare).map_err(Error::from);
            for segment in segments.inspect_err(|error| self.stop(error))? {
                let place = self.layout.locate(BlockNo(segment.number()));
                let (segment, _) = place.expect("a ring's segment is in the main area");
                self.space.release_segment(segment);
                given = true;
            }
        }
        Ok(given)
    }

    /// Adds a segment to the ring where the volume has room for it, or another ring has far more.
    /// The SIT need not know: which segments are logs is in the journal headers, and `grow` makes
    /// the header durable before the segment is used.
    pub fn grow_ring(&self, id: JournalId) -> Result<()> {
        let statistics = self.space.statistics();
        if statistics.available < statistics.total / ROOM_SHARE {
            // A short log costs checkpoints; a write that finds no room costs its caller more.
            return Ok(());
        }
        if statistics.segments_log < self.layout.segments / SHARE {
            return self.add_log_segment(id).map(drop);
        }
        if self.is_largest(id) {
            return Ok(());
        }
        match self.segment_of_largest(id)? {
            Some(segment) => self.grow_by(id, segment),
            None => Ok(()),
        }
    }

    /// Adds a free segment of the volume to the ring; false if there is none, or the ring is as
    /// large as one may be.
    ///
    /// # Errors
    /// A failed write or flush of the journal's header.
    pub(crate) fn add_log_segment(&self, id: JournalId) -> Result<bool> {
        if self.is_largest(id) {
            return Ok(false);
        }
        let Some(segment) = self.space.alloc_log_segment(CoreId::new(id.number())) else {
            return Ok(false);
        };
        let BlockNo(first) = self.layout.segment_start(segment);
        self.grow_by(id, Lba::new(first)).map(|()| true)
    }

    /// Whether the ring is as large as one may be.
    fn is_largest(&self, id: JournalId) -> bool {
        let large = RING_SEGMENTS_MAX * u64::from(self.layout.segment_blocks);
        self.journal().usage(id).capacity >= large
    }

    fn grow_by(&self, id: JournalId, segment: Lba) -> Result<()> {
        self.journal().grow(id, segment).map_err(Error::from)?;
        self.counters.rings_grown.add(1);
        Ok(())
    }

    /// A free segment of the largest ring, if that has at least two more than the ring of `id`: the
    /// cores that wrote most yesterday must not keep the log space from those that write today.
    fn segment_of_largest(&self, id: JournalId) -> Result<Option<Lba>> {
        let capacity = |id: &JournalId| self.journal().usage(*id).capacity;
        let ids = (0..self.layout.journals).map(journal_id);
        let Some(largest) = ids.max_by_key(capacity) else {
            return Ok(None);
        };
        let two = 2 * u64::from(self.layout.segment_blocks);
        if capacity(&largest) < capacity(&id) + two {
            return Ok(None);
        }
        let taken = self.journal().shrink(largest, 1).map_err(Error::from)?;
        Ok(taken.first().copied())
    }
}
