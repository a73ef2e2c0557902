//! Services that every module uses: time, place, room, durability, and the fail-stop.

use dure_block::BlockBuf;
use dure_journal::JournalId;
use dure_journal::{BeginError, CommitError, Handle, Journal, StopCause, StopReason};
use dure_sync::CoreId;

use super::{OpKind, Store};
use crate::error::{Error, Result};
use crate::format::inode::Time;
use crate::format::nat::NatEntry;
use crate::format::node::NodeImage;
use crate::node::{Node, NodeRef, NodeRole};
use crate::options::{Absorb, RecordPolicy};
use crate::packs::Table;
use crate::partition::partition_of;
use crate::placement::{Target, Writing};
use crate::settle::Settler;
use crate::units::{BLOCK_BYTES, Ino, Mark, Nid};

/// Checkpoints a caller tries before it reports a full log.
const LOG_ROUNDS: u32 = 16;

/// How a full log gets room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogRoom {
    /// A checkpoint empties it.
    Checkpoint,
    /// One more segment: for the checkpoint itself, which cannot wait for another.
    Segment,
}

impl Store {
    /// The journal of a writable mount.
    pub fn journal(&self) -> &Journal<Settler> {
        self.journal
            .get()
            .expect("only operations ask for it, and they were let in as writable")
    }

    /// The journal of a mount; `None` where the mount is read-only.
    pub fn journal_if_any(&self) -> Option<&Journal<Settler>> {
        self.journal.get()
    }

    /// Starts the journal of a writable mount.
    pub(super) fn set_journal(&self, journal: Journal<Settler>) {
        assert!(
            self.journal.set(journal).is_ok(),
            "a volume is mounted once"
        );
    }

    /// The partition and journal that this task works for: see [`crate::serve`].
    pub fn partition(&self) -> CoreId {
        let journals = crate::units::to_usize(u64::from(self.layout.journals));
        partition_of(journals, self.options.core.as_deref())
    }

    /// The partition in which this task allocates.
    pub fn alloc_partition(&self) -> CoreId {
        self.options.alloc.partition(self.partition())
    }

    /// Whether the first superblock is damaged: the volume was found by the last.
    pub fn first_superblock_is_damaged(&self) -> bool {
        crate::headers::first_superblock_is_damaged(&self.region)
    }

    /// Whether what is not in memory has to be waited for.
    pub fn reads_wait(&self) -> bool {
        !self.region.is_in_memory()
    }

    /// Whether to follow a pointer to this node means to wait for the medium.
    pub fn node_waits(&self, nid: Nid) -> bool {
        self.reads_wait() && self.nodes.get(nid).is_none()
    }

    /// How often the volume was mounted for writing, this time included.
    pub fn mounts(&self) -> u32 {
        self.lock_checkpoint().header.mounts.get()
    }

    /// The numbers of the NAT pairs that were ever written: each has nodes that are there when the
    /// mount is complete.
    pub fn nat_pairs(&self) -> Vec<u64> {
        self.nat.packs.written(Table::Nat).collect()
    }

    /// The inode nodes of a NAT pair, as of the last checkpoint.
    ///
    /// # Errors
    /// `Corrupt`, `Block`: of a pair that cannot be read.
    pub fn inode_nodes(&self, pair: u64) -> Result<Vec<Nid>> {
        self.nat.inode_nodes_at_rest(pair)
    }

    /// The coarse wall clock.
    pub fn now(&self) -> Time {
        let now = dure_sync::clock::wall_coarse();
        Time {
            secs: now.secs.into(),
            nanos: now.nanos.into(),
        }
    }

    /// Whether changes are possible.
    ///
    /// # Errors
    /// `ReadOnly`, `Stopped`.
    pub fn check_writable(&self) -> Result<()> {
        self.check_running()?;
        if self.is_closed() {
            return Err(Error::ReadOnly);
        }
        Ok(())
    }

    /// Whether the volume has not stopped.
    ///
    /// # Errors
    /// `Stopped`.
    pub fn check_running(&self) -> Result<()> {
        match self.stopped.get() {
            None => Ok(()),
            Some(reason) => Err(Error::Stopped {
                reason: reason.clone(),
            }),
        }
    }

    /// Turns the volume read-only for good. The first reason is kept.
    pub(crate) fn stop(&self, error: &Error) {
        let reason = format!("{error}; the volume is read-only until it is mounted again");
        if self.stopped.set(reason).is_ok()
            && let Some(journal) = self.journal.get()
        {
            journal.stop(StopReason {
                cause: StopCause::FileSystem,
                journal: None,
                at: None,
                detail: error.to_string(),
            });
        }
    }

    /// Writes `bytes`, one page per target, and makes them ready to be named by an operation.
    ///
    /// # Errors
    /// The last block's error when none takes a page; as [`Store::flush_placed`].
    pub fn place_pages(&self, core: CoreId, targets: &mut [Target], bytes: &[u8]) -> Result<()> {
        self.placement.write(core, targets, bytes)?;
        self.make_ready(targets)
    }

    /// Waits for pages that are being written, and makes them ready to be named by an operation.
    /// Returns them, and how it ended: as [`Store::place_pages`].
    pub fn end_placing(
        &self,
        core: CoreId,
        targets: &mut [Target],
        writing: Writing,
    ) -> (BlockBuf, Result<()>) {
        let (pages, written) = self.placement.end_write(core, targets, writing);
        (pages, written.and_then(|()| self.make_ready(targets)))
    }

    fn make_ready(&self, targets: &[Target]) -> Result<()> {
        let in_nvm = |target: &Target| self.layout.is_in_nvm(target.block);
        // What others write to the device meanwhile, they flush.
        if self.absorb().is_some() && targets.iter().all(in_nvm) {
            return Ok(());
        }
        self.flush_placed()
    }

    /// Flushes pages that were written, if that must be before an operation names them.
    ///
    /// # Errors
    /// A failed flush, which stops the volume: the device may have dropped what others wrote, too,
    /// and a later flush that succeeds says nothing about that.
    pub fn flush_placed(&self) -> Result<()> {
        let flushed = self.placement.flush();
        flushed.inspect_err(|error| self.stop(error))
    }

    /// Whether data may lie in persistent memory first, and how much.
    pub fn absorb(&self) -> Option<Absorb> {
        self.options.absorb
    }

    /// Why the volume stopped, if it did.
    pub fn stopped(&self) -> Option<&str> {
        self.stopped.get().map(String::as_str)
    }

    /// The node `nid`, to which something points that expects it in this role. Every step along a
    /// pointer comes here: a pointer to a node of another inode, of another kind, or to a freed
    /// one, is damage.
    ///
    /// # Errors
    /// `Corrupt`, naming inode and node; errors of reading it.
    pub fn node(&self, nid: Nid, role: NodeRole) -> Result<NodeRef> {
        let node = self.any_node(nid)?;
        let (want, got, what) = if node.kind != role.kind {
            let kinds = (role.kind.code(), node.kind.code());
            (u64::from(kinds.0), u64::from(kinds.1), "kind")
        } else if node.owner != role.owner {
            (role.owner.0, node.owner.0, "owner")
        } else if let Some(version) = node.freed() {
            (0, version, "end of life")
        } else {
            return Ok(node);
        };
        let by = match role.owner {
            Ino(0) => String::new(),
            owner => format!(", to which inode {owner} points"),
        };
        Err(Error::Corrupt {
            what: format!("{what} of node {nid}{by}"),
            at: self.nat.entry(nid)?.block().0,
            want,
            got,
        })
    }

    /// The node `nid`, whatever its role: for callers that have the number from a hint and verify
    /// it.
    ///
    /// # Errors
    /// `Corrupt` when it is free; errors of reading it.
    pub fn any_node(&self, nid: Nid) -> Result<NodeRef> {
        match self.nodes.get(nid) {
            Some(node) => Ok(node),
            None => self.load_node(nid),
        }
    }

    /// Copies bytes of a granule of the node `nid`, which must have this role. The one way down a
    /// map: a walk that has read a child's number in a node holds nothing of the node when it asks
    /// for the child.
    ///
    /// # Errors
    /// Those of [`Store::node`].
    #[inline]
    pub fn load_from_node(
        &self,
        nid: Nid,
        role: NodeRole,
        place: (u8, usize),
        out: &mut [u8],
    ) -> Result<()> {
        if !self.nodes.load(nid, role, place, out) {
            // Not in memory, or not what it should be.
            self.node(nid, role)?.load(place, out);
        }
        Ok(())
    }

    fn load_node(&self, nid: Nid) -> Result<NodeRef> {
        loop {
            let entry = self.nat.entry(nid)?;
            let block = entry.block();
            if block.is_none() {
                // Not in the NAT: either new and not checkpointed (then it is in the cache by now),
                // or nothing may point to it.
                if let Some(node) = self.nodes.get(nid) {
                    return Ok(node);
                }
                return Err(Error::Corrupt {
                    what: format!("pointer to free node {}", nid.0),
                    at: self.layout.nat_pair(crate::format::nat::place_of(nid).0),
                    want: 1,
                    got: 0,
                });
            }
            if self.layout.locate(block).is_none() {
                return Err(Error::Corrupt {
                    what: format!("image address of node {}", nid.0),
                    at: self.layout.nat_pair(crate::format::nat::place_of(nid).0),
                    want: self.layout.main,
                    got: block.0,
                });
            }
            let mut bytes = [0; BLOCK_BYTES];
            self.region.read(block, &mut bytes)?;
            if let Some(node) = self.insert_image((nid, &entry), &bytes)? {
                return Ok(node);
            }
        }
    }

    /// Puts a node in memory whose image was read; `None` if it has moved meanwhile.
    pub(super) fn insert_image(
        &self,
        (nid, entry): (Nid, &NatEntry),
        bytes: &[u8; BLOCK_BYTES],
    ) -> Result<Option<NodeRef>> {
        let moved = || self.nat.entry(nid).is_ok_and(|now| now != *entry);
        let image = match NodeImage::open(bytes, nid, entry.block(), self.layout.crc_seed) {
            Ok(image) => image,
            // The image moved and its block was used again while it was read.
            Err(_) if moved() => return Ok(None),
            Err(error) => return Err(error),
        };
        let node = NodeRef::new(Node::new(nid, image, self.options.node_lock));
        Ok(self.nodes.insert_loaded(node, || !moved()))
    }

    /// Opens a handle; `room` says what to do when the log is full.
    pub(crate) fn begin_handle(
        &self,
        kind: OpKind,
        core: CoreId,
        (bytes, nodes_max): (usize, u32),
        room: LogRoom,
    ) -> Result<Handle<'_, Settler>> {
        let journal = self.journal();
        let bytes = bytes.min(journal.handle_bytes_max());
        // Records that wait in memory are written before there are too many; once, since others may
        // go on adding some.
        let mut may_commit = room == LogRoom::Checkpoint;
        for _ in 0..LOG_ROUNDS {
            let handle = match self.options.records {
                RecordPolicy::Delta | RecordPolicy::None => journal.begin(core, bytes),
                RecordPolicy::Image => journal.begin_images(core, bytes, nodes_max),
            };
            let full = match handle {
                Ok(handle) if may_commit && handle.found_waiting() > self.record_bytes_max => {
                    drop(handle);
                    self.commit_all()?;
                    may_commit = false;
                    continue;
                }
                Ok(mut handle) => {
                    if handle.found_log_half_full() {
                        self.want_log_room(journal.journal_of(core));
                    }
                    handle.set_operation(kind.number());
                    return Ok(handle);
                }
                Err(BeginError::LogFull) => journal.journal_of(core),
                Err(error) => return Err(self.stopped_by_journal(&error)),
            };
            match room {
                LogRoom::Checkpoint => self.make_log_room(full)?,
                LogRoom::Segment if self.add_log_segment(full)? => {}
                LogRoom::Segment => break,
            }
        }
        Err(Error::NoSpace {
            what: "the log: records do not fit even after a checkpoint",
        })
    }

    /// Makes the handles of these marks, and all they depend on, durable and valid. No inode lock
    /// is held (a full log is checkpointed here).
    ///
    /// # Errors
    /// `Stopped` after a failed write or flush; `Corrupt` when something freed was not in use,
    /// after which the volume is stopped.
    pub fn commit(&self, marks: &[Mark]) -> Result<()> {
        self.counters.commits.add(1);
        self.commit_rounds(|| self.journal().commit(marks))
    }

    /// Makes everything that has joined so far durable and valid.
    ///
    /// # Errors
    /// Those of [`Store::commit`].
    pub fn commit_all(&self) -> Result<()> {
        self.commit_rounds(|| self.journal().commit_all())
    }

    /// Makes what has joined in the journals of these partitions, and all it depends on, durable
    /// and valid. Compound transactions: durable, without what it depends on in other journals.
    ///
    /// # Errors
    /// Those of [`Store::commit`].
    pub fn commit_partitions(&self, partitions: &[CoreId]) -> Result<()> {
        let journal = self.journal();
        let journals = partitions.iter().map(|core| journal.journal_of(*core));
        let journals: Vec<JournalId> = journals.collect();
        self.commit_rounds(|| journal.commit_joined(&journals))
    }

    /// Commits a journal for all others, when one asks, until [`Store::end_commits`]. Compound
    /// transactions only; the caller is the one thread that does.
    pub fn serve_commits(&self, journal: JournalId) {
        let task = self.journal().commit_task(journal);
        while task.wait() {
            // The tasks that wait try themselves, and get the error.
            if self.commit_rounds(|| task.commit()).is_err() {
                task.failed();
            }
        }
    }

    /// Ends all [`Store::serve_commits`]. From now on a task that needs a commit makes it.
    pub fn end_commits(&self) {
        self.journal().end_commit_tasks();
    }

    fn commit_rounds(
        &self,
        commit: impl Fn() -> std::result::Result<(), CommitError>,
    ) -> Result<()> {
        for _ in 0..LOG_ROUNDS {
            match commit() {
                Ok(()) => return self.check_space(),
                Err(CommitError::LogFull(journal)) => self.make_log_room(journal)?,
                Err(error) => return Err(self.stopped_by_journal(&error)),
            }
        }
        Err(Error::NoSpace { what: "the log" })
    }

    /// Stops the volume when what became valid contradicts the space map.
    pub(super) fn check_space(&self) -> Result<()> {
        self.space.check().inspect_err(|error| self.stop(error))
    }

    /// The journal stopped by itself (a log write or flush failed): so does the volume.
    pub(crate) fn stopped_by_journal(&self, cause: &dyn std::fmt::Display) -> Error {
        let reason = self.stopped.get_or_init(|| cause.to_string());
        Error::Stopped {
            reason: reason.clone(),
        }
    }
}
