//! The lock of an inode's state, and the attributes that stat reads without it.
//!
//! **Problem.** A stat that takes the inode lock, or only a reference, writes a line that all stats
//! of the inode share. **Structure.** [`StateLock`] is the lock of an inode's state;
//! [`AttributeCache`] holds attributes, by inode number and generation, that are read without a
//! lock. Attributes are cached when they are asked for a second time without a change in between.
//! What is written independently of the state's lock has lines of its own: readers and overwriters
//! of data write none of them while nothing changes.
//!
//! # Invariants
//! Cached attributes are those that a reader under the lock would get. A reader that holds the
//! state shared caches them, so never concurrently with an exclusive holder, and only while the
//! inode is pinned.
//!
//! * Taking the state exclusively removes what changes with it before the holder changes anything:
//!   the data part, and of a directory both; eviction of the inode removes both. Only
//!   [`StateLock::write_keep_cached`] leaves them, for holders that change
//!   nothing stat shows, or that remove them if it turns out that they did.
//! * A task that changes what stat shows under the *shared* lock removes that part after the
//!   change: the data part (times of an access, or of a write to a shared file) with
//!   [`StateLock::changed_shared`] (a size that grows there with [`StateLock::size_grows`], before
//!   the change). A task that changes attributes, and holds their lock only, removes the plain part
//!   after the change, with [`StateLock::attributes_changed`].
//!   Until it has done so, any reader under the lock that finds another part cached removes it: no
//!   later stat may return older attributes than this reader did.
//!
//! **On a crash** the cache is gone.

use dure_store::Store;
use dure_store::format::inode::DataHead;
use dure_store::format::name::FileKind;
use dure_sync::atomic::{AtomicU8, Ordering, fence};
use dure_sync::range_lock::Policy;
use dure_sync::{
    Arc, Mutex, PerCoreReadGuard, PerCoreRwLock, RwLockWriteGuard, SequenceCount, Weak,
};

use super::access_time::AccessTimeCell;
use super::attribute_cache::{AttributeCache, DataPart, PlainPart};
use super::attribute_lock::AttributeState;
use super::last_writer::LastWriter;
use super::{Above, Inode, InodeState, Inodes, StateChange};
use crate::file::{Growth, SeekHint};
use crate::quota::{Quotas, QuotasIfOn};
use crate::ranks::{ATTRIBUTES, INODE, WRITEBACK};

/// What every inode of a volume refers to; one per shard of the inode cache, since inodes are
/// created and dropped on every core, often while other cores use their neighbours. Its reference
/// count has a line of its own.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Home {
    store: Weak<Store>,
    /// For the deletion at the last unpin.
    above: Arc<dyn Above>,
    attribute_cache: Arc<AttributeCache>,
    file_lock: Policy,
    quotas: QuotasIfOn,
}

impl Home {
    pub(super) fn new(inodes: &Inodes, above: Arc<dyn Above>) -> Home {
        Home {
            store: Arc::downgrade(&inodes.store),
            above,
            attribute_cache: inodes.attribute_cache.clone(),
            file_lock: inodes.options.file_lock,
            quotas: inodes.quotas.clone(),
        }
    }

    /// The quotas, if they are on.
    #[inline]
    pub(super) fn quotas(&self) -> Option<&Quotas> {
        self.quotas.get()
    }

    /// Whether what files have is counted.
    #[inline]
    pub(super) fn counts(&self) -> bool {
        self.quotas().is_some()
    }
}

/// How far a part of the attributes is on its way into the cache. Raised by holders of the shared
/// state, reset by a holder of the exclusive one, which also orders the accesses: hence Relaxed,
/// except after the fence of a task that changes that part without the exclusive state.
#[derive(Debug, Default)]
struct Level(AtomicU8);

/// The part was not asked for since the last change.
const UNKNOWN: u8 = 0;
/// It was asked for once.
const ASKED: u8 = 1;
/// It may be cached.
const SHOWN: u8 = 2;

impl Level {
    fn is_shown(&self) -> bool {
        self.0.load(Ordering::Relaxed) == SHOWN
    }

    /// Whether the part is asked for at least the second time. The caller holds the state shared.
    fn is_asked_again(&self) -> bool {
        match self.0.load(Ordering::Relaxed) {
            UNKNOWN => {
                self.0.fetch_max(ASKED, Ordering::Relaxed);
                false
            }
            SHOWN => true,
            _ => {
                self.0.fetch_max(SHOWN, Ordering::Relaxed);
                true
            }
        }
    }

    /// Lets `remove` take the part out of the cache if it may be there.
    fn reset(&self, remove: impl FnOnce()) {
        let before = self.0.load(Ordering::Relaxed);
        if before == SHOWN {
            remove();
        }
        if before != UNKNOWN {
            self.0.store(UNKNOWN, Ordering::Relaxed);
        }
    }
}

/// The lock of an inode's state, and what of the inode is cached.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StateLock<'i>(&'i Inode);

/// Used by tasks that read or write the content: three cache lines.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct ForContent {
    lock: PerCoreRwLock<INODE, InodeState>,
    /// Held over write-back, truncate and allocation, before the lock.
    writeback: Mutex<WRITEBACK, ()>,
    /// How far the data part is on its way into the cache.
    level: Level,
}
const _: () = assert!(size_of::<ForContent>() == 3 * 64);

impl ForContent {
    pub(super) fn new(home: &Home, state: InodeState) -> ForContent {
        let is_rwsem = state.if_file().is_some() && home.file_lock == Policy::Rwsem;
        ForContent {
            lock: if is_rwsem {
                PerCoreRwLock::with_one_count(state)
            } else {
                PerCoreRwLock::new(state)
            },
            writeback: Mutex::default(),
            level: Level::default(),
        }
    }

    /// The state of an inode that no other task has seen.
    pub(super) fn get_mut(&mut self) -> &mut InodeState {
        self.lock.get_mut()
    }
}

/// Used by tasks that change the attributes, or need all of them; and by operations on the data,
/// which depend on the last writer.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct ForAttributes {
    /// Held by a task that changes attributes: see [`super::attribute_lock`].
    lock: Mutex<ATTRIBUTES, AttributeState>,
    writer: LastWriter,
    xattrs: SequenceCount,
    /// How far the plain part is on its way into the cache.
    level: Level,
}

/// Used by operations on the data, by those on the attributes, which depend on the last writer, and
/// by readers.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct ForData {
    writer: LastWriter,
    /// That of the attributes when blocks were first given to a hole. Read by tasks that do so.
    creation: LastWriter,
    /// Reads since the data was stored.
    access_time: AccessTimeCell,
}

impl ForData {
    pub(super) fn new(data: &DataHead) -> ForData {
        ForData {
            writer: LastWriter::default(),
            creation: LastWriter::default(),
            access_time: AccessTimeCell::new(data),
        }
    }
}

impl Inode {
    /// Reads since the data was stored.
    #[inline]
    pub(crate) fn access_time(&self) -> &AccessTimeCell {
        &self.data.access_time
    }

    /// The lock of the state.
    #[inline]
    pub(crate) fn state(&self) -> StateLock<'_> {
        StateLock(self)
    }
}

impl<'i> StateLock<'i> {
    /// Size, data and holes of a file.
    #[inline]
    pub(crate) fn seek_hint(self) -> SeekHint<'i> {
        SeekHint {
            size: &self.0.size,
            stretches: self.0.sharing.get().map(|sharing| &*sharing.stretches),
        }
    }

    pub(super) fn writeback(self) -> &'i Mutex<WRITEBACK, ()> {
        &self.0.content.writeback
    }

    /// The store, while the volume is mounted.
    pub(super) fn store(self) -> Option<Arc<Store>> {
        self.0.home.store.upgrade()
    }

    /// What is above the inodes.
    pub(super) fn above(self) -> &'i dyn Above {
        &*self.0.home.above
    }

    /// Locks the state shared.
    #[inline]
    pub(crate) fn read(self) -> PerCoreReadGuard<'i, INODE, InodeState> {
        self.0.content.lock.read()
    }

    /// Locks the state shared if that needs no waiting.
    pub(crate) fn try_read(self) -> Option<PerCoreReadGuard<'i, INODE, InodeState>> {
        self.0.content.lock.try_read()
    }

    /// Like `StateLock::read`; several inodes only in ascending number.
    pub(crate) fn read_ordered(self) -> PerCoreReadGuard<'i, INODE, InodeState> {
        self.0.content.lock.read_ordered()
    }

    /// Locks the state shared if that needs no waiting, with all pages moved into it.
    pub(crate) fn try_read_whole(self) -> Option<PerCoreReadGuard<'i, INODE, InodeState>> {
        if self.growth_waits() {
            drop(self.try_write()?);
        }
        self.0.content.lock.try_read()
    }

    /// Notes that the caller writes data and holds the state exclusively. Returns whether another
    /// core held it before.
    pub(crate) fn note_writer(self) -> bool {
        self.0.content.lock.note_writer()
    }

    /// What was added under the shared lock, if tasks share the file. The caller holds the state.
    #[inline]
    pub(crate) fn growth(self) -> Option<&'i Growth> {
        self.0.sharing.get()?.growth()
    }

    /// Whether there is something that the state lacks. The caller holds the state shared, or asks
    /// for a hint.
    pub(crate) fn growth_waits(self) -> bool {
        self.growth().is_some_and(Growth::is_waiting)
    }

    /// The lock of the attributes.
    pub(crate) fn attributes(self) -> &'i Mutex<ATTRIBUTES, AttributeState> {
        &self.0.attributes.lock
    }

    pub(super) fn xattrs(self) -> &'i SequenceCount {
        &self.0.attributes.xattrs
    }

    pub(super) fn attribute_writer(self) -> &'i LastWriter {
        &self.0.attributes.writer
    }

    /// Locks the state exclusively and removes what changes with it from the attribute cache.
    #[inline]
    pub(crate) fn write(self) -> RwLockWriteGuard<'i, INODE, InodeState> {
        let mut guard = self.0.content.lock.write();
        self.locked_exclusive(&mut guard);
        guard
    }

    /// Like `StateLock::write`; several inodes only in ascending number.
    pub(crate) fn write_ordered(self) -> RwLockWriteGuard<'i, INODE, InodeState> {
        let mut guard = self.0.content.lock.write_ordered();
        self.locked_exclusive(&mut guard);
        guard
    }

    /// Like `StateLock::write`, if that needs no waiting.
    pub(crate) fn try_write(self) -> Option<RwLockWriteGuard<'i, INODE, InodeState>> {
        let mut guard = self.0.content.lock.try_write()?;
        self.locked_exclusive(&mut guard);
        Some(guard)
    }

    /// Locks the state exclusively for a caller that changes nothing stat shows, or calls `forget`
    /// when it has.
    pub(crate) fn write_keep_cached(self) -> RwLockWriteGuard<'i, INODE, InodeState> {
        let mut guard = self.0.content.lock.write();
        self.take_over(&mut guard);
        guard
    }

    #[inline]
    fn locked_exclusive(self, state: &mut InodeState) {
        self.take_over(state);
        self.forget();
    }

    /// Moves what holders of the shared lock have added into the state.
    #[inline]
    fn take_over(self, state: &mut InodeState) {
        if let Some(growth) = self.growth()
            && growth.is_waiting()
        {
            growth.move_into(state.file_mut());
        }
    }

    /// The last writer of the data.
    pub(super) fn data_writer(self) -> &'i LastWriter {
        &self.0.data.writer
    }

    /// The creation of the inode, or a later change of its attributes; never set again.
    pub(super) fn creation(self) -> &'i LastWriter {
        &self.0.data.creation
    }

    /// Removes what changes with the state from the cache: the data part, and of a directory, whose
    /// subdirectories are counted there, the plain one. The caller holds the state exclusively.
    #[inline]
    pub(crate) fn forget(self) {
        let level = &self.0.content.level;
        level.reset(|| self.0.home.attribute_cache.remove_data(self.0.id()));
        if self.0.kind == FileKind::Directory {
            self.forget_plain();
        }
    }

    /// Removes all of the attributes from the cache. The caller knows that no task can ask for
    /// them.
    pub(crate) fn forget_all(self) {
        self.forget();
        self.forget_plain();
    }

    fn forget_plain(self) {
        let level = &self.0.attributes.level;
        level.reset(|| self.0.home.attribute_cache.remove_plain(self.0.id()));
    }

    /// The attributes were asked for: the second time, they are cached. The two functions check
    /// that the parts still hold, apart from what changes only under the exclusive lock.
    pub(super) fn asked(
        self,
        _state: &PerCoreReadGuard<'_, INODE, InodeState>,
        (plain, plain_holds): (&PlainPart, impl FnOnce() -> bool),
        (data, data_holds): (&DataPart, impl FnOnce() -> bool),
    ) {
        let cache = &self.0.home.attribute_cache;
        if self.0.attributes.level.is_asked_again() {
            cache.put_plain(self.0.id(), plain, plain_holds);
        }
        if self.0.content.level.is_asked_again() {
            cache.put_data(self.0.id(), data, data_holds);
        }
    }

    /// Like `StateLock::asked`, for a caller that needs the permissions only.
    pub(super) fn asked_who_may(
        self,
        _state: &PerCoreReadGuard<'_, INODE, InodeState>,
        (plain, holds): (&PlainPart, impl FnOnce() -> bool),
    ) {
        if self.0.attributes.level.is_asked_again() {
            self.0
                .home
                .attribute_cache
                .put_plain(self.0.id(), plain, holds);
        }
    }

    /// Something that stat shows of the data was changed without the exclusive lock
    /// ([`StateChange::Made`]), or the caller found it already as it wanted it, just changed by
    /// another task.
    #[inline]
    pub(crate) fn changed_shared(self, change: StateChange) {
        if change == StateChange::Made {
            // SeqCst: orders the change before the load of the level; `SeqLockTable::insert_while`
            // has the other fence. Either this load sees that the attributes may be cached, or
            // `holds` sees the change.
            fence(Ordering::SeqCst);
        }
        if self.0.content.level.is_shown() {
            self.0.home.attribute_cache.remove_data(self.0.id());
        }
    }

    /// The size of the file is about to grow. The caller holds the state shared and the pending
    /// pages exclusively, so no task caches the data part meanwhile.
    #[inline]
    pub(crate) fn size_grows(self) {
        if self.0.content.level.is_shown() {
            self.0.home.attribute_cache.remove_data(self.0.id());
        }
    }

    /// Attributes, or the number of links, were changed. The caller holds their lock, or a
    /// directory shared.
    pub(crate) fn attributes_changed(self) {
        // SeqCst: as in `changed_shared`.
        fence(Ordering::SeqCst);
        if self.0.attributes.level.is_shown() {
            self.0.home.attribute_cache.remove_plain(self.0.id());
        }
    }
}
