//! Within a volume.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use dure_fs::{FileKind, XattrMode};
use rustix::io::Errno;

use super::{Account, Callback, Progress};
use crate::create::Special;
use crate::error::{Context, Result};
use crate::metadata::{FileTimes, Metadata, TimeChange};
use crate::options::OpenOptions;
use crate::session::Session;

struct Cloning<'c> {
    session: &'c Session,
    account: Account<'c>,
    root: bool,
    /// Where inodes with several names were copied to.
    links: BTreeMap<u64, PathBuf>,
    /// The first directory that was made.
    top: Option<u64>,
}

/// Clones the file or tree at `from` to `to`, of the same volume: files share their blocks until one
/// of the two is written ([`File::clone_range`](crate::File::clone_range)); what cannot be shared is copied. What is at
/// `to` already is merged and replaced as by [`put`](super::put). [`Progress::bytes`] counts the content of
/// files, holes too.
///
/// # Errors
/// The first failure, with the path it concerns; what was cloned until then stays. `EINVAL`: `to` lies
/// in `from`, or is a name of the same file.
///
/// ```
/// # let session = dure::Volume::in_memory(32 << 20)?.root();
/// session.create_dir("/notes")?;
/// session.write("/notes/today", &[7; 100_000])?;
/// let cloned = dure::tree::clone(&session, "/notes", "/copy", &mut |_| std::ops::ControlFlow::Continue(()))?;
/// assert_eq!(cloned.files, 2);
/// assert_eq!(session.read("/copy/today")?, [7; 100_000]);
/// # Ok::<(), dure::Error>(())
/// ```
pub fn clone(
    session: &Session,
    from: impl AsRef<Path>,
    to: impl AsRef<Path>,
    callback: Callback<'_>,
) -> Result<Progress> {
    let one = (from.as_ref().to_owned(), to.as_ref().to_owned());
    clone_all(session, &[one], callback)
}

/// Like [`clone`], for several, each with where it goes: hard links between them stay hard links.
///
/// # Errors
/// Those of [`clone`].
pub fn clone_all(
    session: &Session,
    copies: &[(PathBuf, PathBuf)],
    callback: Callback<'_>,
) -> Result<Progress> {
    let account = Account {
        progress: Progress::default(),
        callback,
    };
    let mut cloning = Cloning {
        session,
        account,
        root: session.credentials().is_root(),
        links: BTreeMap::new(),
        top: None,
    };
    for (from, to) in copies {
        let found = session.symlink_metadata(from)?;
        cloning.expect_apart(to, &found)?;
        if !found.is_dir()
            && session
                .symlink_metadata(to)
                .is_ok_and(|at| at.ino() == found.ino())
        {
            return Err(Errno::INVAL).at("clone a file onto itself", to);
        }
        cloning.top = None;
        cloning.any(from, to, &found)?;
    }
    Ok(cloning.account.progress)
}

impl Cloning<'_> {
    /// `to` is not below the source.
    fn expect_apart(&self, to: &Path, source: &Metadata) -> Result<()> {
        for above in to.ancestors().skip(1) {
            let is_start = above == Path::new("");
            let above = if is_start { Path::new(".") } else { above };
            let above = self.session.metadata(above);
            if above.is_ok_and(|above| above.ino() == source.ino()) {
                return Err(Errno::INVAL).at("clone a directory into itself", to);
            }
        }
        Ok(())
    }

    fn any(&mut self, from: &Path, to: &Path, found: &Metadata) -> Result<()> {
        if found.kind() != FileKind::Directory && found.kind() != FileKind::File {
            self.clear(to)?;
        }
        if found.kind() != FileKind::Directory
            && found.nlink() > 1
            && let Some(first) = self.links.get(&found.ino())
        {
            self.clear(to)?;
            self.session.hard_link(first, to)?;
            return self.account.name_made().at("write", to);
        }
        match found.kind() {
            FileKind::Directory => {
                self.directory(from, to, found)?;
                self.attributes(from, to, found)?;
            }
            FileKind::File => self.file(from, to, found)?,
            FileKind::Symlink => {
                self.session.symlink(self.session.read_link(from)?, to)?;
                if self.root {
                    self.session
                        .lchown(to, Some(found.uid()), Some(found.gid()))?;
                }
                self.session.set_symlink_times(to, times(found))?;
            }
            kind => {
                self.session.mknod(to, special(kind, found), 0o600)?;
                self.attributes(from, to, found)?;
            }
        }
        if found.kind() != FileKind::Directory && found.nlink() > 1 {
            self.links.insert(found.ino(), to.to_owned());
        }
        self.account.name_made().at("write", to)
    }

    fn clear(&self, to: &Path) -> Result<()> {
        match self.session.remove_file(to) {
            Err(error) if error.errno() != Errno::NOENT.raw_os_error() => Err(error),
            _ => Ok(()),
        }
    }

    fn directory(&mut self, from: &Path, to: &Path, found: &Metadata) -> Result<()> {
        match self.session.create_dir_with_mode(to, 0o700) {
            Err(error) if error.errno() == Errno::EXIST.raw_os_error() => {
                if !self.session.symlink_metadata(to)?.is_dir() {
                    return Err(error);
                }
            }
            made => made?,
        }
        if self.top.is_none() {
            self.top = Some(self.session.symlink_metadata(to)?.ino());
        }
        if self.top == Some(found.ino()) {
            return Err(Errno::INVAL).at("clone a directory into itself", to);
        }
        for entry in self.session.read_dir(from)? {
            let name = entry?.file_name().to_owned();
            let below = from.join(&name);
            let found = self.session.symlink_metadata(&below)?;
            self.any(&below, &to.join(&name), &found)?;
        }
        Ok(())
    }

    fn file(&mut self, from: &Path, to: &Path, found: &Metadata) -> Result<()> {
        let source = self.session.open(from)?;
        let new = OpenOptions::new().write(true).create_new(true);
        let new = new.mode(found.mode() & 0o777);
        let target = match new.open(self.session, to) {
            Err(error) if error.errno() == Errno::EXIST.raw_os_error() => {
                self.clear(to)?;
                new.open(self.session, to)?
            }
            made => made?,
        };
        let size = crate::copy::copy_content(&source, &target, found.len())?;
        self.account.progress.bytes += size;
        if self.root && (found.uid(), found.gid()) != self.own() {
            target.chown(Some(found.uid()), Some(found.gid()))?;
        }
        // Of most files creation has set it.
        if target.metadata()?.mode() != found.mode() {
            target.set_permissions(found.permissions())?;
        }
        for name in source.list_xattr()? {
            let value = source.get_xattr(&name)?;
            self.attribute(&name, value, |value| {
                target.set_xattr(&name, value, XattrMode::Any)
            })?;
        }
        target.set_times(times(found))
    }

    fn own(&self) -> (u32, u32) {
        let caller = self.session.credentials();
        (caller.uid, caller.gid)
    }

    fn attribute(
        &mut self,
        name: &[u8],
        value: Option<Vec<u8>>,
        set: impl FnOnce(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let Some(value) = value else { return Ok(()) };
        if super::is_privileged(name) && !self.root {
            self.account.progress.attributes_skipped += 1;
            return Ok(());
        }
        match set(&value) {
            Err(error) if error.errno() == Errno::NOTSUP.raw_os_error() => {
                self.account.progress.attributes_skipped += 1;
                Ok(())
            }
            set => set,
        }
    }

    fn attributes(&mut self, from: &Path, to: &Path, found: &Metadata) -> Result<()> {
        let session = self.session;
        if self.root {
            session.lchown(to, Some(found.uid()), Some(found.gid()))?;
        }
        session.set_permissions(to, found.permissions())?;
        for name in session.list_xattr(from)? {
            let value = session.get_xattr(from, &name)?;
            self.attribute(&name, value, |value| {
                session.set_xattr(to, &name, value, XattrMode::Any)
            })?;
        }
        session.set_times(to, times(found))
    }
}

fn times(found: &Metadata) -> FileTimes {
    FileTimes {
        accessed: TimeChange::Set(found.accessed()),
        modified: TimeChange::Set(found.modified()),
    }
}

fn special(kind: FileKind, found: &Metadata) -> Special {
    match kind {
        FileKind::CharacterDevice => Special::CharacterDevice(found.rdev()),
        FileKind::BlockDevice => Special::BlockDevice(found.rdev()),
        FileKind::Socket => Special::Socket,
        _ => Special::Fifo,
    }
}
