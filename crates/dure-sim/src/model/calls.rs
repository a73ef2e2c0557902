//! Every call of the model, put together from places, permissions and the store.

use rustix::io::Errno;

use super::data::Data;
use super::node::{Body, Kind, New, XattrKind};
use super::open::Open;
use super::operation::{Answer, Operation, Outcome, SLOTS, Stat, Step, pattern};
use super::path::Last;
use super::permission::{EXECUTE, READ, WRITE, Who};
use super::store::Store;

/// A file system with its open files.
#[derive(Debug, Clone, Default)]
pub struct ModelFs {
    pub(super) store: Store,
    pub(super) slots: [Option<Open>; SLOTS],
}

impl ModelFs {
    /// An empty file system.
    #[must_use]
    pub fn new() -> ModelFs {
        ModelFs::default()
    }

    /// The inodes.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Closes every descriptor, as a crash or an unmount does.
    pub fn close_all(&mut self) {
        for slot in 0..SLOTS {
            self.close(slot);
        }
    }

    /// Does one call.
    ///
    /// # Errors
    /// What the call gives its caller.
    pub fn apply(&mut self, step: &Step) -> Outcome {
        let who = step.who;
        match &step.operation {
            Operation::Open {
                slot,
                path,
                flags,
                mode,
            } => self.open(who, *slot, path, *flags, *mode),
            Operation::Temporary { slot, path, mode } => self.temporary(who, *slot, path, *mode),
            Operation::Close { slot } => {
                self.slot(*slot)?;
                self.close(*slot);
                Ok(Answer::Done)
            }
            Operation::Read { slot, offset, len } => {
                Ok(Answer::Bytes(self.read(*slot, *offset, *len)?))
            }
            Operation::Write {
                slot,
                offset,
                len,
                fill,
            } => {
                self.write(*slot, *offset, (*len, *fill))?;
                Ok(Answer::Number(*len))
            }
            Operation::ReadNext { slot, len } => self.read_next(*slot, *len),
            Operation::WriteNext { slot, len, fill } => self.write_next(*slot, (*len, *fill)),
            Operation::Seek {
                slot,
                whence,
                offset,
            } => self.seek(*slot, *whence, *offset),
            Operation::Truncate { slot, size } => self.truncate_slot(*slot, *size),
            Operation::Allocate {
                slot,
                kind,
                offset,
                len,
            } => self.allocate(*slot, *kind, (*offset, *len)),
            Operation::StatSlot { slot } => Ok(Answer::Stat(self.stat(self.slot(*slot)?.ino))),
            Operation::Fsync { slot, .. } => self.slot(*slot).map(|_| Answer::Done),
            Operation::LinkSlot { slot, path } => self.link_slot(who, *slot, path),
            Operation::Sync => Ok(Answer::Done),
            Operation::Remount | Operation::Crash => {
                self.close_all();
                Ok(Answer::Done)
            }
            operation => self.apply_path(who, operation),
        }
    }

    fn apply_path(&mut self, who: Who, operation: &Operation) -> Outcome {
        match operation {
            Operation::Mkdir { path, mode } => self.make(who, path, New::directory(*mode, 0, 0)),
            Operation::Mknod { path, kind, mode } => self.mknod(who, path, *kind, *mode),
            Operation::Symlink { target, path } => self.symlink(who, target, path),
            Operation::Link { from, to } => {
                let ino = self.find(who, from, false)?;
                self.link(who, ino, to)
            }
            Operation::Unlink { path } => self.unlink(who, path),
            Operation::Rmdir { path } => self.rmdir(who, path),
            Operation::Rename { from, to, kind } => self.rename(who, from, to, *kind),
            Operation::ReadLink { path } => {
                match &self.store.node(self.find(who, path, false)?).body {
                    Body::Symlink(target) => Ok(Answer::Bytes(target.clone())),
                    _ => Err(Errno::INVAL),
                }
            }
            Operation::Stat { path, follow } => {
                Ok(Answer::Stat(self.stat(self.find(who, path, *follow)?)))
            }
            Operation::ReadDirectory { path } => self.read_directory(who, path),
            Operation::TruncatePath { path, size } => self.truncate_path(who, path, *size),
            Operation::Chmod { path, mode } => {
                let ino = self.find(who, path, true)?;
                let mode = who.chmod(self.store.node(ino), *mode)?;
                self.store.node_mut(ino).mode = mode;
                Ok(Answer::Done)
            }
            Operation::Chown {
                path,
                uid,
                gid,
                follow,
            } => self.chown(who, path, (*uid, *gid), *follow),
            Operation::SetTime { path, secs, nanos } => {
                let ino = self.find(who, path, true)?;
                if !who.owns(self.store.node(ino)) {
                    return Err(Errno::PERM);
                }
                self.store.node_mut(ino).mtime = Some((*secs, *nanos));
                Ok(Answer::Done)
            }
            Operation::Access { path, want } => {
                let ino = self.find(who, path, true)?;
                who.check(self.store.node(ino), *want)?;
                Ok(Answer::Done)
            }
            operation => self.apply_xattr(who, operation),
        }
    }

    /// Attributes of the inode `ino`.
    #[must_use]
    pub fn stat(&self, ino: u64) -> Stat {
        let node = self.store.node(ino);
        let rdev = if let Body::Special(_, rdev) = node.body {
            rdev
        } else {
            0
        };
        Stat {
            kind: node.kind(),
            mode: node.mode,
            nlink: node.nlink,
            uid: node.uid,
            gid: node.gid,
            size: node.size(),
            rdev,
            mtime: node.mtime,
        }
    }

    fn make(&mut self, who: Who, path: &str, new: New) -> Outcome {
        let place = self.place(who, path)?;
        let is_directory = matches!(new.body, Body::Directory { .. });
        let Last::Name(name) = place.last else {
            return Err(Errno::EXIST);
        };
        if self.store.lookup(place.dir, &name)?.is_some() {
            return Err(Errno::EXIST);
        }
        if place.slash && !is_directory {
            return Err(Errno::NOENT);
        }
        let dir = self.store.node(place.dir);
        who.check(dir, WRITE | EXECUTE)?;
        let (gid, mode) = who.new_group_and_mode(dir, is_directory, new.mode);
        self.store.create(
            place.dir,
            &name,
            New {
                mode,
                uid: who.uid(),
                gid,
                ..new
            },
        )?;
        Ok(Answer::Done)
    }

    fn mknod(&mut self, who: Who, path: &str, kind: Kind, mode: u32) -> Outcome {
        let body = match kind {
            Kind::File => Body::File(Data::default()),
            Kind::Fifo | Kind::Socket => Body::Special(kind, 0),
            Kind::Character | Kind::Block if who.is_root() => Body::Special(kind, 0x0103),
            Kind::Character | Kind::Block => return Err(Errno::PERM),
            Kind::Directory | Kind::Symlink => return Err(Errno::INVAL),
        };
        self.make(
            who,
            path,
            New {
                body,
                mode,
                uid: 0,
                gid: 0,
            },
        )
    }

    fn symlink(&mut self, who: Who, target: &str, path: &str) -> Outcome {
        if target.is_empty() {
            return Err(Errno::NOENT);
        }
        let body = Body::Symlink(target.as_bytes().to_vec());
        self.make(
            who,
            path,
            New {
                body,
                mode: 0o777,
                uid: 0,
                gid: 0,
            },
        )
    }

    fn link(&mut self, who: Who, ino: u64, to: &str) -> Outcome {
        let place = self.place(who, to)?;
        let Last::Name(name) = place.last else {
            return Err(Errno::EXIST);
        };
        if self.store.lookup(place.dir, &name)?.is_some() {
            return Err(Errno::EXIST);
        }
        if place.slash {
            return Err(Errno::NOENT);
        }
        who.check(self.store.node(place.dir), WRITE | EXECUTE)?;
        self.store.link(ino, place.dir, &name)?;
        Ok(Answer::Done)
    }

    fn link_slot(&mut self, who: Who, slot: usize, path: &str) -> Outcome {
        let ino = self.slot(slot)?.ino;
        self.link(who, ino, path)
    }

    fn read_directory(&self, who: Who, path: &str) -> Outcome {
        let dir = self.find(who, path, true)?;
        let entries = self.store.entries(dir)?;
        who.check(self.store.node(dir), READ)?;
        let kind = |ino: &u64| self.store.node(*ino).kind();
        Ok(Answer::Names(
            entries
                .iter()
                .map(|(name, ino)| (name.clone(), kind(ino)))
                .collect(),
        ))
    }

    fn truncate_path(&mut self, who: Who, path: &str, size: u64) -> Outcome {
        let ino = self.find(who, path, true)?;
        match self.store.node(ino).kind() {
            Kind::Directory => return Err(Errno::ISDIR),
            Kind::File => {}
            _ => return Err(Errno::INVAL),
        }
        who.check(self.store.node(ino), WRITE)?;
        self.store.truncate(ino, size)?;
        let node = self.store.node_mut(ino);
        node.mode = who.mode_after_write(node);
        Ok(Answer::Done)
    }

    fn chown(
        &mut self,
        who: Who,
        path: &str,
        (uid, gid): (Option<u32>, Option<u32>),
        follow: bool,
    ) -> Outcome {
        let ino = self.find(who, path, follow)?;
        who.check_chown(self.store.node(ino), uid, gid)?;
        let node = self.store.node_mut(ino);
        node.mode = who.mode_after_chown(node);
        node.uid = uid.unwrap_or(node.uid);
        node.gid = gid.unwrap_or(node.gid);
        Ok(Answer::Done)
    }

    fn apply_xattr(&mut self, who: Who, operation: &Operation) -> Outcome {
        match operation {
            Operation::SetXattr {
                path,
                name,
                len,
                fill,
                kind,
            } => {
                let ino = self.find(who, path, true)?;
                who.check_xattr(self.store.node(ino), name, WRITE)?;
                let len = u64::try_from(*len).expect("64 bits");
                let xattrs = &mut self.store.node_mut(ino).xattrs;
                match (kind, xattrs.contains_key(name.as_bytes())) {
                    (XattrKind::Create, true) => return Err(Errno::EXIST),
                    (XattrKind::Replace, false) => return Err(Errno::NODATA),
                    _ => {}
                }
                xattrs.insert(name.as_bytes().to_vec(), pattern(*fill, len));
                Ok(Answer::Done)
            }
            Operation::GetXattr { path, name } => {
                let node = self.store.node(self.find(who, path, true)?);
                who.check_xattr(node, name, READ)?;
                node.xattrs
                    .get(name.as_bytes())
                    .cloned()
                    .map(Answer::Bytes)
                    .ok_or(Errno::NODATA)
            }
            Operation::RemoveXattr { path, name } => {
                let ino = self.find(who, path, true)?;
                who.check_xattr(self.store.node(ino), name, WRITE)?;
                let removed = self.store.node_mut(ino).xattrs.remove(name.as_bytes());
                removed.map(|_| Answer::Done).ok_or(Errno::NODATA)
            }
            Operation::ListXattr { path } => {
                let node = self.store.node(self.find(who, path, true)?);
                let shown = |name: &&Vec<u8>| who.is_root() || !name.starts_with(b"trusted.");
                Ok(Answer::List(
                    node.xattrs.keys().filter(shown).cloned().collect(),
                ))
            }
            other => unreachable!("{other:?} was matched before"),
        }
    }
}
