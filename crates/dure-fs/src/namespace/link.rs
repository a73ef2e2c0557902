//! Hard links.

use zerocopy::little_endian::U32;

use super::{Attempt, FileKind, LINKS_MAX, attempts, check_name};
use crate::directory::Change;
use crate::directory::tree::{Tree, TreeEdit, target};
use crate::error::{Error, Result};
use crate::format::inode::FLAG_ORPHAN;
use crate::inode::{InodeRef, LockedInodes};
use crate::op::OpKind;
use crate::space::OpClass;
use crate::volume::{FileSystem, Volume};

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
        attempts(|spare| self.0.try_link(inode, directory, name, spare))
    }
}

impl Volume {
    fn try_link(
        &self,
        inode: &InodeRef,
        directory: &InodeRef,
        name: &[u8],
        spare: u32,
    ) -> std::result::Result<(), Attempt> {
        let (inode, parent) = (inode.inode(), directory.inode());
        let mut op = self.op(OpKind::Link, OpClass::Normal, NODES + spare)?;
        let mut locked = LockedInodes::lock([parent, inode]);
        locked.get(parent).check_directory()?;
        let state = locked.get(inode);
        if !state.is_alive() && !state.linkable {
            return Err(Error::NotFound.into());
        }
        if state.record.nlink.get() >= LINKS_MAX {
            return Err(Error::TooManyLinks.into());
        }
        op.depends(&parent.node, parent.index);
        let mut edit = TreeEdit::new(self, &mut op, spare);
        let mut tree = Tree::of(self, locked.get(parent))?;
        let located = edit.locate(&tree, name)?;
        if located.found().is_some() {
            return Err(Error::Exists.into());
        }
        edit.insert(&mut tree, located, name, target(inode.ino, inode.kind))?;
        let first = self.set_first_bucket(parent, locked.get(parent), &tree, &mut op);
        let mut record = inode.draft(state);
        record.nlink = U32::new(record.nlink.get() + 1);
        record.flags = U32::new(record.flags.get() & !FLAG_ORPHAN);
        record.ctime = op.time();
        inode.store(&mut op, &record);
        if let Some(place) = &state.orphan {
            place.clear(&mut op);
        }
        let now = op.time();
        let mark = op.finish();
        let state = locked.get_mut(inode);
        state.file.note_mark(mark);
        inode.stored(state, record);
        state.linkable = false;
        if let Some(place) = state.orphan.take() {
            self.orphans.give(place);
        }
        inode.set_unlinked(false);
        let state = locked.get_mut(parent);
        state.file.note_mark(mark);
        if let Some(record) = first {
            parent.stored(state, record);
        }
        if let Some(root) = &tree.root {
            state.directory.set_root(root);
        }
        state
            .directory
            .changed(Change::of(inode.kind.code(), 1), now);
        Ok(())
    }
}
