//! The lock of an inode's state, and what stat shows of that without it.
//!
//! **Problem.** A stat that takes the inode's lock, or only a reference, writes a line that all
//! stats of the inode share. **Structure.** [`StateLock`] is the lock of an inode's state;
//! [`ShownAttributes`] are tables of attributes, by number and life, that are read without a lock.
//! Attributes get there when they are asked for a second time without a change in between. What is
//! written beside the state's own lock lies apart, in [`Aside`]: readers and overwriters of data
//! look at none of its lines while nothing changes.
//!
//! **Invariants.** What is in the tables is what the locked way would give. It is put there by
//! readers of the state, so never beside a writer, and only while the inode is pinned; it is taken
//! out by whoever takes the state for writing, before he changes anything, and before the inode is
//! evicted. Only who leaves alone what stat shows, or takes it out when he turns out to have
//! changed it, leaves it there ([`StateLock::write_unseen`]). Who changes what stat shows under the
//! *shared* lock takes that part out after the change: the data's (times of an access, or of a
//! write to a file that tasks share) with [`StateLock::changed_shared`] (a size that grows there
//! with [`StateLock::size_grows`], before the change), the other one (see [`super::beside`]) with
//! [`StateLock::attributes_changed`]. Until he has come, whoever finds another part with the lock
//! takes it out: what he was told is not taken back. **On a crash** the tables are gone.

use dure_store::units::Mark;
use dure_sync::atomic::{AtomicU8, AtomicU64, Ordering, fence};
use dure_sync::{
    Arc, CachePadded, Mutex, OnceLock, RwLockWriteGuard, SpreadLock, SpreadReadGuard, Weak,
};

use super::InodeState;
use super::beside::Changes;
use super::parts::{DataPart, PlainPart, ShownAttributes};
use crate::file::Added;
use crate::namespace::InodeId;
use crate::ranks::{INODE, WRITEBACK};
use crate::volume::{AttributeRule, Volume};

/// What every inode of a volume refers to; one for each shard of the cache, since inodes come and
/// go on every core, often where others use their neighbours. Its count is alone on its line.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Home {
    /// For the deletion at the last unpin.
    volume: Weak<Volume>,
    shown: Arc<ShownAttributes>,
}

impl Home {
    pub(super) fn new(volume: &Arc<Volume>) -> Home {
        Home {
            volume: Arc::downgrade(volume),
            shown: volume.shown.clone(),
        }
    }
}

/// Who made a change under the shared lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// The caller.
    Made,
    /// Somebody else, who may not have come to take the attributes out.
    Found,
}

/// Nobody has asked since the last change.
const UNKNOWN: u8 = 0;
/// Somebody has asked once.
const ASKED: u8 = 1;
/// The table may have the attributes.
const SHOWN: u8 = 2;

/// In place of a mark: nobody has looked since the lock was last taken alone.
const NOT_LOOKED: u64 = u64::MAX;

/// The lock of an inode's state.
#[derive(Debug)]
pub(crate) struct StateLock {
    lock: SpreadLock<INODE, InodeState>,
    id: InodeId,
    home: Arc<Home>,
    /// Pages that came beside others, from the moment tasks share the file: see `file::added`.
    added: OnceLock<Box<Added>>,
    aside: CachePadded<Aside>,
}

/// What is written beside the lock.
#[derive(Debug)]
struct Aside {
    change: ForChanges,
    look: ForLooks,
}

/// What those look at who change the inode, or want to know all of it.
#[derive(Debug)]
#[repr(align(64))]
struct ForChanges {
    /// Held over write-back, truncate and allocation.
    writeback: Mutex<WRITEBACK, ()>,
    /// Attributes that were changed by who shares the state, from the moment somebody wants to: see
    /// [`super::beside`].
    changes: OnceLock<Box<Changes>>,
}

/// What is known of the state.
#[derive(Debug)]
#[repr(align(64))]
struct ForLooks {
    /// How far the attributes are on their way into the tables. Raised under `lock` shared, reset
    /// under it exclusively, which also orders it: hence Relaxed, except behind the fence of who
    /// changes them shared.
    level: AtomicU8,
    /// Last writer of the inode's record, or [`NOT_LOOKED`]. Set under `lock` shared, under which
    /// it does not change, reset under it exclusively, which also orders it: hence Relaxed.
    record_writer: AtomicU64,
}

impl StateLock {
    pub(super) fn new(state: InodeState, id: InodeId, home: Arc<Home>) -> StateLock {
        let change = ForChanges {
            writeback: Mutex::new(()),
            changes: OnceLock::new(),
        };
        let look = ForLooks {
            level: AtomicU8::new(UNKNOWN),
            record_writer: AtomicU64::new(NOT_LOOKED),
        };
        StateLock {
            lock: SpreadLock::new(state),
            id,
            home,
            added: OnceLock::new(),
            aside: CachePadded::new(Aside { change, look }),
        }
    }

    pub(super) fn writeback(&self) -> &Mutex<WRITEBACK, ()> {
        &self.aside.change.writeback
    }

    /// The volume, while it is mounted.
    pub(super) fn volume(&self) -> Option<Arc<Volume>> {
        self.home.volume.upgrade()
    }

    /// Locks the state for reading.
    #[inline]
    pub(crate) fn read(&self) -> SpreadReadGuard<'_, INODE, InodeState> {
        self.lock.read()
    }

    /// The same; several inodes only in ascending number.
    pub(crate) fn read_ordered(&self) -> SpreadReadGuard<'_, INODE, InodeState> {
        self.lock.read_ordered()
    }

    /// Locks the state for reading if that needs no waiting, with all attributes in it.
    pub(crate) fn try_read_whole(&self) -> Option<SpreadReadGuard<'_, INODE, InodeState>> {
        if self.changes().is_some_and(Changes::is_waiting) || self.pages_wait() {
            drop(self.try_write()?);
        }
        self.lock.try_read()
    }

    /// A writer of data has the state alone; whether another core had it before.
    pub(crate) fn note_writer(&self) -> bool {
        self.lock.note_writer()
    }

    /// Whether readers have met in the lock.
    pub(super) fn readers_met(&self) -> bool {
        self.lock.readers_met()
    }

    /// Pages that come beside others, if tasks share the file. The caller holds the state.
    #[inline]
    pub(crate) fn added(&self) -> Option<&Added> {
        self.added.get().map(|added| &**added)
    }

    /// Whether there are some that the state lacks. The caller shares it, or asks as a hint.
    pub(crate) fn pages_wait(&self) -> bool {
        self.added().is_some_and(Added::is_waiting)
    }

    /// From now on pages come beside others. The caller has the state alone.
    #[cold]
    pub(crate) fn make_added(&self, _alone: &mut InodeState) {
        self.added.get_or_init(Box::default);
    }

    /// Attributes changed by who shares the state. The caller shares it, or asks as a hint.
    #[inline]
    pub(super) fn changes(&self) -> Option<&Changes> {
        self.aside.change.changes.get().map(|changes| &**changes)
    }

    /// From now on attributes are changed by who shares the state.
    #[cold]
    pub(super) fn make_changes(&self, rule: AttributeRule) {
        let changes = &self.aside.change.changes;
        changes.get_or_init(|| Box::new(Changes::new(rule)));
    }

    /// Locks the state for writing; nobody is shown the attributes without the lock any more.
    #[inline]
    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, INODE, InodeState> {
        let mut guard = self.lock.write();
        self.taken_alone(&mut guard);
        guard
    }

    /// The same; several inodes only in ascending number.
    pub(crate) fn write_ordered(&self) -> RwLockWriteGuard<'_, INODE, InodeState> {
        let mut guard = self.lock.write_ordered();
        self.taken_alone(&mut guard);
        guard
    }

    /// The same if that needs no waiting.
    pub(crate) fn try_write(&self) -> Option<RwLockWriteGuard<'_, INODE, InodeState>> {
        let mut guard = self.lock.try_write()?;
        self.taken_alone(&mut guard);
        Some(guard)
    }

    /// The state of an inode that nobody else has seen.
    pub(super) fn get_mut(&mut self) -> &mut InodeState {
        self.lock.get_mut()
    }

    /// Locks the state for writing by who changes nothing that stat shows, or calls `forget` when
    /// he has.
    pub(crate) fn write_unseen(&self) -> RwLockWriteGuard<'_, INODE, InodeState> {
        let mut guard = self.lock.write();
        if self.take_over(&mut guard) {
            self.forget();
        }
        guard
    }

    #[inline]
    fn taken_alone(&self, state: &mut InodeState) {
        self.take_over(state);
        self.forget();
    }

    /// Whoever had the state before shared it. Says whether they have changed attributes.
    #[inline]
    fn take_over(&self, state: &mut InodeState) -> bool {
        let record_writer = &self.aside.look.record_writer;
        if record_writer.load(Ordering::Relaxed) != NOT_LOOKED {
            record_writer.store(NOT_LOOKED, Ordering::Relaxed);
        }
        if let Some(added) = self.added()
            && added.is_waiting()
        {
            added.move_into(&mut state.file);
        }
        self.changes()
            .is_some_and(|changes| changes.move_into(state))
    }

    /// The last writer of the inode's record, as `look` finds it, without a write once somebody has
    /// looked. The caller shares the inode; it changes only with the record, by who has it alone,
    /// or with attributes of a file that are changed beside others: those have their own marks
    /// (`Attributed::marks`).
    pub(crate) fn record_writer(&self, _held: &InodeState, look: impl FnOnce() -> Mark) -> Mark {
        let record_writer = &self.aside.look.record_writer;
        let known = record_writer.load(Ordering::Relaxed);
        if known != NOT_LOOKED {
            return Mark::from_u64(known);
        }
        let mark = look();
        record_writer.store(mark.as_u64(), Ordering::Relaxed);
        mark
    }

    /// Takes the attributes out of the tables. The caller holds the state for writing, or knows
    /// that nobody can ask for them.
    #[inline]
    pub(crate) fn forget(&self) {
        let level = &self.aside.look.level;
        let before = level.load(Ordering::Relaxed);
        if before != UNKNOWN {
            level.store(UNKNOWN, Ordering::Relaxed);
            if before == SHOWN {
                self.home.shown.remove_plain(self.id);
                self.home.shown.remove_data(self.id);
            }
        }
    }

    /// The attributes were asked for: the second time they go into the tables. The two functions
    /// look whether the parts are still so, but for what changes under the exclusive lock.
    pub(super) fn asked(
        &self,
        _state: &SpreadReadGuard<'_, INODE, InodeState>,
        (plain, plain_holds): (&PlainPart, impl FnOnce() -> bool),
        (data, data_holds): (&DataPart, impl FnOnce() -> bool),
    ) {
        if self.is_asked_again() {
            // Who lost one part only finds the other one there.
            self.home.shown.put_plain(self.id, plain, plain_holds);
            self.home.shown.put_data(self.id, data, data_holds);
        }
    }

    /// The same of who wants to know only who may use the inode.
    pub(super) fn asked_who_may(
        &self,
        _state: &SpreadReadGuard<'_, INODE, InodeState>,
        (plain, holds): (&PlainPart, impl FnOnce() -> bool),
    ) {
        if self.is_asked_again() {
            self.home.shown.put_plain(self.id, plain, holds);
        }
    }

    /// Whether somebody asks for the second time. The caller shares the state.
    fn is_asked_again(&self) -> bool {
        let level = &self.aside.look.level;
        match level.load(Ordering::Relaxed) {
            UNKNOWN => {
                level.fetch_max(ASKED, Ordering::Relaxed);
                false
            }
            SHOWN => true,
            _ => {
                level.fetch_max(SHOWN, Ordering::Relaxed);
                true
            }
        }
    }

    /// Something that stat shows of the data was changed without the exclusive lock, or was found
    /// as it is to be a moment after somebody else changed it.
    #[inline]
    pub(crate) fn changed_shared(&self, change: Change) {
        if change == Change::Made {
            // SeqCst: orders the change before the look; `VersionedTable::insert_while` has the
            // other one. Either this sees that the attributes may be in the table, or `holds` sees
            // the change.
            fence(Ordering::SeqCst);
        }
        if self.aside.look.level.load(Ordering::Relaxed) == SHOWN {
            self.home.shown.remove_data(self.id);
        }
    }

    /// The size of the file is about to grow. The caller shares the state and has what is added
    /// alone, so nobody puts the data's part in meanwhile.
    #[inline]
    pub(crate) fn size_grows(&self) {
        if self.aside.look.level.load(Ordering::Relaxed) == SHOWN {
            self.home.shown.remove_data(self.id);
        }
    }

    /// Attributes, or the number of links, were changed without the exclusive lock.
    pub(crate) fn attributes_changed(&self) {
        // SeqCst: as in `changed_shared`.
        fence(Ordering::SeqCst);
        if self.aside.look.level.load(Ordering::Relaxed) == SHOWN {
            self.home.shown.remove_plain(self.id);
        }
    }
}
