//! Fast path of a path walk: takes no locks and no references, as long as the caches have
//! everything on the path.
//!
//! The slow path takes references, which writes cache lines that all walks through the same
//! directories share. The fast path only reads the dentry, attribute and symlink caches
//! ([`FileSystem::peek`]). At the first cache miss, or at `..`, it gives up, and the slow path
//! starts over; that also fills the caches. Every result of the fast path, errors included, is one
//! that the slow path could have returned meanwhile.

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
    /// Only the slow path can tell.
    Unknown,
    /// Like `Unknown`, but the path is known to end in this directory; only its last name is not
    /// cached.
    UnknownIn(InodeId),
}

pub(crate) type Fast<T> = std::result::Result<T, Stop>;

impl Walk<'_> {
    /// The directory that `path` ends in; the caller may search it.
    pub(crate) fn fast_place(
        &self,
        start: InodeId,
        path: &PathBytes<'_>,
        links_left: &mut u32,
    ) -> Fast<InodeId> {
        let root = self.root.id();
        let mut dir = if path.absolute { root } else { start };
        for component in path.components() {
            self.fast_search(dir)?;
            dir = match component {
                b"." => dir,
                b".." if dir == root => dir,
                b".." => return Err(Stop::Unknown),
                name => {
                    let found = self.fast_name(dir, name)?;
                    if found.is(FileKind::Symlink) {
                        self.fast_through(dir, found, links_left)?
                    } else {
                        found
                    }
                }
            };
        }
        if path.last != Last::Root {
            self.fast_search(dir)?;
        }
        Ok(dir)
    }

    /// The inode at `path`.
    pub(crate) fn fast_find(
        &self,
        start: InodeId,
        path: &PathBytes<'_>,
        links: Links,
        links_left: &mut u32,
    ) -> Fast<InodeId> {
        let dir = self.fast_place(start, path, links_left)?;
        let mut found = match path.last {
            Last::Name(name) => match self.fast_name(dir, name) {
                Err(Stop::Unknown) => return Err(Stop::UnknownIn(dir)),
                found => found?,
            },
            Last::Root | Last::Dot => dir,
            Last::DotDot if dir == self.root.id() => dir,
            Last::DotDot => return Err(Stop::Unknown),
        };
        let follow = links == Links::Follow || path.slash;
        if found.is(FileKind::Symlink) && follow {
            found = self.fast_through(dir, found, links_left)?;
        }
        if path.slash && !found.is(FileKind::Directory) {
            return Err(Stop::Error(Errno::NOTDIR));
        }
        Ok(found)
    }

    /// What `link`, a symbolic link in `dir`, leads to.
    #[cold]
    fn fast_through(&self, dir: InodeId, link: InodeId, links_left: &mut u32) -> Fast<InodeId> {
        // The slow path counts them again, and returns the error if they are too many.
        *links_left = links_left.checked_sub(1).ok_or(Stop::Unknown)?;
        let target = self.fs.peek_target(link).ok_or(Stop::Unknown)?;
        let path = PathBytes::parse(&target).map_err(Stop::Error)?;
        match self.fast_find(dir, &path, Links::Follow, links_left) {
            // The last name of another path.
            Err(Stop::UnknownIn(_)) => Err(Stop::Unknown),
            found => found,
        }
    }

    #[inline]
    fn fast_name(&self, dir: InodeId, name: &[u8]) -> Fast<InodeId> {
        match self.fs.peek(dir, name) {
            Peek::Found(id) => Ok(id),
            Peek::Absent => Err(Stop::Error(Errno::NOENT)),
            Peek::Unknown => Err(Stop::Unknown),
        }
    }

    #[inline]
    fn fast_search(&self, dir: InodeId) -> Fast<()> {
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
