//! From the host to a volume.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Seek};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use dure_fs::XattrMode;
use rustix::io::Errno;

use super::{Account, CHUNK, Callback, Progress, host};
use crate::create::Special;
use crate::error::{Context, Result};
use crate::session::Session;

struct Put<'c> {
    session: &'c Session,
    account: Account<'c>,
    /// Where inodes with several names were copied to.
    links: BTreeMap<(u64, u64), PathBuf>,
}

/// Copies what stands at `host` to `to`. A directory is merged into one that is there; anything
/// else replaces what is there, unless that is a directory.
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
    let account = Account {
        progress: Progress::default(),
        callback,
    };
    let mut put = Put {
        session,
        account,
        links: BTreeMap::new(),
    };
    put.any(host.as_ref(), to.as_ref())?;
    Ok(put.account.progress)
}

impl Put<'_> {
    fn any(&mut self, host: &Path, to: &Path) -> Result<()> {
        let metadata = fs::symlink_metadata(host).at("read", host)?;
        let kind = metadata.file_type();
        let inode = (metadata.dev(), metadata.ino());
        if !kind.is_dir() {
            self.clear(to)?;
            if let Some(first) = self.links.get(&inode) {
                self.session.hard_link(first, to)?;
                return self.account.name_made().at("write", to);
            }
        }
        if kind.is_dir() {
            self.directory(host, to)?;
        } else if kind.is_file() {
            self.file(host, to, metadata.len())?;
        } else if kind.is_symlink() {
            self.session
                .symlink(fs::read_link(host).at("read", host)?, to)?;
        } else {
            self.session.mknod(to, special(&metadata), 0o600)?;
        }
        if !kind.is_dir() && metadata.nlink() > 1 {
            self.links.insert(inode, to.to_owned());
        }
        self.attributes(host, to, &metadata)?;
        self.account.name_made().at("write", to)
    }

    /// Takes the old name away. A directory is not replaced by something else.
    fn clear(&self, to: &Path) -> Result<()> {
        match self.session.remove_file(to) {
            Err(error) if error.errno() != Errno::NOENT.raw_os_error() => Err(error),
            _ => Ok(()),
        }
    }

    fn directory(&mut self, host: &Path, to: &Path) -> Result<()> {
        match self.session.create_dir_with_mode(to, 0o700) {
            Err(error) if error.errno() == Errno::EXIST.raw_os_error() => {
                if !self.session.symlink_metadata(to)?.is_dir() {
                    return Err(error);
                }
            }
            made => made?,
        }
        let mut names = Vec::new();
        for entry in fs::read_dir(host).at("read", host)? {
            names.push(entry.at("read", host)?.file_name());
        }
        names.sort();
        for name in names {
            self.any(&host.join(&name), &to.join(&name))?;
        }
        Ok(())
    }

    fn file(&mut self, host: &Path, to: &Path, len: u64) -> Result<()> {
        let mut source = fs::File::open(host).at("read", host)?;
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
                    // It has become shorter meanwhile.
                    return target.set_len(offset);
                }
                target.write_all_at(&buffer[..count], offset)?;
                offset += u64::try_from(count).expect("64 bits");
                self.account.copied(count).at("write", to)?;
            }
        }
        target.set_len(len)
    }

    fn attributes(&mut self, host: &Path, to: &Path, metadata: &fs::Metadata) -> Result<()> {
        let root = self.session.credentials().is_root();
        if root {
            self.session
                .lchown(to, Some(metadata.uid()), Some(metadata.gid()))?;
        }
        if metadata.file_type().is_symlink() {
            return self.session.set_symlink_times(to, host::times(metadata));
        }
        self.session.set_permissions(to, metadata.mode() & 0o7777)?;
        for (name, value) in host::attributes(host).at("read attributes of", host)? {
            let privileged = name.starts_with(b"trusted.") || name.starts_with(b"security.");
            if privileged && !root {
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
        self.session.set_times(to, host::times(metadata))
    }
}

fn special(metadata: &fs::Metadata) -> Special {
    let kind = metadata.file_type();
    if kind.is_char_device() {
        Special::CharacterDevice(metadata.rdev())
    } else if kind.is_block_device() {
        Special::BlockDevice(metadata.rdev())
    } else if kind.is_socket() {
        Special::Socket
    } else {
        Special::Fifo
    }
}
