//! Hard links.

use dure_store::OpKind;
use dure_store::error::{Error, Result};
use dure_store::format::inode::{FLAG_ORPHAN, InodeRecord};
use dure_store::format::name::{FileKind, check_name};
use dure_store::space::OpClass;
use zerocopy::little_endian::U32;

use super::{Attempt, LINKS_MAX, Scope, attempts};
use crate::directory::Change;
use crate::directory::tree::{LockedBuckets, Tree, TreeEdit, target};
use crate::inode::{ChangedPart, ForAttributes, Inode, InodeRef, LockedInodes};
use crate::volume::{FileSystem, Volume};

/// The record with one more name.
fn linked(inode: &Inode, held: &ForAttributes<'_>) -> std::result::Result<InodeRecord, Attempt> {
    let mut record = held.draft(inode);
    let links = record.nlink.get();
    if links == 0 {
        if !held.state().linkable {
            return Err(Error::NotFound.into());
        }
        if let ForAttributes::Beside(_) = held {
            // The orphan slot goes with the first name.
            return Err(Attempt::Whole);
        }
    }
    if links >= LINKS_MAX {
        return Err(Error::TooManyLinks.into());
    }
    record.nlink = U32::new(links + 1);
    record.flags = U32::new(record.flags.get() & !FLAG_ORPHAN);
    Ok(record)
}

/// Nodes a link may dirty: the bucket, the directory's inode, the inode, its orphan slot.
const NODES: u32 = 4;

impl FileSystem {
    /// Gives an inode one more name; to a temporary file its first.
    ///
    /// # Errors
    /// `NotPermitted` for a directory, `TooManyLinks`, `Exists`, `NotFound` when the inode or the
    /// directory was removed; of the name.
    pub fn link(&self, inode: &InodeRef, directory: &InodeRef, name: &[u8]) -> Result<()> {
        check_name(name)?;
        if inode.kind() == FileKind::Directory {
            return Err(Error::NotPermitted("a directory has one name"));
        }
        attempts(|scope| self.0.try_link(inode, directory, name, scope))
    }
}

impl Volume {
    fn try_link(
        &self,
        inode: &InodeRef,
        directory: &InodeRef,
        name: &[u8],
        scope: Scope,
    ) -> std::result::Result<(), Attempt> {
        let (inode, parent) = (inode.inode(), directory.inode());
        let spare = scope.spare;
        let mut op = self.op(OpKind::Link, OpClass::Normal, NODES + spare)?;
        let access = scope.access(self, parent);
        let names = scope.names_access(self, inode);
        let mut locked = LockedInodes::lock([(parent, access), (inode, names)]);
        locked.get(parent).check_directory()?;
        let mut record = linked(inode, locked.attributes(inode))?;
        record.ctime = op.time();
        parent.depends(&mut op, &locked);
        let leaf = [self.leaf_of(&locked, parent, name)?];
        let buckets = LockedBuckets::lock(&leaf)?;
        let mut edit = TreeEdit::new(self, &mut op, spare);
        let mut tree = Tree::of(self, locked.get(parent), access)?;
        let located = edit.locate(&tree, buckets.leaf(0), name)?;
        if located.found().is_some() {
            return Err(Error::Exists.into());
        }
        edit.insert(&mut tree, located, name, target(inode.ino, inode.kind))?;
        let first = self.set_first_bucket(parent, locked.get(parent), &tree, &mut op);
        inode.store(&mut op, &record);
        if let ForAttributes::Alone(state) = locked.attributes(inode)
            && let Some(place) = &state.orphan
        {
            place.clear(&mut op);
        }
        let now = op.time();
        let mark = op.finish();
        let held = locked.attributes_mut(inode);
        inode.attributes_stored(held, record, (mark, ChangedPart::Plain));
        if let ForAttributes::Alone(state) = held {
            state.linkable = false;
            if let Some(place) = state.orphan.take() {
                self.orphans.give(place);
            }
        }
        inode.set_unlinked(self, false);
        if let Some(record) = first {
            parent.stored(locked.get_mut(parent), record);
        }
        if let Some(root) = &tree.root {
            locked.get(parent).directory.set_root(root);
        }
        let change = Change::of(inode.kind.code(), 1);
        self.entries_changed(&mut locked, parent, change, (mark, now));
        drop(buckets);
        Ok(())
    }
}
