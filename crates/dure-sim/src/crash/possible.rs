//! Which calls succeed: a generator asks before it uses one.

use dure_fs::{FileKind, RenameMode};

use super::call::{At, Call, Path, Step};
use super::history::History;
use super::state::{Effect, Id, ROOT};

impl History {
    fn at(&self, at: At) -> Option<Id> {
        match at {
            At::Path(path) => self.now.find(path),
            At::Slot(slot) => self.slot(slot),
        }
    }

    fn kind(&self, at: At) -> Option<FileKind> {
        self.at(at).map(|id| self.now.node(id).kind)
    }

    /// Whether something can be named `path`.
    fn is_free(&self, path: Path) -> bool {
        let dir = path.rsplit_once('/').map_or("", |(dir, _)| dir);
        self.kind(At::Path(dir)) == Some(FileKind::Directory) && self.now.find(path).is_none()
    }

    fn is_empty(&self, at: At) -> bool {
        let id = self.at(at);
        id.is_some_and(|id| id != ROOT && self.now.node(id).entries.is_empty())
    }

    /// Whether the inode of a descriptor may be linked: it has lost no name in this history.
    fn is_linkable(&self, slot: u8) -> bool {
        let Some(id) = self.slot(slot) else {
            return false;
        };
        let dropped = |effect: &Effect| matches!(effect, Effect::DropName(_, of) if *of == id);
        !self.atoms.iter().any(|atom| dropped(&atom.effect))
    }

    /// Whether `step` succeeds now.
    #[must_use]
    pub fn possible(&self, step: &Step) -> bool {
        match *step {
            Step::Call(call) => self.call_possible(&call),
            Step::Open(_, path) => self.now.find(path).is_some(),
            Step::Close(slot) => self.slot(slot).is_some(),
            Step::Fsync(at) | Step::Fdatasync(at) | Step::FsyncBegin(at) => self.at(at).is_some(),
            Step::Snapshot(number) => !self.taken.contains(&number),
            Step::DropSnapshot(number) => self.snapshots.contains(&number),
            Step::Sync
            | Step::WriteBack
            | Step::Checkpoint
            | Step::Unmount
            | Step::Core(_)
            | Step::FsyncEnd => true,
        }
    }

    fn call_possible(&self, call: &Call) -> bool {
        let is = |at, kind| self.kind(at) == Some(kind);
        let there = |at| matches!(self.kind(at), Some(FileKind::File | FileKind::Directory));
        match *call {
            Call::Create { path }
            | Call::Mkdir { path }
            | Call::Symlink { path, .. }
            | Call::Fifo { path } => self.is_free(path),
            Call::Link { from, to } => {
                let kind = self.kind(At::Path(from));
                kind.is_some_and(|kind| kind != FileKind::Directory) && self.is_free(to)
            }
            Call::LinkSlot { slot, path } => self.is_linkable(slot) && self.is_free(path),
            Call::Unlink { path } => {
                let kind = self.kind(At::Path(path));
                kind.is_some_and(|kind| kind != FileKind::Directory)
            }
            Call::Rmdir { path } => {
                is(At::Path(path), FileKind::Directory) && self.is_empty(At::Path(path))
            }
            Call::Rename { from, to, mode } => self.rename_possible(from, to, mode),
            Call::Write { at, .. } | Call::Truncate { at, .. } | Call::Allocate { at, .. } => {
                is(at, FileKind::File)
            }
            Call::Clone {
                from, start, len, ..
            } if !self.has_bytes(from, start + len) => false,
            Call::Clone { at, .. } => is(at, FileKind::File),
            Call::SetXattr { at, .. }
            | Call::Chmod { at, .. }
            | Call::Chown { at, .. }
            | Call::SetTime { at, .. } => there(at),
            Call::RemoveXattr { at, name } => {
                let id = self.at(at);
                id.is_some_and(|id| self.now.node(id).xattrs.contains_key(name))
            }
            Call::Temporary { dir, .. } => is(At::Path(dir), FileKind::Directory),
        }
    }

    fn has_bytes(&self, file: At, end: u64) -> bool {
        let is_file = self.kind(file) == Some(FileKind::File);
        is_file
            && self
                .at(file)
                .is_some_and(|id| self.now.node(id).size >= end)
    }

    fn rename_possible(&self, from: Path, to: Path, mode: RenameMode) -> bool {
        let below = |path: Path, dir: Path| path == dir || path.starts_with(&format!("{dir}/"));
        let (Some(source), target) = (self.kind(At::Path(from)), self.kind(At::Path(to))) else {
            return false;
        };
        if below(to, from) || below(from, to) {
            return false;
        }
        let is_directory = |kind| kind == FileKind::Directory;
        match (target, mode) {
            (None, RenameMode::Exchange) | (Some(_), RenameMode::NoReplace) => false,
            (None, _) => self.is_free(to),
            (Some(_), RenameMode::Exchange) => true,
            (Some(target), RenameMode::Replace) => {
                is_directory(source) == is_directory(target)
                    && (!is_directory(target) || self.is_empty(At::Path(to)))
            }
        }
    }
}
