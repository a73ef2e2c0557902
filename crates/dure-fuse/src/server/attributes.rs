//! Attributes, times and extended attributes.

use dure_fs::format::inode::Time;
use dure_fs::{Attributes, FileKind, SetAttributes, SetGid, SetTime, XattrMode};

use super::{Answer, Server, errno};
use crate::nodes;

/// What stat shows.
#[derive(Debug, Clone, Copy)]
pub struct Attr {
    /// Inode number, and node id.
    pub ino: u64,
    /// Generation of the inode number.
    pub generation: u32,
    /// File type.
    pub kind: FileKind,
    /// Permission bits, set-id and sticky included.
    pub permissions: u16,
    /// Names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device numbers of a special file.
    pub rdev: u32,
    /// Bytes.
    pub size: u64,
    /// Space taken, in units of 512 bytes.
    pub blocks: u64,
    /// Last read.
    pub atime: Time,
    /// Last change of content.
    pub mtime: Time,
    /// Last change.
    pub ctime: Time,
    /// Birth.
    pub btime: Time,
}

/// What a SETATTR changes.
#[derive(Debug, Clone, Copy, Default)]
pub struct SetAttr {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes.
    pub size: Option<u64>,
    /// Access time.
    pub atime: Option<SetTime>,
    /// Modification time.
    pub mtime: Option<SetTime>,
    /// Change time: sent by the kernel's write-back cache, which keeps times itself.
    pub ctime: Option<Time>,
}

impl Server {
    pub(super) fn attr_of(&self, attributes: &Attributes) -> Attr {
        Attr {
            ino: attributes.ino.0,
            generation: attributes.generation,
            kind: attributes.kind,
            permissions: u16::try_from(attributes.mode & 0o7777)
                .expect("permissions have twelve bits"),
            nlink: attributes.nlink,
            uid: self.uid.unwrap_or(attributes.uid),
            gid: self.gid.unwrap_or(attributes.gid),
            rdev: u32::try_from(attributes.rdev).unwrap_or(0),
            size: attributes.size,
            blocks: self.blocks(attributes),
            atime: attributes.atime,
            mtime: attributes.mtime,
            ctime: attributes.ctime,
            btime: attributes.btime,
        }
    }

    /// Space taken. Programs take a file with none to be one hole (`tar -S` stores no data of it).
    /// With the kernel's write-back cache it may have pages that the kernel has not sent yet, so at
    /// least 1 is reported then.
    fn blocks(&self, attributes: &Attributes) -> u64 {
        let hides = self.kernel_collects && attributes.kind == FileKind::File;
        attributes.blocks.max(u64::from(hides))
    }

    /// GETATTR.
    ///
    /// # Errors
    /// An errno.
    pub fn attributes(&self, node: u64) -> Answer<Attr> {
        if nodes::is_hidden(node) {
            return self.hidden_attributes(node);
        }
        let attributes = self.volume.attributes(&self.inode(node)?).map_err(errno)?;
        Ok(self.attr_of(&attributes))
    }

    /// SETATTR.
    ///
    /// # Errors
    /// An errno.
    pub fn set_attributes(&self, node: u64, set: &SetAttr) -> Answer<Attr> {
        // Where every file appears to have one owner, it cannot be given to another.
        let other = |wanted: Option<u32>, shown: Option<u32>| {
            wanted.is_some_and(|wanted| shown.is_some_and(|shown| wanted != shown))
        };
        if other(set.uid, self.uid) || other(set.gid, self.gid) {
            return Err(libc::EPERM);
        }
        let changes = SetAttributes {
            mode: set.mode,
            uid: set.uid.filter(|_| self.uid.is_none()),
            gid: set.gid.filter(|_| self.gid.is_none()),
            size: set.size,
            atime: set.atime,
            mtime: set.mtime,
            ctime: set.ctime,
        };
        let inode = self.inode(node)?;
        let attributes = self
            .volume
            .set_attributes(&inode, &changes)
            .map_err(errno)?;
        Ok(self.attr_of(&attributes))
    }

    /// GETXATTR. `None`: there is no such attribute.
    ///
    /// # Errors
    /// An errno.
    pub fn xattr(&self, node: u64, name: &[u8]) -> Answer<Option<Vec<u8>>> {
        if nodes::is_hidden(node) {
            return Ok(None);
        }
        self.volume
            .get_xattr(&self.inode(node)?, name)
            .map_err(errno)
    }

    /// SETXATTR with the flags of setxattr(2), and what an access control list does to
    /// set-group-id.
    ///
    /// # Errors
    /// An errno.
    pub fn set_xattr(
        &self,
        node: u64,
        (name, value): (&[u8], &[u8]),
        flags: i32,
        set_gid: SetGid,
    ) -> Answer<()> {
        let mode = match flags {
            0 => XattrMode::Any,
            libc::XATTR_CREATE => XattrMode::Create,
            libc::XATTR_REPLACE => XattrMode::Replace,
            _ => return Err(libc::EINVAL),
        };
        self.volume
            .set_xattr_by(&self.inode(node)?, name, value, (mode, set_gid))
            .map_err(errno)
    }

    /// REMOVEXATTR.
    ///
    /// # Errors
    /// An errno.
    pub fn remove_xattr(&self, node: u64, name: &[u8]) -> Answer<()> {
        self.volume
            .remove_xattr(&self.inode(node)?, name)
            .map_err(errno)
    }

    /// LISTXATTR by user `uid`: the names, each ended by a zero byte. The kernel checks every other
    /// request about extended attributes, but not this one: a caller that may not read `trusted.`
    /// attributes is not given their names.
    ///
    /// # Errors
    /// An errno.
    pub fn xattr_names(&self, node: u64, uid: u32) -> Answer<Vec<u8>> {
        if nodes::is_hidden(node) {
            return Ok(Vec::new());
        }
        let names = self.volume.list_xattr(&self.inode(node)?).map_err(errno)?;
        let mut list = Vec::new();
        let shown = |name: &Vec<u8>| uid == 0 || !name.starts_with(b"trusted.");
        for name in names.into_iter().filter(shown) {
            list.extend_from_slice(&name);
            list.push(0);
        }
        Ok(list)
    }
}
