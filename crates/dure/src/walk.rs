//! Walking a path: from a directory, component by component, through symbolic links.
//!
//! A walk takes no lock of its own and allocates nothing unless it meets a symbolic link. Root is
//! not checked for search permission, so for root a component costs one lookup. The fast path,
//! without references, is tried first (`fast_path.rs`).

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use dure_fs::{Attributes, FileKind, FileSystem, InodeId, InodeRef, Peek};
use rustix::io::Errno;

use crate::credentials::Credentials;
use crate::error::Cause;
use crate::fast_path::{Fast, Stop};
use crate::path::{LINKS_MAX, Last, PathBytes};
use crate::permission::{self, Access, Verdict};
use crate::{acl, xattr};

pub(crate) type Result<T> = std::result::Result<T, Cause>;

/// What to do with a symbolic link as the last component.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Links {
    Follow,
    Keep,
}

/// The directory a path ends in, and its last component there.
pub(crate) struct Place<'p> {
    /// The directory; the caller may search it.
    pub(crate) dir: InodeRef,
    /// The last component.
    pub(crate) last: Last<'p>,
    /// A slash follows it.
    pub(crate) slash: bool,
}

impl<'p> Place<'p> {
    /// The place of `path`, which ends in `dir`.
    fn new(dir: InodeRef, path: &PathBytes<'p>) -> Place<'p> {
        Place {
            dir,
            last: path.last,
            slash: path.slash,
        }
    }
}

/// One walk.
pub(crate) struct Walk<'s> {
    pub(crate) fs: &'s FileSystem,
    pub(crate) caller: &'s Credentials,
    pub(crate) root: &'s InodeRef,
    links_left: u32,
}

impl<'s> Walk<'s> {
    pub(crate) fn new(fs: &'s FileSystem, caller: &'s Credentials, root: &'s InodeRef) -> Walk<'s> {
        Walk {
            fs,
            caller,
            root,
            links_left: LINKS_MAX,
        }
    }

    /// The place of `path`, relative to `start`.
    pub(crate) fn place<'p>(&mut self, start: &InodeRef, path: &'p Path) -> Result<Place<'p>> {
        self.place_bytes(start, path.as_os_str().as_bytes())
    }

    pub(crate) fn place_bytes<'p>(
        &mut self,
        start: &InodeRef,
        path: &'p [u8],
    ) -> Result<Place<'p>> {
        let path = PathBytes::parse(path)?;
        self.place_of(start, &path)
    }

    fn place_of<'p>(&mut self, start: &InodeRef, path: &PathBytes<'p>) -> Result<Place<'p>> {
        let dir = match self.fast_place(start.id(), path, &mut { self.links_left }) {
            Ok(id) => self.fs.pin(id)?,
            Err(Stop::Error(errno)) => return Err(errno.into()),
            Err(Stop::Unknown | Stop::UnknownIn(_)) => None,
        };
        let dir = match dir {
            Some(dir) => dir,
            None => self.slow_place(start, path)?,
        };
        Ok(Place::new(dir, path))
    }

    /// The directory that `path` ends in, with a reference to each directory on the way.
    fn slow_place(&mut self, start: &InodeRef, path: &PathBytes<'_>) -> Result<InodeRef> {
        let mut dir = if path.absolute {
            self.root.clone()
        } else {
            start.clone()
        };
        for component in path.components() {
            dir = self.enter(&dir, component)?;
        }
        if path.last != Last::Root {
            self.check_search(&dir)?;
        }
        Ok(dir)
    }

    /// The inode at `path`.
    pub(crate) fn find(&mut self, start: &InodeRef, path: &Path, links: Links) -> Result<InodeRef> {
        let path = PathBytes::parse(path.as_os_str().as_bytes())?;
        let known = self.fast_find(start.id(), &path, links, &mut { self.links_left });
        self.find_after(known, start, &path, links)
    }

    /// The attributes of the inode at `path`.
    pub(crate) fn stat(
        &mut self,
        start: &InodeRef,
        path: &Path,
        links: Links,
    ) -> Result<Attributes> {
        let path = PathBytes::parse(path.as_os_str().as_bytes())?;
        let known = self.fast_find(start.id(), &path, links, &mut { self.links_left });
        if let Ok(id) = known
            && let Some(attributes) = self.fs.peek_attributes(id)
        {
            return Ok(attributes);
        }
        let found = self.find_after(known, start, &path, links)?;
        Ok(self.fs.attributes(&found)?)
    }

    /// The inode at `path`, given the result of the fast path.
    fn find_after(
        &mut self,
        known: Fast<InodeId>,
        start: &InodeRef,
        path: &PathBytes<'_>,
        links: Links,
    ) -> Result<InodeRef> {
        match known {
            Ok(id) => {
                if let Some(found) = self.fs.pin(id)? {
                    return Ok(found);
                }
            }
            Err(Stop::UnknownIn(dir)) => {
                if let Some(dir) = self.fs.pin(dir)? {
                    return self.find_at(Place::new(dir, path), links);
                }
            }
            Err(Stop::Error(errno)) => return Err(errno.into()),
            Err(Stop::Unknown) => {}
        }
        let place = self.place_of(start, path)?;
        self.find_at(place, links)
    }

    fn find_at(&mut self, place: Place<'_>, links: Links) -> Result<InodeRef> {
        let found = match place.last {
            Last::Name(name) => {
                let found = self.look_up_and_remember(&place.dir, name)?;
                let found = found.ok_or(Errno::NOENT)?;
                let follow = links == Links::Follow || place.slash;
                if follow {
                    self.through(&place.dir, found)?
                } else {
                    found
                }
            }
            Last::Root | Last::Dot => place.dir,
            Last::DotDot => self.parent(&place.dir)?,
        };
        if place.slash && found.kind() != FileKind::Directory {
            return Err(Errno::NOTDIR.into());
        }
        Ok(found)
    }

    /// The inode a place that is not a name stands for.
    pub(crate) fn unnamed(&self, place: &Place<'_>) -> Result<InodeRef> {
        match place.last {
            Last::DotDot => self.parent(&place.dir),
            _ => Ok(place.dir.clone()),
        }
    }

    pub(crate) fn lookup(&self, dir: &InodeRef, name: &[u8]) -> Result<Option<InodeRef>> {
        if name.len() > 255 {
            return Err(Errno::NAMETOOLONG.into());
        }
        Ok(self.fs.lookup(dir, name)?)
    }

    /// Whether `name` leads to anything.
    pub(crate) fn is_taken(&self, dir: &InodeRef, name: &[u8]) -> Result<bool> {
        match self.fs.peek(dir.id(), name) {
            Peek::Found(_) => Ok(true),
            Peek::Absent => Ok(false),
            Peek::Unknown => Ok(self.lookup(dir, name)?.is_some()),
        }
    }

    /// Like [`Walk::lookup`], for a name that will be asked for again.
    pub(crate) fn look_up_and_remember(
        &self,
        dir: &InodeRef,
        name: &[u8],
    ) -> Result<Option<InodeRef>> {
        if name.len() > 255 {
            return Err(Errno::NAMETOOLONG.into());
        }
        Ok(self.fs.look_up_and_remember(dir, name)?)
    }

    fn enter(&mut self, dir: &InodeRef, component: &[u8]) -> Result<InodeRef> {
        self.check_search(dir)?;
        match component {
            b"." => Ok(dir.clone()),
            b".." => self.parent(dir),
            name => {
                let found = self.look_up_and_remember(dir, name)?;
                let found = found.ok_or(Errno::NOENT)?;
                self.through(dir, found)
            }
        }
    }

    fn parent(&self, dir: &InodeRef) -> Result<InodeRef> {
        if dir.ino() == self.root.ino() {
            return Ok(dir.clone());
        }
        Ok(self.fs.inode(self.fs.parent(dir)?)?)
    }

    /// `found`, or what it leads to if it is a symbolic link in `dir`.
    fn through(&mut self, dir: &InodeRef, found: InodeRef) -> Result<InodeRef> {
        if found.kind() != FileKind::Symlink {
            return Ok(found);
        }
        let target = self.target(&found)?;
        let place = self.place_bytes(dir, &target)?;
        self.find_at(place, Links::Follow)
    }

    /// Where a symbolic link leads; counts it.
    pub(crate) fn target(&mut self, link: &InodeRef) -> Result<Vec<u8>> {
        self.links_left = self.links_left.checked_sub(1).ok_or(Errno::LOOP)?;
        match self.fs.peek_target(link.id()) {
            Some(target) => Ok(target),
            None => Ok(self.fs.read_link(link)?),
        }
    }

    /// What the symbolic link at `path` leads to.
    pub(crate) fn read_link(&mut self, start: &InodeRef, path: &Path) -> Result<Vec<u8>> {
        let bytes = PathBytes::parse(path.as_os_str().as_bytes())?;
        let known = self.fast_find(start.id(), &bytes, Links::Keep, &mut { self.links_left });
        if let Ok(id) = known
            && id.is(FileKind::Symlink)
            && let Some(target) = self.fs.peek_target(id)
        {
            return Ok(target);
        }
        let found = self.find(start, path, Links::Keep)?;
        if found.kind() != FileKind::Symlink {
            return Err(Errno::INVAL.into());
        }
        Ok(self.fs.read_link(&found)?)
    }

    fn check_search(&self, dir: &InodeRef) -> Result<()> {
        if dir.kind() != FileKind::Directory {
            return Err(Errno::NOTDIR.into());
        }
        if self.caller.is_root() {
            return Ok(());
        }
        check(self.fs, self.caller, dir, Access::EXECUTE)
    }
}

/// Checks that `caller` has `want` on `inode`.
pub(crate) fn check(
    fs: &FileSystem,
    caller: &Credentials,
    inode: &InodeRef,
    want: Access,
) -> Result<()> {
    let node = fs.permissions(inode)?;
    let granted = match permission::verdict(caller, &node, want) {
        Verdict::Granted => true,
        Verdict::Denied => false,
        Verdict::Unless(granted) if !node.extended => granted,
        Verdict::Unless(granted) => match xattr::access_list(fs, inode, acl::ACCESS)? {
            Some(list) => permission::list_grants(caller, &node, &list, want),
            None => granted,
        },
    };
    if granted {
        Ok(())
    } else {
        Err(Errno::ACCESS.into())
    }
}
