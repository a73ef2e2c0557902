//! Making inodes: create, mkdir, symlink, temporary.

use dure_store::OpKind;
use dure_store::error::{Error, Result};
use dure_store::format::inode::{BODY_BYTES, FLAG_LONG_LINK, FLAG_ORPHAN, InodeRecord};
use dure_store::format::name::{FileKind, check_name};
use dure_store::format::orphan::INTENT_DELETE;
use dure_store::node::NodeRef;
use dure_store::op::Op;
use dure_store::space::OpClass;
use dure_store::units::{Ino, to_u64};
use dure_sync::Arc;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::{Attempt, Scope, TARGET_MAX, attempts};
use crate::directory::Change;
use crate::directory::tree::{LockedBuckets, Tree, TreeEdit, target};
use crate::inode::{
    FreeIno, FreeSlot, Inode, InodeRef, InodeState, LockedInodes, NewInode, XattrPlace,
};
use crate::volume::{FileSystem, Volume};
use crate::xattr::chain::{self, Chain};
use crate::xattr::{self, Inherited};

const SETGID: u32 = 0o2000;
const PERMISSIONS: u32 = 0o7777;
/// Nodes every create may dirty: the bucket, the directory's inode, the new inode, the orphan slot.
const NODES: u32 = 4;

/// What is to be made.
#[derive(Debug, Clone, Copy)]
struct Plan<'a> {
    kind: FileKind,
    new: &'a NewInode,
    /// Of a symlink.
    target: &'a [u8],
}

impl FileSystem {
    /// Makes an inode of any type but directory and symlink (the type is in `new.mode`) and names
    /// it.
    ///
    /// # Errors
    /// `Exists`, `NoSpace`, `NotDirectory`, `NotFound` when the directory was removed; of the name.
    pub fn create(&self, directory: &InodeRef, name: &[u8], new: &NewInode) -> Result<InodeRef> {
        let kind =
            FileKind::from_mode(new.mode).ok_or(Error::Invalid("no file type in the mode"))?;
        if matches!(kind, FileKind::Directory | FileKind::Symlink) {
            return Err(Error::Invalid(
                "create makes neither directories nor symbolic links",
            ));
        }
        self.0.make(
            directory,
            name,
            Plan {
                kind,
                new,
                target: b"",
            },
        )
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// As `create`.
    pub fn mkdir(&self, directory: &InodeRef, name: &[u8], new: &NewInode) -> Result<InodeRef> {
        self.0.make(
            directory,
            name,
            Plan {
                kind: FileKind::Directory,
                new,
                target: b"",
            },
        )
    }

    /// Makes a symbolic link to `target`.
    ///
    /// # Errors
    /// As `create`; `NotFound` for an empty target, `NameTooLong` beyond 4095 bytes, `Invalid` for
    /// NUL.
    pub fn symlink(
        &self,
        directory: &InodeRef,
        name: &[u8],
        target: &[u8],
        new: &NewInode,
    ) -> Result<InodeRef> {
        if target.is_empty() {
            return Err(Error::NotFound);
        }
        if target.len() > TARGET_MAX {
            return Err(Error::NameTooLong);
        }
        if target.contains(&0) {
            return Err(Error::Invalid("a symbolic link's target holds NUL"));
        }
        self.0.make(
            directory,
            name,
            Plan {
                kind: FileKind::Symlink,
                new,
                target,
            },
        )
    }

    /// Makes a regular file without a name in the file system of `directory` (`O_TMPFILE`). `link`
    /// may name it; else it is deleted when its last reference goes, or after a crash.
    ///
    /// # Errors
    /// As `create`.
    pub fn temporary(&self, directory: &InodeRef, new: &NewInode) -> Result<InodeRef> {
        let kind = FileKind::from_mode(new.mode).unwrap_or(FileKind::File);
        if kind != FileKind::File {
            return Err(Error::Invalid("a temporary file is a regular file"));
        }
        self.0.make_unnamed(
            directory,
            Plan {
                kind,
                new,
                target: b"",
            },
        )
    }
}

/// Whether `link` may name an inode that was made without a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Linkable {
    Yes,
    No,
}

/// The record of the next life of a free number, born now.
fn blank_record(op: &Op<'_>, ino: Ino, node: &NodeRef) -> InodeRecord {
    let before = op.view(node, ino.index(), |payload| {
        InodeRecord::read_from_bytes(payload).expect("496 bytes")
    });
    assert!(before.is_free(), "inode {ino} was taken from the free");
    let mut record = InodeRecord::new_zeroed();
    record.ino = U64::new(ino.0);
    record.generation = U32::new(before.generation.get().wrapping_add(1).max(1));
    let now = op.time();
    (record.atime, record.mtime, record.ctime, record.btime) = (now, now, now, now);
    record
}

impl Volume {
    fn make(&self, directory: &InodeRef, name: &[u8], plan: Plan<'_>) -> Result<InodeRef> {
        check_name(name)?;
        attempts(|scope| self.try_make(directory, name, plan, scope))
    }

    fn try_make(
        &self,
        parent: &InodeRef,
        name: &[u8],
        plan: Plan<'_>,
        scope: Scope,
    ) -> std::result::Result<InodeRef, Attempt> {
        let parent = parent.inode();
        let blobs = self.blobs_of(parent, plan)?;
        let free = self.free_ino()?;
        let spare = scope.spare;
        let mut op = self.op(OpKind::Create, OpClass::Normal, NODES + spare + blobs)?;
        // Dropped before the op, which may give back the nid of the node that the number is in.
        let mut free = free;
        let access = scope.access(self, parent);
        let mut locked = LockedInodes::lock([(parent, access)]);
        let state = locked.get(parent);
        state.check_directory()?;
        parent.depends(&mut op, &locked);
        let (ino, node) = free.place(&mut op, self)?;
        let leaf = [self.leaf_of(&locked, parent, name)?];
        let buckets = LockedBuckets::lock(&leaf)?;
        let mut edit = TreeEdit::new(self, &mut op, spare);
        let mut tree = Tree::of(self, state, access)?;
        let located = edit.locate(&tree, buckets.leaf(0), name)?;
        if located.found().is_some() {
            return Err(Error::Exists.into());
        }
        edit.insert(&mut tree, located, name, target(ino, plan.kind))?;
        let first = self.set_first_bucket(parent, state, &tree, &mut op);
        let record = self.new_record(&mut op, ino, &node, parent.ino, state, plan, blobs)?;
        op.replace(&node, ino.index(), record.as_bytes());
        let inode = Arc::new(Inode::new(self.inodes.home(ino), node, record)?);
        let mut own = inode.state.try_write().expect("nobody knows it yet");
        // Before anybody can find the name, take it away and use the number again. Until the
        // operation has finished who asks for the number waits for `own`.
        let made = self.inodes.insert_new(&inode);
        let now = op.time();
        let mark = op.finish();
        own.file.note_mark(mark);
        drop(own);
        if let Some(record) = first {
            parent.stored(locked.get_mut(parent), record);
        }
        if let Some(root) = &tree.root {
            locked.get(parent).directory.set_root(root);
        }
        let change = Change::of(plan.kind.code(), 1);
        self.entries_changed(&mut locked, parent, change, (mark, now));
        drop(buckets);
        free.used();
        self.counters.inodes.add(1);
        Ok(made)
    }

    /// The first entry of a directory gives it its first bucket node: the one time that its own
    /// inode is written. Gives the record to store after finish.
    pub(super) fn set_first_bucket(
        &self,
        directory: &Inode,
        state: &InodeState,
        tree: &Tree,
        op: &mut Op<'_>,
    ) -> Option<InodeRecord> {
        let root = tree.root.as_ref()?.nid.0;
        if state.record.map_root.get() == root {
            return None;
        }
        assert_eq!(
            state.record.map_root.get(),
            0,
            "the first bucket node never changes"
        );
        let mut record = directory.draft(state);
        record.map_root = root.into();
        directory.store(op, &record);
        Some(record)
    }

    fn make_unnamed(&self, directory: &InodeRef, plan: Plan<'_>) -> Result<InodeRef> {
        attempts(|_| {
            let parent = directory.inode();
            let blobs = self.blobs_of(parent, plan)?;
            let free = self.free_ino()?;
            let slot = self.orphan_slot()?;
            let mut op = self.op(OpKind::Create, OpClass::Normal, NODES + blobs)?;
            // Dropped before the op, which may give back the nid of the node that the number is in.
            let mut free = free;
            let state = parent.state.read();
            state.check_directory()?;
            let (ino, node) = free.place(&mut op, self)?;
            let record = self.new_record(&mut op, ino, &node, parent.ino, &state, plan, blobs)?;
            Ok(self.insert_unnamed(op, (slot, free), node, record, Linkable::Yes)?)
        })
    }

    /// A file that nobody can name: what its attributes hold is deleted with its last pin, or by
    /// the next mount.
    pub(crate) fn carrier(&self) -> Result<InodeRef> {
        let free = self.free_ino()?;
        let slot = self.orphan_slot()?;
        let mut op = self.op(OpKind::Create, OpClass::Normal, NODES)?;
        // Dropped before the op, which may give back the nid of the node that the number is in.
        let mut free = free;
        let (ino, node) = free.place(&mut op, self)?;
        let mut record = blank_record(&op, ino, &node);
        record.mode = U32::new(FileKind::File.mode());
        self.insert_unnamed(op, (slot, free), node, record, Linkable::No)
    }

    /// Lets `op` make the inode of `record` without a name and in an orphan slot, and finish.
    fn insert_unnamed(
        &self,
        mut op: Op<'_>,
        (slot, free): (FreeSlot<'_>, FreeIno<'_>),
        node: NodeRef,
        mut record: InodeRecord,
        linkable: Linkable,
    ) -> Result<InodeRef> {
        let ino = Ino(record.ino.get());
        record.nlink = U32::ZERO;
        record.flags = U32::new(FLAG_ORPHAN);
        op.replace(&node, ino.index(), record.as_bytes());
        slot.fill(&mut op, ino, INTENT_DELETE);
        let inode = Inode::new(self.inodes.home(ino), node, record)?;
        let mark = op.finish();
        {
            let mut state = inode.state.write_ordered();
            state.file.note_mark(mark);
            state.orphan = Some(slot.used());
            state.linkable = linkable == Linkable::Yes;
        }
        free.used();
        self.counters.inodes.add(1);
        self.inodes.insert(inode)
    }

    /// Blob nodes a new inode may need, as far as can be seen before the operation begins.
    fn blobs_of(&self, parent: &Inode, plan: Plan<'_>) -> Result<u32> {
        let state = parent.state.read();
        state.check_directory()?;
        let long = if plan.target.len() > BODY_BYTES {
            plan.target.len()
        } else {
            0
        };
        // Both lists of a new directory come from its parent's default list.
        let attributes = 2 * state.record.xattr_bytes.get();
        let attributes = usize::try_from(attributes).expect("at most 256 KiB");
        Ok(chain::nodes_for(long) + chain::nodes_for(attributes))
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "one call site for each kind; a struct would rename them"
    )]
    fn new_record(
        &self,
        op: &mut Op<'_>,
        ino: Ino,
        node: &NodeRef,
        parent: Ino,
        directory: &InodeState,
        plan: Plan<'_>,
        blobs: u32,
    ) -> std::result::Result<InodeRecord, Attempt> {
        let inherited = self.inherit(directory, plan)?;
        let needed = chain::nodes_for(inherited.stream.len())
            + if plan.target.len() > BODY_BYTES {
                chain::nodes_for(plan.target.len())
            } else {
                0
            };
        if needed > blobs {
            return Err(Attempt::Again);
        }
        let mut record = blank_record(op, ino, node);
        record.mode = U32::new(plan.kind.mode() | inherited.mode & PERMISSIONS);
        record.uid = U32::new(plan.new.uid);
        record.gid = U32::new(plan.new.gid);
        if directory.record.mode.get() & SETGID != 0 {
            record.gid = directory.record.gid;
            if plan.kind == FileKind::Directory {
                record.mode = U32::new(record.mode.get() | SETGID);
            }
        }
        record.nlink = U32::new(1);
        if matches!(plan.kind, FileKind::CharacterDevice | FileKind::BlockDevice) {
            record.rdev = U64::new(plan.new.rdev);
        }
        if plan.kind == FileKind::Directory {
            record.parent = U64::new(parent.0);
        }
        record.xattr_root = Chain::default().write(op, ino, &inherited.stream)?.into();
        let bytes = u32::try_from(inherited.stream.len()).expect("at most 128 KiB");
        record.xattr_bytes = U32::new(bytes);
        self.set_target(op, &mut record, plan.target)?;
        Ok(record)
    }

    fn set_target(&self, op: &mut Op<'_>, record: &mut InodeRecord, target: &[u8]) -> Result<()> {
        record.size = U64::new(to_u64(target.len()));
        if target.len() <= BODY_BYTES {
            record.body[..target.len()].copy_from_slice(target);
        } else {
            record.flags = U32::new(record.flags.get() | FLAG_LONG_LINK);
            record.map_root = Chain::default()
                .write(op, Ino(record.ino.get()), target)?
                .into();
        }
        Ok(())
    }

    fn inherit(&self, directory: &InodeState, plan: Plan<'_>) -> Result<Inherited> {
        let mode = match plan.kind {
            FileKind::Symlink => 0o777,
            _ => plan.new.mode & PERMISSIONS,
        };
        if directory.record.xattr_root.get() == 0 || plan.kind == FileKind::Symlink {
            let umask = if plan.kind == FileKind::Symlink {
                0
            } else {
                plan.new.umask & 0o777
            };
            return Ok(Inherited {
                stream: Vec::new(),
                mode: mode & !umask,
            });
        }
        let place = XattrPlace::of(&directory.record, directory.xattr_changes);
        let attributes = xattr::load_held(self, place)?;
        xattr::inherit(&attributes, plan.kind, mode, plan.new.umask)
    }
}
