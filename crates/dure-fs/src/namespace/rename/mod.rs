//! Moving names.
//!
//! Up to five inodes are locked: two directories, the inode that moves, the one whose name is
//! taken, the one that is left in the old place. A directory changes its parent under the rename
//! lock, so that the chain of ancestors that is checked for a loop, and marked, does not change.
//!
//! An inode to be left behind (`RENAME_WHITEOUT`) is made before, without a name, and gets the old
//! name in the operation of the rename. *Crash scenario:* power fails in between; it is an orphan,
//! and recovery deletes it. With two operations on names a crash would leave neither or both.

mod ancestors;
mod trees;

use dure_store::OpKind;
use dure_store::error::{Error, Result};
use dure_store::format::name::{FileKind, check_name};
use dure_store::op::Op;
use dure_store::space::OpClass;
use dure_store::units::Ino;
use dure_sync::MutexGuard;
use zerocopy::little_endian::U64;

use self::trees::Trees;
use super::create::New;
use super::link;
use super::remove::Nameless;
use crate::directory::read::Name;
use crate::directory::tree::{LockedBuckets, TreeEdit, target};
use crate::inode::{
    Access, Attempt, FreeSlot, Inode, InodeRef, LocalRef, LockedInodes, NewInode, Scope, attempts,
};
use crate::namespace::Names;
use crate::ranks::RENAME;

/// Nodes a rename may dirty: two buckets, two directories' inodes, two inodes, an orphan slot.
const NODES: u32 = 7;
/// And if it leaves an inode behind: that one, and its orphan slot.
const NODES_LEFT: u32 = 2;

/// What happens to a name that exists at the destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RenameMode {
    /// It is taken from its inode.
    #[default]
    Replace,
    /// It is an error.
    NoReplace,
    /// The two names are exchanged.
    Exchange,
}

/// Two names, each in its directory.
#[derive(Debug, Clone, Copy)]
struct NamePair<'a> {
    from_dir: &'a InodeRef,
    from: Name<'a>,
    to_dir: &'a InodeRef,
    to: Name<'a>,
    /// Without a name so far; gets the old one.
    left: Option<&'a InodeRef>,
}

/// What a rename saw before it took locks.
#[derive(Debug)]
struct Plan<'v> {
    source: InodeRef,
    target: Option<LocalRef<'v>>,
    mode: RenameMode,
    slot: Option<FreeSlot<'v>>,
    /// How to lock the target, if there is one.
    target_access: Access,
    /// Ancestors of the directories that get a new subdirectory, which the operation depends on.
    ancestors: Vec<InodeRef>,
    scope: Scope,
}

impl Names {
    /// See [`FileSystem::rename`](crate::volume::FileSystem::rename); returns the inode that has lost
    /// its last name, if `nameless` keeps it.
    pub(crate) fn rename(
        &self,
        from: (&InodeRef, &[u8]),
        to: (&InodeRef, &[u8]),
        mode: RenameMode,
        nameless: Nameless,
    ) -> Result<Option<InodeRef>> {
        self.rename_pair(self.pair(from, to, None), mode, nameless)
    }

    /// See [`FileSystem::rename_leaving`](crate::volume::FileSystem::rename_leaving).
    pub(crate) fn rename_leaving(
        &self,
        from: (&InodeRef, &[u8]),
        to: (&InodeRef, &[u8]),
        mode: RenameMode,
        left: &NewInode,
    ) -> Result<Option<InodeRef>> {
        if mode == RenameMode::Exchange {
            return Err(Error::Invalid("an exchange leaves no old name"));
        }
        let left = self.make_unnamed(from.0, New::Node(left).plan()?)?;
        let names = self.pair(from, to, Some(&left));
        self.rename_pair(names, mode, Nameless::Kept)
    }

    fn pair<'a>(
        &self,
        (from_dir, from): (&'a InodeRef, &'a [u8]),
        (to_dir, to): (&'a InodeRef, &'a [u8]),
        left: Option<&'a InodeRef>,
    ) -> NamePair<'a> {
        NamePair {
            from_dir,
            from: self.directories.named(from),
            to_dir,
            to: self.directories.named(to),
            left,
        }
    }

    fn rename_pair(
        &self,
        names: NamePair<'_>,
        mode: RenameMode,
        nameless: Nameless,
    ) -> Result<Option<InodeRef>> {
        self.store.check_writable()?;
        check_name(names.from.bytes)?;
        check_name(names.to.bytes)?;
        let kept = attempts(|scope| self.try_rename(names, (mode, nameless), scope))?;
        self.store.end_call()?;
        Ok(kept)
    }

    fn try_rename(
        &self,
        names: NamePair<'_>,
        (mode, nameless): (RenameMode, Nameless),
        scope: Scope,
    ) -> std::result::Result<Option<InodeRef>, Attempt> {
        let source = self
            .seen_at(names.from_dir, names.from, scope)?
            .ok_or(Error::NotFound)?;
        // Most files move to a free name, which the dentry cache does not know.
        let guesses =
            scope.guesses && mode != RenameMode::Exchange && source.kind() != FileKind::Directory;
        let target = if guesses {
            let known = self.known_at(names.to_dir.id(), names.to)?;
            known.break_value().flatten()
        } else {
            self.seen_at(names.to_dir, names.to, scope)?
        };
        let mut target = target.map(|target| LocalRef::new(target, &self.inodes, &*self.files));
        check_kinds(mode, &source, target.as_deref())?;
        if target
            .as_ref()
            .is_some_and(|target| target.ino() == source.ino())
        {
            self.stay(names, &source)?;
            return Ok(None);
        }
        let replaces = mode == RenameMode::Replace && target.is_some();
        if replaces && source.kind() == FileKind::File {
            self.files.body.write_back(&self.files, source.inode())?;
        }
        let is_directory = |inode: &InodeRef| inode.kind() == FileKind::Directory;
        let exchanged = target.as_deref().filter(|_| mode == RenameMode::Exchange);
        let moves = names.from_dir.ino() != names.to_dir.ino()
            && (is_directory(&source) || exchanged.is_some_and(is_directory));
        // No directory changes its parent until this is dropped, after the locks.
        let rename_lock: Option<MutexGuard<'_, RENAME, ()>> = moves.then(|| self.rename.lock());
        let mut ancestors = Vec::new();
        if moves && is_directory(&source) {
            self.ancestors(names.to_dir, source.ino(), &mut ancestors)?;
        }
        if moves && let Some(target) = exchanged.filter(|target| is_directory(target)) {
            self.ancestors(names.from_dir, target.ino(), &mut ancestors)?;
        }
        let rule = self.rule;
        let (slot, target_access) = match &mut target {
            Some(target) if replaces => self.slot_for(target, nameless)?,
            Some(target) => (None, target.inode().attributes_access(rule)),
            None => (None, Access::Shared),
        };
        let plan = Plan {
            source,
            target,
            mode,
            slot,
            target_access,
            ancestors,
            scope,
        };
        let (plan, moved) = self.move_name(names, plan);
        drop(rename_lock);
        // The pins are dropped last, without locks: one may delete an inode.
        let kept = moved.map_err(|why| why.unless_guessed(guesses))? && nameless == Nameless::Kept;
        Ok(plan.target.filter(|_| kept).map(LocalRef::keep))
    }

    /// Both names seem to lead to `inode`: then they stay as they are. They are checked together
    /// under both locks; else the call could succeed although another task moved one name between
    /// two checks.
    fn stay(&self, names: NamePair<'_>, inode: &InodeRef) -> std::result::Result<(), Attempt> {
        let (from_dir, to_dir) = (names.from_dir.inode(), names.to_dir.inode());
        let locked =
            LockedInodes::lock([(from_dir, Access::Exclusive), (to_dir, Access::Exclusive)]);
        let both = Some(target(inode.ino(), inode.kind()));
        for (directory, name) in [(from_dir, names.from), (to_dir, names.to)] {
            let state = locked.get(directory);
            directory.check_directory(state)?;
            if self.directories.find(state, name)?.map(|sight| sight.found) != both {
                return Err(Attempt::Again);
            }
        }
        Ok(())
    }

    /// Moves the name. Returns whether an inode lost its last name and becomes an orphan, and the
    /// plan, so that its pins outlive every lock.
    fn move_name<'v>(
        &'v self,
        names: NamePair<'_>,
        mut plan: Plan<'v>,
    ) -> (Plan<'v>, std::result::Result<bool, Attempt>) {
        let slot = plan.slot.take();
        let result = self.move_locked(names, &plan, slot);
        (plan, result)
    }

    fn lock_moving<'p>(&self, names: NamePair<'p>, plan: &'p Plan<'_>) -> LockedInodes<'p> {
        let (from_dir, to_dir) = (names.from_dir.inode(), names.to_dir.inode());
        let source = plan.source.inode();
        let own = source.attributes_access(self.rule);
        let target = plan.target.as_deref().map(InodeRef::inode);
        LockedInodes::lock([
            (from_dir, plan.scope.access(self.directories.rule, from_dir)),
            (to_dir, plan.scope.access(self.directories.rule, to_dir)),
            (source, own),
            (target.unwrap_or(source), plan.target_access),
            (names.left.map_or(source, |left| left.inode()), own),
        ])
    }

    /// An operation that moves a name.
    fn op_of_move(&self, names: NamePair<'_>, plan: &Plan<'_>) -> Result<Op<'_>> {
        let class = match plan.target {
            Some(_) => OpClass::Delete,
            None => OpClass::Normal,
        };
        let nodes = NODES + if names.left.is_some() { NODES_LEFT } else { 0 };
        self.store
            .op(OpKind::Rename, class, nodes + plan.scope.spare)
    }

    fn move_locked<'v>(
        &'v self,
        names: NamePair<'_>,
        plan: &Plan<'v>,
        slot: Option<FreeSlot<'v>>,
    ) -> std::result::Result<bool, Attempt> {
        let (from_dir, to_dir) = (names.from_dir.inode(), names.to_dir.inode());
        let source = plan.source.inode();
        let target = plan.target.as_deref().map(InodeRef::inode);
        let left = names.left.map(InodeRef::inode);
        let mut op = self.op_of_move(names, plan)?;
        let directories = &*self.directories;
        let mut locked = self.lock_moving(names, plan);
        for directory in [from_dir, to_dir] {
            directory.check_directory(locked.get(directory))?;
            directory.depends(&mut op);
        }
        let swapped = target.filter(|_| plan.mode == RenameMode::Exchange);
        if self.has_projects() {
            self.check_move(&plan.source, from_dir, (names.to_dir, names.to.bytes))?;
            if let Some(target) = plan.target.as_deref().filter(|_| swapped.is_some()) {
                self.check_move(target, to_dir, (names.from_dir, names.from.bytes))?;
            }
            left.map_or(Ok(()), |left| self.check_project(left, from_dir))?;
        }
        for ancestor in &plan.ancestors {
            ancestor.inode().depends(&mut op);
        }
        let mut trees = Trees::new(self, &locked, from_dir, to_dir)?;
        let leaves = [
            directories.leaf_of(&locked, from_dir, names.from.hash)?,
            directories.leaf_of(&locked, to_dir, names.to.hash)?,
        ];
        let buckets = LockedBuckets::lock(&leaves)?;
        let mut edit = TreeEdit::new(directories, &mut op, plan.scope.spare);
        let change = trees.edit(&mut edit, names, plan, (&locked, &buckets))?;
        let first = self.set_first_bucket(to_dir, locked.get(to_dir), trees.of_target(), &mut op);
        store_moved(&mut op, source, to_dir.ino);
        if let Some(target) = swapped {
            store_moved(&mut op, target, from_dir.ino);
        }
        let victim = plan.target.as_ref().filter(|_| swapped.is_none());
        let loss = victim.map(|victim| {
            let loss = self.lose_name(&mut op, (victim, &locked), slot)?;
            Ok::<_, Attempt>((victim.inode(), loss))
        });
        let loss = loss.transpose()?;
        if let Some(left) = left {
            link::store_name(&mut op, left, &mut locked)?;
        }
        let now = op.time();
        let mark = op.finish();
        for inode in [source].into_iter().chain(swapped) {
            inode.attributes_stored(self.rule, mark);
        }
        if let Some(left) = left {
            self.has_name(left, &mut locked, mark);
        }
        let orphan = matches!(&loss, Some((_, loss)) if loss.leaves_an_orphan());
        if let Some((target, loss)) = loss {
            self.lost_name(target, &mut locked, loss, mark);
        }
        self.name_added(&mut locked, to_dir, (trees.of_target(), first), mark);
        let all = change.of_directories(from_dir, to_dir);
        for (directory, change) in all.into_iter().flatten() {
            directories.entries_changed(&mut locked, directory, change, (mark, now));
        }
        let (state, id) = (locked.get(to_dir), to_dir.id());
        let dentries = &directories.dentries;
        dentries.put(state, id, names.to, Some(source.id()));
        if let Some(left) = names.left {
            let (state, id) = (locked.get(from_dir), from_dir.id());
            dentries.put(state, id, names.from, Some(left.id()));
        }
        drop(buckets);
        Ok(orphan)
    }
}

/// Lets `op` write an inode that has moved, and whose attributes the caller has locked: its ctime,
/// and a directory's parent.
fn store_moved(op: &mut Op<'_>, inode: &Inode, parent: Ino) {
    let mut attributes = inode.attributes();
    attributes.ctime = op.time();
    if inode.kind == FileKind::Directory {
        attributes.parent = U64::new(parent.0);
    }
    inode.store_attributes(op, &attributes);
}

fn check_kinds(mode: RenameMode, source: &InodeRef, target: Option<&InodeRef>) -> Result<()> {
    let Some(target) = target else {
        return if mode == RenameMode::Exchange {
            Err(Error::NotFound)
        } else {
            Ok(())
        };
    };
    if mode == RenameMode::NoReplace {
        return Err(Error::Exists);
    }
    if mode == RenameMode::Exchange || source.ino() == target.ino() {
        return Ok(());
    }
    let directory = |inode: &InodeRef| inode.kind() == FileKind::Directory;
    match (directory(source), directory(target)) {
        (true, false) => Err(Error::NotDirectory),
        (false, true) => Err(Error::IsDirectory),
        _ => Ok(()),
    }
}
