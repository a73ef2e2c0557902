//! A parsed request: what it asks, with names and data still in the buffer it was read into.

use super::request::{CopyIn, ForgetOne, InitIn, ReleaseIn, SetAttrIn};

/// One request: its caller, its node, and what it asks.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// Names the request; the reply carries it.
    pub unique: u64,
    /// The node it is about.
    pub node: u64,
    /// User of the caller.
    pub uid: u32,
    /// Group of the caller.
    pub gid: u32,
    /// Process of the caller; 0: the server cannot see it.
    pub pid: u32,
    /// What is asked.
    pub operation: Operation<'a>,
}

/// What is asked of the node. Names are without their final zero byte, and not empty.
#[derive(Debug, Clone, Copy)]
pub enum Operation<'a> {
    /// INIT; with more flags, which older kernels do not have.
    Init(&'a InitIn, u32),
    /// DESTROY: the last request.
    Destroy,
    /// INTERRUPT of another request.
    Interrupt,
    /// LOOKUP of a name in the directory.
    Lookup(&'a [u8]),
    /// FORGET lookups.
    Forget {
        /// How many.
        lookups: u64,
    },
    /// BATCH_FORGET.
    BatchForget(&'a [ForgetOne]),
    /// GETATTR.
    GetAttr {
        /// It comes with a file handle: from write(2), or from read(2) and lseek(2) of a file whose
        /// attributes are too old.
        has_handle: bool,
    },
    /// STATX.
    Statx,
    /// SETATTR.
    SetAttr(&'a SetAttrIn),
    /// READLINK.
    ReadLink,
    /// SYMLINK in the directory.
    Symlink {
        /// Its name.
        name: &'a [u8],
        /// What it says.
        target: &'a [u8],
    },
    /// MKNOD in the directory.
    Create {
        /// The name.
        name: &'a [u8],
        /// Mode with type.
        mode: u32,
        /// Umask of the caller.
        umask: u32,
        /// Device numbers.
        rdev: u32,
    },
    /// TMPFILE: a file without a name, open.
    CreateUnnamed {
        /// Mode with type.
        mode: u32,
        /// Umask of the caller.
        umask: u32,
    },
    /// MKDIR in the directory.
    MakeDirectory {
        /// The name.
        name: &'a [u8],
        /// Mode.
        mode: u32,
        /// Umask of the caller.
        umask: u32,
    },
    /// UNLINK.
    Unlink(&'a [u8]),
    /// RMDIR.
    RemoveDirectory(&'a [u8]),
    /// RENAME and RENAME2 from the directory.
    Rename {
        /// The old name.
        name: &'a [u8],
        /// The new directory.
        to: u64,
        /// The new name.
        to_name: &'a [u8],
        /// Flags of renameat2(2).
        flags: u32,
    },
    /// LINK: a name in the directory for `node`.
    Link {
        /// The node.
        node: u64,
        /// The name.
        name: &'a [u8],
    },
    /// READ.
    Read {
        /// Where.
        offset: u64,
        /// Bytes at most.
        size: u32,
        /// Into pages of the kernel's cache.
        cached: bool,
    },
    /// WRITE.
    Write {
        /// Where.
        offset: u64,
        /// What.
        data: &'a [u8],
        /// Pages of the kernel's cache, of a shared mapping or of write-back.
        cached: bool,
        /// The caller may not keep set-id bits.
        drops_set_id: bool,
        /// The file is open for appending; `offset` is where the kernel takes its end to be.
        appends: bool,
    },
    /// READDIR, or READDIRPLUS.
    ReadDirectory {
        /// Position.
        position: u64,
        /// Bytes at most.
        size: u32,
        /// Only names, or names with attributes.
        form: ListForm,
    },
    /// FSYNC.
    Fsync {
        /// Times may be left out.
        data_only: bool,
    },
    /// FSYNCDIR.
    FsyncDirectory,
    /// SYNCFS.
    SyncAll,
    /// STATFS.
    Statistics,
    /// SETXATTR.
    SetXattr {
        /// The name.
        name: &'a [u8],
        /// The value.
        value: &'a [u8],
        /// Flags of setxattr(2).
        flags: u32,
        /// The caller may not keep set-group-id when it sets an access control list.
        drops_set_gid: bool,
    },
    /// GETXATTR.
    GetXattr {
        /// The name.
        name: &'a [u8],
        /// Bytes at most; 0 asks for the length.
        size: u32,
    },
    /// LISTXATTR.
    ListXattr {
        /// Bytes at most; 0 asks for the length.
        size: u32,
    },
    /// REMOVEXATTR.
    RemoveXattr(&'a [u8]),
    /// FALLOCATE.
    Allocate {
        /// Where.
        offset: u64,
        /// Bytes.
        len: u64,
        /// Mode bits of fallocate(2).
        mode: u32,
    },
    /// LSEEK.
    Seek {
        /// From where.
        offset: u64,
        /// `SEEK_DATA` or `SEEK_HOLE`.
        whence: u32,
    },
    /// COPY_FILE_RANGE, or COPY_FILE_RANGE_64.
    Copy {
        /// What to where.
        range: &'a CopyIn,
        /// How the reply counts.
        form: CopyForm,
    },
    /// IOCTL.
    Ioctl {
        /// The command.
        command: u32,
        /// What it takes.
        data: &'a [u8],
        /// Bytes of an answer at most.
        size: u32,
    },
    /// OPEN.
    Open {
        /// Flags of open(2).
        flags: u32,
    },
    /// OPENDIR.
    OpenDirectory,
    /// RELEASE.
    Release(&'a ReleaseIn),
    /// RELEASEDIR.
    ReleaseDirectory,
    /// CREATE, FLUSH, ACCESS and what is best left to the kernel, or not known.
    Unserved(u32),
}

impl Operation<'_> {
    /// What it changes.
    #[must_use]
    pub fn changes(&self) -> Option<Changes> {
        match self {
            Operation::Symlink { .. }
            | Operation::Create { .. }
            | Operation::CreateUnnamed { .. }
            | Operation::MakeDirectory { .. }
            | Operation::Unlink(_)
            | Operation::RemoveDirectory(_)
            | Operation::Rename { .. }
            | Operation::Link { .. } => Some(Changes::Names),
            Operation::SetAttr(_)
            | Operation::Write { .. }
            | Operation::SetXattr { .. }
            | Operation::RemoveXattr(_)
            | Operation::Allocate { .. }
            | Operation::Copy { .. } => Some(Changes::Inode),
            Operation::Init(..)
            | Operation::Destroy
            | Operation::Interrupt
            | Operation::Lookup(_)
            | Operation::Forget { .. }
            | Operation::BatchForget(_)
            | Operation::GetAttr { .. }
            | Operation::Statx
            | Operation::ReadLink
            | Operation::Read { .. }
            | Operation::ReadDirectory { .. }
            | Operation::Fsync { .. }
            | Operation::FsyncDirectory
            | Operation::SyncAll
            | Operation::Statistics
            | Operation::GetXattr { .. }
            | Operation::ListXattr { .. }
            | Operation::Seek { .. }
            | Operation::Ioctl { .. }
            | Operation::Open { .. }
            | Operation::OpenDirectory
            | Operation::Release(_)
            | Operation::ReleaseDirectory
            | Operation::Unserved(_) => None,
        }
    }
}

/// What a request changes of its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changes {
    /// Names in the directory.
    Names,
    /// Content or attributes.
    Inode,
}

/// What READDIR lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListForm {
    /// READDIR.
    Names,
    /// READDIRPLUS.
    Attributes,
}

/// How the reply to a copy counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyForm {
    /// COPY_FILE_RANGE.
    Short,
    /// COPY_FILE_RANGE_64.
    Long,
}
