//! From the host to a volume.

use std::collections::BTreeMap;
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};

use dure_fs::XattrMode;
use rustix::fs::{FileType, Stat};
use rustix::io::Errno;

use super::host::{self, Inode};
use super::{Account, CHUNK, Callback, Progress};
use crate::create::Special;
use crate::error::{Context, Result};
use crate::session::Session;

struct Put<'c> {
    session: &'c Session,
    account: Account<'c>,
    /// Where inodes with several names were copied to.
    links: BTreeMap<(u64, u64), PathBuf>,
}

/// Copies the file or tree at `host` to `to`. A directory is merged into an existing one; anything
/// else replaces what is there, unless that is a directory. Nothing outside of `host` is read,
/// whichever users may write below it at the same time.
///
/// Owners are kept if the session is root's.
///
/// # Errors
/// The first failure, with the path it concerns; what was copied until then stays.
pub fn put(
    session: &Session,
    host: impl AsRef<Path>,
    to: impl AsRef<Path>,
    callback: Callback<'_>,
) -> Result<Progress> {
    let one = (host.as_ref().to_owned(), to.as_ref().to_owned());
    put_all(session, &[one], callback)
}

/// Like [`put`], for several, each with where it goes: hard links between them stay hard links.
///
/// # Errors
/// Those of [`put`].
pub fn put_all(
    session: &Session,
    copies: &[(PathBuf, PathBuf)],
    callback: Callback<'_>,
) -> Result<Progress> {
    let account = Account {
        progress: Progress::default(),
        callback,
    };
    let mut put = Put {
        session,
        account,
        links: BTreeMap::new(),
    };
    for (host, to) in copies {
        put.any(&Inode::at(host).at("read", host)?, host, to)?;
    }
    Ok(put.account.progress)
}

impl Put<'_> {
    /// Copies `source`, which messages call `host`.
    fn any(&mut self, source: &Inode, host: &Path, to: &Path) -> Result<()> {
        let found = source.stat().at("read", host)?;
        let kind = FileType::from_raw_mode(found.st_mode);
        let inode = (found.st_dev, found.st_ino);
        if kind != FileType::Directory {
            self.clear(to)?;
            if let Some(first) = self.links.get(&inode) {
                self.session.hard_link(first, to)?;
                return self.account.name_made().at("write", to);
            }
        }
        match kind {
            FileType::Directory => self.directory(source, host, to)?,
            FileType::RegularFile => {
                let len = u64::try_from(found.st_size).unwrap_or(0);
                self.file(source, host, to, len)?;
            }
            FileType::Symlink => {
                let target = source.target().at("read", host)?;
                self.session.symlink(target, to)?;
            }
            kind => self.session.mknod(to, special(kind, &found), 0o600)?,
        }
        if kind != FileType::Directory && found.st_nlink > 1 {
            self.links.insert(inode, to.to_owned());
        }
        self.attributes(source, host, to, &found)?;
        self.account.name_made().at("write", to)
    }

    /// Removes the old name. A directory is not replaced by something else.
    fn clear(&self, to: &Path) -> Result<()> {
        match self.session.remove_file(to) {
            Err(error) if error.errno() != Errno::NOENT.raw_os_error() => Err(error),
            _ => Ok(()),
        }
    }

    fn directory(&mut self, source: &Inode, host: &Path, to: &Path) -> Result<()> {
        match self.session.create_dir_with_mode(to, 0o700) {
            Err(error) if error.errno() == Errno::EXIST.raw_os_error() => {
                if !self.session.symlink_metadata(to)?.is_dir() {
                    return Err(error);
                }
            }
            made => made?,
        }
        for name in source.names().at("read", host)? {
            let below = host.join(&name);
            let entry = source.enter(&name).at("read", &below)?;
            self.any(&entry, &below, &to.join(&name))?;
        }
        Ok(())
    }

    fn file(&mut self, source: &Inode, host: &Path, to: &Path, len: u64) -> Result<()> {
        let mut source = source.reopen().at("read", host)?;
        let target = self.session.create(to)?;
        let mut buffer = vec![0; CHUNK];
        let mut offset = 0;
        while let Some((start, end)) = host::next_data(&source, offset, len).at("read", host)? {
            source.seek(io::SeekFrom::Start(start)).at("read", host)?;
            offset = start;
            while offset < end {
                let room = usize::try_from(end - offset).unwrap_or(CHUNK).min(CHUNK);
                let count = source.read(&mut buffer[..room]).at("read", host)?;
                if count == 0 {
                    // The file became shorter meanwhile.
                    return target.set_len(offset);
                }
                target.write_all_at(&buffer[..count], offset)?;
                offset += u64::try_from(count).expect("a usize fits in 64 bits");
                self.account.copied(count).at("write", to)?;
            }
        }
        target.set_len(len)
    }

    fn attributes(&mut self, source: &Inode, host: &Path, to: &Path, found: &Stat) -> Result<()> {
        let root = self.session.credentials().is_root();
        if root {
            self.session
                .lchown(to, Some(found.st_uid), Some(found.st_gid))?;
        }
        if FileType::from_raw_mode(found.st_mode) == FileType::Symlink {
            return self.session.set_symlink_times(to, host::times(found));
        }
        self.session.set_permissions(to, found.st_mode & 0o7777)?;
        for (name, value) in source.attributes().at("read attributes of", host)? {
            if super::is_privileged(&name) && !root {
                self.account.progress.attributes_skipped += 1;
                continue;
            }
            match self.session.set_xattr(to, &name, &value, XattrMode::Any) {
                Err(error) if error.errno() == Errno::NOTSUP.raw_os_error() => {
                    self.account.progress.attributes_skipped += 1;
                }
                set => set?,
            }
        }
        self.session.set_times(to, host::times(found))
    }
}

fn special(kind: FileType, found: &Stat) -> Special {
    match kind {
        FileType::CharacterDevice => Special::CharacterDevice(found.st_rdev),
        FileType::BlockDevice => Special::BlockDevice(found.st_rdev),
        FileType::Socket => Special::Socket,
        _ => Special::Fifo,
    }
}
