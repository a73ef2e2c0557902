//! Making inodes: create, mkdir, symlink, temporary.

use dure_store::OpKind;
use dure_store::error::{Error, Result};
use dure_store::format::inode::{
    AttributesRecord, BODY_BYTES, FLAG_LONG_LINK, InodeData, InodeRecord,
};
use dure_store::format::name::{FileKind, check_name};
use dure_store::op::Op;
use dure_store::space::OpClass;
use dure_store::units::{Mark, to_u64};
use dure_sync::Arc;
use zerocopy::little_endian::{U32, U64};

use super::TARGET_MAX;
use crate::directory::Change;
use crate::directory::read::Name;
use crate::directory::tree::{LockedBuckets, Tree, TreeEdit, target};
use crate::inode::{
    Attempt, Inode, InodeRef, InodeState, Linkable, LockedInodes, NewInode, Scope, attempts,
    blank_record, store_new,
};
use crate::namespace::Names;
use crate::xattr::chain::{self, Chain};
use crate::xattr::{self, Inherited};

const SETGID: u32 = 0o2000;
const PERMISSIONS: u32 = 0o7777;
/// Nodes every create may dirty: the bucket, the directory's inode, the new inode, the orphan slot.
const NODES: u32 = 4;

/// What to create.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan<'a> {
    kind: FileKind,
    new: &'a NewInode,
    /// Target of a symlink.
    target: &'a [u8],
}

/// A new inode with a name.
#[derive(Debug, Clone, Copy)]
pub enum New<'n> {
    /// Any type but directory and symbolic link; the type is in the mode.
    Node(&'n NewInode),
    /// A directory.
    Directory(&'n NewInode),
    /// A symbolic link to a target.
    Symlink(&'n NewInode, &'n [u8]),
}

impl<'n> New<'n> {
    pub(super) fn plan(self) -> Result<Plan<'n>> {
        let (kind, new, target) = match self {
            New::Node(new) => match FileKind::from_mode(new.mode) {
                None => return Err(Error::Invalid("no file type in the mode")),
                Some(FileKind::Directory | FileKind::Symlink) => {
                    return Err(Error::Invalid(
                        "create makes neither directories nor symbolic links",
                    ));
                }
                Some(kind) => (kind, new, &b""[..]),
            },
            New::Directory(new) => (FileKind::Directory, new, &b""[..]),
            New::Symlink(_, b"") => return Err(Error::NotFound),
            New::Symlink(_, target) if target.len() > TARGET_MAX => {
                return Err(Error::NameTooLong);
            }
            New::Symlink(_, target) if target.contains(&0) => {
                return Err(Error::Invalid("a symbolic link's target holds NUL"));
            }
            New::Symlink(new, target) => (FileKind::Symlink, new, target),
        };
        Ok(Plan { kind, new, target })
    }
}

/// Blob nodes for the target of a symbolic link, if it does not fit its inode.
fn nodes_for_target(target: &[u8]) -> u32 {
    if target.len() > BODY_BYTES {
        chain::nodes_for(target.len())
    } else {
        0
    }
}

impl Names {
    /// Makes an inode; returns what `show` makes of it and its record.
    pub(crate) fn make<R>(
        &self,
        directory: &InodeRef,
        name: &[u8],
        new: New<'_>,
        show: impl Fn(InodeRef, &InodeRecord) -> R,
    ) -> Result<R> {
        let plan = new.plan()?;
        check_name(name)?;
        let name = self.directories.named(name);
        let made = attempts(|scope| self.try_make(directory, name, plan, scope, &show))?;
        self.store.end_call()?;
        Ok(made)
    }

    fn try_make<R>(
        &self,
        parent: &InodeRef,
        name: Name<'_>,
        plan: Plan<'_>,
        scope: Scope,
        show: &impl Fn(InodeRef, &InodeRecord) -> R,
    ) -> std::result::Result<R, Attempt> {
        let parent = parent.inode();
        let blobs = scope.blobs + nodes_for_target(plan.target);
        let free = self.inodes.free_ino()?;
        let spare = scope.spare;
        let mut op = self
            .store
            .op(OpKind::Create, OpClass::Normal, NODES + spare + blobs)?;
        // Dropped before the op, which may give back the nid of the node that the number is in.
        let mut free = free;
        let access = scope.access(self.directories.rule, parent);
        let mut locked = LockedInodes::lock([(parent, access)]);
        let state = locked.get(parent);
        parent.check_directory(state)?;
        parent.depends(&mut op);
        let (ino, node) = free.place(&mut op, &self.inodes)?;
        let leaf = [self.directories.leaf_of(&locked, parent, name.hash)?];
        let buckets = LockedBuckets::lock(&leaf)?;
        let mut edit = TreeEdit::new(&self.directories, &mut op, spare);
        let mut tree = Tree::of(&self.store, state, access)?;
        let located = edit.locate((&tree, state), buckets.leaf(0), name)?;
        if located.found().is_some() {
            return Err(Error::Exists.into());
        }
        // Before anything is made: the operation may have to begin again with more room.
        let above = parent.attributes();
        let inherited = self.inherit((parent, &above), plan, scope)?;
        edit.insert(&mut tree, located, target(ino, plan.kind))?;
        let first = self.set_first_bucket(parent, state, &tree, &mut op);
        let mut record = blank_record(&op, ino, &node);
        self.fill_record(&mut record, &mut op, &above, plan, &inherited)?;
        let charged = self.inodes.charge_new(&record.attributes)?;
        store_new(&mut op, &node, &record);
        let inode = Arc::new(Inode::made(
            self.inodes.cache.home(ino),
            node,
            plan.kind,
            &record,
        ));
        let mut own = inode
            .state()
            .try_write()
            .expect("no other task knows a new inode");
        let attributes = inode.lock_new_attributes();
        // Inserted before finish, so before another task can find the name, remove it and reuse the
        // number. Until the operation has finished, a task that asks for the number waits for
        // `own` or `attributes`.
        let made = self.inodes.cache.insert_new(&inode);
        let now = op.time();
        let mark = op.finish();
        charged.keep();
        own.note_mark(mark);
        drop(attributes);
        drop(own);
        self.name_added(&mut locked, parent, (&tree, first), mark);
        let change = Change::of(plan.kind.code(), 1);
        self.directories
            .entries_changed(&mut locked, parent, change, (mark, now));
        let answer = Some(made.id());
        self.directories
            .dentries
            .put(locked.get(parent), parent.id(), name, answer);
        drop(buckets);
        free.used();
        self.inodes.counters.used.add(1);
        Ok(show(made, &record))
    }

    /// The first entry of a directory gives it its first bucket node: the only time that a change
    /// of entries writes the directory's own inode. Returns its data, to be stored after finish.
    pub(super) fn set_first_bucket(
        &self,
        directory: &Inode,
        state: &InodeState,
        tree: &Tree,
        op: &mut Op<'_>,
    ) -> Option<InodeData> {
        let root = tree.root.as_ref()?.nid.0;
        if let Some(before) = state.directory().root_nid() {
            assert_eq!(before.0, root, "the first bucket node never changes");
            return None;
        }
        let mut data = directory.data_draft(state);
        data.map_root = root.into();
        directory.store_data(op, &data);
        Some(data)
    }

    /// The operation that added a name has finished: what it stored of the directory counts.
    pub(super) fn name_added(
        &self,
        locked: &mut LockedInodes<'_>,
        directory: &Inode,
        (tree, first): (&Tree, Option<InodeData>),
        mark: Mark,
    ) {
        if let Some(data) = first {
            directory.data_stored(locked.get_mut(directory), &data, mark);
        }
        if let Some(root) = &tree.root {
            locked.get(directory).directory().set_root(root);
        }
    }

    /// Makes an inode without a name.
    pub(super) fn make_unnamed(&self, directory: &InodeRef, plan: Plan<'_>) -> Result<InodeRef> {
        attempts(|scope| {
            let parent = directory.inode();
            let free = self.inodes.free_ino()?;
            let slot = self.inodes.orphan_slot()?;
            let mut op = self
                .store
                .op(OpKind::Create, OpClass::Normal, NODES + scope.blobs)?;
            // Dropped before the op, which may give back the nid of the node that the number is in.
            let mut free = free;
            let state = parent.state().read();
            parent.check_directory(&state)?;
            let above = parent.attributes();
            let inherited = self.inherit((parent, &above), plan, scope)?;
            let (ino, node) = free.place(&mut op, &self.inodes)?;
            let mut record = blank_record(&op, ino, &node);
            self.fill_record(&mut record, &mut op, &above, plan, &inherited)?;
            Ok(self
                .inodes
                .insert_unnamed(op, (slot, free), node, record, Linkable::Yes)?)
        })
    }

    /// Fills the blank record of a new inode in a directory with the attributes `above`.
    fn fill_record(
        &self,
        record: &mut InodeRecord,
        op: &mut Op<'_>,
        above: &AttributesRecord,
        plan: Plan<'_>,
        inherited: &Inherited,
    ) -> Result<()> {
        let ino = record.number();
        let attributes = &mut record.attributes;
        attributes.mode = U32::new(plan.kind.mode() | inherited.mode & PERMISSIONS);
        attributes.uid = U32::new(plan.new.uid);
        attributes.gid = U32::new(plan.new.gid);
        if above.mode.get() & SETGID != 0 {
            attributes.gid = above.gid;
            if plan.kind == FileKind::Directory {
                attributes.mode = U32::new(attributes.mode.get() | SETGID);
            }
        }
        attributes.project = above.project;
        attributes.nlink = U32::new(1);
        if matches!(plan.kind, FileKind::CharacterDevice | FileKind::BlockDevice) {
            attributes.rdev = U64::new(plan.new.rdev);
        }
        if plan.kind == FileKind::Directory {
            attributes.parent = above.ino;
        }
        attributes.xattr_root = Chain::default().write(op, ino, &inherited.stream)?.into();
        let bytes = u32::try_from(inherited.stream.len())
            .expect("inherited attributes have at most 128 KiB");
        attributes.xattr_bytes = U32::new(bytes);
        self.set_target(op, record, plan.target)
    }

    fn set_target(&self, op: &mut Op<'_>, record: &mut InodeRecord, target: &[u8]) -> Result<()> {
        let InodeRecord { attributes, data } = record;
        data.size = U64::new(to_u64(target.len()));
        if target.len() <= BODY_BYTES {
            data.body[..target.len()].copy_from_slice(target);
        } else {
            attributes.flags = U32::new(attributes.flags.get() | FLAG_LONG_LINK);
            data.map_root = Chain::default()
                .write(op, attributes.number(), target)?
                .into();
        }
        Ok(())
    }

    /// Mode and attributes of a new inode in a directory with these attributes.
    /// `Attempt::Inherits`: the operation has no room for them.
    fn inherit(
        &self,
        (parent, above): (&Inode, &AttributesRecord),
        plan: Plan<'_>,
        scope: Scope,
    ) -> std::result::Result<Inherited, Attempt> {
        let mode = match plan.kind {
            FileKind::Symlink => 0o777,
            _ => plan.new.mode & PERMISSIONS,
        };
        if above.xattr_root.get() == 0 || plan.kind == FileKind::Symlink {
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
        let attributes = xattr::load_held(&self.store, parent)?;
        let inherited = xattr::inherit(&attributes, plan.kind, mode, plan.new.umask)?;
        let needed = chain::nodes_for(inherited.stream.len());
        if needed > scope.blobs {
            return Err(Attempt::Inherits(needed));
        }
        Ok(inherited)
    }
}

impl Names {
    /// See [`FileSystem::temporary`](crate::volume::FileSystem::temporary).
    pub(crate) fn temporary(&self, directory: &InodeRef, new: &NewInode) -> Result<InodeRef> {
        let kind = FileKind::from_mode(new.mode).unwrap_or(FileKind::File);
        if kind != FileKind::File {
            return Err(Error::Invalid("a temporary file is a regular file"));
        }
        let plan = Plan {
            kind,
            new,
            target: b"",
        };
        let made = self.make_unnamed(directory, plan)?;
        self.store.end_call()?;
        Ok(made)
    }
}
