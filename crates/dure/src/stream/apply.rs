//! What each record does to a volume.
//!
//! **Problem.** After a crash any of the changes that were not synced may be there, without others that
//! came before. **Structure.** Names of the base are looked up in the snapshot that is the base: that
//! gives inodes, and whether one has its name still. New names are looked up in the live tree, once
//! what the base has there is away. **Invariants.** A record whose effect is there changes nothing, but
//! for new files, which are made again: so records that were applied, and any part of those behind
//! them, may be applied once more. An inode that the base has is never deleted by a record that makes
//! one. **Crash.** Each record is an operation or more, each of them whole or not there.

use std::path::Path;

use dure_fs::format::name::FileKind;
use dure_fs::units::BLOCK_BYTES_U64;
use dure_fs::{
    AllocateMode, Error, InodeId, InodeRef, NewInode, RenameMode, Result, SetAttributes, SetGid,
    SetTime, XattrMode,
};

use super::fault::Fault;
use super::format::{Attributes, Make, Record, Xattr};
use super::names::{Tree, split};
use super::state::STATE;
use super::{Done, shown};
use crate::error::{Cause, Error as Told};
use crate::metadata::to_time;
use crate::volume::{Shared, Volume};

/// A volume that a stream is applied to.
pub(super) struct Target<'v> {
    shared: &'v Shared,
    live: Tree,
    base: Option<Tree>,
    /// Where files are put away; in the root.
    away: &'static [u8],
    /// The path that was selected, and what is there once that was looked up.
    selected: Option<(Vec<u8>, Option<InodeRef>)>,
}

fn fault<T>(fault: Fault) -> Done<T> {
    Err(Cause::Stream(fault))
}

impl<'v> Target<'v> {
    pub(super) fn new(
        volume: &'v Volume,
        base: Option<dure_fs::FileSystem>,
        away: &'static [u8],
    ) -> Target<'v> {
        Target {
            shared: volume.shared(),
            live: Tree::new(volume.file_system().clone()),
            base: base.map(Tree::new),
            away,
            selected: None,
        }
    }

    /// A record whose effect is there: it may select what the next ones are about.
    pub(super) fn skip(&mut self, record: &Record<'_>) {
        let path = match record {
            Record::Select { path } => path,
            Record::Make(make) => make.path,
            _ => return,
        };
        self.selected = Some((path.to_vec(), None));
    }

    /// Applies a record.
    pub(super) fn apply(&mut self, record: &Record<'_>) -> Done {
        match record {
            Record::Away { path } => self.put_away(path),
            Record::Remove { path } => self.remove(path),
            Record::Place { of, path } => self.place(of, path),
            Record::Make(make) => self.make(make),
            Record::Link { of, path } => self.link(of, path),
            Record::Select { .. } => {
                self.skip(record);
                Ok(())
            }
            Record::Data { offset, bytes } => self.data(*offset, bytes),
            Record::Hole { offset, len } => self.hole(*offset, *len),
            Record::Xattrs(all) => self.xattrs(all),
            Record::Attributes(attributes) => self.attributes(attributes),
            Record::Project { id } => {
                let inode = self.selected()?;
                Ok(self.live.fs.give_project(&inode, *id)?)
            }
            // The receiver's own.
            Record::Begin(_) | Record::End { .. } | Record::Failed { .. } => Ok(()),
        }
    }

    /// Adds the path that a record is about to what went wrong with it.
    pub(super) fn told(&self, record: &Record<'_>, cause: Cause) -> Told {
        let path: &[u8] = match record {
            Record::Away { path }
            | Record::Remove { path }
            | Record::Place { path, .. }
            | Record::Link { path, .. }
            | Record::Select { path } => path,
            Record::Make(make) => make.path,
            _ => match &self.selected {
                Some((path, _)) => path,
                None => return cause.during("receive"),
            },
        };
        cause.at("receive", shown(path))
    }

    /// A name of the base: the directory in the live tree, and the inode that has the name there as in
    /// the base. Nothing if it has not, any more.
    fn in_base(&mut self, path: &[u8]) -> Done<Option<(InodeRef, InodeRef)>> {
        let Some(base) = &mut self.base else {
            return fault(Fault::Baseless);
        };
        let (directory, name) = split(path);
        let (directory, inode) = (base.directory(directory)?.id(), base.inode(path)?.id());
        let Some(directory) = self.live.fs.pin(directory)? else {
            return Ok(None);
        };
        let found = match self.live.fs.lookup(&directory, name) {
            // The directory was removed.
            Err(Error::NotFound) => None,
            found => found?,
        };
        let found = found.filter(|found| found.id() == inode);
        Ok(found.map(|found| (directory, found)))
    }

    /// Whether the base has this inode.
    fn is_of_base(&self, inode: &InodeRef) -> Result<bool> {
        let Some(base) = &self.base else {
            return Ok(false);
        };
        match base.fs.inode(inode.ino()) {
            Ok(found) => Ok(found.id() == inode.id()),
            Err(Error::NotFound | Error::Stale(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Where files are put away.
    fn away(&mut self) -> Done<Option<InodeRef>> {
        Ok(self.live.fs.lookup(&self.live.fs.root()?, self.away)?)
    }

    fn put_away(&mut self, path: &[u8]) -> Done {
        let Some((directory, inode)) = self.in_base(path)? else {
            return Ok(());
        };
        let away = match self.away()? {
            Some(away) => away,
            None => {
                let root = self.live.fs.root()?;
                let new = NewInode {
                    mode: FileKind::Directory.mode() | 0o700,
                    ..NewInode::default()
                };
                self.shared.mkdir(&root, self.away, &new)?;
                self.away()?.ok_or(Error::NotFound)?
            }
        };
        let to = name_away(&inode.id());
        self.live.forget();
        let (from, to) = ((&directory, split(path).1), (&away, to.as_bytes()));
        Ok(self.shared.rename(from, to, RenameMode::NoReplace)?)
    }

    fn remove(&mut self, path: &[u8]) -> Done {
        let Some((directory, found)) = self.in_base(path)? else {
            return Ok(());
        };
        let name = split(path).1;
        if found.kind() == FileKind::Directory {
            self.live.forget();
            return Ok(self.shared.rmdir(&directory, name)?);
        }
        Ok(self.shared.unlink(&directory, name)?)
    }

    /// The directory of a new path, and the name there.
    fn parent<'p>(&mut self, path: &'p [u8]) -> Done<(InodeRef, &'p [u8])> {
        let (directory, name) = split(path);
        if path.split(|byte| *byte == b'/').next() == Some(self.away) {
            return fault(Fault::Reserved);
        }
        Ok((self.live.directory(directory)?, name))
    }

    fn place(&mut self, of: &[u8], path: &[u8]) -> Done {
        let Some(base) = &mut self.base else {
            return fault(Fault::Baseless);
        };
        let inode = base.inode(of)?.id();
        let (directory, name) = self.parent(path)?;
        let from = name_away(&inode);
        let away = self.away()?;
        let found = match &away {
            Some(away) => self.live.fs.lookup(away, from.as_bytes())?,
            None => None,
        };
        let there = self.live.fs.lookup(&directory, name)?;
        match (away, found, there) {
            (Some(away), Some(_), None) => {
                self.live.forget();
                let (from, to) = ((&away, from.as_bytes()), (&directory, name));
                Ok(self.shared.rename(from, to, RenameMode::NoReplace)?)
            }
            // Placed before.
            (_, None, Some(there)) if there.id() == inode => Ok(()),
            (_, _, Some(_)) => fault(Fault::Occupied),
            _ => fault(Fault::NothingAway),
        }
    }

    fn make(&mut self, make: &Make<'_>) -> Done {
        self.skip(&Record::Make(*make));
        let (directory, name) = self.parent(make.path)?;
        let mut made = self.make_in(&directory, name, make);
        if let Err(Cause::FileSystem(Error::Exists)) = made {
            if self.is_made(&directory, name, make)? {
                return Ok(());
            }
            made = self.make_in(&directory, name, make);
        }
        made?;
        // A default access control list of the directory has an effect on what is made in it.
        if self.live.fs.permissions(&directory)?.extended {
            self.xattrs(&[])?;
        }
        Ok(())
    }

    /// Whether a receive that was cut has made it; what is to be made again is removed.
    fn is_made(&mut self, directory: &InodeRef, name: &[u8], make: &Make<'_>) -> Done<bool> {
        let Some(there) = self.live.fs.lookup(directory, name)? else {
            return Ok(false);
        };
        let is_directory = there.kind() == FileKind::Directory;
        if self.is_of_base(&there)? || is_directory != (make.kind == FileKind::Directory) {
            return fault(Fault::Occupied);
        }
        if !is_directory {
            self.shared.unlink(directory, name)?;
        }
        Ok(is_directory)
    }

    fn make_in(&mut self, directory: &InodeRef, name: &[u8], make: &Make<'_>) -> Done {
        let new = NewInode {
            mode: make.kind.mode() | make.mode & 0o7777,
            umask: 0,
            uid: make.uid,
            gid: make.gid,
            rdev: make.rdev,
        };
        match make.kind {
            FileKind::Directory => self.shared.mkdir(directory, name, &new)?,
            FileKind::Symlink => self.shared.symlink(directory, (name, make.target), &new)?,
            _ => {
                let made = self.shared.create(directory, name, &new)?;
                self.selected = Some((make.path.to_vec(), Some(made)));
            }
        }
        Ok(())
    }

    fn link(&mut self, of: &[u8], path: &[u8]) -> Done {
        let inode = self.live.inode(of)?;
        let (directory, name) = self.parent(path)?;
        match self.shared.link(&inode, &directory, name) {
            Err(Error::Exists) => {}
            linked => return Ok(linked?),
        }
        let there = self.live.fs.lookup(&directory, name)?;
        let there = there.ok_or(Error::NotFound)?;
        if there.id() == inode.id() {
            return Ok(());
        }
        // Of a receive that was cut: a name of the inode that was made again.
        if there.kind() == FileKind::Directory || self.is_of_base(&there)? {
            return fault(Fault::Occupied);
        }
        self.shared.unlink(&directory, name)?;
        Ok(self.shared.link(&inode, &directory, name)?)
    }

    /// The inode that is selected.
    fn selected(&mut self) -> Done<InodeRef> {
        match &mut self.selected {
            None => fault(Fault::NothingSelected),
            Some((_, Some(inode))) => Ok(inode.clone()),
            Some((path, found)) => {
                let inode = self.live.inode(path)?;
                *found = Some(inode.clone());
                Ok(inode)
            }
        }
    }

    fn data(&mut self, offset: u64, bytes: &[u8]) -> Done {
        let inode = self.selected()?;
        let (mut at, mut rest) = (offset, bytes);
        while !rest.is_empty() {
            let written = self.shared.write(&inode, at, rest)?;
            assert!(written > 0, "what cannot be written is an error");
            at += written as u64;
            rest = &rest[written..];
        }
        Ok(())
    }

    fn hole(&mut self, offset: u64, len: u64) -> Done {
        let inode = self.selected()?;
        let size = self.live.fs.size(&inode)?;
        if offset >= size {
            return Ok(());
        }
        let end = size.next_multiple_of(BLOCK_BYTES_U64);
        let len = len.min(end - offset);
        let place = (offset, len);
        Ok(self.shared.allocate(&inode, AllocateMode::Punch, place)?)
    }

    fn xattrs(&mut self, all: &[Xattr<'_>]) -> Done {
        let inode = self.selected()?;
        let names = self.live.fs.list_xattr(&inode)?;
        let is_root = self
            .selected
            .as_ref()
            .is_some_and(|(path, _)| path.is_empty());
        for name in names {
            let is_wanted = all.iter().any(|(wanted, _)| *wanted == name);
            let is_state = is_root && name == STATE;
            if !is_wanted && !is_state {
                self.shared.remove_xattr(&inode, &name)?;
            }
        }
        for (name, value) in all {
            if is_root && *name == STATE {
                return fault(Fault::Reserved);
            }
            if self.live.fs.get_xattr(&inode, name)?.as_deref() != Some(*value) {
                let how = (XattrMode::Any, SetGid::Keep);
                self.shared.set_xattr(&inode, (name, value), how)?;
            }
        }
        Ok(())
    }

    fn attributes(&mut self, attributes: &Attributes) -> Done {
        let inode = self.selected()?;
        if self
            .selected
            .as_ref()
            .is_some_and(|(path, _)| path.is_empty())
        {
            // All else is done: what was put away has its place.
            self.end_away()?;
        }
        let is_file = inode.kind() == FileKind::File;
        let resizes = is_file && self.live.fs.size(&inode)? != attributes.size;
        let is_link = inode.kind() == FileKind::Symlink;
        let set = SetAttributes {
            mode: (!is_link).then_some(attributes.mode),
            uid: Some(attributes.uid),
            gid: Some(attributes.gid),
            size: resizes.then_some(attributes.size),
            atime: Some(SetTime::At(to_time(attributes.accessed))),
            mtime: Some(SetTime::At(to_time(attributes.modified))),
            ctime: None,
        };
        self.shared.change_attributes(&inode, &set)?;
        self.selected = None;
        Ok(())
    }

    /// The last record: nothing is left where files were put away.
    pub(super) fn end(&mut self) -> Done {
        match self.away()? {
            None => Ok(()),
            Some(_) => fault(Fault::Malformed("it does not end with the root")),
        }
    }

    /// Removes the directory where files were put away.
    fn end_away(&mut self) -> Done {
        if self.away()?.is_some() {
            self.live.forget();
            let root = self.live.fs.root()?;
            self.shared.rmdir(&root, self.away)?;
        }
        Ok(())
    }
}

/// What an inode of the base is called while it is away.
fn name_away(inode: &InodeId) -> String {
    inode.ino().0.to_string()
}

/// The path of a change, for a message.
pub(super) fn path_of(change: &dure_fs::Change) -> &Path {
    match change {
        dure_fs::Change::Added(path)
        | dure_fs::Change::Removed(path)
        | dure_fs::Change::Modified(path)
        | dure_fs::Change::Renamed(path, _) => shown(path),
    }
}
