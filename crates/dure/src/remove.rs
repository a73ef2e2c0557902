//! The calls of a session that move and remove names.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::Path;

use dure_fs::units::Ino;
use dure_fs::{FileKind, InodeRef, RenameMode};
use rustix::io::Errno;

use crate::create::WRITE_AND_SEARCH;
use crate::error::{Cause, Context, Result};
use crate::path::Last;
use crate::permission::{self, Access};
use crate::session::Session;
use crate::walk::{self, Place};

/// A directory that is being emptied.
struct Emptying {
    dir: InodeRef,
    /// What it is called.
    name: Vec<u8>,
    /// What is left in it.
    names: Vec<Vec<u8>>,
}

impl Session {
    /// Checks that the caller may remove the name of `victim` from `dir`.
    fn check_delete(&self, dir: &InodeRef, victim: &InodeRef) -> walk::Result<()> {
        let actor = self.actor();
        if actor.caller.is_root() {
            return Ok(());
        }
        actor.check(dir, WRITE_AND_SEARCH)?;
        let (dir, victim) = (actor.permissions(dir)?, actor.permissions(victim)?);
        Ok(permission::check_sticky(actor.caller, &dir, &victim)?)
    }

    /// Removes a name of a file (`unlink`).
    ///
    /// # Errors
    /// `EISDIR`, `ENOENT`, `EACCES`, `EPERM`, those of the walk.
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let remove = || {
            let place = self.place(path)?;
            let Last::Name(name) = place.last else {
                return Err(Errno::ISDIR.into());
            };
            if self.credentials().is_root() && !place.slash {
                // The removal itself makes all the checks.
                return Ok(self.shared().unlink(&place.dir, name)?);
            }
            let victim = self.walk().lookup(&place.dir, name)?.ok_or(Errno::NOENT)?;
            let is_directory = victim.kind() == FileKind::Directory;
            if place.slash && !is_directory {
                return Err(Errno::NOTDIR.into());
            }
            if !place.slash {
                self.check_delete(&place.dir, &victim)?;
            }
            if is_directory {
                return Err(Errno::ISDIR.into());
            }
            // Dropped first: an inode without other references is deleted with its name, in one
            // operation, not as an orphan.
            drop(victim);
            self.shared().unlink(&place.dir, name)?;
            walk::Result::Ok(())
        };
        remove().at("remove", path)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `ENOTEMPTY`, `ENOTDIR`, `ENOENT`, `EACCES`, `EPERM`, those of the walk.
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let remove = || {
            let place = self.place(path)?;
            let name = match place.last {
                Last::Name(name) => name,
                Last::Dot => return Err(Errno::INVAL.into()),
                Last::DotDot => return Err(Errno::NOTEMPTY.into()),
                Last::Root => return Err(Errno::BUSY.into()),
            };
            if self.credentials().is_root() {
                return Ok(self.shared().rmdir(&place.dir, name)?);
            }
            let victim = self.walk().lookup(&place.dir, name)?.ok_or(Errno::NOENT)?;
            self.check_delete(&place.dir, &victim)?;
            if victim.kind() != FileKind::Directory {
                return Err(Errno::NOTDIR.into());
            }
            drop(victim);
            self.shared().rmdir(&place.dir, name)?;
            walk::Result::Ok(())
        };
        remove().at("remove directory", path)
    }

    /// Removes a directory with everything in it; symbolic links are removed, not followed, also
    /// where another caller puts one in the place of a directory meanwhile. The root itself cannot
    /// be removed: it is emptied, and the error is `EBUSY`.
    ///
    /// # Errors
    /// The first failure; what was removed until then is gone.
    ///
    /// ```
    /// # let session = dure::Volume::in_memory(32 << 20)?.root();
    /// session.create_dir_all("/notes/2026")?;
    /// session.write("/notes/today", b"sown")?;
    /// session.remove_dir_all("/notes")?;
    /// assert!(!session.exists("/notes")?);
    /// # Ok::<(), dure::Error>(())
    /// ```
    pub fn remove_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let remove = || {
            let place = self.place(path)?;
            match place.last {
                Last::Name(name) => self.remove_tree(&place.dir, name),
                Last::Dot => Err(Errno::INVAL.into()),
                Last::DotDot => Err(Errno::NOTEMPTY.into()),
                Last::Root => {
                    self.empty(&place.dir)?;
                    Err(Errno::BUSY.into())
                }
            }
        };
        remove().at("remove directory", path)
    }

    /// Removes the directory `name` of `dir`.
    fn remove_tree(&self, dir: &InodeRef, name: &[u8]) -> walk::Result<()> {
        let victim = self.walk().lookup(dir, name)?.ok_or(Errno::NOENT)?;
        if victim.kind() != FileKind::Directory {
            return Err(Errno::NOTDIR.into());
        }
        self.empty(&victim)?;
        self.check_delete(dir, &victim)?;
        drop(victim);
        Ok(self.shared().rmdir(dir, name)?)
    }

    /// Removes everything below `top`. Directories are held by reference, not by path, and the walk
    /// does not recurse: a tree may be deep.
    fn empty(&self, top: &InodeRef) -> walk::Result<()> {
        let mut way = vec![self.emptying(top.clone(), Vec::new())?];
        let mut above = BTreeSet::from([top.ino()]);
        while let Some(at) = way.last_mut() {
            if let Some(name) = at.names.pop() {
                let victim = self.walk().lookup(&at.dir, &name)?.ok_or(Errno::NOENT)?;
                if victim.kind() == FileKind::Directory {
                    if !above.insert(victim.ino()) {
                        // Only on a damaged volume.
                        return Err(Errno::LOOP.into());
                    }
                    way.push(self.emptying(victim, name)?);
                    continue;
                }
                self.check_delete(&at.dir, &victim)?;
                drop(victim);
                self.shared().unlink(&at.dir, &name)?;
                continue;
            }
            let done = way.pop().expect("the directory was the last of the way");
            above.remove(&done.dir.ino());
            if let Some(parent) = way.last() {
                self.check_delete(&parent.dir, &done.dir)?;
                drop(done.dir);
                self.shared().rmdir(&parent.dir, &done.name)?;
            }
        }
        Ok(())
    }

    fn emptying(&self, dir: InodeRef, name: Vec<u8>) -> walk::Result<Emptying> {
        self.actor().check(&dir, Access::READ)?;
        let mut names: Vec<Vec<u8>> = Vec::new();
        self.fs().read_directory(&dir, 0, &mut |entry| {
            names.push(entry.name.to_vec());
            ControlFlow::Continue(())
        })?;
        Ok(Emptying { dir, name, names })
    }

    /// Moves a name, replacing what is there.
    ///
    /// # Errors
    /// Those of `rename(2)`.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        self.rename_with(from, to, RenameMode::Replace)
    }

    /// Moves a name: replacing, only if the target is free, or exchanging the two (`renameat2`).
    ///
    /// # Errors
    /// Those of `renameat2(2)`.
    ///
    /// ```
    /// # let session = dure::Volume::in_memory(32 << 20)?.root();
    /// use dure::RenameMode;
    /// session.write("/old", b"old")?;
    /// session.write("/new", b"new")?;
    /// assert!(session.rename_with("/old", "/new", RenameMode::NoReplace).is_err());
    /// session.rename_with("/old", "/new", RenameMode::Exchange)?;
    /// assert_eq!(session.read("/old")?, b"new");
    /// # Ok::<(), dure::Error>(())
    /// ```
    pub fn rename_with(
        &self,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
        mode: RenameMode,
    ) -> Result<()> {
        let (from, to) = (from.as_ref(), to.as_ref());
        let old = self.place(from).at("rename", from)?;
        let new = self.place(to).at("rename to", to)?;
        self.rename_places(&old, &new, mode).at("rename", from)
    }

    fn rename_places(
        &self,
        old: &Place<'_>,
        new: &Place<'_>,
        mode: RenameMode,
    ) -> walk::Result<()> {
        let Last::Name(old_name) = old.last else {
            return Err(Errno::BUSY.into());
        };
        let Last::Name(new_name) = new.last else {
            let exists = mode == RenameMode::NoReplace;
            return Err(if exists { Errno::EXIST } else { Errno::BUSY }.into());
        };
        let rename = || {
            let (from, to) = ((&old.dir, old_name), (&new.dir, new_name));
            self.shared().rename(from, to, mode)
        };
        // Permissions do not bind root, and only a call that fails has to find out the error that
        // Linux would report first.
        if self.credentials().is_root() && !old.slash && !new.slash && rename().is_ok() {
            return Ok(());
        }
        let source = self
            .walk()
            .lookup(&old.dir, old_name)?
            .ok_or(Errno::NOENT)?;
        let target = self.walk().lookup(&new.dir, new_name)?;
        let is_directory = |inode: &InodeRef| inode.kind() == FileKind::Directory;
        let exchange = mode == RenameMode::Exchange;
        match &target {
            Some(_) if mode == RenameMode::NoReplace => return Err(Errno::EXIST.into()),
            None if exchange => return Err(Errno::NOENT.into()),
            Some(target) if exchange && new.slash && !is_directory(target) => {
                return Err(Errno::NOTDIR.into());
            }
            _ => {}
        }
        if !is_directory(&source) && (old.slash || (new.slash && !exchange)) {
            return Err(Errno::NOTDIR.into());
        }
        let (from, to) = ((&old.dir, &source), (&new.dir, target.as_ref()));
        let checked = self.check_rename(from, to, exchange);
        let same = |target: &InodeRef| target.ino() == source.ino();
        if checked.is_err() && target.as_ref().is_some_and(same) {
            // vfs_rename: two names of one inode stay as they are, whatever the caller's
            // permissions.
            return Ok(());
        }
        let (from, to) = (source.ino(), target.as_ref().map(InodeRef::ino));
        // Dropped first: an inode without other references is deleted with its name, not as an
        // orphan.
        drop((source, target));
        let moved = checked.and_then(|()| Ok(rename()?));
        moved.or_else(|cause| {
            let loops = self.loop_error((&old.dir, from), (&new.dir, to), exchange)?;
            Err(loops.unwrap_or(cause))
        })
    }

    /// The error of a rename across a directory and what is below it, if it is one.
    fn loop_error(
        &self,
        (old_dir, source): (&InodeRef, Ino),
        (new_dir, target): (&InodeRef, Option<Ino>),
        exchange: bool,
    ) -> walk::Result<Option<Cause>> {
        if self.is_above(source, new_dir)? {
            return Ok(Some(Errno::INVAL.into()));
        }
        match target {
            Some(target) if self.is_above(target, old_dir)? => {
                let errno = if exchange {
                    Errno::INVAL
                } else {
                    Errno::NOTEMPTY
                };
                Ok(Some(errno.into()))
            }
            _ => Ok(None),
        }
    }

    /// Whether `ancestor` is `dir` or above it.
    fn is_above(&self, ancestor: Ino, dir: &InodeRef) -> walk::Result<bool> {
        let mut at = dir.ino();
        let (mut seen, mut steps) = (at, 0_u64);
        while at != ancestor {
            let inode = self.fs().inode(at)?;
            at = self.fs().parent(&inode)?;
            // The root, or a cycle of directories on a damaged volume. Brent's cycle detection:
            // `seen` moves up to `at` after 1, 2, 4, .. steps, and a walk in a cycle comes back to
            // it.
            if at == inode.ino() || at == seen {
                return Ok(false);
            }
            steps += 1;
            if steps.is_power_of_two() {
                seen = at;
            }
        }
        Ok(true)
    }

    fn check_rename(
        &self,
        (old_dir, source): (&InodeRef, &InodeRef),
        (new_dir, target): (&InodeRef, Option<&InodeRef>),
        exchange: bool,
    ) -> walk::Result<()> {
        let actor = self.actor();
        if actor.caller.is_root() {
            return Ok(());
        }
        self.check_delete(old_dir, source)?;
        match target {
            Some(target) => self.check_delete(new_dir, target)?,
            None => actor.check(new_dir, WRITE_AND_SEARCH)?,
        }
        // A directory that changes its parent is written: its ".." changes.
        let moves = |inode: &InodeRef| {
            old_dir.ino() != new_dir.ino() && inode.kind() == FileKind::Directory
        };
        if moves(source) {
            actor.check(source, Access::WRITE)?;
        }
        match target {
            Some(target) if exchange && moves(target) => actor.check(target, Access::WRITE),
            _ => Ok(()),
        }
    }
}
