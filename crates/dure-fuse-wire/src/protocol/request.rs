//! Layouts of what the kernel sends: a header, then one of these, then names or data.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Begins every request.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct InHeader {
    /// Bytes of the whole request.
    pub len: u32,
    /// See [`super::opcode`].
    pub opcode: u32,
    /// Names the request; the reply carries it.
    pub unique: u64,
    /// The node it is about.
    pub node: u64,
    /// User of the caller.
    pub uid: u32,
    /// Group of the caller.
    pub gid: u32,
    /// Process of the caller.
    pub pid: u32,
    /// Length of extensions at the end of the request, in units of 8 bytes.
    pub extensions: u16,
    /// Not used.
    pub reserved: u16,
}

const _: () = assert!(size_of::<InHeader>() == 40);

/// INIT; from 7.36 on more follows, of which the first field is used: more flags.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct InitIn {
    /// Version the kernel speaks, first number.
    pub major: u32,
    /// Second number.
    pub minor: u32,
    /// Bytes the kernel reads ahead.
    pub max_readahead: u32,
    /// What it offers.
    pub flags: u32,
}
const _: () = assert!(size_of::<InitIn>() == 16);

/// FORGET.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct ForgetIn {
    /// Lookups given back.
    pub lookups: u64,
}
const _: () = assert!(size_of::<ForgetIn>() == 8);

/// BATCH_FORGET; `count` of [`ForgetOne`] follow.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct BatchForgetIn {
    /// How many.
    pub count: u32,
    /// Not used.
    pub reserved: u32,
}
const _: () = assert!(size_of::<BatchForgetIn>() == 8);

/// One of BATCH_FORGET.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct ForgetOne {
    /// The node.
    pub node: u64,
    /// Lookups given back.
    pub lookups: u64,
}
const _: () = assert!(size_of::<ForgetOne>() == 16);

/// OPEN and OPENDIR.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct OpenIn {
    /// Flags of open(2).
    pub flags: u32,
    /// More flags.
    pub open_flags: u32,
}
const _: () = assert!(size_of::<OpenIn>() == 8);

/// RELEASE and RELEASEDIR.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct ReleaseIn {
    /// File handle.
    pub handle: u64,
    /// Flags of open(2).
    pub flags: u32,
    /// What of locks ends.
    pub release_flags: u32,
    /// Owner of locks.
    pub lock_owner: u64,
}
const _: () = assert!(size_of::<ReleaseIn>() == 24);

/// GETATTR.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct GetAttrIn {
    /// [`GETATTR_FH`](super::opcode::GETATTR_FH).
    pub flags: u32,
    /// Not used.
    pub reserved: u32,
    /// File handle.
    pub handle: u64,
}

/// SETATTR.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct SetAttrIn {
    /// Which fields count.
    pub valid: u32,
    /// Not used.
    pub reserved: u32,
    /// File handle.
    pub handle: u64,
    /// Size.
    pub size: u64,
    /// Owner of a lock.
    pub lock_owner: u64,
    /// Access time, seconds.
    pub atime: i64,
    /// Modification time, seconds.
    pub mtime: i64,
    /// Change time, seconds.
    pub ctime: i64,
    /// Access time, nanoseconds.
    pub atime_nanos: u32,
    /// Modification time, nanoseconds.
    pub mtime_nanos: u32,
    /// Change time, nanoseconds.
    pub ctime_nanos: u32,
    /// Mode.
    pub mode: u32,
    /// Not used.
    pub reserved4: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Not used.
    pub reserved5: u32,
}
const _: () = assert!(size_of::<SetAttrIn>() == 88);

/// MKNOD; the name follows.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct MknodIn {
    /// Mode with type.
    pub mode: u32,
    /// Device numbers.
    pub rdev: u32,
    /// Umask of the caller.
    pub umask: u32,
    /// Not used.
    pub reserved: u32,
}
const _: () = assert!(size_of::<MknodIn>() == 16);

/// MKDIR; the name follows.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct MkdirIn {
    /// Mode.
    pub mode: u32,
    /// Umask of the caller.
    pub umask: u32,
}
const _: () = assert!(size_of::<MkdirIn>() == 8);

/// CREATE and TMPFILE; the name follows.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct CreateIn {
    /// Flags of open(2).
    pub flags: u32,
    /// Mode with type.
    pub mode: u32,
    /// Umask of the caller.
    pub umask: u32,
    /// More flags.
    pub open_flags: u32,
}
const _: () = assert!(size_of::<CreateIn>() == 16);

/// RENAME; the old and the new name follow.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct RenameIn {
    /// The new directory.
    pub to: u64,
}
const _: () = assert!(size_of::<RenameIn>() == 8);

/// RENAME2; the old and the new name follow.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Rename2In {
    /// The new directory.
    pub to: u64,
    /// Flags of renameat2(2).
    pub flags: u32,
    /// Not used.
    pub reserved: u32,
}
const _: () = assert!(size_of::<Rename2In>() == 16);

/// LINK; the name follows.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct LinkIn {
    /// The node that gets a name.
    pub node: u64,
}
const _: () = assert!(size_of::<LinkIn>() == 8);

/// READ, READDIR, READDIRPLUS.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct ReadIn {
    /// File handle.
    pub handle: u64,
    /// Where; for directories a position the server gave.
    pub offset: u64,
    /// Bytes at most.
    pub size: u32,
    /// Flags.
    pub read_flags: u32,
    /// Owner of a lock.
    pub lock_owner: u64,
    /// Flags of open(2).
    pub flags: u32,
    /// Not used.
    pub reserved: u32,
}
const _: () = assert!(size_of::<ReadIn>() == 40);

/// WRITE; the data follow.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct WriteIn {
    /// File handle.
    pub handle: u64,
    /// Where.
    pub offset: u64,
    /// Bytes that follow.
    pub size: u32,
    /// See [`super::opcode::WRITE_CACHE`].
    pub write_flags: u32,
    /// Owner of a lock.
    pub lock_owner: u64,
    /// Flags of open(2).
    pub flags: u32,
    /// Not used.
    pub reserved: u32,
}
const _: () = assert!(size_of::<WriteIn>() == 40);

/// FSYNC and FSYNCDIR.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct FsyncIn {
    /// File handle.
    pub handle: u64,
    /// See [`super::opcode::FSYNC_FDATASYNC`].
    pub flags: u32,
    /// Not used.
    pub reserved: u32,
}
const _: () = assert!(size_of::<FsyncIn>() == 16);

/// SETXATTR as of 7.33; name and value follow.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct SetXattrIn {
    /// Bytes of the value.
    pub size: u32,
    /// Flags of setxattr(2).
    pub flags: u32,
    /// See [`super::opcode::SETXATTR_ACL_KILL_SGID`].
    pub set_flags: u32,
    /// Not used.
    pub reserved: u32,
}
const _: () = assert!(size_of::<SetXattrIn>() == 16);

/// GETXATTR (the name follows) and LISTXATTR.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct GetXattrIn {
    /// Bytes at most; 0 asks for the length.
    pub size: u32,
    /// Not used.
    pub reserved: u32,
}
const _: () = assert!(size_of::<GetXattrIn>() == 8);

/// FALLOCATE.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct FallocateIn {
    /// File handle.
    pub handle: u64,
    /// Where.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// Mode bits of fallocate(2).
    pub mode: u32,
    /// Not used.
    pub reserved: u32,
}
const _: () = assert!(size_of::<FallocateIn>() == 32);

/// IOCTL; what the command takes follows.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct IoctlIn {
    /// File handle.
    pub handle: u64,
    /// `FUSE_IOCTL_*`: whether a directory is asked, and how.
    pub flags: u32,
    /// The command.
    pub command: u32,
    /// Its argument, an address of the caller.
    pub argument: u64,
    /// Bytes that follow.
    pub in_size: u32,
    /// Bytes of an answer at most.
    pub out_size: u32,
}
const _: () = assert!(size_of::<IoctlIn>() == 32);

/// LSEEK.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct LseekIn {
    /// File handle.
    pub handle: u64,
    /// From where.
    pub offset: u64,
    /// `SEEK_DATA` or `SEEK_HOLE`.
    pub whence: u32,
    /// Not used.
    pub reserved: u32,
}
const _: () = assert!(size_of::<LseekIn>() == 24);

/// COPY_FILE_RANGE; the header's node is the source.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct CopyIn {
    /// File handle of the source.
    pub handle_in: u64,
    /// Where in the source.
    pub offset_in: u64,
    /// The target.
    pub node_out: u64,
    /// File handle of the target.
    pub handle_out: u64,
    /// Where in the target.
    pub offset_out: u64,
    /// Bytes.
    pub len: u64,
    /// None are defined.
    pub flags: u64,
}
const _: () = assert!(size_of::<CopyIn>() == 56);
