//! What an inode keeps in memory for its data.

use dure_store::format::inode::{DataHead, Time};
use dure_store::units::BLOCK_BYTES_U64;
use dure_sync::CoreId;
use dure_sync::atomic::{AtomicU64, Ordering};
use zerocopy::little_endian::U64;

use super::cached::PageStore;
use super::map::NodeRoom;
use super::seek_hint::SeekHint;
use crate::inode::times::{nanos, time};
use crate::inode::{OrphanPlace, StateChange};
use crate::quota::FileCharge;

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

/// A time that the inode's data does not have yet, in ns since 1970; 0: none.
#[derive(Debug, Default)]
struct PendingTime(
    /// Written by a holder of the shared inode lock and an exclusive range; taken by a holder of
    /// the exclusive inode lock. Relaxed: the inode's lock orders these.
    AtomicU64,
);

/// As a pending time holds it. A time before 1970 becomes 1 ns after it.
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

    /// Says whether that changed it. A later time stays: a holder of the shared inode lock may be
    /// slow to note its own.
    fn set(&self, now: u64) -> bool {
        // Load first: within a tick of the clock the line stays shared.
        self.0.load(Ordering::Relaxed) < now && self.0.fetch_max(now, Ordering::Relaxed) < now
    }
}

/// Hand-overs of a file from one core to a writer on another that finds it unlocked.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// Hand-overs that count.
    taken: u32,
    /// Writes since the last one.
    run: u32,
}

impl Turns {
    /// A write holds the file exclusively, which another core may have held before. Says whether
    /// tasks on several cores share it, as far as can be seen. A task that moves from core to core
    /// writes longer than tasks that take turns.
    pub(super) fn note(&mut self, handed_over: bool) -> bool {
        if handed_over {
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
const TURNS: u32 = dure_sync::CONTENDED_AFTER.div_ceil(2);
/// Writes of one core without a hand-over after which the last ones do not count.
const RUN_WRITES: u32 = 64;

/// Pages, size and times of a file as its users see them. Owner: [inode.state].
///
/// The inode's data is what is logged: `size >= logged`, and the difference, pending times and
/// dirty pages go into the data by write-back.
#[derive(Debug, Default)]
pub(crate) struct FileState {
    /// Bytes, as users see them; while growth waits in [`super::Growth`], a lower bound.
    size: u64,
    /// Bytes, as the inode's data says.
    logged: u64,
    pub(super) pages: PageStore,
    /// Blocks for the map nodes that its dirty pages need.
    pub(super) room: NodeRoom,
    /// The last write, if the data lacks its time: mtime and ctime.
    written: PendingTime,
    /// A truncate that is under way, or was left half done by an error.
    pub(super) cut: Option<Box<Cut>>,
    /// The core whose list of inodes with dirty pages (or pending size and times) this one is on.
    pub(super) dirty_on: Option<CoreId>,
    /// The core whose list of inodes with pages this one is on.
    pub(super) cached_on: Option<CoreId>,
    /// How often it goes from one core's writers to another's.
    pub(super) turns: Turns,
    /// What of it is counted for its owner, if quotas are on.
    pub(crate) charge: Option<Box<FileCharge>>,
}

impl FileState {
    /// The state of an inode as loaded.
    pub(crate) fn new(data: &DataHead) -> FileState {
        FileState {
            size: data.size.get(),
            logged: data.size.get(),
            ..FileState::default()
        }
    }

    /// Bytes, as a holder of the exclusive inode lock sees them. For a holder of the shared one it
    /// is a lower bound that does not move meanwhile: `Inode::size_up_to`.
    #[inline]
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Sets it, also in the seek hint.
    pub(super) fn set_size(&mut self, seek_hint: SeekHint<'_>, size: u64) {
        seek_hint.resize(size);
        self.size = size;
    }

    /// What the file has grown by is in the state from now on. The caller holds the inode
    /// exclusively.
    pub(super) fn settle(&mut self, room: NodeRoom, size: Option<u64>) {
        assert!(
            (self.pages.is_empty() || self.cached_on.is_some())
                && (self.pages.is_clean() || self.dirty_on.is_some()),
            "pages come to an inode that is listed"
        );
        self.room.absorb(room);
        if let Some(size) = size {
            assert!(size > self.size, "growth makes a file shorter");
            self.size = size;
        }
    }

    /// The last write, if the data lacks its time.
    pub(crate) fn written(&self) -> Option<Time> {
        self.written.get()
    }

    /// Bytes, as the inode's data says.
    pub(super) fn logged_size(&self) -> u64 {
        self.logged
    }

    /// Notes a change of content. A caller that holds the inode shared passes the result to its
    /// lock.
    #[inline]
    pub(super) fn stamp(&self, stamp: Stamp, now: Time) -> StateChange {
        match stamp == Stamp::Set && self.written.set(stamp_of(now)) {
            true => StateChange::Made,
            false => StateChange::Found,
        }
    }

    /// The data was logged, with the times that were pending.
    pub(crate) fn data_stored(&mut self, data: &DataHead) {
        self.logged = data.size.get();
        self.written = PendingTime::default();
    }

    /// The file is about to be gone, and its times with it.
    pub(super) fn forget_times(&mut self) {
        self.written = PendingTime::default();
    }

    /// Reserved blocks that nothing needs any more, if no page waits for write-back.
    pub(super) fn spare_room(&mut self) -> u32 {
        match self.pages.is_clean() {
            true => self.room.clear(),
            false => 0,
        }
    }

    /// Whether the logged data lacks something but pages.
    pub(super) fn is_ahead(&self) -> bool {
        self.is_longer() || self.written.get().is_some()
    }

    /// Whether the logged data lacks bytes of size.
    pub(super) fn is_longer(&self) -> bool {
        assert!(
            self.size >= self.logged,
            "only truncate makes a file shorter, and it logs that"
        );
        self.size > self.logged
    }

    /// Blocks on the medium, of which there are `placed`, and those that pages waiting for
    /// write-back need: a file must not look as if it had a hole where data
    /// waits. Only the map knows which of these pages have a block already, so the final number may
    /// be lower, but not higher than the pages of the file.
    pub(crate) fn blocks(&self, placed: u64, size: u64) -> u64 {
        let pages = size.div_ceil(BLOCK_BYTES_U64);
        let waiting = self.pages.new_pages();
        placed.max(pages.min(placed + waiting))
    }

    /// Whether an eviction of the inode would lose nothing.
    pub(crate) fn is_clean(&self) -> bool {
        self.pages.is_clean() && !self.is_ahead() && self.cut.is_none()
    }

    /// The size that may be logged with the pages of a batch: `size` was visible when they were
    /// copied, `next` is the first dirty page not among them. Below it everything is on the device,
    /// holes count.
    pub(super) fn loggable_size(data: &DataHead, size: u64, next: Option<u64>) -> U64 {
        let filled = next.map_or(u64::MAX, |page| page * BLOCK_BYTES_U64);
        U64::new(data.size.get().max(size.min(filled)))
    }

    /// Whether slots of `page` count.
    pub(super) fn is_cut(&self, page: u64) -> bool {
        page >= self.map_end()
    }

    /// The page from which on slots do not count.
    pub(super) fn map_end(&self) -> u64 {
        self.cut.as_ref().map_or(u64::MAX, |cut| cut.from)
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
