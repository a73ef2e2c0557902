//! Blob nodes: the pieces of a byte stream (extended attributes, the target of a long symlink).

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::node::NodeKind;

/// Bytes of the stream in one blob node.
pub const BLOB_BYTES: usize = NodeKind::Blob.payload(0) - 8;
/// Longest stream of extended attributes.
pub const XATTR_STREAM_MAX: usize = 128 * 1024;

/// Start of a blob granule; the bytes of the stream follow, the last piece zero-padded.
#[derive(
    FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug, PartialEq, Eq,
)]
#[repr(C)]
pub struct BlobHeaderV1 {
    /// The blob node with the next piece; 0: this is the last.
    pub next: U64,
}
const _: () = assert!(size_of::<BlobHeaderV1>() == 8);
/// The current version.
pub type BlobHeader = BlobHeaderV1;

/// One extended attribute in the stream; the name (prefix included), then the value follow.
#[derive(
    FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug, PartialEq, Eq,
)]
#[repr(C)]
pub struct AttributeHeaderV1 {
    /// Bytes of the value, at most 65536.
    pub value_len: U32,
    /// Bytes of the name, 1..=255.
    pub name_len: u8,
    /// Written zero, checked zero.
    pub reserved: [u8; 3],
}
const _: () = assert!(size_of::<AttributeHeaderV1>() == 8);
/// The current version.
pub type AttributeHeader = AttributeHeaderV1;
