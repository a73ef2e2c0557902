//! The inode: one granule of an inode node.

use crate::units::Ino;
use zerocopy::little_endian::{I64, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of the body: direct slots of a file, or a short symlink's target.
pub const BODY_BYTES: usize = 288;

/// A point in time: seconds since 1970 (may be negative, reaches past 2038) and nanoseconds.
#[derive(
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Default,
)]
#[repr(C)]
pub struct TimeV1 {
    /// Seconds since 1970.
    pub secs: I64,
    /// 0..1_000_000_000.
    pub nanos: U32,
}
/// The current version.
pub type Time = TimeV1;

/// Flag: the inode is in an orphan slot (unlinked while open, or an `O_TMPFILE`).
pub const FLAG_ORPHAN: u32 = 1;
/// Flag: the symlink's target does not fit the body and lies in blob nodes (`map_root`).
pub const FLAG_LONG_LINK: u32 = 2;

/// One inode. `mode == 0` means the granule is free.
#[derive(
    FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug, PartialEq, Eq,
)]
#[repr(C)]
pub struct InodeV1 {
    /// Own number, against misplaced granules.
    pub ino: U64,
    /// Counts lives of this inode number.
    pub generation: U32,
    /// Type and permissions as in `st_mode`; 0: free.
    pub mode: U32,
    /// Owner.
    pub uid: U32,
    /// Group.
    pub gid: U32,
    /// Names; for a directory 1 (its `..` links are counted from the buckets).
    pub nlink: U32,
    /// `FLAG_*`.
    pub flags: U32,
    /// Bytes of a file, of a symlink's target; 0 for directories.
    pub size: U64,
    /// Blocks the inode's data takes (holes not counted).
    pub blocks: U64,
    /// Last read.
    pub atime: Time,
    /// Last change of content; for directories combined with the buckets' stamps.
    pub mtime: Time,
    /// Last change of the inode; for directories combined with the buckets' stamps.
    pub ctime: Time,
    /// Birth.
    pub btime: Time,
    /// Device numbers of a special file.
    pub rdev: U64,
    /// A directory's parent.
    pub parent: U64,
    /// Stamps of buckets with a smaller set number do not count (see `bucket`).
    pub set_number: U32,
    /// Bytes of the extended attribute stream.
    pub xattr_bytes: U32,
    /// First blob node of the extended attribute stream; 0: none.
    pub xattr_root: U64,
    /// File: root of the block map beyond the direct slots; directory: first bucket node; long
    /// symlink: first blob node. 0: none.
    pub map_root: U64,
    /// Height of the block map: 1 = the root is a leaf.
    pub map_height: U32,
    /// Written zero, checked zero.
    pub reserved: [u8; 68],
    /// 24 slots, or a symlink's target.
    pub body: [u8; BODY_BYTES],
}
const _: () = assert!(size_of::<InodeV1>() == 496);
/// The current version.
pub type InodeRecord = InodeV1;

impl InodeRecord {
    /// Its number.
    #[must_use]
    pub fn number(&self) -> Ino {
        Ino(self.ino.get())
    }

    /// Whom the nodes of its extended attributes name as their owner: itself. A file without a name
    /// that carries the attributes of another one (`xattr::large`) says in `parent` whose.
    #[must_use]
    pub fn xattr_owner(&self) -> Ino {
        if self.carries() && self.parent.get() != 0 {
            Ino(self.parent.get())
        } else {
            self.number()
        }
    }

    /// Whether it may carry the attributes of another inode.
    #[must_use]
    pub fn carries(&self) -> bool {
        let file = self.mode.get() >> 12 == 8;
        file && self.nlink.get() == 0 && self.flags.get() & FLAG_ORPHAN != 0
    }

    /// A granule that holds no inode.
    #[must_use]
    pub fn is_free(&self) -> bool {
        self.mode.get() == 0
    }
}
