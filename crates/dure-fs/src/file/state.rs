//! What an inode keeps in memory for its data.

use dure_store::format::inode::{InodeRecord, Time};
use dure_store::units::Mark;
use dure_sync::CoreId;
use dure_sync::atomic::{AtomicU64, Ordering};
use zerocopy::little_endian::U64;

use super::map::NodeRoom;
use super::marks::PendingMarks;
use super::outline::Outline;
use super::page::PageStore;
use crate::inode::access_time::{nanos, time};
use crate::inode::{OrphanPlace, ShownChange};

/// Whether a write changes mtime and ctime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stamp {
    /// As POSIX wants.
    Set,
    /// The caller sets the times itself, as a write-back cache above does.
    Keep,
}

/// A truncate that is not complete: slots from a page on are dead, although the map still has them.
#[derive(Debug)]
pub(super) struct Cut {
    pub(super) from: u64,
    /// The orphan slot that says so on the medium.
    pub(super) intent: OrphanPlace,
}

/// A time that the record does not know of, in ns since 1970; 0: none.
#[derive(Debug, Default)]
struct PendingTime(
    /// Written by who shares the inode and has a range of it alone; taken by who has it alone.
    /// Relaxed: the inode's lock orders these.
    AtomicU64,
);

/// As a pending time holds it. A clock before 1970 shows the first moment after it.
fn stamp_of(time: Time) -> u64 {
    nanos(time).max(1)
}

impl PendingTime {
    fn get(&self) -> Option<Time> {
        match self.0.load(Ordering::Relaxed) {
            0 => None,
            nanos => Some(time(nanos)),
        }
    }

    /// Says whether that changed it. A later time stays: who shares the inode may be slow to note
    /// his.
    fn set(&self, now: u64) -> bool {
        // Load first: within a tick of the clock the line stays shared.
        self.0.load(Ordering::Relaxed) < now && self.0.fetch_max(now, Ordering::Relaxed) < now
    }

    /// Takes it back unless it is later than this one, which the record has now.
    fn yield_to(&mut self, logged: u64) {
        if self.0.load(Ordering::Relaxed) <= logged {
            *self = PendingTime::default();
        }
    }
}

/// Hand-overs of a file between cores, one of which writes and finds nobody in it.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// Hand-overs that count.
    taken: u32,
    /// Writes since the last one.
    run: u32,
}

impl Turns {
    /// A write has the file alone; `met`: another core had it before. Whether tasks on both share
    /// it, as far as can be seen. A task that moves from core to core writes longer than tasks that
    /// take turns.
    pub(super) fn note(&mut self, met: bool) -> bool {
        if met {
            (self.taken, self.run) = (self.taken + 1, 0);
        } else if self.taken > 0 {
            self.run += 1;
            if self.run == RUN_WRITES {
                *self = Turns::default();
            }
        }
        self.taken >= TURNS
    }
}

/// Hand-overs of a file that tasks share.
const TURNS: u32 = dure_sync::MEETINGS.div_ceil(2);
/// Writes of one core without a hand-over after which the last ones do not count.
const RUN_WRITES: u32 = 64;

/// Pages, size and times of a file as its users see them. Owner: [inode.state].
///
/// The record next to it is what is logged: `size >= record.size`, and the difference, pending
/// times and dirty pages go into the record by write-back.
#[derive(Debug, Default)]
pub(crate) struct FileState {
    /// Bytes, as users see them; while pages wait in [`super::Added`], a lower bound.
    size: u64,
    pub(super) pages: PageStore,
    /// Blocks for the map nodes that its dirty pages need.
    pub(super) room: NodeRoom,
    mtime: PendingTime,
    ctime: PendingTime,
    /// A truncate that is under way, or was left half done by an error.
    pub(super) cut: Option<Cut>,
    /// Operations on the inode that are not known to be valid.
    pub(super) marks: PendingMarks,
    /// Counts changes of the map, so that a page loaded meanwhile is not put in the cache.
    pub(super) map_changes: u64,
    /// The core whose list of inodes with dirty pages (or pending size and times) this one is on.
    pub(super) dirty_on: Option<CoreId>,
    /// The core whose list of inodes with pages this one is on.
    pub(super) cached_on: Option<CoreId>,
    /// How it goes from one core's writers to another's.
    pub(super) turns: Turns,
    /// Where the next read comes from if reading is sequential. A hint: Relaxed.
    expected: AtomicU64,
}

impl FileState {
    /// The state of an inode as loaded.
    pub(crate) fn new(record: &InodeRecord) -> FileState {
        FileState {
            size: record.size.get(),
            ..FileState::default()
        }
    }

    /// Bytes, as who has the inode alone sees them. For who shares it a lower bound, that stays
    /// meanwhile: `Inode::size_up_to`.
    #[inline]
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Sets it, also where seek finds it.
    pub(super) fn set_size(&mut self, outline: &Outline, size: u64) {
        outline.resize(size);
        self.size = size;
    }

    /// Pages and a size that came beside others are in the state from now on. The caller has the
    /// inode alone.
    pub(super) fn settle(&mut self, pages: PageStore, room: NodeRoom, size: Option<u64>) {
        assert!(
            pages.present() == 0 || (self.cached_on.is_some() && self.dirty_on.is_some()),
            "pages come to an inode that is listed"
        );
        self.pages.absorb(pages);
        self.room.absorb(room);
        if let Some(size) = size {
            assert!(size > self.size, "a file that grows beside others");
            self.size = size;
        }
    }

    /// Modification time, as users see it.
    pub(crate) fn mtime(&self, record: &InodeRecord) -> Time {
        self.mtime.get().unwrap_or(record.mtime)
    }

    /// Change time, as users see it.
    pub(crate) fn ctime(&self, record: &InodeRecord) -> Time {
        self.ctime.get().unwrap_or(record.ctime)
    }

    /// Notes a change of content. Who has not the inode alone tells its lock what became of it.
    #[inline]
    pub(super) fn stamp(&self, stamp: Stamp, now: Time) -> ShownChange {
        if stamp == Stamp::Set {
            let now = stamp_of(now);
            if self.mtime.set(now) | self.ctime.set(now) {
                return ShownChange::Made;
            }
        }
        ShownChange::Found
    }

    /// This record, whose attributes changed beside writers, is about to be that of the inode: its
    /// time of change counts, unless they have set a later one.
    pub(crate) fn attributes_come(&mut self, record: &InodeRecord) {
        self.ctime.yield_to(stamp_of(record.ctime));
    }

    /// Remembers an operation that concerned the inode, for fsync.
    pub(crate) fn note_mark(&mut self, mark: Mark) {
        self.marks.note(mark);
    }

    /// The operations that concerned the inode and are not known to be valid.
    pub(crate) fn writers(&self) -> &[Mark] {
        self.marks.all()
    }

    /// Moves pending times into a record that is about to be logged; `times_merged` once it is.
    pub(crate) fn merge_times(&self, record: &mut InodeRecord) {
        record.mtime = self.mtime(record);
        record.ctime = self.ctime(record);
    }

    /// Forgets the pending times: they are in the record that was logged.
    pub(crate) fn times_merged(&mut self) {
        (self.mtime, self.ctime) = Default::default();
    }

    /// Reserved blocks that nothing needs any more, if no page waits for write-back.
    pub(super) fn spare_room(&mut self) -> u32 {
        match self.pages.is_clean() {
            true => self.room.clear(),
            false => 0,
        }
    }

    /// Whether the record lacks something but pages.
    pub(super) fn is_ahead(&self, record: &InodeRecord) -> bool {
        self.is_longer(record) || self.mtime.get().is_some() || self.ctime.get().is_some()
    }

    /// Whether the record lacks bytes of size.
    pub(super) fn is_longer(&self, record: &InodeRecord) -> bool {
        assert!(
            self.size >= record.size.get(),
            "only truncate makes a file shorter, and it logs that"
        );
        self.size > record.size.get()
    }

    /// Pages that wait for write-back, or are in one.
    pub(crate) fn unclean_pages(&self) -> u64 {
        self.pages.unclean()
    }

    /// Whether an eviction of the inode would lose nothing.
    pub(crate) fn is_clean(&self, record: &InodeRecord) -> bool {
        self.pages.is_clean() && !self.is_ahead(record) && self.cut.is_none()
    }

    /// The size that may be logged with the pages of a batch: `size` was visible when they were
    /// copied, `next` is the first dirty page not among them. Below it everything is on the device,
    /// holes count.
    pub(super) fn loggable_size(record: &InodeRecord, size: u64, next: Option<u64>) -> U64 {
        let filled = next.map_or(u64::MAX, |page| page * dure_store::units::BLOCK_BYTES_U64);
        U64::new(record.size.get().max(size.min(filled)))
    }

    /// Whether slots of `page` count.
    pub(super) fn is_cut(&self, page: u64) -> bool {
        page >= self.map_end()
    }

    /// The page from which on slots do not count.
    pub(super) fn map_end(&self) -> u64 {
        self.cut.as_ref().map_or(u64::MAX, |cut| cut.from)
    }

    /// Notes a read that missed, up to page `end`; true when it began where the last one ended.
    pub(super) fn is_sequential(&self, page: u64, end: u64) -> bool {
        // Relaxed: two readers may confuse each other; that costs a read-ahead.
        let expected = self.expected.load(Ordering::Relaxed);
        self.expected.store(end, Ordering::Relaxed);
        page == expected
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writers_that_take_turns_share_a_file_and_one_that_moves_does_not() {
        let mut turns = Turns::default();
        let mut found = false;
        for _ in 0..TURNS {
            assert!(!found);
            found = turns.note(true);
            assert_eq!(turns.note(false), found);
        }
        assert!(found, "a hand-over for every other write");
        let mut turns = Turns::default();
        for _ in 0..2 * TURNS {
            assert!(!turns.note(true));
            (0..RUN_WRITES).for_each(|_| assert!(!turns.note(false)));
        }
    }
}
