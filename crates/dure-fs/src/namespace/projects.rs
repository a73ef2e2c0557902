//! Projects: directories that count together with all below them.
//!
//! **Problem.** All below a directory is to count for its project, also what was there before, while
//! other tasks create and move names. **Structure.** An inode is made with the project of its
//! directory. A [`Walk`] makes a directory a project and goes down from there: a directory first, then its
//! entries. Renames note what they move meanwhile ([`Moves`]), and that is walked, too.
//!
//! **Invariants.** No name is moved or linked into a directory of another project, but for one that
//! stays in its directory, or where no project is. So after a directory has the project, only what was
//! in it before can lack it, or was moved there, and is noted. **On a crash** some inodes have the
//! project and others have not. Each counts for what it says; a second walk does the rest.

use std::ops::ControlFlow;

use dure_store::OpKind;
use dure_store::error::{Error, Result};
use dure_store::format::name::FileKind;
use dure_store::space::OpClass;
use dure_store::units::Ino;
use dure_sync::Mutex;
use dure_sync::atomic::{AtomicBool, Ordering};
use zerocopy::little_endian::U32;

use super::Names;
use crate::directory::tree::target;
use crate::inode::{Access, Inode, InodeRef, LockedInodes};
use crate::quota::Transfer;
use crate::ranks::PROJECT_MOVES;

/// Names of a directory that are read at a time.
const NAMES: usize = 256;
/// Names that may be moved while a walk goes down.
const NOTED_MAX: usize = 1 << 16;
/// How often a walk goes down for names that were moved.
const ROUNDS_MAX: u32 = 1000;
/// Directories above each other.
const DEPTH_MAX: u32 = 1 << 20;

/// A directory on the way down.
struct Level {
    directory: InodeRef,
    /// Where its next names are.
    cookie: u64,
    names: Vec<Vec<u8>>,
}

impl Level {
    fn new(directory: InodeRef) -> Level {
        Level {
            directory,
            cookie: 0,
            names: Vec::new(),
        }
    }

    /// A name that was not returned yet.
    fn next(&mut self, names: &Names) -> Result<Option<Vec<u8>>> {
        if self.names.is_empty() {
            let mut last = self.cookie;
            names.list(&self.directory, self.cookie, &mut |entry| {
                if self.names.len() == NAMES {
                    return ControlFlow::Break(());
                }
                self.names.push(entry.name.to_vec());
                last = entry.cookie;
                ControlFlow::Continue(())
            })?;
            self.cookie = last;
        }
        Ok(self.names.pop())
    }
}

/// Names that are moved while a directory becomes a project, behind the walk perhaps.
///
/// A walk locks each directory before it reads the names in it, and again before it handles a noted
/// one: a rename that has not seen that there is a walk has ended before, and one that has is noted.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    /// Names may go into other projects: a stream says which project each inode has. Relaxed: no other
    /// task is to change names meanwhile.
    pub(crate) mixes: AtomicBool,
    /// Renames are noted. Changes under `noted`; Relaxed: renames look under the locks of directories.
    is_on: AtomicBool,
    noted: Mutex<PROJECT_MOVES, Noted>,
}

#[derive(Debug, Default)]
struct Noted {
    /// There is a walk.
    is_taken: bool,
    /// Where names lead elsewhere.
    names: Moved,
}

/// Names in directories.
type Moved = Vec<(InodeRef, Vec<u8>)>;

/// Ends the notes of a walk.
struct EndNotes<'m>(&'m Moves);

impl Drop for EndNotes<'_> {
    fn drop(&mut self) {
        let mut noted = self.0.noted.lock();
        self.0.is_on.store(false, Ordering::Relaxed);
        let left = std::mem::take(&mut *noted);
        drop(noted);
        // Not under the lock: these may be last pins.
        drop(left);
    }
}

impl Moves {
    fn begin(&self) -> Result<EndNotes<'_>> {
        let mut noted = self.noted.lock();
        if std::mem::replace(&mut noted.is_taken, true) {
            return Err(Error::ProjectBusy);
        }
        self.is_on.store(true, Ordering::Relaxed);
        Ok(EndNotes(self))
    }

    /// A name is about to lead elsewhere; the caller has locked its directory.
    fn note(&self, directory: &InodeRef, name: &[u8]) {
        if !self.is_on.load(Ordering::Relaxed) {
            return;
        }
        let mut noted = self.noted.lock();
        // Otherwise the walk has ended; or there are too many, and it fails.
        if self.is_on.load(Ordering::Relaxed) && noted.names.len() <= NOTED_MAX {
            noted.names.push((directory.clone(), name.to_vec()));
        }
    }

    /// What was noted; with nothing the notes end.
    fn take(&self) -> Result<Option<Moved>> {
        let mut noted = self.noted.lock();
        match noted.names.len() {
            0 => {
                self.is_on.store(false, Ordering::Relaxed);
                Ok(None)
            }
            1..=NOTED_MAX => Ok(Some(std::mem::take(&mut noted.names))),
            _ => Err(Error::ProjectBusy),
        }
    }
}

/// What became of an inode that was to get a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Given {
    /// The name does not lead there any more.
    Gone,
    /// It had it.
    Before,
    /// It has it now.
    Now,
}

/// A directory becomes a project.
struct Walk<'w> {
    names: &'w Names,
    top: &'w InodeRef,
    project: u32,
    /// Inodes that got it.
    count: u64,
    /// Directories that have it, while what is in them is given it.
    levels: Vec<Level>,
}

fn project_of(inode: &Inode) -> u32 {
    inode.attributes().project.get()
}

impl Names {
    /// Whether names are to stay in their projects.
    #[inline]
    pub(super) fn has_projects(&self) -> bool {
        self.store.has_projects() && !self.moves.mixes.load(Ordering::Relaxed)
    }

    /// Refuses a name in a directory of another project. The caller has locked both.
    #[cold]
    pub(super) fn check_project(&self, inode: &Inode, directory: &Inode) -> Result<()> {
        match project_of(inode) == project_of(directory) {
            true => Ok(()),
            false => Err(Error::OtherProject),
        }
    }

    /// Like `check_project`, of an inode that had a name, and is to have `name` of `to`. One of another
    /// project may stay in its directory; or it is in directories without: it is a directory that
    /// begins one, or a file with more names. The caller has locked all three until it has moved.
    #[cold]
    pub(super) fn check_move(
        &self,
        inode: &InodeRef,
        from: &Inode,
        (to, name): (&InodeRef, &[u8]),
    ) -> Result<()> {
        let differs = self.check_project(inode.inode(), to.inode());
        let stays = from.ino == to.ino() || (project_of(from) == 0 && project_of(to.inode()) == 0);
        if differs.is_ok() || stays {
            if inode.kind() == FileKind::Directory || differs.is_err() {
                self.moves.note(to, name);
            }
            return Ok(());
        }
        differs
    }

    /// Gives an inode a project, if `name` of a directory leads there.
    pub(crate) fn give_project(
        &self,
        inode: &Inode,
        entry: Option<(&InodeRef, &[u8])>,
        project: u32,
    ) -> Result<Given> {
        let mut op = self.store.op(OpKind::Attributes, OpClass::Delete, 1)?;
        let directory = entry.map_or(inode, |(directory, _)| directory.inode());
        // Without the directory: the name is moved away, and what is elsewhere gets the project.
        let mut locked =
            LockedInodes::lock([(directory, Access::Exclusive), (inode, Access::Whole)]);
        let before = inode.attributes();
        if let Some((_, name)) = entry {
            let name = self.directories.named(name);
            let sight = self.directories.find(locked.get(directory), name)?;
            let is_it = sight.map(|sight| sight.found) == Some(target(inode.ino, inode.kind));
            // On a damaged volume a directory may be below itself.
            let is_child =
                inode.kind != FileKind::Directory || before.parent.get() == directory.ino.0;
            if !is_it || !is_child {
                return Ok(Given::Gone);
            }
        }
        let mut attributes = before;
        attributes.project = U32::new(project);
        if attributes == before {
            return Ok(Given::Before);
        }
        attributes.ctime = op.time();
        let quotas = self.inodes.quotas();
        let charge = locked.get(inode).charge();
        let moved = quotas
            .map(|quotas| Transfer::begin(quotas, (&before, &attributes), charge))
            .transpose()?;
        inode.store_attributes(&mut op, &attributes);
        let mark = op.finish();
        if let Some(moved) = moved {
            moved.done(locked.get_mut(inode).charge_mut());
        }
        inode.attributes_stored(self.rule, mark);
        Ok(Given::Now)
    }

    /// See [`FileSystem::set_project`](crate::volume::FileSystem::set_project).
    pub(crate) fn set_project(
        &self,
        top: &InodeRef,
        project: u32,
        progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<u64> {
        if top.kind() != FileKind::Directory {
            return Err(Error::NotDirectory);
        }
        if project != 0 {
            self.store.allow_projects()?;
        }
        let _end = self.moves.begin()?;
        let given = self.give_project(top.inode(), None, project)?;
        let mut walk = Walk {
            names: self,
            top,
            project,
            count: u64::from(given == Given::Now),
            levels: vec![Level::new(top.clone())],
        };
        for _ in 0..ROUNDS_MAX {
            if walk.down(progress)?.is_break() {
                break;
            }
            let Some(moved) = self.moves.take()? else {
                self.store.end_call()?;
                return Ok(walk.count);
            };
            for (directory, name) in moved {
                // Waits for the rename.
                drop(directory.inode().state().write());
                if walk.is_below(&directory)? {
                    walk.visit(&directory, &name)?;
                }
            }
        }
        self.store.end_call()?;
        match progress(walk.count) {
            ControlFlow::Break(()) => Ok(walk.count),
            ControlFlow::Continue(()) => Err(Error::ProjectBusy),
        }
    }
}

impl Walk<'_> {
    /// Gives the project to all below the directories that are left to do.
    fn down(
        &mut self,
        progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        while let Some(level) = self.levels.last_mut() {
            if progress(self.count).is_break() {
                return Ok(ControlFlow::Break(()));
            }
            match level.next(self.names) {
                Ok(Some(name)) => {
                    let directory = level.directory.clone();
                    self.visit(&directory, &name)?;
                }
                // A directory that was removed has nothing left.
                Ok(None) | Err(Error::NotFound) => drop(self.levels.pop()),
                Err(error) => return Err(error),
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Gives the project to what a name leads to; what is below is to be done.
    fn visit(&mut self, directory: &InodeRef, name: &[u8]) -> Result<()> {
        let found = match self.names.look_up(directory, name) {
            Err(Error::NotFound) => None,
            found => found?,
        };
        let Some(inode) = found.filter(|inode| inode.ino() != self.top.ino()) else {
            return Ok(());
        };
        let entry = Some((directory, name));
        let given = self
            .names
            .give_project(inode.inode(), entry, self.project)?;
        self.count += u64::from(given == Given::Now);
        if given != Given::Gone && inode.kind() == FileKind::Directory {
            self.levels.push(Level::new(inode));
        }
        Ok(())
    }

    /// Whether a directory is the top or below it.
    fn is_below(&self, directory: &InodeRef) -> Result<bool> {
        let mut at = directory.clone();
        for _ in 0..DEPTH_MAX {
            if at.ino() == self.top.ino() || at.ino() == Ino::ROOT {
                break;
            }
            let parent = Ino(at.inode().attributes().parent.get());
            at = match self.names.inodes.inode(parent) {
                Err(Error::NotFound) => return Ok(false),
                found => found?,
            };
        }
        Ok(at.ino() == self.top.ino())
    }
}
