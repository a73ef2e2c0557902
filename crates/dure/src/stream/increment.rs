//! A stream of what differs between two snapshots.
//!
//! **Problem.** Names move in circles: two files swap their names, a directory moves into its former
//! child, a name is taken over by another kind of inode. **Structure.** Names first. Whatever has a
//! name only in the older snapshot loses it: what is there later is put away, the rest
//! is removed, what is deepest first ([`Increment::take_away`]). Then each new name can be given:
//! directories first, what is highest first ([`Increment::give`]), so that all paths are those of the
//! newer snapshot from there on. Then what the inodes hold, directories last, as all before changes
//! their times. **Invariants.** Memory grows with what differs. **Crash.** Nothing is changed.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{ControlFlow, Range};

use dure_fs::units::Ino;
use dure_fs::{FileKind, FileSystem, InodeRef, Named, NamesByInode};

use super::body::{Holes, Source, inode_of};
use super::format::Record;
use super::send::Output;
use super::shown;
use crate::error::{Context, Result};

/// An inode: its number, and which of the files that have had it.
type Id = (Ino, u32);

/// What there is to send.
struct Increment<'s> {
    older: &'s FileSystem,
    newer: &'s FileSystem,
    /// When the older one was taken, in seconds since 1970.
    taken: i64,
    /// Inodes that both have and that may differ, as they were and are.
    both: BTreeMap<Id, (Named, Named)>,
    /// A path of each inode with several names that has one in both.
    stays: BTreeMap<Id, Vec<u8>>,
    /// Names that only the older one has, and those that only the newer one has.
    before: NamesByInode,
    after: NamesByInode,
    /// Directories in which a name is no longer, or new.
    touched: BTreeSet<Id>,
}

pub(super) fn send(
    (taken, older): (i64, &FileSystem),
    newer: &FileSystem,
    output: &mut Output<'_>,
) -> Result<()> {
    let mut increment = Increment {
        older,
        newer,
        taken,
        both: BTreeMap::new(),
        stays: BTreeMap::new(),
        before: BTreeMap::new(),
        after: BTreeMap::new(),
        touched: BTreeSet::new(),
    };
    let compared = newer.compare_names(older, &mut |was, is| {
        increment.same(was, is);
        Ok(())
    });
    let (before, after) = compared.during("send")?;
    increment.reconcile(before, after);
    increment.take_away(output)?;
    increment.give(output)?;
    increment.contents(output)?;
    increment.directories(output)
}

impl Increment<'_> {
    /// A name of the same inode in both.
    fn same(&mut self, was: &Named, is: &Named) {
        let (old, new) = (&was.attributes, &is.attributes);
        if new.kind != FileKind::Directory && (new.nlink > 1 || old.nlink > 1) {
            let first = self.stays.entry(is.id());
            first.or_insert_with(|| is.path.clone());
        }
        let same = (old.ctime, old.nlink, plain(was)) == (new.ctime, new.nlink, plain(is))
            && !FileSystem::may_have_changed(self.taken, old);
        // The root comes last in any case.
        if !same || is.path.is_empty() {
            let known = self.both.entry(is.id());
            known.or_insert_with(|| (was.clone(), is.clone()));
        }
    }

    /// Sorts out the names that stay, below directories that moved.
    fn reconcile(&mut self, before: NamesByInode, mut after: NamesByInode) {
        for (id, mut old) in before {
            let mut new = after.remove(&id).unwrap_or_default();
            old.retain(|was| {
                let place = |is: &Named| (is.parent, &is.name) == (was.parent, &was.name);
                let stays = new.iter().position(place);
                if let Some(at) = stays {
                    let is = new.swap_remove(at);
                    self.same(was, &is);
                }
                stays.is_none()
            });
            if let (Some(was), Some(is)) = (old.first(), new.first()) {
                let known = self.both.entry(id);
                known.or_insert_with(|| (was.clone(), is.clone()));
            }
            self.touch(&old);
            self.touch(&new);
            for (names, all) in [(old, &mut self.before), (new, &mut self.after)] {
                if !names.is_empty() {
                    all.insert(id, names);
                }
            }
        }
        for (id, new) in after {
            self.touch(&new);
            self.after.insert(id, new);
        }
        for names in self.after.values_mut() {
            names.sort_by(|one, other| one.path.cmp(&other.path));
        }
    }

    fn touch(&mut self, names: &[Named]) {
        self.touched.extend(names.iter().map(|named| named.parent));
    }

    /// Takes the names away that only the older one has. A child comes before its directory, which then
    /// is empty, and at its old path.
    fn take_away(&self, output: &mut Output<'_>) -> Result<()> {
        let mut all = Vec::new();
        for (id, names) in &self.before {
            // One of its names is enough to keep it.
            let mut stays = self.after.contains_key(id);
            for named in names {
                all.push((&named.path[..], std::mem::take(&mut stays)));
            }
        }
        all.sort_unstable_by(|one, other| other.0.cmp(one.0));
        for (path, stays) in all {
            let record = match stays {
                true => Record::Away { path },
                false => Record::Remove { path },
            };
            output.record(path, &record)?;
        }
        Ok(())
    }

    /// Gives the names that only the newer one has: first of directories, a directory before what is in
    /// it; then of all else, which finds the directories in place, and so the other names of inodes.
    fn give(&self, output: &mut Output<'_>) -> Result<()> {
        let first = |(id, names): (&Id, &Vec<Named>)| (names[0].path.clone(), *id);
        let mut all: Vec<(Vec<u8>, Id)> = self.after.iter().map(first).collect();
        all.sort_unstable();
        let is_directory = |id: &Id| self.after[id][0].is_directory();
        let (directories, others): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|(_, id)| is_directory(id));
        for (_, id) in directories.into_iter().chain(others) {
            self.name(id, &self.after[&id], output)?;
        }
        Ok(())
    }

    /// Gives an inode its new names.
    fn name(&self, id: Id, names: &[Named], output: &mut Output<'_>) -> Result<()> {
        let named = &names[0];
        let path = &named.path;
        let (mut of, mut rest) = (&named.path, &names[1..]);
        if let Some(was) = self.before.get(&id) {
            let of = &was[0].path;
            output.record(path, &Record::Place { of, path })?;
        } else if let Some(stays) = self.stays.get(&id) {
            (of, rest) = (stays, names);
        } else {
            let (fs, inode) = (self.newer, &inode_of(self.newer, named)?);
            output.make(fs, inode, named)?;
            if !named.is_directory() {
                Source { fs, inode, named }.whole(output)?;
            }
        }
        for named in rest {
            let path = &named.path;
            output.record(path, &Record::Link { of, path })?;
        }
        Ok(())
    }

    /// What files that both have hold; then new and moved ones are complete.
    fn contents(&self, output: &mut Output<'_>) -> Result<()> {
        let files = self.both.values().filter(|(_, is)| !is.is_directory());
        for (was, is) in files {
            let mut changed = Changed {
                older: self.older,
                was,
                before: &inode_of(self.older, was)?,
                source: Source {
                    fs: self.newer,
                    inode: &inode_of(self.newer, is)?,
                    named: is,
                },
                is_selected: false,
            };
            changed.send(output)?;
        }
        Ok(())
    }

    /// Directories that are new, have moved, or may have changed. The root is the last.
    fn directories(&self, output: &mut Output<'_>) -> Result<()> {
        let mut all: BTreeMap<&[u8], &Named> = BTreeMap::new();
        let new = self.after.values().map(|names| &names[0]);
        let project = |fs: &FileSystem, named: &Named| {
            let inode = fs.inode(named.attributes.ino);
            inode.map(|inode| fs.project(&inode)).ok()
        };
        let both = self.both.iter().filter(|(id, (was, is))| {
            let moves =
                || self.newer.has_projects() && project(self.older, was) != project(self.newer, is);
            let is_same = was.attributes.ctime == is.attributes.ctime && plain(was) == plain(is);
            !is_same
                || self.touched.contains(id)
                || is.path.is_empty()
                || is.attributes.extended
                || was.attributes.extended
                || moves()
        });
        let both = both.map(|(_, (_, is))| is);
        for named in new.chain(both).filter(|named| named.is_directory()) {
            all.insert(&named.path, named);
        }
        for named in all.into_values().rev() {
            let (fs, inode) = (self.newer, &inode_of(self.newer, named)?);
            Source { fs, inode, named }.directory(output)?;
        }
        Ok(())
    }
}

/// A file, or another inode that is no directory, that both have.
struct Changed<'s> {
    older: &'s FileSystem,
    was: &'s Named,
    before: &'s InodeRef,
    source: Source<'s>,
    is_selected: bool,
}

impl Changed<'_> {
    fn send(&mut self, output: &mut Output<'_>) -> Result<()> {
        let is = self.source.named;
        if is.attributes.kind == FileKind::File {
            for range in self.ranges()? {
                self.select(output)?;
                self.source.content(range, Holes::Told, output)?;
            }
        }
        let older = Source {
            fs: self.older,
            inode: self.before,
            named: self.was,
        };
        let xattrs = self.source.xattrs()?;
        if xattrs != older.xattrs()? {
            self.select(output)?;
            self.source.send_xattrs(&xattrs, output)?;
        }
        let project = |source: &Source<'_>| source.fs.project(source.inode);
        if plain(self.was) != plain(is) || project(&self.source) != project(&older) {
            self.select(output)?;
        }
        match self.is_selected {
            true => output.attributes(&self.source),
            false => Ok(()),
        }
    }

    fn select(&mut self, output: &mut Output<'_>) -> Result<()> {
        if std::mem::replace(&mut self.is_selected, true) {
            return Ok(());
        }
        let path = &self.source.named.path;
        output.record(path, &Record::Select { path })
    }

    /// The ranges within the file that may differ.
    fn ranges(&self) -> Result<Vec<Range<u64>>> {
        let Source { fs, inode, named } = self.source;
        let (mut ranges, size) = (Vec::new(), named.attributes.size);
        let found = fs.changed_ranges(inode, (self.older, self.before), &mut |range| {
            if range.start >= size {
                return ControlFlow::Break(());
            }
            ranges.push(range.start..range.end.min(size));
            ControlFlow::Continue(())
        });
        found.at("send", shown(&named.path))?;
        Ok(ranges)
    }
}

/// What a receiver sets.
fn plain(named: &Named) -> (dure_fs::format::inode::Time, u64, u32, u32, u32) {
    let attributes = &named.attributes;
    (
        attributes.mtime,
        attributes.size,
        attributes.mode,
        attributes.uid,
        attributes.gid,
    )
}
