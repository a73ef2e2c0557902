//! Paths in the model: what a path leads to, component by component.

use rustix::io::Errno;

use super::ModelFs;
use super::node::{Body, Kind};
use super::permission::{EXECUTE, Who};
use super::store::{ROOT, Result};

const PATH_MAX: usize = 4096;
const LINKS_MAX: u32 = 40;

/// The last component of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Last {
    /// A name.
    Name(Vec<u8>),
    /// `.`
    Dot,
    /// `..`
    DotDot,
    /// The path is only `/`.
    Root,
}

/// The directory a path ends in, and its last component there.
#[derive(Debug, Clone)]
pub(super) struct Place {
    /// The directory; its search permission has been checked.
    pub(super) dir: u64,
    /// The last component.
    pub(super) last: Last,
    /// Whether a slash follows it.
    pub(super) slash: bool,
}

/// One walk: the caller, and the symbolic links it may still follow.
#[derive(Debug)]
pub(super) struct Walk {
    who: Who,
    links_left: u32,
}

impl Walk {
    pub(super) fn new(who: Who) -> Walk {
        Walk {
            who,
            links_left: LINKS_MAX,
        }
    }
}

impl ModelFs {
    fn enter(&self, walk: &mut Walk, dir: u64, component: &str) -> Result<u64> {
        self.searchable(walk.who, dir)?;
        match component {
            "." => Ok(dir),
            ".." => Ok(self.store.parent(dir)),
            name => {
                let ino = self
                    .store
                    .lookup(dir, name.as_bytes())?
                    .ok_or(Errno::NOENT)?;
                self.through(walk, dir, ino)
            }
        }
    }

    fn searchable(&self, who: Who, dir: u64) -> Result<()> {
        if self.store.node(dir).kind() != Kind::Directory {
            return Err(Errno::NOTDIR);
        }
        who.check(self.store.node(dir), EXECUTE)
    }

    /// `ino`, or what it leads to if it is a symbolic link in `dir`.
    pub(super) fn through(&self, walk: &mut Walk, dir: u64, ino: u64) -> Result<u64> {
        let Body::Symlink(target) = &self.store.node(ino).body else {
            return Ok(ino);
        };
        walk.links_left = walk.links_left.checked_sub(1).ok_or(Errno::LOOP)?;
        let target = String::from_utf8(target.clone()).expect("the tests' targets are text");
        self.find_from(walk, dir, &target, true)
    }

    /// The target of the symbolic link `ino` as a place, for `open(O_CREAT)`.
    pub(super) fn place_of_link(&self, walk: &mut Walk, dir: u64, ino: u64) -> Result<Place> {
        let Body::Symlink(target) = &self.store.node(ino).body else {
            unreachable!("only symbolic links are followed");
        };
        walk.links_left = walk.links_left.checked_sub(1).ok_or(Errno::LOOP)?;
        let target = String::from_utf8(target.clone()).expect("the tests' targets are text");
        self.place_from(walk, dir, &target)
    }

    pub(super) fn place(&self, who: Who, path: &str) -> Result<Place> {
        self.place_from(&mut Walk::new(who), ROOT, path)
    }

    pub(super) fn place_from(&self, walk: &mut Walk, start: u64, path: &str) -> Result<Place> {
        if path.is_empty() {
            return Err(Errno::NOENT);
        }
        if path.len() >= PATH_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        let mut dir = if path.starts_with('/') { ROOT } else { start };
        let mut components: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let Some(last) = components.pop() else {
            return Ok(Place {
                dir,
                last: Last::Root,
                slash: true,
            });
        };
        for component in components {
            dir = self.enter(walk, dir, component)?;
        }
        self.searchable(walk.who, dir)?;
        let last = match last {
            "." => Last::Dot,
            ".." => Last::DotDot,
            name => Last::Name(name.as_bytes().to_vec()),
        };
        Ok(Place {
            dir,
            last,
            slash: path.ends_with('/'),
        })
    }

    /// The inode at `path`.
    pub(super) fn find(&self, who: Who, path: &str, follow: bool) -> Result<u64> {
        self.find_from(&mut Walk::new(who), ROOT, path, follow)
    }

    fn find_from(&self, walk: &mut Walk, start: u64, path: &str, follow: bool) -> Result<u64> {
        let place = self.place_from(walk, start, path)?;
        let ino = match &place.last {
            Last::Root => ROOT,
            Last::Dot => place.dir,
            Last::DotDot => self.store.parent(place.dir),
            Last::Name(name) => {
                let ino = self.store.lookup(place.dir, name)?.ok_or(Errno::NOENT)?;
                let follow = follow || place.slash;
                if follow {
                    self.through(walk, place.dir, ino)?
                } else {
                    ino
                }
            }
        };
        if place.slash && self.store.node(ino).kind() != Kind::Directory {
            return Err(Errno::NOTDIR);
        }
        Ok(ino)
    }
}
