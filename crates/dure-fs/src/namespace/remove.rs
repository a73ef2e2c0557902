//! Taking names away: unlink and rmdir, and what rename does to the inode whose name it takes.

use dure_store::OpKind;
use dure_store::error::{Error, Result};
use dure_store::format::inode::{FLAG_ORPHAN, InodeRecord};
use dure_store::format::name::{FileKind, check_name};
use dure_store::format::orphan::INTENT_DELETE;
use dure_store::op::Op;
use dure_store::space::OpClass;
use zerocopy::little_endian::{U32, U64};

use super::{Attempt, Scope, attempts};
use crate::directory::Change;
use crate::directory::tree::{LockedBuckets, Tree, TreeEdit};
use crate::inode::{
    Access, ChangedPart, ForAttributes, FreeSlot, Inode, InodeRef, LocalRef, LockedInodes, Weight,
    freed,
};
use crate::volume::{FileSystem, Volume};

/// Nodes a removal may dirty: the bucket, the inode, an orphan slot.
const NODES: u32 = 3;

/// What becomes of an inode that loses a name.
#[derive(Debug)]
pub(super) struct Loss<'v> {
    record: InodeRecord,
    fate: Fate<'v>,
}

impl Loss<'_> {
    /// Whether that was the last name of an inode that lives on.
    pub(super) fn leaves_an_orphan(&self) -> bool {
        matches!(self.fate, Fate::Orphaned(_))
    }
}

/// What becomes of an inode with its last name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Nameless {
    /// It is deleted, unless somebody uses it.
    Deleted,
    /// The caller gets it.
    Kept,
}

#[derive(Debug)]
enum Fate<'v> {
    /// It has other names.
    Named,
    /// This operation frees it.
    Freed,
    /// Its last pin will.
    Orphaned(FreeSlot<'v>),
}

impl FileSystem {
    /// Removes a name of anything but a directory; with its last name and user the inode goes.
    ///
    /// # Errors
    /// `NotFound`, `IsDirectory`, `NotDirectory`; of the name.
    pub fn unlink(&self, directory: &InodeRef, name: &[u8]) -> Result<()> {
        let nameless = Nameless::Deleted;
        self.0.remove(directory, name, Removal::Unlink, nameless)?;
        Ok(())
    }

    /// The same, and gives the inode if this was its last name: it lives until it is dropped.
    ///
    /// # Errors
    /// As [`FileSystem::unlink`].
    pub fn unlink_and_keep(&self, directory: &InodeRef, name: &[u8]) -> Result<Option<InodeRef>> {
        let nameless = Nameless::Kept;
        self.0.remove(directory, name, Removal::Unlink, nameless)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `NotFound`, `NotEmpty`, `NotDirectory`; of the name.
    pub fn rmdir(&self, directory: &InodeRef, name: &[u8]) -> Result<()> {
        let nameless = Nameless::Deleted;
        self.0.remove(directory, name, Removal::Rmdir, nameless)?;
        Ok(())
    }

    /// The same, and gives the directory, which lives until it is dropped.
    ///
    /// # Errors
    /// As [`FileSystem::rmdir`].
    pub fn rmdir_and_keep(&self, directory: &InodeRef, name: &[u8]) -> Result<Option<InodeRef>> {
        let nameless = Nameless::Kept;
        self.0.remove(directory, name, Removal::Rmdir, nameless)
    }
}

/// Which call it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Removal {
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

/// A name of an inode that counts none.
fn more_names(inode: &Inode) -> Error {
    Error::Corrupt {
        what: format!("names of inode {}: there are more", inode.ino),
        at: inode.node.nid.0,
        want: 1,
        got: 0,
    }
}

impl Volume {
    /// Takes a name away, and gives the inode that is to be kept without one.
    fn remove(
        &self,
        directory: &InodeRef,
        name: &[u8],
        removal: Removal,
        nameless: Nameless,
    ) -> Result<Option<InodeRef>> {
        self.check_writable()?;
        check_name(name)?;
        attempts(|scope| self.try_remove(directory, name, (removal, nameless), scope))
    }

    fn try_remove(
        &self,
        directory: &InodeRef,
        name: &[u8],
        (removal, nameless): (Removal, Nameless),
        scope: Scope,
    ) -> std::result::Result<Option<InodeRef>, Attempt> {
        let parent = directory.inode();
        // Declared before the locks, so that its pin goes after them: it may be the last.
        let victim = self.look_up(directory, name)?.ok_or(Error::NotFound)?;
        let mut victim = LocalRef::new(victim, self);
        removal.check(victim.kind())?;
        if removal == Removal::Rmdir && self.seems_full(directory, name, &victim)? {
            return Err(Error::NotEmpty.into());
        }
        let (slot, names) = self.slot_for(&mut victim, nameless)?;
        let inode = victim.inode();
        let spare = scope.spare;
        let mut op = self.op(OpKind::Remove, OpClass::Delete, NODES + spare)?;
        let access = scope.access(self, parent);
        let mut locked = LockedInodes::lock([(parent, access), (inode, names)]);
        locked.get(parent).check_directory()?;
        parent.depends(&mut op, &locked);
        let leaf = [self.leaf_of(&locked, parent, name)?];
        let buckets = LockedBuckets::lock(&leaf)?;
        let mut edit = TreeEdit::new(self, &mut op, spare);
        let tree = Tree::of(self, locked.get(parent), access)?;
        let located = edit.locate(&tree, buckets.leaf(0), name)?;
        let found = located.found().ok_or(Error::NotFound)?;
        if found.ino != inode.ino {
            return Err(Attempt::Again);
        }
        if removal == Removal::Rmdir {
            edit.free_all(locked.get(inode))?;
        }
        edit.remove(&tree, locked.get(parent), &located)?;
        let loss = self.lose_name(&mut op, &victim, locked.attributes(inode), slot)?;
        let now = op.time();
        let mark = op.finish();
        let change = Change::of(found.kind, -1);
        self.entries_changed(&mut locked, parent, change, (mark, now));
        drop(buckets);
        let orphan = loss.leaves_an_orphan();
        self.lost_name(inode, locked.attributes_mut(inode), loss, mark);
        drop(locked);
        Ok((orphan && nameless == Nameless::Kept).then(|| victim.keep()))
    }

    /// Whether the name is known to lead to a directory that has entries: then it is left as it is,
    /// and nobody has to wait.
    fn seems_full(&self, parent: &InodeRef, name: &[u8], victim: &InodeRef) -> Result<bool> {
        let state = victim.inode().state.read();
        // Who takes or moves the directory's name has it alone: where it is seen now, it was when
        // the entry was.
        Ok(self.seen_full(&state)? && self.leads_to(parent.id(), name, victim.id()))
    }

    /// An orphan slot, if the inode looks as if it needed one to lose a name, and how it is to be
    /// had for that. No inode is held.
    pub(super) fn slot_for(
        &self,
        victim: &mut LocalRef<'_>,
        nameless: Nameless,
    ) -> Result<(Option<FreeSlot<'_>>, Access)> {
        let (last, heavy) = {
            let inode = victim.inode();
            let state = inode.state.read();
            let whole = inode.state.attributes(&state);
            let record = whole.record();
            let heavy = state.weight(record) == Weight::Heavy;
            (record.nlink.get() == 1, heavy)
        };
        let kept = nameless == Nameless::Kept;
        let lives_on = last && (kept || victim.is_shared() || heavy);
        if last && !lives_on {
            return Ok((None, Access::Alone));
        }
        let slot = lives_on.then(|| self.orphan_slot()).transpose()?;
        if lives_on && victim.kind() == FileKind::Directory {
            // Its buckets go with the name, and their stamps with them.
            self.load_fold(&mut victim.inode().state.write())?;
        }
        Ok((slot, self.names_access(victim.inode())))
    }

    /// Lets `op` take a name from an inode: the last thing before finish. With its last name a
    /// light inode that nobody else uses is freed at once, any other becomes an orphan.
    pub(super) fn lose_name<'v>(
        &'v self,
        op: &mut Op<'_>,
        victim: &LocalRef<'_>,
        held: &ForAttributes<'_>,
        slot: Option<FreeSlot<'v>>,
    ) -> std::result::Result<Loss<'v>, Attempt> {
        let inode = victim.inode();
        let mut record = held.draft(inode);
        let links = record.nlink.get();
        if links == 0 {
            return Err(more_names(inode).into());
        }
        record.ctime = op.time();
        record.nlink = U32::new(links - 1);
        if inode.kind == FileKind::Directory {
            record.map_root = U64::ZERO;
            record.mtime = held.state().times().0;
        }
        if links > 1 {
            inode.store(op, &record);
            return Ok(Loss {
                record,
                fate: Fate::Named,
            });
        }
        if let Some(slot) = slot {
            slot.fill(op, inode.ino, INTENT_DELETE);
            record.flags = U32::new(record.flags.get() | FLAG_ORPHAN);
            inode.store(op, &record);
            return Ok(Loss {
                record,
                fate: Fate::Orphaned(slot),
            });
        }
        let ForAttributes::Alone(state) = held else {
            // It had more names when nobody held it.
            return Err(Attempt::Again);
        };
        self.inode_pools.adopt(&inode.node);
        // From here on nobody else can pin it, so nothing may fail any more.
        if state.weight(&state.record) == Weight::Heavy || !victim.claim() {
            return Err(Attempt::Again);
        }
        let record = freed(&record);
        inode.store(op, &record);
        Ok(Loss {
            record,
            fate: Fate::Freed,
        })
    }

    /// The operation that took the name has finished.
    pub(super) fn lost_name(
        &self,
        inode: &Inode,
        held: &mut ForAttributes<'_>,
        loss: Loss<'_>,
        mark: dure_store::units::Mark,
    ) {
        inode.attributes_stored(held, loss.record, (mark, ChangedPart::Plain));
        if inode.kind == FileKind::Directory
            && let ForAttributes::Alone(state) = held
        {
            state.directory.clear();
        }
        if let Fate::Orphaned(slot) = loss.fate {
            held.set_orphan(slot.used());
            inode.set_unlinked(self, true);
        } else if let Fate::Freed = loss.fate {
            let ForAttributes::Alone(state) = held else {
                panic!("inode {} ended alone", inode.ino);
            };
            self.forget_file(inode, &mut state.file);
            self.inode_freed(inode);
        }
    }
}
