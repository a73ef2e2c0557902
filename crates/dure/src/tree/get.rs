//! From a volume to the host.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

use dure_fs::FileKind;
use rustix::fs::FileType;
use rustix::io::Errno;

use super::host::Inode;
use super::source::{Failed, OfVolume, Source};
use super::{Account, Callback, Progress};
use crate::error::{Context, Result};
use crate::metadata::Metadata;
use crate::session::Session;

struct Get<'c> {
    source: &'c mut dyn Source,
    account: Account<'c>,
    /// Whether the process may change owners on the host.
    root: bool,
    /// The host's directory in which the copy begins.
    top: Inode,
    /// Where inodes with several names were copied to: names below `top`.
    links: BTreeMap<u64, Vec<OsString>>,
    /// The path below `top` of the entry being copied.
    names: Vec<OsString>,
}

/// Copies the file or tree at `from` to `host`. A directory is merged into an existing one;
/// anything else replaces what is there, unless that is a directory. Nothing outside of `host` is
/// written, whatever the volume holds, and whichever users may write below `host` at the same time.
///
/// If the process is root's, owners, set-id bits and devices are kept. Else all belongs to the
/// caller, without set-id bits and attributes that only root may set.
///
/// # Errors
/// The first failure, with the path it concerns; what was copied until then stays, but of a file that
/// could not be copied whole nothing.
pub fn get(
    session: &Session,
    from: impl AsRef<Path>,
    host: impl AsRef<Path>,
    callback: Callback<'_>,
) -> Result<Progress> {
    get_from(
        &mut OfVolume(session),
        from.as_ref(),
        host.as_ref(),
        callback,
    )
}

/// Like [`get`], for several, each with where it goes: hard links between those that go into one
/// directory stay hard links.
///
/// # Errors
/// Those of [`get`].
pub fn get_all(
    session: &Session,
    copies: &[(PathBuf, PathBuf)],
    callback: Callback<'_>,
) -> Result<Progress> {
    each(&mut OfVolume(session), copies, callback)
}

/// Like [`get_all`], from another source.
///
/// # Errors
/// Those of [`get_from`].
pub fn get_all_from(
    source: &mut dyn Source,
    copies: &[(PathBuf, PathBuf)],
    callback: Callback<'_>,
) -> Result<Progress> {
    each(source, copies, callback)
}

/// Like [`get`], from another source, which also says what happens when something cannot be copied.
///
/// # Errors
/// The first failure that the source does not take, with the path it concerns; what was copied
/// until then stays.
pub fn get_from(
    source: &mut dyn Source,
    from: &Path,
    host: &Path,
    callback: Callback<'_>,
) -> Result<Progress> {
    each(source, &[(from.to_owned(), host.to_owned())], callback)
}

/// The directory in which a copy begins, and its name there. `.`, `..` and `/` have no name: what is
/// copied goes straight into them.
fn place(host: &Path) -> (&Path, Option<&OsStr>) {
    let name = host.file_name();
    let parent = match (host.parent(), name) {
        (Some(parent), Some(_)) if parent != Path::new("") => parent,
        (_, Some(_)) => Path::new("."),
        (_, None) => host,
    };
    (parent, name)
}

fn each(
    source: &mut dyn Source,
    copies: &[(PathBuf, PathBuf)],
    callback: Callback<'_>,
) -> Result<Progress> {
    let account = Account {
        progress: Progress::default(),
        callback,
    };
    let [(_, first), ..] = copies else {
        return Ok(account.progress);
    };
    let mut parent = place(first).0;
    let mut get = Get {
        source,
        account,
        root: rustix::process::geteuid().is_root(),
        top: Inode::directory_at(parent).at("write", parent)?,
        links: BTreeMap::new(),
        names: Vec::new(),
    };
    for (from, host) in copies {
        let (own, name) = place(host);
        let top = Inode::directory_at(own).at("write", own)?;
        if own != parent {
            parent = own;
            get.top = Inode::directory_at(own).at("write", own)?;
            get.links.clear();
        }
        match name {
            Some(name) => get.any(from, &top, name, host)?,
            None => get.merge(from, &top, host)?,
        }
    }
    Ok(get.account.progress)
}

impl Get<'_> {
    /// Copies `from` to `name` in `directory`; `host` is its path in messages.
    fn any(&mut self, from: &Path, directory: &Inode, name: &OsStr, host: &Path) -> Result<()> {
        self.names.push(name.to_owned());
        let made = self.make(from, directory, name, host);
        self.names.pop();
        match made {
            Ok(Some((made, metadata))) => self.attributes(from, &made, host, &metadata)?,
            Ok(None) => {}
            Err(error) => return self.source.failed(from, Failed::Entry, error),
        }
        self.account.name_made().at("write", host)
    }

    /// Makes an inode with what it holds, or another name of one that was made.
    fn make(
        &mut self,
        from: &Path,
        directory: &Inode,
        name: &OsStr,
        host: &Path,
    ) -> Result<Option<(Inode, Metadata)>> {
        let metadata = self.source.metadata(from)?;
        if !metadata.is_dir() {
            directory.clear(name).at("write", host)?;
            if self.is_linked(&metadata, directory, name, host)? {
                return Ok(None);
            }
        }
        let made = match metadata.kind() {
            FileKind::Directory => {
                let made = directory.make_directory(name).at("write", host)?;
                self.entries(from, &made, host)?;
                made
            }
            FileKind::File => {
                let (file, made) = directory.make_file(name).at("write", host)?;
                if let Err(error) = self.content(from, &file, host, metadata.len()) {
                    // A part would look like the whole. The first error is the one to tell.
                    let _ = directory.clear(name);
                    return Err(error);
                }
                made
            }
            FileKind::Symlink => {
                let target = self.source.target(from)?;
                directory.make_link(name, &target).at("write", host)?
            }
            kind => {
                let made = directory.make_special(name, file_type(kind), metadata.rdev());
                made.at("write", host)?
            }
        };
        if !metadata.is_dir() && metadata.nlink() > 1 {
            self.links.insert(metadata.ino(), self.names.clone());
        }
        Ok(Some((made, metadata)))
    }

    /// Copies the directory `from` into an existing one.
    fn merge(&mut self, from: &Path, directory: &Inode, host: &Path) -> Result<()> {
        let metadata = self.source.metadata(from)?;
        if !metadata.is_dir() {
            return Err(Errno::ISDIR).at("write", host);
        }
        self.entries(from, directory, host)?;
        self.attributes(from, directory, host, &metadata)?;
        self.account.name_made().at("write", host)
    }

    /// Whether the inode was copied under another name and now has this one too.
    fn is_linked(
        &self,
        metadata: &Metadata,
        directory: &Inode,
        name: &OsStr,
        host: &Path,
    ) -> Result<bool> {
        let Some((first, parents)) = self
            .links
            .get(&metadata.ino())
            .and_then(|names| names.split_last())
        else {
            return Ok(false);
        };
        let linked = || {
            let mut at = None;
            for parent in parents {
                at = Some(at.as_ref().unwrap_or(&self.top).enter(parent)?);
            }
            directory.make_name(name, at.as_ref().unwrap_or(&self.top), first)
        };
        linked().at("write", host)?;
        Ok(true)
    }

    fn entries(&mut self, from: &Path, directory: &Inode, host: &Path) -> Result<()> {
        for name in self.source.names(from)? {
            self.any(&from.join(&name), directory, &name, &host.join(&name))?;
        }
        Ok(())
    }

    fn content(&mut self, from: &Path, target: &fs::File, host: &Path, len: u64) -> Result<()> {
        let account = &mut self.account;
        let mut each = |offset: u64, bytes: &[u8]| {
            target.write_all_at(bytes, offset).at("write", host)?;
            account.copied(bytes.len()).at("write", host)
        };
        // The file may have become shorter meanwhile.
        let len = self.source.content(from, len, &mut each)?;
        target.set_len(len).at("write", host)
    }

    fn attributes(
        &mut self,
        from: &Path,
        made: &Inode,
        host: &Path,
        metadata: &Metadata,
    ) -> Result<()> {
        if self.root {
            let owned = made.set_owner(metadata.uid(), metadata.gid());
            owned.at("change the owner of", host)?;
        }
        if !metadata.is_symlink() {
            // A program of an image from another user must not run with the rights of the user that
            // copies it.
            let keeps = self.root || metadata.is_dir();
            let mode = if keeps {
                metadata.mode()
            } else {
                metadata.mode() & !SET_ID
            };
            made.set_permissions(fs::Permissions::from_mode(mode))
                .at("change the mode of", host)?;
            for (name, value) in self.source.attributes(from)? {
                if let Err(error) = self.attribute(made, host, &name, &value) {
                    self.source.failed(from, Failed::Attribute(&name), error)?;
                }
            }
        }
        made.set_times(metadata).at("set the times of", host)
    }

    fn attribute(&mut self, made: &Inode, host: &Path, name: &[u8], value: &[u8]) -> Result<()> {
        let mut taken = Ok(false);
        if self.root || !super::is_privileged(name) {
            taken = made.set_attribute(name, value);
        }
        if !taken.at("set an attribute of", host)? {
            self.account.progress.attributes_skipped += 1;
        }
        Ok(())
    }
}

/// Set-user-id and set-group-id.
const SET_ID: u32 = 0o6000;

fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::File => FileType::RegularFile,
        FileKind::Directory => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
        FileKind::Fifo => FileType::Fifo,
        FileKind::Socket => FileType::Socket,
        FileKind::CharacterDevice => FileType::CharacterDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
    }
}
