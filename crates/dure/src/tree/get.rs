//! From a volume to the host.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use dure_fs::FileKind;
use rustix::fs::FileType;
use rustix::io::Errno;

use super::{Account, CHUNK, Callback, Progress, host};
use crate::error::{Context, Result};
use crate::file::{File, Seek};
use crate::metadata::Metadata;
use crate::session::Session;

struct Get<'c> {
    session: &'c Session,
    account: Account<'c>,
    /// Whether the caller may give files away on the host.
    root: bool,
    /// Where inodes with several names were copied to.
    links: BTreeMap<u64, PathBuf>,
}

/// Copies what stands at `from` to `host`. A directory is merged into one that is there; anything
/// else replaces what is there, unless that is a directory.
///
/// Owners are kept if the process is root's.
///
/// # Errors
/// The first failure, with the path it concerns; what was copied until then stays.
pub fn get(
    session: &Session,
    from: impl AsRef<Path>,
    host: impl AsRef<Path>,
    callback: Callback<'_>,
) -> Result<Progress> {
    let account = Account {
        progress: Progress::default(),
        callback,
    };
    let root = rustix::process::geteuid().is_root();
    let mut get = Get {
        session,
        account,
        root,
        links: BTreeMap::new(),
    };
    get.any(from.as_ref(), host.as_ref())?;
    Ok(get.account.progress)
}

impl Get<'_> {
    fn any(&mut self, from: &Path, host: &Path) -> Result<()> {
        let metadata = self.session.symlink_metadata(from)?;
        if !metadata.is_dir() {
            clear(host).at("write", host)?;
            if let Some(first) = self.links.get(&metadata.ino()) {
                fs::hard_link(first, host).at("write", host)?;
                return self.account.name_made().at("write", host);
            }
        }
        match metadata.kind() {
            FileKind::Directory => self.directory(from, host)?,
            FileKind::File => self.file(from, host, metadata.len())?,
            FileKind::Symlink => {
                let target = self.session.read_link(from)?;
                std::os::unix::fs::symlink(target, host).at("write", host)?;
            }
            kind => {
                let kind = file_type(kind);
                host::make_special(host, kind, metadata.rdev()).at("write", host)?;
            }
        }
        if !metadata.is_dir() && metadata.nlink() > 1 {
            self.links.insert(metadata.ino(), host.to_owned());
        }
        self.attributes(from, host, &metadata)?;
        self.account.name_made().at("write", host)
    }

    fn directory(&mut self, from: &Path, host: &Path) -> Result<()> {
        match fs::DirBuilder::new().mode(0o700).create(host) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if !fs::symlink_metadata(host).at("read", host)?.is_dir() {
                    return Err(error).at("write", host);
                }
            }
            made => made.at("write", host)?,
        }
        for entry in self.session.read_dir(from)? {
            let entry = entry?;
            self.any(&from.join(entry.file_name()), &host.join(entry.file_name()))?;
        }
        Ok(())
    }

    fn file(&mut self, from: &Path, host: &Path, len: u64) -> Result<()> {
        let source = self.session.open(from)?;
        let mut options = fs::OpenOptions::new();
        let target = options.write(true).create_new(true).mode(0o600);
        let target = target.open(host).at("write", host)?;
        let mut buffer = vec![0; CHUNK];
        let mut offset = 0;
        while let Some((start, end)) = next_data(&source, offset, len)? {
            offset = start;
            while offset < end {
                let room = usize::try_from(end - offset).unwrap_or(CHUNK).min(CHUNK);
                let count = source.read_at(&mut buffer[..room], offset)?;
                if count == 0 {
                    // It has become shorter meanwhile.
                    return target.set_len(offset).at("write", host);
                }
                target
                    .write_all_at(&buffer[..count], offset)
                    .at("write", host)?;
                offset += u64::try_from(count).expect("64 bits");
                self.account.copied(count).at("write", host)?;
            }
        }
        target.set_len(len).at("write", host)
    }

    fn attributes(&mut self, from: &Path, host: &Path, metadata: &Metadata) -> Result<()> {
        if self.root {
            let (uid, gid) = (Some(metadata.uid()), Some(metadata.gid()));
            std::os::unix::fs::lchown(host, uid, gid).at("change the owner of", host)?;
        }
        if !metadata.is_symlink() {
            let mode = fs::Permissions::from_mode(metadata.mode());
            fs::set_permissions(host, mode).at("change the mode of", host)?;
            for name in self.session.list_xattr(from)? {
                let Some(value) = self.session.get_xattr(from, &name)? else {
                    continue;
                };
                let taken = host::set_attribute(host, &name, &value);
                if !taken.at("set an attribute of", host)? {
                    self.account.progress.attributes_skipped += 1;
                }
            }
        }
        host::set_times(host, metadata).at("set the times of", host)
    }
}

/// Takes the old name away. A directory is not replaced by something else.
fn clear(host: &Path) -> io::Result<()> {
    match fs::remove_file(host) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The next range of data at or after `offset`, before `end`.
fn next_data(file: &File, offset: u64, end: u64) -> Result<Option<(u64, u64)>> {
    if offset >= end {
        return Ok(None);
    }
    let none = |error: &crate::Error| error.errno() == Errno::NXIO.raw_os_error();
    let start = match file.seek_to(Seek::Data(offset)) {
        Err(error) if none(&error) => return Ok(None),
        start => start?,
    };
    if start >= end {
        return Ok(None);
    }
    match file.seek_to(Seek::Hole(start)) {
        // It has become shorter meanwhile.
        Err(error) if none(&error) => Ok(None),
        hole => Ok(Some((start, hole?.min(end)))),
    }
}

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
