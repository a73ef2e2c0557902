//! One call of a user on the file system, as data: what the model and dure are both asked to do.

use std::collections::{BTreeMap, BTreeSet};

use rustix::io::Errno;

use super::node::{AllocateKind, Kind, RenameKind, XattrKind};
use super::permission::Who;

/// Number of descriptors a sequence has.
pub const SLOTS: usize = 4;

/// How a file is opened. The same rules as for `std::fs::OpenOptions`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Flags {
    /// For reading.
    pub read: bool,
    /// For writing.
    pub write: bool,
    /// Every write goes to the end.
    pub append: bool,
    /// Made if it is not there.
    pub create: bool,
    /// Must not be there (with `create`).
    pub exclusive: bool,
    /// Emptied.
    pub truncate: bool,
    /// Must be a directory.
    pub directory: bool,
    /// Must not be a symbolic link.
    pub no_follow: bool,
}

/// Where `seek` counts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whence {
    /// The start.
    Set,
    /// The position.
    Current,
    /// The end.
    End,
    /// The next data.
    Data,
    /// The next hole.
    Hole,
}

/// A call and its caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Whose call.
    pub who: Who,
    /// What.
    pub operation: Operation,
}

/// A call. Paths are relative to the root; `slot` numbers are descriptors.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "the fields are the arguments of the system calls"
)]
pub enum Operation {
    /// `open`; what the slot held is closed first.
    Open {
        slot: usize,
        path: String,
        flags: Flags,
        mode: u32,
    },
    /// `open(O_TMPFILE | O_RDWR)`.
    Temporary {
        slot: usize,
        path: String,
        mode: u32,
    },
    /// `close`.
    Close { slot: usize },
    /// `pread`.
    Read { slot: usize, offset: u64, len: u64 },
    /// `pwrite`.
    Write {
        slot: usize,
        offset: u64,
        len: u64,
        fill: u8,
    },
    /// `read`.
    ReadNext { slot: usize, len: u64 },
    /// `write`.
    WriteNext { slot: usize, len: u64, fill: u8 },
    /// `lseek`.
    Seek {
        slot: usize,
        whence: Whence,
        offset: i64,
    },
    /// `ftruncate`.
    Truncate { slot: usize, size: u64 },
    /// `fallocate`.
    Allocate {
        slot: usize,
        kind: AllocateKind,
        offset: u64,
        len: u64,
    },
    /// `fstat`.
    StatSlot { slot: usize },
    /// `fsync` or `fdatasync`.
    Fsync { slot: usize, data_only: bool },
    /// `linkat(AT_EMPTY_PATH)`.
    LinkSlot { slot: usize, path: String },
    /// `mkdir`.
    Mkdir { path: String, mode: u32 },
    /// `mknod`.
    Mknod { path: String, kind: Kind, mode: u32 },
    /// `symlink`.
    Symlink { target: String, path: String },
    /// `link`.
    Link { from: String, to: String },
    /// `unlink`.
    Unlink { path: String },
    /// `rmdir`.
    Rmdir { path: String },
    /// `renameat2`.
    Rename {
        from: String,
        to: String,
        kind: RenameKind,
    },
    /// `readlink`.
    ReadLink { path: String },
    /// `stat` or `lstat`.
    Stat { path: String, follow: bool },
    /// The names in a directory.
    ReadDirectory { path: String },
    /// `truncate`.
    TruncatePath { path: String, size: u64 },
    /// `chmod`.
    Chmod { path: String, mode: u32 },
    /// `chown` or `lchown`. At least one of uid and gid is given.
    Chown {
        path: String,
        uid: Option<u32>,
        gid: Option<u32>,
        follow: bool,
    },
    /// `utimensat` of the modification time.
    SetTime { path: String, secs: i64, nanos: u32 },
    /// `access`; `want` as in `access`.
    Access { path: String, want: u32 },
    /// `setxattr` of `len` bytes.
    SetXattr {
        path: String,
        name: String,
        len: usize,
        fill: u8,
        kind: XattrKind,
    },
    /// `getxattr`.
    GetXattr { path: String, name: String },
    /// `removexattr`.
    RemoveXattr { path: String, name: String },
    /// `listxattr`.
    ListXattr { path: String },
    /// `sync`.
    Sync,
    /// All descriptors are closed, the volume is unmounted and mounted again.
    Remount,
    /// `sync`, then the power fails: all descriptors are gone, the volume is mounted again.
    Crash,
}

/// What `stat` shows and the model knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    /// Type.
    pub kind: Kind,
    /// Permission bits.
    pub mode: u32,
    /// Links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes, of files and symbolic links.
    pub size: u64,
    /// Device number of a device.
    pub rdev: u64,
    /// Modification time, if the model knows it.
    pub mtime: Option<(i64, u32)>,
}

/// The result of a call that succeeds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Nothing.
    Done,
    /// Content, or a link's target.
    Bytes(Vec<u8>),
    /// Bytes written, or a position.
    Number(u64),
    /// Attributes.
    Stat(Stat),
    /// Names in a directory.
    Names(BTreeMap<Vec<u8>, Kind>),
    /// Names of extended attributes.
    List(BTreeSet<Vec<u8>>),
}

/// The result of a call.
pub type Outcome = Result<Answer, Errno>;

/// Whether `real` is what the model says, `model`.
#[must_use]
pub fn agree(model: &Outcome, real: &Outcome) -> bool {
    match (model, real) {
        (Ok(Answer::Stat(model)), Ok(Answer::Stat(real))) => {
            let mtime = if model.mtime.is_some() {
                real.mtime
            } else {
                None
            };
            *model
                == Stat {
                    mtime,
                    ..real.clone()
                }
        }
        _ => model == real,
    }
}

/// The bytes that a write of `len` bytes with `fill` stores.
#[must_use]
pub fn pattern(fill: u8, len: u64) -> Vec<u8> {
    let mut value = fill;
    let mut bytes = Vec::new();
    for index in 0..len {
        bytes.push(value);
        value = value
            .wrapping_mul(5)
            .wrapping_add(if index % 4093 == 0 { 3 } else { 1 });
    }
    bytes
}
