//! Directory hash buckets: a header with the directory's stamps, then entries.
//!
//! A directory is a trie of bucket nodes over the 64-bit name hash: level 0 takes the top three
//! bits, level n the next three. A bucket that overflows moves its entries to a child node
//! (`child`) and keeps only its stamps. So the order of a walk is the order of hashes, and a
//! readdir cookie is the upper 59 bits of a hash and, below them, the entry's 4-bit *ordinal*:
//! entries of a directory whose upper 59 hash bits agree have different ordinals, for as long as
//! they exist.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::inode::Time;

/// Bytes of the bucket header.
pub const HEADER_BYTES: usize = 48;
/// Bytes for entries in a bucket.
pub const ENTRY_BYTES: usize = 496 - HEADER_BYTES;
/// Bytes of an entry in front of its name.
pub const ENTRY_HEADER_BYTES: usize = 12;
/// Longest name.
pub const NAME_MAX: usize = 255;
/// `st_mode >> 12` of a directory, in an entry.
pub const KIND_DIRECTORY: u8 = 4;
const _: () = assert!(ENTRY_HEADER_BYTES + NAME_MAX <= ENTRY_BYTES);
/// Most levels of a directory. Level 18 uses bits 7..=9 of the hash, so that entries whose upper 59
/// bits agree are always in one bucket.
pub const LEVELS_MAX: u32 = 19;
/// Entries whose upper 59 hash bits may agree: an ordinal has four bits.
pub const ORDINALS: u8 = 16;

/// Start of a bucket granule.
#[derive(
    FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug, PartialEq, Eq,
)]
#[repr(C)]
pub struct BucketHeaderV1 {
    /// When an entry of this bucket last changed; counts if `set_number` equals the directory's.
    pub mtime: Time,
    /// Like `mtime`, for ctime.
    pub ctime: Time,
    /// The directory's set number when the stamps were set.
    pub set_number: U32,
    /// Live entries in this bucket (not in its children).
    pub entries: U16,
    /// Bytes of the entry area in use, holes included: entries lie in `0..used`.
    pub used: U16,
    /// Live entries that are directories.
    pub subdirectories: U32,
    /// The bucket node that took this bucket's entries; 0: entries are here.
    pub child: U64,
    /// Written zero.
    pub reserved: U32,
}
const _: () = assert!(size_of::<BucketHeaderV1>() == HEADER_BYTES);
/// The current version.
pub type BucketHeader = BucketHeaderV1;

/// Start of an entry; the name follows. `ino == 0`: a hole of `space` bytes.
#[derive(
    FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug, PartialEq, Eq,
)]
#[repr(C)]
pub struct EntryHeaderV1 {
    /// The inode, 0 for a hole.
    pub ino: U64,
    /// Bytes to the next entry.
    pub space: U16,
    /// Low four bits: file type, `st_mode >> 12`; high four bits: ordinal.
    pub kind: u8,
    /// Bytes of the name, 1..=255.
    pub name_len: u8,
}
const _: () = assert!(size_of::<EntryHeaderV1>() == ENTRY_HEADER_BYTES);
/// The current version.
pub type EntryHeader = EntryHeaderV1;
