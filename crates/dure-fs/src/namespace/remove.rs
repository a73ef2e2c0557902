//! Removing names: unlink and rmdir, and what rename does to the inode whose name it takes.

use dure_store::OpKind;
use dure_store::error::{Error, Result};
use dure_store::format::inode::{FLAG_ORPHAN, InodeData};
use dure_store::format::name::{FileKind, check_name};
use dure_store::format::orphan::INTENT_DELETE;
use dure_store::op::Op;
use dure_store::space::OpClass;
use zerocopy::little_endian::{U32, U64};

use crate::directory::Change;
use crate::directory::read::Name;
use crate::directory::tree::{LockedBuckets, Tree, TreeEdit, target};
use crate::inode::{
    Access, Attempt, FreeSlot, Inode, InodeRef, LocalRef, LockedInodes, Scope, Weight, attempts,
};
use crate::namespace::Names;

/// Nodes a removal may dirty: the bucket, the inode, an orphan slot.
const NODES: u32 = 3;

/// What becomes of an inode that loses its last name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nameless {
    /// It is deleted when its last reference is dropped, possibly at once.
    Deleted,
    /// The caller gets a reference to it.
    Kept,
}

/// What becomes of an inode that loses a name.
#[derive(Debug)]
enum Fate<'v> {
    /// It has other names.
    Named,
    /// This operation frees it.
    Freed,
    /// Dropping its last pin will.
    Orphaned(FreeSlot<'v>),
}

/// What an operation that is about to finish does to an inode that loses a name.
#[derive(Debug)]
pub(super) struct Loss<'v> {
    fate: Fate<'v>,
    /// The data of a directory.
    data: Option<InodeData>,
}

impl Loss<'_> {
    /// Whether the inode lost its last name and becomes an orphan.
    pub(super) fn leaves_an_orphan(&self) -> bool {
        matches!(self.fate, Fate::Orphaned(_))
    }
}

/// The calling function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Removal {
    Unlink,
    Rmdir,
}

impl Removal {
    fn check(self, kind: FileKind) -> Result<()> {
        match (self, kind == FileKind::Directory) {
            (Removal::Unlink, true) => Err(Error::IsDirectory),
            (Removal::Rmdir, false) => Err(Error::NotDirectory),
            _ => Ok(()),
        }
    }
}

/// The error for a name of an inode whose link count is 0.
fn more_names(inode: &Inode) -> Error {
    Error::Corrupt {
        what: format!("names of inode {}: there are more", inode.ino),
        at: inode.node.nid.0,
        want: 1,
        got: 0,
    }
}

impl Names {
    /// Removes a name; returns the inode if it has no name left and the caller keeps it.
    pub(crate) fn remove(
        &self,
        directory: &InodeRef,
        name: &[u8],
        removed: (Removal, Nameless),
    ) -> Result<Option<InodeRef>> {
        self.store.check_writable()?;
        check_name(name)?;
        let name = self.directories.named(name);
        let kept = attempts(|scope| self.try_remove(directory, name, removed, scope))?;
        self.store.end_call()?;
        Ok(kept)
    }

    fn try_remove(
        &self,
        directory: &InodeRef,
        name: Name<'_>,
        (removal, nameless): (Removal, Nameless),
        scope: Scope,
    ) -> std::result::Result<Option<InodeRef>, Attempt> {
        let parent = directory.inode();
        // Declared before the locks, so that its pin, which may be the last, is dropped after them.
        let victim = self
            .seen_at(directory, name, scope)?
            .ok_or(Error::NotFound)?;
        let mut victim = LocalRef::new(victim, &self.inodes, &*self.files);
        removal.check(victim.kind())?;
        if removal == Removal::Rmdir && self.seems_full(directory, name, &victim)? {
            return Err(Error::NotEmpty.into());
        }
        let (slot, names) = self.slot_for(&mut victim, nameless)?;
        let inode = victim.inode();
        let spare = scope.spare;
        let mut op = self
            .store
            .op(OpKind::Remove, OpClass::Delete, NODES + spare)?;
        let access = scope.access(self.directories.rule, parent);
        let mut locked = LockedInodes::lock([(parent, access), (inode, names)]);
        parent.check_directory(locked.get(parent))?;
        parent.depends(&mut op);
        let leaf = [self.directories.leaf_of(&locked, parent, name.hash)?];
        let buckets = LockedBuckets::lock(&leaf)?;
        let mut edit = TreeEdit::new(&self.directories, &mut op, spare);
        let tree = Tree::of(&self.store, locked.get(parent), access)?;
        let located = edit.locate((&tree, locked.get(parent)), buckets.leaf(0), name)?;
        let found = located.found().ok_or(Error::NotFound)?;
        if found != target(inode.ino, inode.kind) {
            return Err(Attempt::Again);
        }
        if removal == Removal::Rmdir {
            edit.free_all(locked.get(inode))?;
        }
        edit.remove(&tree, locked.get(parent), &located)?;
        let loss = self.lose_name(&mut op, (&victim, &locked), slot)?;
        let now = op.time();
        let mark = op.finish();
        let change = Change::of(found.kind, -1);
        self.directories
            .entries_changed(&mut locked, parent, change, (mark, now));
        drop(buckets);
        let orphan = loss.leaves_an_orphan();
        self.lost_name(inode, &mut locked, loss, mark);
        drop(locked);
        Ok((orphan && nameless == Nameless::Kept).then(|| victim.keep()))
    }

    /// Whether the directory `victim` has entries and the dentry cache says that the name leads to
    /// it: then rmdir fails without an exclusive lock.
    fn seems_full(&self, parent: &InodeRef, name: Name<'_>, victim: &InodeRef) -> Result<bool> {
        let state = victim.inode().state().read();
        // A task that removes or moves the directory's name holds the directory exclusively: the
        // name that leads there now led there when the entry was seen.
        Ok(self.directories.seen_full(&state)? && self.leads_to(parent.id(), name, victim.id()))
    }

    /// An orphan slot, if the inode seems to need one to lose a name, and how to lock it for that.
    /// The caller holds no inode.
    pub(super) fn slot_for(
        &self,
        victim: &mut LocalRef<'_>,
        nameless: Nameless,
    ) -> Result<(Option<FreeSlot<'_>>, Access)> {
        let attributes = victim.inode().attributes();
        let last = attributes.nlink.get() == 1;
        let kept = nameless == Nameless::Kept;
        let heavy =
            |inode: &Inode| inode.weight(&inode.state().read(), &attributes) == Weight::Heavy;
        // The data last: other tasks may be using it.
        let lives_on = last && (kept || victim.is_shared() || heavy(victim.inode()));
        if last && !lives_on {
            return Ok((None, Access::Whole));
        }
        let slot = lives_on.then(|| self.inodes.orphan_slot()).transpose()?;
        if lives_on && victim.kind() == FileKind::Directory {
            // Its buckets are freed with the name, and their stamps with them.
            self.directories
                .load_fold(&mut victim.inode().state().write())?;
        }
        let rule = self.rule;
        Ok((slot, victim.inode().attributes_access(rule)))
    }

    /// Lets `op` take a name from an inode: the last step before finish. With its last name a light
    /// inode that no other task uses is freed at once, any other becomes an orphan.
    pub(super) fn lose_name<'v>(
        &'v self,
        op: &mut Op<'_>,
        (victim, locked): (&LocalRef<'_>, &LockedInodes<'_>),
        slot: Option<FreeSlot<'v>>,
    ) -> std::result::Result<Loss<'v>, Attempt> {
        let inode = victim.inode();
        let mut attributes = inode.attributes();
        let links = attributes.nlink.get();
        if links == 0 {
            return Err(more_names(inode).into());
        }
        attributes.ctime = op.time();
        attributes.nlink = U32::new(links - 1);
        if links > 1 {
            inode.store_attributes(op, &attributes);
            return Ok(Loss {
                fate: Fate::Named,
                data: None,
            });
        }
        if let Some(slot) = slot {
            slot.fill(op, inode.ino, INTENT_DELETE);
            attributes.flags = U32::new(attributes.flags.get() | FLAG_ORPHAN);
            inode.store_attributes(op, &attributes);
            let data = (inode.kind == FileKind::Directory).then(|| {
                let state = locked.get(inode);
                let mut data = inode.data_draft(state);
                data.map_root = U64::ZERO;
                data.mtime = state.data_times(&data).0;
                inode.store_data(op, &data);
                data
            });
            return Ok(Loss {
                fate: Fate::Orphaned(slot),
                data,
            });
        }
        if !locked.is_exclusive(inode) {
            // The inode had more names when it was looked at without the lock.
            return Err(Attempt::Again);
        }
        self.inodes.pools.adopt(&inode.node);
        // A claim keeps all other tasks from pinning it, so after that nothing may fail any more.
        if inode.weight(locked.get(inode), &attributes) == Weight::Heavy || !victim.claim() {
            return Err(Attempt::Again);
        }
        inode.store_free(op, &mut attributes);
        Ok(Loss {
            fate: Fate::Freed,
            data: None,
        })
    }

    /// The operation that took the name has finished.
    pub(super) fn lost_name(
        &self,
        inode: &Inode,
        locked: &mut LockedInodes<'_>,
        loss: Loss<'_>,
        mark: dure_store::units::Mark,
    ) {
        inode.attributes_stored(self.rule, mark);
        if inode.kind == FileKind::Directory {
            let state = locked.get_mut(inode);
            state.gone = true;
            state.directory_mut().clear();
            if let Some(data) = &loss.data {
                inode.data_stored(state, data, mark);
            }
        }
        match loss.fate {
            Fate::Named => {}
            Fate::Orphaned(slot) => {
                let before = locked.attributes(inode).orphan.replace(slot.used());
                assert!(before.is_none(), "the inode has an orphan slot already");
                inode.set_unlinked(&self.inodes, true);
            }
            Fate::Freed => {
                let state = locked.get_mut(inode);
                state.gone = true;
                inode.state().forget_all();
                self.files.body.forget(&self.files, inode, state);
                self.files.inode_freed(inode);
            }
        }
    }
}
