//! Opening a path: the rules of `open(2)`.

use std::path::Path;

use dure_fs::{FileKind, InodeRef, Peek};
use rustix::io::Errno;

use crate::file::File;
use crate::options::OpenOptions;
use crate::path::Last;
use crate::permission::Access;
use crate::session::Session;
use crate::walk::{Links, Place, Result, Walk};

impl Session {
    pub(crate) fn open_path(&self, path: &Path, options: &OpenOptions) -> Result<File> {
        options.check()?;
        let mut walk = self.walk();
        if !options.creates() {
            // Nothing is created, so neither the directory nor a reference to it is needed.
            let links = if options.no_follow {
                Links::Keep
            } else {
                Links::Follow
            };
            let found = walk.find(&self.start, path, links)?;
            let inode = self.open_found(found, options)?;
            return Ok(File::new(self, inode, path, options));
        }
        let place = walk.place(&self.start, path)?;
        let inode = self.open_place(&mut walk, place, options, options.no_follow)?;
        Ok(File::new(self, inode, path, options))
    }

    fn open_place(
        &self,
        walk: &mut Walk<'_>,
        place: Place<'_>,
        options: &OpenOptions,
        no_follow: bool,
    ) -> Result<InodeRef> {
        let Last::Name(name) = place.last else {
            let found = walk.unnamed(&place)?;
            return self.open_found(found, options);
        };
        if options.creates() && place.slash {
            return Err(Errno::ISDIR.into());
        }
        if options.create_new {
            // Many may try to make a lock file that is there: no lock for that answer.
            if let Peek::Found(_) = self.fs().peek(place.dir.id(), name) {
                return Err(Errno::EXIST.into());
            }
            return self
                .create_at(&place.dir, name, options.mode)
                .or_else(|cause| {
                    // Find out the error that Linux would report first only when the call fails.
                    let taken = walk.is_taken(&place.dir, name)?;
                    Err(if taken { Errno::EXIST.into() } else { cause })
                });
        }
        let Some(found) = walk.lookup(&place.dir, name)? else {
            return self.open_missing(walk, place, name, options, no_follow);
        };
        if self.fs().peek(place.dir.id(), name) == Peek::Unknown {
            // Opening an existing file in this way is likely to be repeated.
            walk.look_up_and_remember(&place.dir, name)?;
        }
        if found.kind() == FileKind::Symlink && (!no_follow || place.slash) {
            let target = walk.target(&found)?;
            let below = walk.place_bytes(&place.dir, &target)?;
            let slash = below.slash || place.slash;
            return self.open_place(walk, Place { slash, ..below }, options, false);
        }
        if place.slash && found.kind() != FileKind::Directory {
            return Err(Errno::NOTDIR.into());
        }
        self.open_found(found, options)
    }

    /// Creates the file, which did not exist, if permitted and unless another caller creates it
    /// first.
    fn open_missing(
        &self,
        walk: &mut Walk<'_>,
        place: Place<'_>,
        name: &[u8],
        options: &OpenOptions,
        no_follow: bool,
    ) -> Result<InodeRef> {
        match self.create_at(&place.dir, name, options.mode) {
            Err(cause) if cause.errno() == Errno::EXIST.raw_os_error() => {
                self.open_place(walk, place, options, no_follow)
            }
            made => made,
        }
    }

    fn open_found(&self, found: InodeRef, options: &OpenOptions) -> Result<InodeRef> {
        let kind = found.kind();
        if options.create_new {
            return Err(Errno::EXIST.into());
        }
        if options.creates() && kind == FileKind::Directory {
            return Err(Errno::ISDIR.into());
        }
        if options.directory && kind != FileKind::Directory {
            return Err(Errno::NOTDIR.into());
        }
        match kind {
            FileKind::Symlink => return Err(Errno::LOOP.into()),
            FileKind::Directory if options.writes() => return Err(Errno::ISDIR.into()),
            _ => {}
        }
        let actor = self.actor();
        let want = |wanted, access| if wanted { access } else { Access::EXISTS };
        let reads = want(options.read, Access::READ);
        actor.check(&found, reads.and(want(options.writes(), Access::WRITE)))?;
        // A pipe, socket or device is a kernel object; behind these names there is none.
        if !matches!(kind, FileKind::File | FileKind::Directory) {
            return Err(Errno::NXIO.into());
        }
        if options.truncate {
            actor.truncate(&found, 0)?;
        }
        Ok(found)
    }
}
