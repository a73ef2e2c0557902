//! The structs of `dure.h`. What each field means stands there.
//!
//! **Invariants.** No padding: what is not used yet is a field that is written as zero. A test
//! compares sizes and offsets with the header.

use std::ffi::c_char;

use dure::{Metadata, Timestamp};

/// A time.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct dure_time {
    /// Seconds since 1970, may be negative.
    pub sec: i64,
    /// Nanoseconds, 0 to 999999999.
    pub nsec: u32,
    /// 0.
    pub reserved: u32,
}

impl From<Timestamp> for dure_time {
    #[inline]
    fn from(time: Timestamp) -> Self {
        dure_time {
            sec: time.secs,
            nsec: time.nanos,
            reserved: 0,
        }
    }
}

/// Attributes.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct dure_stat {
    /// Inode number.
    pub ino: u64,
    /// Bytes.
    pub size: u64,
    /// Space in units of 512 bytes.
    pub blocks: u64,
    /// Number of a device file.
    pub rdev: u64,
    /// Type and permissions.
    pub mode: u32,
    /// Names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Preferred size of reads and writes.
    pub blksize: u32,
    /// 0.
    pub reserved: u32,
    /// Last read.
    pub atime: dure_time,
    /// Last change of the content.
    pub mtime: dure_time,
    /// Last change of content or attributes.
    pub ctime: dure_time,
    /// Birth.
    pub btime: dure_time,
    /// 0.
    pub spare: [u64; 4],
}

impl From<&Metadata> for dure_stat {
    #[inline]
    fn from(found: &Metadata) -> Self {
        dure_stat {
            ino: found.ino(),
            size: found.len(),
            blocks: found.blocks(),
            rdev: found.rdev(),
            mode: found.kind().mode() | found.mode(),
            nlink: found.nlink(),
            uid: found.uid(),
            gid: found.gid(),
            blksize: u32::try_from(found.blksize()).expect("it is small"),
            reserved: 0,
            atime: found.accessed().into(),
            mtime: found.modified().into(),
            ctime: found.changed().into(),
            btime: found.created().into(),
            spare: [0; 4],
        }
    }
}

/// Space of a volume.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct dure_statfs {
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Blocks.
    pub blocks: u64,
    /// Blocks that hold nothing.
    pub blocks_free: u64,
    /// Blocks that a new file can have.
    pub blocks_available: u64,
    /// Inodes, in use and free.
    pub inodes: u64,
    /// Free inodes.
    pub inodes_free: u64,
    /// Longest name in bytes.
    pub name_max: u64,
    /// 0.
    pub spare: [u64; 4],
}

/// Bytes of the longest name and its end.
pub(crate) const NAME_BYTES: usize = 256;

/// An entry of a directory.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct dure_dirent {
    /// Inode number.
    pub ino: u64,
    /// One of `DT_*`.
    pub kind: u32,
    /// Bytes of the name without its end.
    pub name_len: u32,
    /// The name; ends with a zero.
    pub name: [c_char; NAME_BYTES],
}

/// A snapshot.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct dure_snapshot {
    /// Its number: greater than that of every older one.
    pub id: u64,
    /// Seconds since 1970 when it was taken.
    pub created: i64,
    /// Inodes in use in it.
    pub inodes: u64,
    /// What the volume held then.
    pub bytes: u64,
    /// The name; ends with a zero.
    pub name: [c_char; NAME_BYTES],
    /// 0.
    pub spare: [u64; 4],
}

/// A call that is done.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct dure_done {
    /// What it was given.
    pub token: u64,
    /// Bytes, or `-errno`.
    pub result: i64,
}
