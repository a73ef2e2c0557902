//! The vocabulary of the model: what an inode is, and the modes of rename, fallocate and setxattr.

use std::collections::BTreeMap;

use super::data::Data;

/// What an inode is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Regular file.
    File,
    /// Directory.
    Directory,
    /// Symbolic link.
    Symlink,
    /// Named pipe.
    Fifo,
    /// Socket.
    Socket,
    /// Character device.
    Character,
    /// Block device.
    Block,
}

/// What `rename` does with an existing target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenameKind {
    /// Replaces it.
    Replace,
    /// Refuses.
    NoReplace,
    /// Exchanges the two.
    Exchange,
}

/// What `fallocate` does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AllocateKind {
    /// Allocates, and extends the file.
    Extend,
    /// Allocates, and leaves the size.
    KeepSize,
    /// Makes a hole.
    Punch,
    /// Makes zeros, and extends the file.
    Zero,
}

/// How an extended attribute may be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XattrKind {
    /// New or old.
    Any,
    /// Only new.
    Create,
    /// Only old.
    Replace,
}

/// What depends on the kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// A regular file.
    File(Data),
    /// A directory.
    Directory {
        /// Names in it.
        entries: BTreeMap<Vec<u8>, u64>,
        /// What `..` means.
        parent: u64,
    },
    /// A symbolic link.
    Symlink(Vec<u8>),
    /// Everything else: type and device number.
    Special(Kind, u64),
}

/// One inode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Type and content.
    pub body: Body,
    /// Permission bits, 0..0o7777.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names that lead here; for directories 2 + subdirectories.
    pub nlink: u32,
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Modification time, if it was set and nothing has changed it since.
    pub mtime: Option<(i64, u32)>,
    /// Descriptors that refer to it.
    pub opens: u32,
    /// Made without a name and allowed to get one.
    pub linkable: bool,
}

impl Node {
    /// What it is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match &self.body {
            Body::File(_) => Kind::File,
            Body::Directory { .. } => Kind::Directory,
            Body::Symlink(_) => Kind::Symlink,
            Body::Special(kind, _) => *kind,
        }
    }

    /// Size as `stat` shows it, for files and symbolic links.
    #[must_use]
    pub fn size(&self) -> u64 {
        match &self.body {
            Body::File(data) => data.size(),
            Body::Symlink(target) => u64::try_from(target.len()).expect("64 bits"),
            Body::Directory { .. } | Body::Special(..) => 0,
        }
    }
}

/// What a new inode is to be.
#[derive(Debug, Clone)]
pub struct New {
    /// Type and content.
    pub body: Body,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

impl New {
    /// A new, empty directory.
    #[must_use]
    pub fn directory(mode: u32, uid: u32, gid: u32) -> New {
        let body = Body::Directory {
            entries: BTreeMap::new(),
            parent: 0,
        };
        New {
            body,
            mode,
            uid,
            gid,
        }
    }

    pub(super) fn into_node(self, dir: u64) -> Node {
        let mut body = self.body;
        let mut nlink = 1;
        if let Body::Directory { parent, .. } = &mut body {
            *parent = dir;
            nlink = 2;
        }
        Node {
            body,
            mode: self.mode,
            uid: self.uid,
            gid: self.gid,
            nlink,
            xattrs: BTreeMap::new(),
            mtime: None,
            opens: 0,
            linkable: false,
        }
    }
}
