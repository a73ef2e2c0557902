//! What stat shows, kept where readers find it without a write.
//!
//! **Problem.** A stat that takes the inode's lock, or only a reference, writes a line that all stats of
//! the inode share. **Structure.** [`StateLock`] is the lock of an inode's state; [`ShownAttributes`] a
//! table of attributes, by number and life, that is read without a lock. Attributes get there when they
//! are asked for a second time without a change in between.
//!
//! **Invariants.** What is in the table is what the locked way would give. It is put there by readers
//! of the state, so never beside a writer, and only while the inode is pinned; it is taken out by
//! whoever takes the state for writing, before he changes anything, and before the inode is evicted. Who
//! changes what stat shows under the *shared* lock (times of an access, or of a write to a file that tasks
//! share; attributes, see [`super::beside`]) calls [`StateLock::changed_shared`] after the change. **On a crash** the table is gone.

use dure_sync::atomic::{AtomicU8, AtomicU64, Ordering, fence};
use dure_sync::{
    Arc, OnceLock, RwLockWriteGuard, SpreadLock, SpreadReadGuard, VersionedTable, Weak, Words,
};
use zerocopy::little_endian::{I64, U32};

use super::beside::Changes;
use super::{Attributes, InodeState};
use crate::format::inode::Time;
use crate::namespace::{FileKind, InodeId};
use crate::ranks::INODE;
use crate::units::{Ino, Mark};
use crate::volume::{AttributeRule, Volume};

const WORDS: usize = 15;
const WAYS: usize = 4;
/// Bytes of one record in memory.
const RECORD_BYTES: u64 = 128;

/// Attributes of inodes, found without a lock.
#[derive(Debug)]
pub(crate) struct ShownAttributes(VersionedTable<WORDS, WAYS>);

impl ShownAttributes {
    /// A table that takes at most about `bytes_max` bytes.
    pub(crate) fn new(bytes_max: u64) -> ShownAttributes {
        let records = crate::units::to_usize(bytes_max / RECORD_BYTES);
        ShownAttributes(VersionedTable::new(records.max(1)))
    }

    /// The attributes of this life of the inode, if they are known here.
    pub(crate) fn get(&self, id: InodeId) -> Option<Attributes> {
        self.0.find(id.place(), |words| decode(words, id))
    }

    fn put(&self, id: InodeId, attributes: &Attributes, holds: impl FnOnce() -> bool) {
        self.0.insert_while(&encode(id, attributes), holds);
    }

    fn remove(&self, id: InodeId) {
        self.0.remove(id.place(), |words| is_of(words, id));
    }
}

fn pair(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

fn halves(word: u64) -> (u32, u32) {
    let low = u32::try_from(word & u64::from(u32::MAX)).expect("32 bits");
    (u32::try_from(word >> 32).expect("32 bits"), low)
}

fn is_of(words: Words<'_, WORDS>, id: InodeId) -> bool {
    words.get(1) == id.ino().0 && words.get(2) == id.life()
}

fn encode(id: InodeId, attributes: &Attributes) -> [u64; WORDS] {
    let secs = |time: Time| u64::from_le_bytes(time.secs.get().to_le_bytes());
    let nanos = |time: Time| time.nanos.get();
    let Attributes {
        atime,
        mtime,
        ctime,
        btime,
        ..
    } = *attributes;
    [
        id.place(),
        id.ino().0,
        id.life(),
        pair(attributes.nlink, attributes.uid),
        pair(attributes.gid, nanos(atime)),
        pair(nanos(mtime), nanos(ctime)),
        pair(nanos(btime), u32::from(attributes.extended)),
        attributes.rdev,
        attributes.size,
        attributes.blocks,
        secs(atime),
        secs(mtime),
        secs(ctime),
        secs(btime),
        u64::from(attributes.mode),
    ]
}

fn decode(words: Words<'_, WORDS>, id: InodeId) -> Option<Attributes> {
    if !is_of(words, id) {
        return None;
    }
    let time = |secs: u64, nanos: u32| Time {
        secs: I64::new(i64::from_le_bytes(secs.to_le_bytes())),
        nanos: U32::new(nanos),
    };
    let mode = u32::try_from(words.get(14)).ok()?;
    let (nlink, uid) = halves(words.get(3));
    let (gid, atime_nanos) = halves(words.get(4));
    let (mtime_nanos, ctime_nanos) = halves(words.get(5));
    let (btime_nanos, extended) = halves(words.get(6));
    Some(Attributes {
        ino: Ino(words.get(1)),
        generation: id.generation(),
        kind: FileKind::from_mode(mode)?,
        mode,
        nlink,
        uid,
        gid,
        rdev: words.get(7),
        size: words.get(8),
        blocks: words.get(9),
        atime: time(words.get(10), atime_nanos),
        mtime: time(words.get(11), mtime_nanos),
        ctime: time(words.get(12), ctime_nanos),
        btime: time(words.get(13), btime_nanos),
        extended: extended != 0,
    })
}

/// What every inode of a volume refers to; one for each core, since inodes come and go on every core.
#[derive(Debug)]
pub(crate) struct Home {
    /// For the deletion at the last unpin.
    pub(super) volume: Weak<Volume>,
    pub(super) shown: Arc<ShownAttributes>,
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
    /// How far the attributes are on their way into the table. Raised under `lock` shared, reset under it
    /// exclusively, which also orders it: hence Relaxed, except in `changed_shared`.
    level: AtomicU8,
    /// Last writer of the inode's record, or [`NOT_LOOKED`]. Set under `lock` shared, under which it does not
    /// change, reset under it exclusively, which also orders it: hence Relaxed.
    record_writer: AtomicU64,
    /// Attributes that were changed by who shares the state, from the moment somebody wants to: see
    /// [`super::beside`].
    changes: OnceLock<Box<Changes>>,
    id: InodeId,
    home: Arc<Home>,
}

impl StateLock {
    pub(super) fn new(state: InodeState, id: InodeId, home: Arc<Home>) -> StateLock {
        StateLock {
            lock: SpreadLock::new(state),
            level: AtomicU8::new(UNKNOWN),
            record_writer: AtomicU64::new(NOT_LOOKED),
            changes: OnceLock::new(),
            id,
            home,
        }
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
        if self.changes().is_some_and(Changes::is_waiting) {
            drop(self.try_write()?);
        }
        self.lock.try_read()
    }

    /// Whether readers have met in the lock.
    pub(super) fn readers_met(&self) -> bool {
        self.lock.readers_met()
    }

    /// Attributes changed by who shares the state. The caller shares it, or asks as a hint.
    #[inline]
    pub(super) fn changes(&self) -> Option<&Changes> {
        self.changes.get().map(|changes| &**changes)
    }

    /// From now on attributes are changed by who shares the state.
    #[cold]
    pub(super) fn make_changes(&self, rule: AttributeRule) {
        self.changes.get_or_init(|| Box::new(Changes::new(rule)));
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

    #[inline]
    fn taken_alone(&self, state: &mut InodeState) {
        if let Some(changes) = self.changes() {
            changes.move_into(state);
        }
        self.forget();
        if self.record_writer.load(Ordering::Relaxed) != NOT_LOOKED {
            self.record_writer.store(NOT_LOOKED, Ordering::Relaxed);
        }
    }

    /// The last writer of the inode's record, as `look` finds it, without a write once somebody has looked. The
    /// caller shares the inode; it changes only with the record, by who has it alone, or with attributes of
    /// a file that are changed beside others: those have their own marks (`Attributed::marks`).
    pub(crate) fn record_writer(&self, _held: &InodeState, look: impl FnOnce() -> Mark) -> Mark {
        let known = self.record_writer.load(Ordering::Relaxed);
        if known != NOT_LOOKED {
            return Mark::from_u64(known);
        }
        let mark = look();
        self.record_writer.store(mark.as_u64(), Ordering::Relaxed);
        mark
    }

    /// Takes the attributes out of the table. The caller holds the state for writing, or knows that nobody
    /// can ask for them.
    #[inline]
    pub(super) fn forget(&self) {
        let level = self.level.load(Ordering::Relaxed);
        if level != UNKNOWN {
            self.level.store(UNKNOWN, Ordering::Relaxed);
            if level == SHOWN {
                self.home.shown.remove(self.id);
            }
        }
    }

    /// The attributes were asked for: the second time they go into the table. `holds` looks whether they
    /// are still so, but for what changes under the exclusive lock.
    pub(super) fn asked(
        &self,
        _state: &SpreadReadGuard<'_, INODE, InodeState>,
        attributes: &Attributes,
        holds: impl Fn() -> bool,
    ) {
        match self.level.load(Ordering::Relaxed) {
            UNKNOWN => {
                self.level.fetch_max(ASKED, Ordering::Relaxed);
                return;
            }
            // Who comes by the inode itself, as through a symbolic link, asks again and again.
            SHOWN if self.home.shown.get(self.id).is_some() => return,
            SHOWN => {}
            _ => {
                self.level.fetch_max(SHOWN, Ordering::Relaxed);
            }
        }
        self.home.shown.put(self.id, attributes, holds);
    }

    /// Something that stat shows was changed without the exclusive lock, or was found as it is to be a moment
    /// after somebody else changed it.
    #[inline]
    pub(crate) fn changed_shared(&self, change: Change) {
        if change == Change::Made {
            // SeqCst: orders the change before the look; `VersionedTable::insert_while` has the other one.
            // Either this sees that the attributes may be in the table, or `holds` sees the change.
            fence(Ordering::SeqCst);
        }
        if self.level.load(Ordering::Relaxed) == SHOWN {
            self.home.shown.remove(self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_come_back_as_they_were_put_in() {
        let time = |secs: i64, nanos: u32| Time {
            secs: secs.into(),
            nanos: nanos.into(),
        };
        let id = InodeId::new(Ino(77), u32::MAX - 3, FileKind::Symlink);
        let attributes = Attributes {
            ino: id.ino(),
            generation: id.generation(),
            kind: FileKind::Symlink,
            mode: 0o120_777,
            nlink: 3,
            uid: u32::MAX,
            gid: 5,
            rdev: u64::MAX,
            size: 1 << 50,
            blocks: 8,
            atime: time(-7, 1),
            mtime: time(i64::MAX, 999_999_999),
            ctime: time(1, 2),
            btime: time(0, 3),
            extended: true,
        };
        let table = ShownAttributes::new(4096);
        assert_eq!(table.get(id), None);
        table.put(id, &attributes, || true);
        assert_eq!(table.get(id), Some(attributes));
        let other = InodeId::new(id.ino(), 1, FileKind::Symlink);
        assert_eq!(table.get(other), None, "another life");
        table.remove(id);
        assert_eq!(table.get(id), None);
    }
}
