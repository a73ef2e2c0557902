//! Inodes in memory.
//!
//! **Problem.** Many cores use many inodes; an inode that was unlinked while open must live on
//! until its last user leaves, and must not outlive a crash. **Structure.** An [`Inode`] is the one
//! object in memory for an inode number, found through the sharded [`InodeCache`]. [`InodeRef`] is
//! a pin (`pin.rs`). [`InodePools`] give out free inode numbers per partition, [`Orphans`] the
//! slots that name unlinked inodes on the medium.
//!
//! **Invariants.** There is at most one `Inode` per number. `InodeState::record` equals the
//! granule, but for attributes that were changed beside others ([`beside`]): both change only
//! together, by an `Op`, under the inode's write lock. An inode whose link count is 0 has an orphan
//! slot until it is freed. An inode is claimed for deletion by exactly one caller, after which
//! nobody can pin it. **On a crash** the orphan slots name what must be freed at the next mount.

pub(crate) mod access_time;
mod attributes;
mod beside;
mod cache;
mod delete;
mod lock;
mod orphan;
mod parts;
mod pin;
mod pool;
mod shown;

use dure_store::error::{Error, Result};
use dure_store::format::inode::InodeRecord;
use dure_store::format::name::FileKind;
use dure_store::node::NodeRef;
use dure_store::op::Op;
use dure_store::units::Ino;
use dure_sync::atomic::Ordering;
use dure_sync::{Arc, CachePadded, Mutex};
use zerocopy::IntoBytes;

pub(crate) use access_time::{AccessTimeCell, AccessTimes};
pub use attributes::{Attributes, NewInode, Permissions, SetAttributes, SetTime};
pub(crate) use attributes::{SET_GROUP_ID, asked};
pub(crate) use beside::{ForAttributes, Part as ChangedPart, XattrPlace};
pub(crate) use cache::{InodeCache, Unlinked};
pub(crate) use delete::{Weight, freed};
pub(crate) use lock::{Access, LockedInodes};
pub(crate) use orphan::{FreeSlot, OrphanPlace, Orphans};
pub(crate) use parts::ShownAttributes;
pub use pin::InodeRef;
pub(crate) use pin::LocalRef;
use pin::Pins;
pub(crate) use pool::{FreeIno, InodePools};
pub(crate) use shown::{Change as ShownChange, Home, StateLock};

use crate::directory::DirectoryState;
use crate::file::{FileState, Outline, Ranges};
use crate::namespace::InodeId;
use crate::ranks::WRITEBACK;
use crate::volume::{AccessTime, Volume};

/// Bytes of an inode in memory, with its counts and its place in the cache.
pub(crate) const INODE_BYTES: usize = size_of::<Inode>() / 8 * 9 + 128;

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
    pub(crate) node: NodeRef,
    /// The granule within the node.
    pub(crate) index: u8,
    /// The range lock of a file in which tasks have met. Ranges come before the locks below.
    pub(crate) ranges: Ranges,
    /// Size, data and holes of a file, for seek.
    pub(crate) outline: Outline,
    /// Everything that changes.
    pub(crate) state: StateLock,
    /// Reads since the record was written.
    pub(crate) access_time: AccessTimeCell,
    /// Apart from the rest: who opens and closes a file writes nothing that its readers read.
    pins: CachePadded<Pins>,
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
    pub(crate) fn new(home: Arc<Home>, node: NodeRef, record: InodeRecord) -> Result<Inode> {
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
            outline: Outline::new(record.size.get()),
            state: StateLock::new(state, id, home),
            access_time: AccessTimeCell::default(),
            pins: CachePadded::new(Pins::one(id, record.nlink.get() == 0)),
        })
    }

    /// Held over write-back, truncate and allocation.
    pub(crate) fn writeback(&self) -> &Mutex<WRITEBACK, ()> {
        self.state.writeback()
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
        let policy = volume.options.access_time_of(self.kind);
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
        op.replace(&self.node, self.index, record.as_bytes());
    }

    /// The operation that wrote `record` (made from a draft) has finished.
    pub(crate) fn stored(&self, state: &mut InodeState, record: InodeRecord) {
        state.record = record;
        state.file.times_merged();
        self.access_time.clear();
    }

    /// Whether changes of this directory's entries share it.
    pub(crate) fn is_met(&self) -> bool {
        // Relaxed: who sees it late has the directory alone once more.
        self.pins.met.load(Ordering::Relaxed)
    }

    /// Somebody who wants this inode alone finds another one in it, or has come after others often
    /// enough.
    pub(crate) fn note_met(&self) {
        // Others look at the line, and nobody asks whether tasks have met in a file.
        if self.kind == FileKind::Directory {
            // Relaxed: as in `is_met`.
            self.pins.met.store(true, Ordering::Relaxed);
        }
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
