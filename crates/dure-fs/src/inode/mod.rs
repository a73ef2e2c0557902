//! Inodes in memory.
//!
//! **Problem.** Many cores use many inodes; an inode that was unlinked while open must live on until its
//! last user leaves, and must not outlive a crash. **Structure.** An [`Inode`] is the one object in
//! memory for an inode number, found through the sharded [`InodeCache`]. [`InodeRef`] is a pin.
//! [`InodePools`] give out free inode numbers per partition, [`Orphans`] the slots that name unlinked
//! inodes on the medium.
//!
//! **Invariants.** There is at most one `Inode` per number. `InodeState::record` equals the granule:
//! both change only together, under the inode's write lock, by an `Op`. An inode whose link count is 0
//! has an orphan slot until it is freed. An inode is claimed for deletion by exactly one caller, after
//! which nobody can pin it. **On a crash** the orphan slots name what must be freed at the next mount.

pub(crate) mod access_time;
mod attributes;
mod cache;
mod delete;
mod lock;
mod orphan;
mod pool;
mod shown;

use dure_sync::atomic::{AtomicBool, AtomicU32, Ordering};
use dure_sync::{Arc, CachePadded, Mutex};
use zerocopy::IntoBytes;

pub(crate) use access_time::{AccessTimeCell, AccessTimes};
pub use attributes::{Attributes, NewInode, SetAttributes, SetTime};
pub(crate) use cache::{InodeCache, Unlinked};
pub(crate) use delete::{Weight, freed};
pub(crate) use lock::{Access, LockedInodes};
pub(crate) use orphan::{FreeSlot, OrphanPlace, Orphans};
pub(crate) use pool::{FreeIno, InodePools};
pub(crate) use shown::{Change as ShownChange, Home, ShownAttributes, StateLock};

use crate::directory::DirectoryState;
use crate::error::{Error, Result};
use crate::file::{FileState, Ranges};
use crate::format::inode::InodeRecord;
use crate::namespace::{FileKind, InodeId};
use crate::node::Node;
use crate::op::Op;
use crate::ranks::WRITEBACK;
use crate::units::Ino;
use crate::volume::{AccessTime, Volume};

/// An inode in memory.
#[derive(Debug)]
pub(crate) struct Inode {
    /// Its number.
    pub(crate) ino: Ino,
    /// Its type, fixed for this life of the number.
    pub(crate) kind: FileKind,
    /// Which life this is.
    pub(crate) generation: u32,
    /// The node that holds it.
    pub(crate) node: Arc<Node>,
    /// The granule within the node.
    pub(crate) index: u8,
    /// The range lock of a file in which tasks have met. Ranges come before the locks below.
    pub(crate) ranges: Ranges,
    /// Held over write-back, truncate and allocation. Apart from what others read meanwhile.
    pub(crate) writeback: CachePadded<Mutex<WRITEBACK, ()>>,
    /// Everything that changes.
    pub(crate) state: StateLock,
    /// Reads since the record was written.
    pub(crate) access_time: AccessTimeCell,
    /// Pins. 0 -> 1 only under the shard's lock, so that the claim below is final. Apart from the rest: who
    /// opens and closes a file writes nothing that its readers read.
    pins: CachePadded<AtomicU32>,
    /// The link count is 0. Written under `state`; read by whoever drops the last pin.
    unlinked: AtomicBool,
    /// Tasks have met at a change of this directory's entries: from then on such changes share it.
    met: AtomicBool,
    /// Claimed for deletion: nobody can pin it any more. Written under the shard's write lock.
    dying: AtomicBool,
    /// CLOCK reference bit.
    referenced: AtomicBool,
}

/// What changes about an inode.
#[derive(Debug)]
pub(crate) struct InodeState {
    /// As logged: equal to the granule.
    pub(crate) record: InodeRecord,
    /// Pages, visible size and pending times of a regular file.
    pub(crate) file: FileState,
    /// Cached fold of a directory.
    pub(crate) directory: DirectoryState,
    /// The slot that names it as an orphan.
    pub(crate) orphan: Option<OrphanPlace>,
    /// Changes of its extended attributes in this mount.
    pub(crate) xattr_changes: u64,
    /// Made without a name and never linked: `link` may give it one.
    pub(crate) linkable: bool,
}

impl Inode {
    /// An inode as its granule says. One pin is taken.
    pub(crate) fn new(home: Arc<Home>, node: Arc<Node>, record: InodeRecord) -> Result<Inode> {
        let ino = Ino(record.ino.get());
        let Some(kind) = FileKind::from_mode(record.mode.get()) else {
            return Err(Error::Corrupt {
                what: format!("mode of inode {ino}"),
                at: node.nid.0,
                want: u64::from(FileKind::File.mode()),
                got: u64::from(record.mode.get()),
            });
        };
        let state = InodeState {
            record,
            file: FileState::new(&record),
            directory: DirectoryState::default(),
            orphan: None,
            xattr_changes: 0,
            linkable: false,
        };
        let generation = record.generation.get();
        let id = InodeId::new(ino, generation, kind);
        Ok(Inode {
            ino,
            kind,
            generation,
            index: ino.index(),
            node,
            ranges: Ranges::default(),
            writeback: CachePadded::new(Mutex::new(())),
            state: StateLock::new(state, id, home),
            access_time: AccessTimeCell::default(),
            pins: CachePadded::new(AtomicU32::new(1)),
            unlinked: AtomicBool::new(record.nlink.get() == 0),
            met: AtomicBool::new(false),
            dying: AtomicBool::new(false),
            referenced: AtomicBool::new(true),
        })
    }

    /// The record with everything that waits in memory merged in (times, not the size): what an
    /// operation starts from when it changes the inode.
    pub(crate) fn draft(&self, state: &InodeState) -> InodeRecord {
        let mut record = state.record;
        state.file.merge_times(&mut record);
        self.access_time.merge(&mut record);
        record
    }

    /// Notes a read. The caller holds the inode.
    pub(crate) fn note_read(&self, volume: &Volume, state: &InodeState) {
        let policy = volume.options.access_time;
        if policy == AccessTime::Never || volume.options.read_only {
            return;
        }
        let (record, times) = (&state.record, state.times());
        if self.access_time.touch(policy, record, times, volume.now()) {
            self.state.changed_shared(ShownChange::Made);
            volume.access_times.note(volume.partition());
        }
    }

    /// Lets `op` write the record.
    pub(crate) fn store(&self, op: &mut Op<'_>, record: &InodeRecord) {
        assert_eq!(
            record.ino.get(),
            self.ino.0,
            "a record goes to its own inode"
        );
        op.edit(&self.node, self.index)
            .copy_from_slice(record.as_bytes());
    }

    /// The operation that wrote `record` (made from a draft) has finished.
    pub(crate) fn stored(&self, state: &mut InodeState, record: InodeRecord) {
        state.record = record;
        state.file.times_merged();
        self.access_time.clear();
    }

    /// Whether somebody else than the caller, who has a pin, uses it. Only a hint.
    pub(crate) fn is_shared(&self) -> bool {
        // Relaxed: the claim looks again, under the shard's lock.
        self.pins.load(Ordering::Relaxed) > 1
    }

    /// Whether changes of this directory's entries share it.
    pub(crate) fn is_met(&self) -> bool {
        // Relaxed: who sees it late has the directory alone once more.
        self.met.load(Ordering::Relaxed)
    }

    /// Somebody who wants this directory alone finds another one in it.
    fn note_met(&self) {
        // Relaxed: as in `is_met`.
        self.met.store(true, Ordering::Relaxed);
    }

    /// The operation was decided on this inode's record, which the caller holds.
    pub(crate) fn depends(&self, op: &mut Op<'_>, locked: &LockedInodes<'_>) {
        if locked.access(self) == Access::Alone {
            // Not kept: this operation may write the record.
            op.depends(&self.node, self.index);
        } else if op.marks_reads() {
            let look = || self.node.last_writer(self.index);
            op.depends_on(self.state.record_writer(locked.get(self), look));
        }
    }

    /// Sets or clears what decides whether the last pin deletes it. The caller holds `state` for writing
    /// and a pin.
    pub(crate) fn set_unlinked(&self, unlinked: bool) {
        // Relaxed: only holders of `state` for writing change it. Nothing is written where nothing changes:
        // others read the line.
        if self.unlinked.load(Ordering::Relaxed) != unlinked {
            // Release: pairs with the Acquire in `InodeRef::drop`; the caller drops its own pin later.
            self.unlinked.store(unlinked, Ordering::Release);
        }
    }
}

impl InodeState {
    /// An inode that still exists.
    pub(crate) fn is_alive(&self) -> bool {
        self.record.nlink.get() > 0
    }

    /// Checks that this is a directory that has not been removed.
    pub(crate) fn check_directory(&self) -> Result<()> {
        if FileKind::from_mode(self.record.mode.get()) != Some(FileKind::Directory) {
            return Err(Error::NotDirectory);
        }
        if self.is_alive() {
            Ok(())
        } else {
            Err(Error::NotFound)
        }
    }
}

/// A use of an inode: as long as one exists, the inode stays, also when it has no name any more. The last
/// one to go deletes an inode without a name.
#[derive(Debug)]
pub struct InodeRef {
    inode: Arc<Inode>,
    /// Beside the reference, so that asking for it does not touch the inode's lines.
    id: InodeId,
}

impl InodeRef {
    /// Takes over a pin that was counted already.
    pub(crate) fn from_pinned(inode: Arc<Inode>) -> InodeRef {
        // Relaxed: only an assertion.
        debug_assert!(inode.pins.load(Ordering::Relaxed) > 0);
        let id = inode.state.id();
        InodeRef { inode, id }
    }

    /// The inode.
    pub(crate) fn inode(&self) -> &Arc<Inode> {
        &self.inode
    }

    /// Which inode it is, without keeping it.
    #[must_use]
    pub fn id(&self) -> InodeId {
        self.id
    }

    /// Lets it go where no operation may begin, because a checkpoint runs. If it was the last use of an
    /// inode without a name, the next mount deletes that.
    pub(crate) fn leave(self) {
        let inode = self.inode.clone();
        // Relaxed: a pin exists, so the count cannot reach 0 meanwhile. The one that `self` drops is not
        // the last now.
        inode.pins.fetch_add(1, Ordering::Relaxed);
        drop(self);
        // AcqRel: as in `InodeRef::drop`.
        let before = inode.pins.fetch_sub(1, Ordering::AcqRel);
        assert!(before > 0, "a pin is dropped once");
        // Acquire: as in `InodeRef::drop`.
        if before == 1
            && inode.unlinked.load(Ordering::Acquire)
            && let Some(volume) = inode.state.volume()
        {
            volume.leave_deletion(&inode);
        }
    }

    /// Its number.
    #[must_use]
    pub fn ino(&self) -> Ino {
        self.id.ino()
    }

    /// Its type.
    #[must_use]
    pub fn kind(&self) -> FileKind {
        self.id.kind()
    }

    /// Which life of the number this is.
    #[must_use]
    pub fn generation(&self) -> u32 {
        self.id.generation()
    }
}

impl Clone for InodeRef {
    fn clone(&self) -> InodeRef {
        // Relaxed: a pin exists, so the count cannot reach 0 meanwhile.
        let before = self.inode.pins.fetch_add(1, Ordering::Relaxed);
        assert!(before > 0 && before < u32::MAX, "a clone needs a pin");
        InodeRef {
            inode: self.inode.clone(),
            id: self.id,
        }
    }
}

impl Drop for InodeRef {
    fn drop(&mut self) {
        // AcqRel: the last one sees `unlinked` as stored by whoever dropped a pin before it.
        let before = self.inode.pins.fetch_sub(1, Ordering::AcqRel);
        assert!(before > 0, "a pin is dropped once");
        // Acquire: pairs with the Release in `set_unlinked` and in the claim.
        if before > 1 || self.inode.dying.load(Ordering::Acquire) {
            return;
        }
        let unlinked = self.inode.unlinked.load(Ordering::Acquire);
        if (unlinked || self.inode.access_time.is_pending())
            && let Some(volume) = self.inode.state.volume()
        {
            if unlinked {
                volume.delete_unpinned(&self.inode);
            } else {
                volume.relieve_inodes(&self.inode);
            }
        }
    }
}
