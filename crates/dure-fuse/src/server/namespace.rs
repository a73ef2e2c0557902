//! Names: lookup, creation, removal, rename, directories.

use std::ops::ControlFlow;

use dure_fs::{FileKind, InodeRef, New, NewInode, RenameMode};

use super::{Answer, Attr, Server, errno};
use crate::nodes;

/// Entries collected under the directory's lock at a time: about as many as a program asks for, 32
/// KiB of them, have room in one reply with their attributes.
const BATCH: usize = 256;
/// Readdir positions of "." and "..": what comes after them.
const AFTER_DOT: u64 = 1;
const AFTER_DOTDOT: u64 = 2;

/// A looked-up or new node.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// Its attributes.
    pub attr: Attr,
}

/// One entry of a directory.
#[derive(Debug, Clone)]
pub struct Listed {
    /// The inode.
    pub ino: u64,
    /// Position after this entry.
    pub cookie: u64,
    /// File type.
    pub kind: FileKind,
    /// The name.
    pub name: Vec<u8>,
}

impl Server {
    pub(super) fn entry(&self, inode: &InodeRef) -> Answer<Entry> {
        let attributes = self.volume.attributes(inode).map_err(errno)?;
        Ok(Entry {
            attr: self.attr_of(&attributes),
        })
    }

    fn make(&self, parent: u64, name: &[u8], new: New<'_>) -> Answer<Entry> {
        let parent = self.inode(parent)?;
        let (_, attributes) = self.volume.make(&parent, name, new).map_err(errno)?;
        Ok(Entry {
            attr: self.attr_of(&attributes),
        })
    }

    /// LOOKUP. `None`: no such name.
    ///
    /// # Errors
    /// An errno.
    pub fn lookup(&self, parent: u64, name: &[u8]) -> Answer<Option<Entry>> {
        if nodes::is_hidden(parent) {
            return self.hidden_lookup(parent, name);
        }
        let node = parent;
        let parent = self.inode(node)?;
        // The kernel itself asks for these two, to find what a file handle names when it has
        // dropped the inode (open_by_handle_at(2), NFS).
        let found = match name {
            // Without a name and dropped by the kernel: its end is near.
            b"." if parent.is_unlinked() => return Err(libc::ESTALE),
            b"." => Some(parent),
            b".." => {
                let above = self.volume.parent(&parent).map_err(errno)?;
                Some(self.volume.inode(above).map_err(errno)?)
            }
            _ => match self.lent(&parent, name) {
                Some(lent) => Some(lent),
                None => self.volume.lookup(&parent, name).map_err(errno)?,
            },
        };
        match found {
            Some(inode) => self.entry(&inode).map(Some),
            None => self.hidden_name(node, name),
        }
    }

    /// MKNOD and CREATE: every type but directories and symlinks.
    ///
    /// # Errors
    /// An errno.
    pub fn create(&self, parent: u64, name: &[u8], created: &NewInode) -> Answer<Entry> {
        self.make(parent, name, New::Node(created))
    }

    /// TMPFILE: a regular file without a name. It lives as long as the kernel knows it, or gets a
    /// name by LINK.
    ///
    /// # Errors
    /// An errno.
    pub fn temporary(&self, directory: u64, created: &NewInode) -> Answer<Entry> {
        let directory = self.inode(directory)?;
        let made = self.volume.temporary(&directory, created).map_err(errno)?;
        self.unlinked.keep(made.clone());
        self.entry(&made)
    }

    /// MKDIR.
    ///
    /// # Errors
    /// An errno.
    pub fn mkdir(&self, parent: u64, name: &[u8], created: &NewInode) -> Answer<Entry> {
        self.make(parent, name, New::Directory(created))
    }

    /// SYMLINK.
    ///
    /// # Errors
    /// An errno.
    pub fn symlink(
        &self,
        parent: u64,
        name: &[u8],
        target: &[u8],
        created: &NewInode,
    ) -> Answer<Entry> {
        self.make(parent, name, New::Symlink(created, target))
    }

    /// READLINK.
    ///
    /// # Errors
    /// An errno.
    pub fn read_link(&self, node: u64) -> Answer<Vec<u8>> {
        if nodes::is_hidden(node) {
            return self.hidden_target(node);
        }
        self.volume.read_link(&self.inode(node)?).map_err(errno)
    }

    /// LINK.
    ///
    /// # Errors
    /// An errno.
    pub fn link(&self, node: u64, parent: u64, name: &[u8]) -> Answer<Entry> {
        let inode = self.inode(node)?;
        self.volume
            .link(&inode, &self.inode(parent)?, name)
            .map_err(errno)?;
        self.entry(&inode)
    }

    /// UNLINK.
    ///
    /// # Errors
    /// An errno.
    pub fn unlink(&self, parent: u64, name: &[u8]) -> Answer<()> {
        let parent = self.inode(parent)?;
        let orphan = self.volume.unlink_and_keep(&parent, name);
        self.keep_unlinked(orphan.map_err(errno)?);
        Ok(())
    }

    /// RMDIR.
    ///
    /// # Errors
    /// An errno.
    pub fn rmdir(&self, parent: u64, name: &[u8]) -> Answer<()> {
        let parent = self.inode(parent)?;
        let orphan = self.volume.rmdir_and_keep(&parent, name);
        self.keep_unlinked(orphan.map_err(errno)?);
        Ok(())
    }

    /// RENAME2 with the flags of renameat2(2). With `RENAME_WHITEOUT` the old name leads to
    /// `whiteout` from then on.
    ///
    /// # Errors
    /// An errno.
    pub fn rename(
        &self,
        from: (u64, &[u8]),
        to: (u64, &[u8]),
        flags: u32,
        whiteout: &NewInode,
    ) -> Answer<()> {
        let mode = match flags & !libc::RENAME_WHITEOUT {
            0 => RenameMode::Replace,
            libc::RENAME_NOREPLACE => RenameMode::NoReplace,
            libc::RENAME_EXCHANGE => RenameMode::Exchange,
            _ => return Err(libc::EINVAL),
        };
        let (from_parent, to_parent) = (self.inode(from.0)?, self.inode(to.0)?);
        let (from, to) = ((&from_parent, from.1), (&to_parent, to.1));
        let orphan = match flags & libc::RENAME_WHITEOUT {
            0 => self.volume.rename_and_keep(from, to, mode),
            _ => self.volume.rename_leaving(from, to, mode, whiteout),
        };
        self.keep_unlinked(orphan.map_err(errno)?);
        Ok(())
    }

    /// READDIR from `position` on: some entries, none at the end.
    ///
    /// # Errors
    /// An errno.
    pub fn read_directory(&self, node: u64, position: u64) -> Answer<Vec<Listed>> {
        if nodes::is_hidden(node) {
            return self.hidden_listing(node, position);
        }
        let directory = self.inode(node)?;
        let mut listed = Vec::new();
        let mut dot = |ino: u64, cookie: u64, name: &[u8]| {
            listed.push(Listed {
                ino,
                cookie,
                kind: FileKind::Directory,
                name: name.to_vec(),
            });
        };
        if position < AFTER_DOT {
            dot(directory.ino().0, AFTER_DOT, b".");
        }
        if position < AFTER_DOTDOT {
            let parent = self.volume.parent(&directory).map_err(errno)?;
            dot(parent.0, AFTER_DOTDOT, b"..");
        }
        let mut take = |entry: &dure_fs::DirectoryEntry<'_>| {
            listed.push(Listed {
                ino: entry.ino.0,
                cookie: entry.cookie,
                kind: entry.kind,
                name: entry.name.to_vec(),
            });
            if listed.len() < BATCH {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        };
        let from = position.max(AFTER_DOTDOT);
        self.volume
            .read_directory(&directory, from, &mut take)
            .map_err(errno)?;
        let ended = listed.len() < BATCH;
        space_out(&mut listed, ended);
        Ok(listed)
    }

    /// The node behind an entry of READDIRPLUS. `None` when the name is gone
    /// by now.
    ///
    /// # Errors
    /// An errno.
    pub fn listed_entry(&self, listed: &Listed) -> Answer<Option<Entry>> {
        if nodes::is_hidden(listed.ino) {
            return self.hidden_lookup(nodes::HIDDEN, &listed.name);
        }
        match self.volume.inode(dure_fs::units::Ino(listed.ino)) {
            Ok(inode) => Ok(Some(self.entry(&inode)?)),
            Err(dure_fs::Error::NotFound | dure_fs::Error::Stale(_)) => Ok(None),
            Err(error) => Err(errno(error)),
        }
    }
}

/// Makes positions that may lose their low bits, as in programs that put something of their own
/// there (Gluster: the number of a brick, in up to 16): an entry's position is moved up to where
/// these bits are zero, unless the next entry lies before that. A position that is cut would
/// otherwise lie before its entry, which would be listed again, the last one for ever.
fn space_out(listed: &mut Vec<Listed>, ended: bool) {
    const LOW: u64 = (1 << 16) - 1;
    const END: u64 = i64::MAX.cast_unsigned();
    // What follows the last one is not known: it begins the next batch.
    let next = match ended {
        true => END,
        false => listed.pop().map_or(END, |last| last.cookie),
    };
    let nexts: Vec<u64> = listed.iter().skip(1).map(|entry| entry.cookie).collect();
    for (entry, next) in listed.iter_mut().zip(nexts.into_iter().chain([next])) {
        let up = entry.cookie.saturating_add(LOW) & !LOW;
        if entry.cookie > AFTER_DOTDOT && up < next {
            entry.cookie = up;
        }
    }
}
