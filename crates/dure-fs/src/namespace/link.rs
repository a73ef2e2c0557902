//! Hard links.

use dure_store::OpKind;
use dure_store::error::{Error, Result};
use dure_store::format::inode::{AttributesRecord, FLAG_ORPHAN};
use dure_store::format::name::{FileKind, check_name};
use dure_store::op::Op;
use dure_store::space::OpClass;
use dure_store::units::Mark;
use zerocopy::little_endian::U32;

use crate::directory::Change;
use crate::directory::read::Name;
use crate::directory::tree::{LockedBuckets, Tree, TreeEdit, target};
use crate::inode::{
    Attempt, AttributeState, Inode, InodeRef, LINKS_MAX, LockedInodes, Scope, attempts,
};
use crate::namespace::Names;

/// The attributes with one more name.
fn linked(mut attributes: AttributesRecord, held: &AttributeState) -> Result<AttributesRecord> {
    let links = attributes.nlink.get();
    if links == 0 && !held.linkable {
        return Err(Error::NotFound);
    }
    if links >= LINKS_MAX {
        return Err(Error::TooManyLinks);
    }
    attributes.nlink = U32::new(links + 1);
    attributes.flags = U32::new(attributes.flags.get() & !FLAG_ORPHAN);
    Ok(attributes)
}

/// Nodes a link may dirty: the bucket, the directory's inode, the inode, its orphan slot.
const NODES: u32 = 4;

/// Lets `op` store that an inode, whose attributes the caller has locked, has one more name.
pub(super) fn store_name(
    op: &mut Op<'_>,
    inode: &Inode,
    locked: &mut LockedInodes<'_>,
) -> Result<()> {
    let held = locked.attributes(inode);
    let mut attributes = linked(inode.attributes(), held)?;
    attributes.ctime = op.time();
    inode.store_attributes(op, &attributes);
    if let Some(place) = &held.orphan {
        place.clear(op);
    }
    Ok(())
}

impl Names {
    /// The operation with [`store_name`] has finished.
    pub(super) fn has_name(&self, inode: &Inode, locked: &mut LockedInodes<'_>, mark: Mark) {
        inode.attributes_stored(self.rule, mark);
        let held = locked.attributes(inode);
        held.linkable = false;
        if let Some(place) = held.orphan.take() {
            self.inodes.orphans.give(place);
        }
        inode.set_unlinked(&self.inodes, false);
    }

    fn try_link(
        &self,
        inode: &InodeRef,
        directory: &InodeRef,
        name: Name<'_>,
        scope: Scope,
    ) -> std::result::Result<(), Attempt> {
        let (inode, parent) = (inode.inode(), directory.inode());
        let spare = scope.spare;
        let mut op = self
            .store
            .op(OpKind::Link, OpClass::Normal, NODES + spare)?;
        let access = scope.access(self.directories.rule, parent);
        let rule = self.rule;
        let names = inode.attributes_access(rule);
        let mut locked = LockedInodes::lock([(parent, access), (inode, names)]);
        parent.check_directory(locked.get(parent))?;
        if self.has_projects() {
            self.check_project(inode, parent)?;
        }
        store_name(&mut op, inode, &mut locked)?;
        parent.depends(&mut op);
        let leaf = [self.directories.leaf_of(&locked, parent, name.hash)?];
        let buckets = LockedBuckets::lock(&leaf)?;
        let mut edit = TreeEdit::new(&self.directories, &mut op, spare);
        let mut tree = Tree::of(&self.store, locked.get(parent), access)?;
        let located = edit.locate((&tree, locked.get(parent)), buckets.leaf(0), name)?;
        if located.found().is_some() {
            return Err(Error::Exists.into());
        }
        edit.insert(&mut tree, located, target(inode.ino, inode.kind))?;
        let first = self.set_first_bucket(parent, locked.get(parent), &tree, &mut op);
        let now = op.time();
        let mark = op.finish();
        self.has_name(inode, &mut locked, mark);
        self.name_added(&mut locked, parent, (&tree, first), mark);
        let change = Change::of(inode.kind.code(), 1);
        self.directories
            .entries_changed(&mut locked, parent, change, (mark, now));
        let (state, id) = (locked.get(parent), parent.id());
        self.directories
            .dentries
            .put(state, id, name, Some(inode.id()));
        drop(buckets);
        Ok(())
    }
}

impl Names {
    /// See [`FileSystem::link`](crate::volume::FileSystem::link).
    pub(crate) fn link(&self, inode: &InodeRef, directory: &InodeRef, name: &[u8]) -> Result<()> {
        check_name(name)?;
        let name = self.directories.named(name);
        if inode.kind() == FileKind::Directory {
            return Err(Error::NotPermitted("a directory has one name"));
        }
        attempts(|scope| self.try_link(inode, directory, name, scope))?;
        self.store.end_call()
    }
}
