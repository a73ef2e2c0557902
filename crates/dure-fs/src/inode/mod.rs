//! Inodes in memory.
//!
//! **Problem.** Many cores use many inodes; an inode that was unlinked while open must live on
//! until its last user leaves, and must not outlive a crash. **Structure.** [`Inodes`] owns them. An
//! [`Inode`] is the one object in memory for an inode number, found through the sharded [`InodeCache`].
//! [`InodeRef`] is a pin (`pin.rs`). [`InodePools`] give out free inode numbers per partition,
//! [`Orphans`] the slots that name unlinked inodes on the medium. What takes their content apart is
//! above them, and reached through [`Above`].
//!
//! **Invariants.** There is at most one `Inode` per number. Attributes and data are in their
//! granules only. Data changes under the exclusive inode lock, so it stays as it is for every task
//! that holds the lock, but for times and slots that overwrites without a page cache change
//! ([`crate::file`], `direct`); attributes have a lock of their own ([`attribute_lock`]). An
//! operation that stores one of the two depends on the last writer of the other. An inode whose
//! link count is 0 has an orphan slot until it is freed. Exactly one caller claims an inode for
//! deletion; from then on no task can pin it. **On a crash** the orphan slots name what must be
//! freed at the next mount.

mod above;
mod access_time;
mod attempt;
mod attribute_cache;
mod attribute_lock;
mod attributes;
mod cache;
mod id;
mod last_listed;
mod last_writer;
mod lock;
mod make;
mod orphan;
mod orphan_place;
mod pin;
mod pool;
mod state;
mod state_change;
mod state_lock;
pub(crate) mod times;
mod weight;
mod writeback_lock;

use dure_store::Store;
use dure_store::alloc::AllocPolicy;
use dure_store::error::{Error, Result};
use dure_store::format::inode::{AttributesRecord, DataHead, InodeData, InodeRecord, Time};
use dure_store::format::name::FileKind;
use dure_store::format::quota::Usage;
use dure_store::node::NodeRef;
use dure_store::op::Op;
use dure_store::units::{Ino, Mark};
use dure_sync::atomic::Ordering;
use dure_sync::range_lock::{Policy, WordBudget};
use dure_sync::{Arc, Counter, OnceLock};
use zerocopy::IntoBytes;

pub(crate) use above::Above;
pub(crate) use access_time::AccessTimes;
pub(crate) use attempt::{Attempt, Scope, attempts};
pub(crate) use attribute_cache::AttributeCache;
pub(crate) use attribute_lock::AttributeState;
pub use attributes::{Attributes, NewInode, Permissions};
pub(crate) use attributes::{MODE_BITS, SET_GROUP_ID, asked};
pub(crate) use cache::{InodeCache, Unlinked};
pub use id::InodeId;
pub(crate) use last_listed::LastListed;
pub(crate) use lock::{Access, LockedInodes};
pub(crate) use make::{Linkable, blank_record, store_new};
pub(crate) use orphan::{FreeSlot, Orphans};
pub(crate) use orphan_place::OrphanPlace;
pub use pin::InodeRef;
pub(crate) use pin::LocalRef;
use pin::Pins;
pub(crate) use pool::{FreeIno, InodePools};
pub(crate) use state::InodeState;
pub(crate) use state_change::StateChange;
pub(crate) use state_lock::Home;
use state_lock::{ForAttributes, ForContent, ForData};
use times::latest;
pub(crate) use weight::Weight;
pub(crate) use writeback_lock::HeldWriteback;

use crate::file::{FileState, Sharing, VisibleSize};
use crate::quota::{Charged, FileCharge, Owner, Quotas, QuotasIfOn};
use crate::volume::AccessTime;

/// Bytes of an inode in memory, with the line of its reference counts and its place in the cache (a
/// key and a pointer in a tree whose nodes are half full at least). Pages, and what a file has that
/// tasks share or seek in, come to that.
pub(crate) const INODE_BYTES: usize = size_of::<Inode>() + 64 + 2 * 16;
const _: () = assert!(INODE_BYTES <= 640, "a million inodes are to fit 640 MB");

/// Maximum number of names of one inode.
pub(crate) const LINKS_MAX: u32 = 1 << 31;

/// What the mount options say about inodes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InodeOptions {
    /// Where new inodes get their numbers.
    pub(crate) alloc: AllocPolicy,
    pub(crate) read_only: bool,
    /// When reads of a file or symbolic link change its access time, and those of a directory.
    pub(crate) access_times: (AccessTime, AccessTime),
    /// The lock of a file's content.
    pub(crate) file_lock: Policy,
}

/// The inodes of a volume: those in memory, numbers for new ones, and the slots of those without a
/// name.
#[derive(Debug)]
pub(crate) struct Inodes {
    pub(crate) store: Arc<Store>,
    pub(crate) options: InodeOptions,
    pub(crate) cache: InodeCache,
    /// Attributes that are read without a lock.
    pub(crate) attribute_cache: Arc<AttributeCache>,
    pub(crate) pools: InodePools,
    pub(crate) orphans: Orphans,
    pub(crate) access_times: AccessTimes,
    /// Directories whose inodes will be asked for soon.
    pub(crate) last_listed: LastListed,
    /// The words of all files' range locks.
    pub(crate) range_words: Arc<WordBudget>,
    pub(crate) counters: InodeCounters,
    /// What users and groups have.
    pub(crate) quotas: QuotasIfOn,
}

/// How much memory inodes may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InodeShares {
    /// Per-core parts of the volume.
    pub(crate) cores: usize,
    /// Inodes in memory.
    pub(crate) inodes: usize,
    /// Bytes of the attribute cache.
    pub(crate) table_bytes: u64,
    /// Bytes of the words of range locks.
    pub(crate) range_bytes: u64,
}

impl Inodes {
    /// Those of a store that was just mounted; none is in memory.
    pub(crate) fn new(store: Arc<Store>, options: InodeOptions, shares: InodeShares) -> Inodes {
        let InodeShares { cores, .. } = shares;
        let counters = InodeCounters::default();
        counters.used.add(store.inodes_found);
        Inodes {
            store,
            options,
            cache: InodeCache::new(shares.inodes, cores),
            attribute_cache: Arc::new(AttributeCache::new(shares.table_bytes)),
            pools: InodePools::new(cores, options.alloc),
            orphans: Orphans::new(cores),
            access_times: AccessTimes::new(cores),
            last_listed: LastListed::new(cores),
            range_words: Arc::new(WordBudget::of_bytes(shares.range_bytes)),
            counters,
            quotas: QuotasIfOn::default(),
        }
    }

    /// The quotas, if they are on.
    #[inline]
    pub(crate) fn quotas(&self) -> Option<&Quotas> {
        self.quotas.get()
    }

    /// Charges the owner of a new inode.
    ///
    /// # Errors
    /// `Quota`.
    pub(crate) fn charge_new(&self, attributes: &AttributesRecord) -> Result<Charged<'_>> {
        let one = Usage {
            blocks: 0,
            inodes: 1,
        };
        Charged::charge(self.quotas(), || *attributes, one)
    }

    /// Counts a new inode for its owner, whatever the limits are.
    pub(crate) fn count_new(&self, attributes: &AttributesRecord) -> Charged<'_> {
        let one = Usage {
            blocks: 0,
            inodes: 1,
        };
        Charged::count(self.quotas(), Owner::of(attributes), one)
    }
}

/// What is counted about inodes.
#[derive(Debug, Default)]
pub(crate) struct InodeCounters {
    /// Inodes in use: what the mount found, and what operations have made and freed since.
    pub(crate) used: Counter,
    /// Deletions of unlinked inodes that failed and are left to the next mount.
    pub(crate) deletions_left: Counter,
}

/// An inode in memory.
#[derive(Debug)]
pub(crate) struct Inode {
    /// Its number.
    pub(crate) ino: Ino,
    /// Its type, fixed for this generation.
    pub(crate) kind: FileKind,
    /// Generation of the number: tells its reuses apart.
    pub(crate) generation: u32,
    /// The node that holds it.
    pub(crate) node: NodeRef,
    /// The granule of its attributes within the node.
    pub(crate) index: u8,
    /// When it was made, in ns since 1970; 0: its attributes say.
    birth: u64,
    home: Arc<Home>,
    /// What a file has once tasks share it, or seek in it.
    pub(crate) sharing: OnceLock<Box<Sharing>>,
    // Fields that change lie on cache lines of their own, grouped by their writers and readers.
    content: ForContent,
    attributes: ForAttributes,
    data: ForData,
    /// Bytes of a file, as users see them.
    size: VisibleSize,
    pins: Pins,
}

impl Inode {
    /// Builds an inode from its granule, with one pin taken.
    pub(crate) fn new(home: Arc<Home>, node: NodeRef, record: &InodeRecord) -> Result<Inode> {
        let mode = record.attributes.mode.get();
        match FileKind::from_mode(mode) {
            Some(kind) => Ok(Inode::made(home, node, kind, record)),
            None => Err(Error::Corrupt {
                what: format!("mode of inode {}", record.number()),
                at: node.nid.0,
                want: u64::from(FileKind::File.mode()),
                got: u64::from(mode),
            }),
        }
    }

    /// Like `Inode::new`, where the type is known.
    #[inline]
    pub(crate) fn made(
        home: Arc<Home>,
        node: NodeRef,
        kind: FileKind,
        record: &InodeRecord,
    ) -> Inode {
        let InodeRecord { attributes, data } = record;
        let ino = attributes.number();
        let generation = attributes.generation.get();
        let unlinked = attributes.nlink.get() == 0;
        let mut state = InodeState::new(kind, data, unlinked && kind == FileKind::Directory);
        if home.counts()
            && let Some(file) = state.if_file_mut()
        {
            let charge = FileCharge::new(attributes, data.blocks.get());
            file.charge = Some(Box::new(charge));
        }
        Inode {
            ino,
            kind,
            generation,
            index: ino.index(),
            node,
            birth: times::nanos(attributes.btime),
            content: ForContent::new(&home, state),
            home,
            sharing: OnceLock::new(),
            attributes: ForAttributes::default(),
            data: ForData::new(data),
            size: VisibleSize::new(data.size.get()),
            pins: Pins::one(unlinked),
        }
    }

    /// The data, as logged. The caller holds the state.
    pub(crate) fn data(&self) -> InodeData {
        let stored = self.node.data(self.ino);
        stored.unwrap_or_else(|| InodeData::of_birth(self.ino, self.birth()))
    }

    /// Its head. The caller holds the state.
    #[inline]
    pub(crate) fn data_head(&self) -> DataHead {
        let stored = self.node.data_head(self.ino);
        stored.unwrap_or_else(|| DataHead::of_birth(self.ino, self.birth()))
    }

    /// When it was made: the times of its data until any is stored. Not from its attributes, where
    /// readers of the data would contend with tasks that change them.
    fn birth(&self) -> Time {
        match self.birth {
            0 => self.attributes().btime,
            birth => times::time(birth),
        }
    }

    /// The data with the times that are pending in memory (not the size): where an operation that
    /// changes it starts from.
    pub(crate) fn data_draft(&self, state: &InodeState) -> InodeData {
        let mut data = self.data();
        if let Some(written) = state.if_file().and_then(FileState::written) {
            (data.mtime, data.ctime) = (written, written);
        }
        self.access_time().merge(&mut data);
        data
    }

    /// Notes a read. The caller holds the inode lock, shared or exclusively.
    pub(crate) fn note_read(&self, inodes: &Inodes, state: &InodeState) {
        let (files, directories) = inodes.options.access_times;
        let policy = match self.kind {
            FileKind::Directory => directories,
            _ => files,
        };
        if policy == AccessTime::Never || inodes.options.read_only {
            return;
        }
        let changed = match state.if_directory() {
            // What its buckets were stamped with counts as well.
            Some(_) => {
                let (mtime, ctime) = state.data_times(&self.data_head());
                Some(latest(mtime, ctime))
            }
            None => state.if_file().and_then(FileState::written),
        };
        if self
            .access_time()
            .touch(policy, changed, inodes.store.now())
        {
            self.state().changed_shared(StateChange::Made);
            inodes.access_times.note(inodes.store.partition());
        }
    }

    /// Lets `op` write the attributes. It depends on the last writer of the data, as an operation
    /// on data depends on that of the attributes: changes of an inode survive in their order.
    ///
    /// *Crash scenarios,* each with two cores of which one loses its log (tests in
    /// `volume/tests/granules.rs`): a file is written back and renamed over another, and the name
    /// survives without the content; data is stored in a new file, and survives in a free inode;
    /// the content of a file without a name is freed, and the name survives; a file loses its
    /// set-id bits and gets new content, which survives with these bits.
    pub(crate) fn store_attributes(&self, op: &mut Op<'_>, attributes: &AttributesRecord) {
        assert_eq!(
            attributes.number(),
            self.ino,
            "attributes go to their own inode"
        );
        if op.marks_reads() {
            op.depends_on(self.data_writer());
            self.overwrite_marks().for_each(|mark| op.depends_on(mark));
        }
        op.replace(&self.node, self.index, attributes.as_bytes());
    }

    /// Lets `op` write the data. It depends on the last writer of the attributes, as above, and on
    /// overwrites that changed slots only.
    pub(crate) fn store_data(&self, op: &mut Op<'_>, data: &InodeData) {
        self.depends(op);
        self.replace_data(op, data);
    }

    /// Lets `op` write the data, to which it adds blocks without content only, and no size. Whether
    /// these or a change of the attributes survives shows nothing of the other, so neither follows
    /// the other, and their tasks share no line.
    ///
    /// *Crash scenario* without what this does depend on: another core's log, which has the
    /// creation, is lost, and a free inode has blocks.
    pub(crate) fn store_unwritten(&self, op: &mut Op<'_>, data: &InodeData) {
        if op.marks_reads() {
            let look = || self.node.last_writer(self.index);
            op.depends_on(self.state().creation().get(look));
        }
        self.replace_data(op, data);
    }

    fn replace_data(&self, op: &mut Op<'_>, data: &InodeData) {
        assert_eq!(data.number(), self.ino, "data goes to its own inode");
        if op.marks_reads() {
            self.overwrite_marks().for_each(|mark| op.depends_on(mark));
        }
        op.replace(&self.node, self.ino.data_index(), data.as_bytes());
    }

    /// The operation that wrote `data`, made from a draft, has finished. The caller holds the state
    /// exclusively, as for [`Inode::data_granule_stored`].
    pub(crate) fn data_stored(&self, state: &mut InodeState, data: &InodeData, mark: Mark) {
        self.data_granule_stored(mark);
        self.unwritten_stored(state, data, mark);
    }

    /// Like [`Inode::data_stored`], after [`Inode::store_unwritten`].
    pub(crate) fn unwritten_stored(&self, state: &mut InodeState, data: &InodeData, mark: Mark) {
        state.note_mark(mark);
        state.data_stored(data);
        self.access_time().data_stored(data);
        self.blocks_stored(state, data.blocks.get());
    }

    /// The data says by now that the inode has so many blocks. The caller holds the state exclusively.
    pub(crate) fn blocks_stored(&self, state: &mut InodeState, blocks: u64) {
        if let Some(quotas) = self.home.quotas()
            && let Some(charge) = state.charge_mut()
        {
            quotas.stored(charge, blocks);
        }
    }

    /// An operation that wrote the granule of the data has finished. Every such operation on an
    /// inode that other tasks know ends with this, or another one would not depend on it.
    pub(crate) fn data_granule_stored(&self, mark: Mark) {
        self.state().data_writer().set(mark);
    }

    /// Whether changes of this directory's entries take the inode lock shared.
    pub(crate) fn is_contended(&self) -> bool {
        // Relaxed: a task that sees it late takes the directory exclusively once more.
        self.pins.contended.load(Ordering::Relaxed)
    }

    /// The caller wants the exclusive inode lock and finds it held, or has come after other tasks
    /// often enough.
    pub(crate) fn note_contended(&self) {
        // Other tasks read the line, and only directories are asked whether they are contended.
        if self.kind == FileKind::Directory {
            // Relaxed: as in `is_contended`.
            self.pins.contended.store(true, Ordering::Relaxed);
        }
    }

    /// The last writer of the inode's data, of those that were over when a holder of the state
    /// last held it.
    pub(crate) fn data_writer(&self) -> Mark {
        let look = || self.node.last_writer(self.ino.data_index());
        self.state().data_writer().get(look)
    }

    /// The operation was decided on the attributes of this inode, or follows them: if their last
    /// writer is lost, so is this. The caller holds the state, or the rename lock if it decided on
    /// the parent.
    pub(crate) fn depends(&self, op: &mut Op<'_>) {
        if op.marks_reads() {
            op.depends_on(self.attribute_writer());
        }
    }

    /// Checks that this is a directory that has not been removed. The caller holds the state.
    pub(crate) fn check_directory(&self, state: &InodeState) -> Result<()> {
        if self.kind != FileKind::Directory {
            return Err(Error::NotDirectory);
        }
        match state.gone {
            false => Ok(()),
            true => Err(Error::NotFound),
        }
    }
}
