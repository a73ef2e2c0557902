//! Layouts of replies to the kernel: a header, then one of these, or data.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Begins every reply.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct OutHeader {
    /// Bytes of the whole reply.
    pub len: u32,
    /// 0, or an errno below zero.
    pub error: i32,
    /// The request's.
    pub unique: u64,
}
const _: () = assert!(size_of::<OutHeader>() == 16);

/// FUSE_NOTIFY_INVAL_INODE, in place of an error: the kernel's cache of an inode is invalid.
pub const NOTIFY_INVAL_INODE: i32 = 2;

/// FUSE_NOTIFY_INVAL_INODE; its header belongs to no request.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct InvalInode {
    /// The header's fields.
    pub header: OutHeader,
    /// Which inode.
    pub node: u64,
    /// First byte of its data; below 0: only attributes.
    pub offset: i64,
    /// Bytes of its data.
    pub len: i64,
}
const _: () = assert!(size_of::<InvalInode>() == 40);

/// FUSE_NOTIFY_INVAL_ENTRY: what the kernel knows of a name is invalid.
pub const NOTIFY_INVAL_ENTRY: i32 = 3;

/// FUSE_NOTIFY_INVAL_ENTRY; the name and a zero byte follow.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct InvalEntry {
    /// The header's fields.
    pub header: OutHeader,
    /// The directory.
    pub parent: u64,
    /// Bytes of the name.
    pub name_len: u32,
    /// None: an entry that were only to be asked for again (`FUSE_EXPIRE_ONLY`) would be asked for
    /// without the lock of its directory, and an older answer that is under way be believed.
    pub flags: u32,
}
const _: () = assert!(size_of::<InvalEntry>() == 32);

/// FUSE_NOTIFY_DELETE: a name is gone, and so is what it led to.
pub const NOTIFY_DELETE: i32 = 6;

/// FUSE_NOTIFY_DELETE; the name and a zero byte follow.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Delete {
    /// The header's fields.
    pub header: OutHeader,
    /// The directory.
    pub parent: u64,
    /// What the name led to.
    pub child: u64,
    /// Bytes of the name.
    pub name_len: u32,
    /// Not used.
    pub reserved: u32,
}
const _: () = assert!(size_of::<Delete>() == 40);

/// INIT.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct InitOut {
    /// Version the server speaks, first number.
    pub major: u32,
    /// Second number.
    pub minor: u32,
    /// Bytes to read ahead.
    pub max_readahead: u32,
    /// What of the offer is taken.
    pub flags: u32,
    /// Requests in the background at most.
    pub max_background: u16,
    /// From how many on the device counts as congested.
    pub congestion: u16,
    /// Bytes of a WRITE at most.
    pub max_write: u32,
    /// Unit of times, in nanoseconds.
    pub time_granularity: u32,
    /// Pages of a request at most.
    pub max_pages: u16,
    /// Not used.
    pub map_alignment: u16,
    /// More of what is taken.
    pub flags2: u32,
    /// Not used.
    pub reserved: [u32; 7],
}
const _: () = assert!(size_of::<InitOut>() == 64);

/// Attributes of a node.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Attr {
    /// Inode number.
    pub ino: u64,
    /// Bytes.
    pub size: u64,
    /// Space taken, in units of 512 bytes.
    pub blocks: u64,
    /// Last read, seconds.
    pub atime: i64,
    /// Last change of content, seconds.
    pub mtime: i64,
    /// Last change, seconds.
    pub ctime: i64,
    /// Nanoseconds of it.
    pub atime_nanos: u32,
    /// Nanoseconds of it.
    pub mtime_nanos: u32,
    /// Nanoseconds of it.
    pub ctime_nanos: u32,
    /// Mode with type.
    pub mode: u32,
    /// Names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device numbers.
    pub rdev: u32,
    /// Good size for I/O.
    pub block_size: u32,
    /// Not used.
    pub flags: u32,
}
const _: () = assert!(size_of::<Attr>() == 88);

/// A node: LOOKUP, MKNOD, MKDIR, SYMLINK, LINK; part of CREATE, TMPFILE, READDIRPLUS.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct EntryOut {
    /// Node id; 0: a negative entry, which the kernel may cache for the given time.
    pub node: u64,
    /// Tells lives of the node id apart.
    pub generation: u64,
    /// How long the name may be believed, seconds.
    pub entry_valid: u64,
    /// How long the kernel may cache the attributes, seconds.
    pub attr_valid: u64,
    /// Nanoseconds of it.
    pub entry_valid_nanos: u32,
    /// Nanoseconds of it.
    pub attr_valid_nanos: u32,
    /// The attributes.
    pub attr: Attr,
}
const _: () = assert!(size_of::<EntryOut>() == 128);

/// GETATTR and SETATTR.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct AttrOut {
    /// How long the kernel may cache the attributes, seconds.
    pub valid: u64,
    /// Nanoseconds of it.
    pub valid_nanos: u32,
    /// Not used.
    pub reserved: u32,
    /// The attributes.
    pub attr: Attr,
}
const _: () = assert!(size_of::<AttrOut>() == 104);

/// A time of STATX.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct StatxTime {
    /// Seconds.
    pub secs: i64,
    /// Nanoseconds.
    pub nanos: u32,
    /// Not used.
    pub reserved: i32,
}
const _: () = assert!(size_of::<StatxTime>() == 16);

/// STATX.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct StatxOut {
    /// How long the kernel may cache the attributes, seconds.
    pub valid: u64,
    /// Nanoseconds of it.
    pub valid_nanos: u32,
    /// Not used.
    pub flags: u32,
    /// Not used.
    pub reserved: [u64; 2],
    /// Which of the fields below count: bits of statx(2).
    pub mask: u32,
    /// Good size for I/O.
    pub block_size: u32,
    /// Attribute bits of statx(2).
    pub attributes: u64,
    /// Names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Mode with type.
    pub mode: u16,
    /// Not used.
    pub reserved2: u16,
    /// Inode number.
    pub ino: u64,
    /// Bytes.
    pub size: u64,
    /// Space taken, in units of 512 bytes.
    pub blocks: u64,
    /// Which attribute bits are valid.
    pub attributes_mask: u64,
    /// Last read.
    pub atime: StatxTime,
    /// Birth.
    pub btime: StatxTime,
    /// Last change.
    pub ctime: StatxTime,
    /// Last change of content.
    pub mtime: StatxTime,
    /// Device numbers of a device file.
    pub rdev_major: u32,
    /// Second number.
    pub rdev_minor: u32,
    /// The kernel knows its own.
    pub dev_major: u32,
    /// Second number.
    pub dev_minor: u32,
    /// Not used.
    pub reserved3: [u64; 14],
}
const _: () = assert!(size_of::<StatxOut>() == 288);

/// Part of TMPFILE.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct OpenOut {
    /// File handle.
    pub handle: u64,
    /// See [`super::opcode::OPEN_KEEP_CACHE`].
    pub flags: u32,
    /// Not used.
    pub reserved: u32,
}
const _: () = assert!(size_of::<OpenOut>() == 16);

/// WRITE and COPY_FILE_RANGE.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct WriteOut {
    /// Bytes taken.
    pub size: u32,
    /// Not used.
    pub reserved: u32,
}
const _: () = assert!(size_of::<WriteOut>() == 8);

/// GETXATTR and LISTXATTR when the length was asked for.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct GetXattrOut {
    /// Bytes.
    pub size: u32,
    /// Not used.
    pub reserved: u32,
}
const _: () = assert!(size_of::<GetXattrOut>() == 8);

/// STATFS.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct StatfsOut {
    /// Blocks.
    pub blocks: u64,
    /// Free ones.
    pub free: u64,
    /// Free ones for unprivileged users.
    pub available: u64,
    /// Inodes.
    pub files: u64,
    /// Free ones.
    pub files_free: u64,
    /// Good size for I/O.
    pub block_size: u32,
    /// Bytes of a name at most.
    pub name_len: u32,
    /// Unit of the counts, in bytes.
    pub fragment_size: u32,
    /// Not used.
    pub reserved: u32,
    /// Not used.
    pub reserved2: [u32; 6],
}
const _: () = assert!(size_of::<StatfsOut>() == 80);

/// LSEEK.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct LseekOut {
    /// Where.
    pub offset: u64,
}
const _: () = assert!(size_of::<LseekOut>() == 8);

/// IOCTL; what the command gives follows.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct IoctlOut {
    /// What ioctl(2) returns.
    pub result: i32,
    /// None are needed.
    pub flags: u32,
    /// Only for character devices.
    pub in_iovs: u32,
    /// Only for character devices.
    pub out_iovs: u32,
}
const _: () = assert!(size_of::<IoctlOut>() == 16);

/// COPY_FILE_RANGE_64.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct CopyOut {
    /// Bytes copied.
    pub bytes: u64,
}
const _: () = assert!(size_of::<CopyOut>() == 8);

/// One name of READDIR, or after an [`EntryOut`] of READDIRPLUS; the name follows, filled up to
/// 8 bytes.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Dirent {
    /// Inode number.
    pub ino: u64,
    /// Position after this entry.
    pub next: u64,
    /// Bytes of the name.
    pub name_len: u32,
    /// Type: the upper four bits of a mode.
    pub kind: u32,
}
const _: () = assert!(size_of::<Dirent>() == 24);
