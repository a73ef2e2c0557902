//! The entries of the directories between which a name moves.

use dure_store::error::Result;
use dure_store::format::name::FileKind;

use super::{NamePair, Plan, RenameMode};
use crate::directory::Change;
use crate::directory::read::{Found, Leaf};
use crate::directory::tree::{Located, LockedBuckets, Removed, Tree, TreeEdit, target};
use crate::inode::{Attempt, Inode, InodeRef, InodeState, LockedInodes};
use crate::namespace::Names;

/// The trees of the two directories, which may be one.
#[derive(Debug)]
pub(super) struct Trees {
    from: Tree,
    /// `None`: the same as `from`.
    to: Option<Tree>,
}

/// How the counts of both directories change.
#[derive(Debug, Default)]
pub(super) struct Changes {
    from: Change,
    to: Change,
}

impl Changes {
    /// Each directory once: for a move within one directory the changes are added up.
    pub(super) fn of_directories<'d>(
        self,
        from_dir: &'d Inode,
        to_dir: &'d Inode,
    ) -> [Option<(&'d Inode, Change)>; 2] {
        if from_dir.ino == to_dir.ino {
            [Some((from_dir, self.from.and(self.to))), None]
        } else {
            [Some((from_dir, self.from)), Some((to_dir, self.to))]
        }
    }
}

impl Trees {
    pub(super) fn new(
        names: &Names,
        locked: &LockedInodes<'_>,
        from_dir: &Inode,
        to_dir: &Inode,
    ) -> Result<Trees> {
        let tree = |inode| Tree::of(&names.store, locked.get(inode), locked.access(inode));
        let from = tree(from_dir)?;
        let other = from_dir.ino != to_dir.ino;
        let to = if other { Some(tree(to_dir)?) } else { None };
        Ok(Trees { from, to })
    }

    pub(super) fn of_target(&self) -> &Tree {
        self.to.as_ref().unwrap_or(&self.from)
    }

    /// Takes the old name, or gives it to `left`. Returns the place of the new one, which was `to`
    /// before.
    fn vacate<'n>(
        &self,
        edit: &mut TreeEdit<'_, '_>,
        left: Option<&InodeRef>,
        (source_dir, from): (&InodeState, &Located<'_>),
        (target_dir, leaf, to): (&InodeState, Option<&Leaf>, Located<'n>),
    ) -> std::result::Result<Located<'n>, Attempt> {
        if let Some(left) = left {
            edit.retarget(&self.from, from, target(left.ino(), left.kind()))?;
            return Ok(to);
        }
        match edit.remove(&self.from, source_dir, from)? {
            Removed::Entry => Ok(to),
            Removed::Nodes => Ok(edit.locate((self.of_target(), target_dir), leaf, to.name)?),
        }
    }

    /// Changes the entries. The removal comes before the insert: it only frees nodes that were
    /// there before, and the insert then finds its place in what is left.
    pub(super) fn edit(
        &mut self,
        edit: &mut TreeEdit<'_, '_>,
        names: NamePair<'_>,
        plan: &Plan<'_>,
        (locked, buckets): (&LockedInodes<'_>, &LockedBuckets<'_>),
    ) -> std::result::Result<Changes, Attempt> {
        let source = target(plan.source.ino(), plan.source.kind());
        let replaced = plan
            .target
            .as_ref()
            .map(|inode| target(inode.ino(), inode.kind()));
        let source_dir = locked.get(names.from_dir.inode());
        let from = edit.locate((&self.from, source_dir), buckets.leaf(0), names.from)?;
        let (target_dir, leaf) = (locked.get(names.to_dir.inode()), buckets.leaf(1));
        let to = edit.locate((self.of_target(), target_dir), leaf, names.to)?;
        if from.found() != Some(source) || to.found() != replaced {
            return Err(Attempt::Again);
        }
        let mut away = Change::of(source.kind, -1);
        if let Some(left) = names.left {
            away = away.and(Change::of(left.kind().code(), 1));
        }
        let here = Change::of(source.kind, 1);
        let Some(replaced) = replaced else {
            let to = self.vacate(
                edit,
                names.left,
                (source_dir, &from),
                (target_dir, leaf, to),
            )?;
            let tree = self.to.as_mut().unwrap_or(&mut self.from);
            edit.insert(tree, to, source)?;
            return Ok(Changes {
                from: away,
                to: here,
            });
        };
        if plan.mode == RenameMode::Exchange {
            edit.retarget(&self.from, &from, replaced)?;
            edit.retarget(self.of_target(), &to, source)?;
            let back = Change::of(replaced.kind, 1);
            return Ok(Changes {
                from: away.and(back),
                to: here.and(Change::of(replaced.kind, -1)),
            });
        }
        let victim: &Inode = plan
            .target
            .as_ref()
            .expect("a rename that replaces has a target")
            .inode();
        if victim.kind == FileKind::Directory {
            edit.free_all(locked.get(victim))?;
        }
        let to = self.vacate(
            edit,
            names.left,
            (source_dir, &from),
            (target_dir, leaf, to),
        )?;
        let found: Option<Found> = to.found();
        assert_eq!(
            found,
            Some(replaced),
            "the removal of one name leaves the other"
        );
        edit.retarget(self.of_target(), &to, source)?;
        Ok(Changes {
            from: away,
            to: here.and(Change::of(replaced.kind, -1)),
        })
    }
}
