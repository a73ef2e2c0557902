//! Walking a path without locks or references, as far as everything on it is known already.
//!
//! A walk with references writes lines that all who walk through the same directories share. This
//! one only reads: names, attributes and targets of links that the file system knows
//! ([`FileSystem::peek`]). At the first thing that it does not know, or `..`, it gives up, and the
//! walk with references finds what there is; that also fills in what was not known. What it does
//! say, errors included, is what the other walk could have said meanwhile.

use dure_fs::{FileKind, InodeId, Peek};
use rustix::io::Errno;

use crate::path::{Last, PathBytes};
use crate::permission::{self, Access, Verdict};
use crate::walk::{Links, Walk};

/// Why there is no inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stop {
    /// The walk fails.
    Error(Errno),
    /// Only a walk with references can tell.
    Unknown,
}

pub(crate) type Quick<T> = std::result::Result<T, Stop>;

impl Walk<'_> {
    /// The directory that `path` ends in; the caller may search it.
    pub(crate) fn quick_place(
        &self,
        start: InodeId,
        path: &PathBytes<'_>,
        links_left: &mut u32,
    ) -> Quick<InodeId> {
        let root = self.root.id();
        let mut dir = if path.absolute { root } else { start };
        for component in path.components() {
            self.quick_search(dir)?;
            dir = match component {
                b"." => dir,
                b".." if dir == root => dir,
                b".." => return Err(Stop::Unknown),
                name => {
                    let found = self.quick_name(dir, name)?;
                    if found.is(FileKind::Symlink) {
                        self.quick_through(dir, found, links_left)?
                    } else {
                        found
                    }
                }
            };
        }
        if path.last != Last::Root {
            self.quick_search(dir)?;
        }
        Ok(dir)
    }

    /// The inode at `path`.
    pub(crate) fn quick_find(
        &self,
        start: InodeId,
        path: &[u8],
        links: Links,
        links_left: &mut u32,
    ) -> Quick<InodeId> {
        let path = PathBytes::parse(path).map_err(Stop::Error)?;
        let dir = self.quick_place(start, &path, links_left)?;
        let mut found = match path.last {
            Last::Name(name) => self.quick_name(dir, name)?,
            Last::Root | Last::Dot => dir,
            Last::DotDot if dir == self.root.id() => dir,
            Last::DotDot => return Err(Stop::Unknown),
        };
        let follow = links == Links::Follow || path.slash;
        if found.is(FileKind::Symlink) && follow {
            found = self.quick_through(dir, found, links_left)?;
        }
        if path.slash && !found.is(FileKind::Directory) {
            return Err(Stop::Error(Errno::NOTDIR));
        }
        Ok(found)
    }

    /// What `link`, a symbolic link in `dir`, leads to.
    #[cold]
    fn quick_through(&self, dir: InodeId, link: InodeId, links_left: &mut u32) -> Quick<InodeId> {
        // The other walk counts them again, and says that they are too many.
        *links_left = links_left.checked_sub(1).ok_or(Stop::Unknown)?;
        let target = self.fs.peek_target(link).ok_or(Stop::Unknown)?;
        self.quick_find(dir, &target, Links::Follow, links_left)
    }

    #[inline]
    fn quick_name(&self, dir: InodeId, name: &[u8]) -> Quick<InodeId> {
        match self.fs.peek(dir, name) {
            Peek::Found(id) => Ok(id),
            Peek::Absent => Err(Stop::Error(Errno::NOENT)),
            Peek::Unknown => Err(Stop::Unknown),
        }
    }

    #[inline]
    fn quick_search(&self, dir: InodeId) -> Quick<()> {
        if !dir.is(FileKind::Directory) {
            return Err(Stop::Error(Errno::NOTDIR));
        }
        if self.caller.is_root() {
            return Ok(());
        }
        let node = self.fs.peek_permissions(dir).ok_or(Stop::Unknown)?;
        match permission::verdict(self.caller, &node, Access::EXECUTE) {
            Verdict::Unless(_) if node.extended => Err(Stop::Unknown),
            Verdict::Granted | Verdict::Unless(true) => Ok(()),
            Verdict::Denied | Verdict::Unless(false) => Err(Stop::Error(Errno::ACCESS)),
        }
    }
}
