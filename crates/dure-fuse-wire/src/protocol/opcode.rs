//! Numbers of the protocol: operations, and the flags in their arguments.

/// A name in a directory.
pub const LOOKUP: u32 = 1;
/// Lookups of a node are given back; no reply.
pub const FORGET: u32 = 2;
/// Attributes.
pub const GETATTR: u32 = 3;
/// Change of attributes.
pub const SETATTR: u32 = 4;
/// Target of a symlink.
pub const READLINK: u32 = 5;
/// A new symlink.
pub const SYMLINK: u32 = 6;
/// A new file of any type but directory and symlink.
pub const MKNOD: u32 = 8;
/// A new directory.
pub const MKDIR: u32 = 9;
/// Removal of a name.
pub const UNLINK: u32 = 10;
/// Removal of a directory.
pub const RMDIR: u32 = 11;
/// Rename without flags.
pub const RENAME: u32 = 12;
/// A second name.
pub const LINK: u32 = 13;
/// open(2).
pub const OPEN: u32 = 14;
/// Content.
pub const READ: u32 = 15;
/// New content.
pub const WRITE: u32 = 16;
/// Room of the file system.
pub const STATFS: u32 = 17;
/// Last close(2).
pub const RELEASE: u32 = 18;
/// Durability of a file.
pub const FSYNC: u32 = 20;
/// Setting an extended attribute.
pub const SETXATTR: u32 = 21;
/// Value of an extended attribute.
pub const GETXATTR: u32 = 22;
/// Names of extended attributes.
pub const LISTXATTR: u32 = 23;
/// Removal of an extended attribute.
pub const REMOVEXATTR: u32 = 24;
/// close(2).
pub const FLUSH: u32 = 25;
/// The first request.
pub const INIT: u32 = 26;
/// opendir(3).
pub const OPENDIR: u32 = 27;
/// Names of a directory.
pub const READDIR: u32 = 28;
/// Last closedir(3).
pub const RELEASEDIR: u32 = 29;
/// Durability of a directory.
pub const FSYNCDIR: u32 = 30;
/// access(2).
pub const ACCESS: u32 = 34;
/// A new regular file, opened. Not served: MKNOD and OPEN do the same.
pub const CREATE: u32 = 35;
/// A caller no longer waits for the reply of another request.
pub const INTERRUPT: u32 = 36;
/// The last request.
pub const DESTROY: u32 = 38;
/// ioctl(2), of those commands whose number says what they take and give.
pub const IOCTL: u32 = 39;
/// Many FORGETs.
pub const BATCH_FORGET: u32 = 42;
/// fallocate(2).
pub const FALLOCATE: u32 = 43;
/// Names of a directory with their attributes, which counts as a LOOKUP of each.
pub const READDIRPLUS: u32 = 44;
/// Rename with flags.
pub const RENAME2: u32 = 45;
/// Data and holes.
pub const LSEEK: u32 = 46;
/// Copy within the file system; the reply counts in 32 bits.
pub const COPY_FILE_RANGE: u32 = 47;
/// Durability of everything.
pub const SYNCFS: u32 = 50;
/// A new regular file without a name, opened.
pub const TMPFILE: u32 = 51;
/// Attributes with the birth time.
pub const STATX: u32 = 52;
/// Copy within the file system; the reply counts in 64 bits.
pub const COPY_FILE_RANGE_64: u32 = 53;

/// What INIT offers and answers.
pub mod init {
    /// READs of one file may be sent side by side.
    pub const ASYNC_READ: u32 = 1 << 0;
    /// LOOKUP of "." and ".." is served: so the kernel finds again what a file handle names.
    pub const EXPORT_SUPPORT: u32 = 1 << 4;
    /// WRITEs of more than a page.
    pub const BIG_WRITES: u32 = 1 << 5;
    /// The server applies the umask, because a default ACL replaces it.
    pub const DONT_MASK: u32 = 1 << 6;
    /// READDIRPLUS is served.
    pub const DO_READDIRPLUS: u32 = 1 << 13;
    /// Direct I/O is sent in parts side by side.
    pub const ASYNC_DIO: u32 = 1 << 15;
    /// The kernel collects writes, and keeps size and times of regular files.
    pub const WRITEBACK_CACHE: u32 = 1 << 16;
    /// ENOSYS to OPEN means: do not ask again.
    pub const NO_OPEN_SUPPORT: u32 = 1 << 17;
    /// LOOKUP and READDIR of one directory may be sent side by side.
    pub const PARALLEL_DIROPS: u32 = 1 << 18;
    /// The kernel checks POSIX ACLs.
    pub const POSIX_ACL: u32 = 1 << 20;
    /// `max_pages` of the reply counts.
    pub const MAX_PAGES: u32 = 1 << 22;
    /// Targets of symlinks are kept.
    pub const CACHE_SYMLINKS: u32 = 1 << 23;
    /// The server clears set-id bits, where a request says that its caller may not keep them.
    pub const HANDLE_KILLPRIV_V2: u32 = 1 << 28;
    /// ENOSYS to OPENDIR means: do not ask again, and keep the listings of directories.
    pub const NO_OPENDIR_SUPPORT: u32 = 1 << 24;
    /// SETXATTR has flags of its own.
    pub const SETXATTR_EXT: u32 = 1 << 29;
    /// There are more flags, in another field.
    pub const EXT: u32 = 1 << 30;
    /// A flag of the other field: what is opened with [`OPEN_DIRECT_IO`](super::OPEN_DIRECT_IO) can
    /// be mapped to be shared.
    pub const EXT_DIRECT_IO_ALLOW_MMAP: u32 = 1 << (36 - 32);
    /// A flag of the other field: requests may be taken from rings.
    pub const EXT_OVER_IO_URING: u32 = 1 << (41 - 32);
}

/// Which fields of a SETATTR count.
pub mod setattr {
    /// The mode.
    pub const MODE: u32 = 1 << 0;
    /// The owner.
    pub const UID: u32 = 1 << 1;
    /// The group.
    pub const GID: u32 = 1 << 2;
    /// The size.
    pub const SIZE: u32 = 1 << 3;
    /// The access time.
    pub const ATIME: u32 = 1 << 4;
    /// The modification time.
    pub const MTIME: u32 = 1 << 5;
    /// The access time is now.
    pub const ATIME_NOW: u32 = 1 << 7;
    /// The modification time is now.
    pub const MTIME_NOW: u32 = 1 << 8;
    /// The change time.
    pub const CTIME: u32 = 1 << 10;
    /// Clear set-id bits: a truncate whose caller may not keep them, or a chown.
    pub const KILL_SUIDGID: u32 = 1 << 11;
    /// What the caller asked to change: not the bits that qualify it (a handle, an owner of locks),
    /// nor the change time, which the kernel's write-back cache adds to every change.
    pub const CHANGES: u32 = !(1 << 6 | 1 << 9 | CTIME);
}

/// Flag of a GETATTR: it comes with a file handle.
pub const GETATTR_FH: u32 = 1 << 0;
/// Flag of a READ: it has the owner of locks, as every read(2) that passes the kernel's cache by. One that
/// fills pages of that has not.
pub const READ_LOCK_OWNER: u32 = 1 << 1;
/// Flag of a WRITE: it carries pages of the kernel's cache. The kernel drops what is not taken, and
/// reports that to a later fsync only, and only if the WRITE fails.
pub const WRITE_CACHE: u32 = 1 << 0;
/// Flag of a WRITE: clear set-id bits, which the caller may not keep.
pub const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// Flag of a SETXATTR of an access control list: clear set-group-id, because the caller is not in
/// the group.
pub const SETXATTR_ACL_KILL_SGID: u32 = 1 << 0;
/// Flag of FSYNC: times may be left out.
pub const FSYNC_FDATASYNC: u32 = 1 << 0;
/// Flag in the reply to an open: read(2) and write(2) pass the kernel's cache by.
pub const OPEN_DIRECT_IO: u32 = 1 << 0;
/// Flag in the reply to an open: close(2) sends no FLUSH, and waits for nothing.
pub const OPEN_NO_FLUSH: u32 = 1 << 5;
/// Flag in the reply to an open: what the kernel's cache holds stays.
pub const OPEN_KEEP_CACHE: u32 = 1 << 1;
