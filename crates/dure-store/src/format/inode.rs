//! The inode: two granules of an inode node, one of attributes and one of data.

use std::mem::offset_of;
use std::ops::{Deref, DerefMut, Range};

use crate::units::{Ino, is_zero};
use zerocopy::little_endian::{I64, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

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

/// What an inode is: which users may use it and how it is named. A granule of its own, so that a
/// change of attributes and one of data neither wait for each other nor log each other's bytes.
/// `mode == 0` means the number is free.
#[derive(
    FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug, PartialEq, Eq,
)]
#[repr(C)]
pub struct AttributesV1 {
    /// Own number, against misplaced granules.
    pub ino: U64,
    /// Generation: counts the uses of this inode number.
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
    /// Last change of these attributes; stat shows the later one of this and the data's.
    pub ctime: Time,
    /// Birth.
    pub btime: Time,
    /// Device numbers of a special file.
    pub rdev: U64,
    /// A directory's parent.
    pub parent: U64,
    /// First blob node of the extended attribute stream; 0: none.
    pub xattr_root: U64,
    /// Bytes of the extended attribute stream.
    pub xattr_bytes: U32,
    /// The project that it counts for; 0: none, and without `PROJECTS`.
    pub project: U32,
    /// Written zero, checked zero.
    pub reserved: [u8; 24],
}
const _: () = assert!(size_of::<AttributesV1>() == 112);
/// The current version.
pub type AttributesRecord = AttributesV1;

/// What an inode holds, but for its body.
#[derive(
    FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug, PartialEq, Eq,
)]
#[repr(C)]
pub struct DataHeadV1 {
    /// Own number, against misplaced granules; 0: nothing was stored.
    pub ino: U64,
    /// Bytes of a file, of a symlink's target; 0 for directories.
    pub size: U64,
    /// Blocks the inode's data takes (holes not counted).
    pub blocks: U64,
    /// File: root of the block map beyond the direct slots; directory: first bucket node; long
    /// symlink: first blob node. 0: none.
    pub map_root: U64,
    /// Height of the block map: 1 = the root is a leaf.
    pub map_height: U32,
    /// Stamps of buckets with a smaller set number do not count (see `bucket`).
    pub set_number: U32,
    /// Last read.
    pub atime: Time,
    /// Last change of content; for directories combined with the buckets' stamps.
    pub mtime: Time,
    /// Last change of this record; for directories combined with the buckets' stamps.
    pub ctime: Time,
    /// Written zero, checked zero.
    pub reserved: [u8; 12],
}
const _: () = assert!(size_of::<DataHeadV1>() == 88);
/// The current version.
pub type DataHead = DataHeadV1;

/// What an inode holds. All zero as long as nothing was stored: then the inode is empty, and its
/// times are that of its birth.
#[derive(
    FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug, PartialEq, Eq,
)]
#[repr(C)]
pub struct InodeDataV1 {
    /// All but the body. An `InodeData` dereferences to it.
    pub head: DataHead,
    /// 24 slots, or a symlink's target.
    pub body: [u8; BODY_BYTES],
}
const _: () = assert!(size_of::<InodeDataV1>() == 376);
/// The current version.
pub type InodeData = InodeDataV1;
/// Where the body begins in the granule of the data.
pub const INODE_BODY: usize = offset_of!(InodeDataV1, body);

/// Both granules of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InodeRecord {
    /// The first one.
    pub attributes: AttributesRecord,
    /// The second one; an inode without stored data has [`InodeData::of_birth`].
    pub data: InodeData,
}

/// The first fields of the attributes, for callers that only need to know whether its number is
/// free.
#[derive(FromBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct InodeLife {
    /// As in the record.
    pub ino: U64,
    /// As in the record.
    pub generation: U32,
    mode: U32,
}
const _: () = assert!(
    offset_of!(InodeLife, generation) == offset_of!(AttributesV1, generation)
        && offset_of!(InodeLife, mode) == offset_of!(AttributesV1, mode)
);

impl InodeLife {
    /// Its bytes of a granule.
    pub const BYTES: Range<usize> = 0..size_of::<InodeLife>();

    /// Whether the granule holds no inode.
    #[must_use]
    pub fn is_free(&self) -> bool {
        self.mode.get() == 0
    }
}

impl AttributesRecord {
    /// Its number.
    #[must_use]
    pub fn number(&self) -> Ino {
        Ino(self.ino.get())
    }

    /// The owner that the nodes of its extended attributes name: itself. A file without a name that
    /// carries the attributes of another one (`xattr::large`) says in `parent` whose.
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
        self.is_regular() && self.nlink.get() == 0 && self.flags.get() & FLAG_ORPHAN != 0
    }

    /// Whether the inode is a regular file, whose data has slots.
    #[must_use]
    pub fn is_regular(&self) -> bool {
        self.mode.get() >> 12 == 8
    }

    /// A granule that holds no inode.
    #[must_use]
    pub fn is_free(&self) -> bool {
        self.mode.get() == 0
    }
}

impl DataHead {
    /// The head of the data of an inode that was born at `birth`, before any was stored.
    #[must_use]
    pub fn of_birth(ino: Ino, birth: Time) -> DataHead {
        DataHead {
            ino: U64::new(ino.0),
            atime: birth,
            mtime: birth,
            ctime: birth,
            ..DataHead::new_zeroed()
        }
    }

    /// Its number.
    #[must_use]
    pub fn number(&self) -> Ino {
        Ino(self.ino.get())
    }
}

impl InodeData {
    /// The data of an inode that was born at `birth`, before any was stored.
    #[must_use]
    pub fn of_birth(ino: Ino, birth: Time) -> InodeData {
        InodeData {
            head: DataHead::of_birth(ino, birth),
            body: [0; BODY_BYTES],
        }
    }
}

impl Deref for InodeData {
    type Target = DataHead;

    fn deref(&self) -> &DataHead {
        &self.head
    }
}

impl DerefMut for InodeData {
    fn deref_mut(&mut self) -> &mut DataHead {
        &mut self.head
    }
}

impl InodeRecord {
    /// From its granules.
    #[must_use]
    pub fn of_granules(attributes: AttributesRecord, data: InodeData) -> InodeRecord {
        let mut record = InodeRecord { attributes, data };
        if is_zero(data.as_bytes()) {
            record.data = InodeData::of_birth(attributes.number(), attributes.btime);
        }
        record
    }

    /// Its number.
    #[must_use]
    pub fn number(&self) -> Ino {
        self.attributes.number()
    }
}
