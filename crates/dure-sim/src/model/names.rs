//! The calls of the model that remove and move names.

use rustix::io::Errno;

use super::ModelFs;
use super::node::{Kind, RenameKind};
use super::operation::{Answer, Outcome};
use super::path::Last;
use super::permission::{EXECUTE, WRITE, Who};
use super::store::Result;

impl ModelFs {
    pub(super) fn unlink(&mut self, who: Who, path: &str) -> Outcome {
        let place = self.place(who, path)?;
        let Last::Name(name) = place.last else {
            return Err(Errno::ISDIR);
        };
        let ino = self.store.lookup(place.dir, &name)?.ok_or(Errno::NOENT)?;
        let is_directory = self.store.node(ino).kind() == Kind::Directory;
        if place.slash {
            return Err(if is_directory {
                Errno::ISDIR
            } else {
                Errno::NOTDIR
            });
        }
        who.check_delete(self.store.node(place.dir), self.store.node(ino))?;
        self.store.unlink(place.dir, &name)?;
        Ok(Answer::Done)
    }

    pub(super) fn rmdir(&mut self, who: Who, path: &str) -> Outcome {
        let place = self.place(who, path)?;
        let name = match place.last {
            Last::Name(name) => name,
            Last::Dot => return Err(Errno::INVAL),
            Last::DotDot => return Err(Errno::NOTEMPTY),
            Last::Root => return Err(Errno::BUSY),
        };
        let ino = self.store.lookup(place.dir, &name)?.ok_or(Errno::NOENT)?;
        who.check_delete(self.store.node(place.dir), self.store.node(ino))?;
        self.store.rmdir(place.dir, &name)?;
        Ok(Answer::Done)
    }

    pub(super) fn rename(&mut self, who: Who, from: &str, to: &str, kind: RenameKind) -> Outcome {
        let (from, to) = (self.place(who, from)?, self.place(who, to)?);
        let Last::Name(from_name) = &from.last else {
            return Err(Errno::BUSY);
        };
        let Last::Name(to_name) = &to.last else {
            let exists = kind == RenameKind::NoReplace;
            return Err(if exists { Errno::EXIST } else { Errno::BUSY });
        };
        let source = self
            .store
            .lookup(from.dir, from_name)?
            .ok_or(Errno::NOENT)?;
        let target = self.store.lookup(to.dir, to_name)?;
        let is_directory = |ino: u64| self.store.node(ino).kind() == Kind::Directory;
        let exchange = kind == RenameKind::Exchange;
        match target {
            Some(_) if kind == RenameKind::NoReplace => return Err(Errno::EXIST),
            None if exchange => return Err(Errno::NOENT),
            Some(target) if exchange && to.slash && !is_directory(target) => {
                return Err(Errno::NOTDIR);
            }
            _ => {}
        }
        if !is_directory(source) && (from.slash || (to.slash && !exchange)) {
            return Err(Errno::NOTDIR);
        }
        if self.store.is_above(source, to.dir) {
            return Err(Errno::INVAL);
        }
        if target.is_some_and(|target| self.store.is_above(target, from.dir)) {
            return Err(if exchange {
                Errno::INVAL
            } else {
                Errno::NOTEMPTY
            });
        }
        if target == Some(source) {
            return Ok(Answer::Done);
        }
        self.check_rename(who, (from.dir, source), (to.dir, target), exchange)?;
        self.store
            .rename((from.dir, from_name), (to.dir, to_name), kind)?;
        Ok(Answer::Done)
    }

    fn check_rename(
        &self,
        who: Who,
        (from_dir, source): (u64, u64),
        (to_dir, target): (u64, Option<u64>),
        exchange: bool,
    ) -> Result<()> {
        let node = |ino| self.store.node(ino);
        who.check_delete(node(from_dir), node(source))?;
        match target {
            Some(target) => who.check_delete(node(to_dir), node(target))?,
            None => who.check(node(to_dir), WRITE | EXECUTE)?,
        }
        let moves = |ino: u64| from_dir != to_dir && node(ino).kind() == Kind::Directory;
        if moves(source) {
            who.check(node(source), WRITE)?;
        }
        match target {
            Some(target) if exchange && moves(target) => who.check(node(target), WRITE),
            _ => Ok(()),
        }
    }
}
