//! What the fields of an inode record may hold, each by itself and against the inode's type. Used
//! by the check and by the loading of inodes.

use super::inode::{BODY_BYTES, FLAG_LONG_LINK, FLAG_ORPHAN, InodeRecord};
use super::name::FileKind;
use super::slot::{DIRECT_SLOTS, INDEX_CHILDREN, LEAF_SLOTS};
use crate::units::{BLOCK_BYTES_U64, Ino, to_u64};

/// `st_mode >> 12` of a directory.
pub const DIRECTORY: u8 = FileKind::Directory.code();
/// `st_mode >> 12` of a regular file.
pub const REGULAR: u8 = FileKind::File.code();
/// `st_mode >> 12` of a symlink.
pub const SYMLINK: u8 = FileKind::Symlink.code();

/// Highest map there is.
pub const HEIGHT_MAX: u32 = 4;
/// Longest symlink.
const LINK_MAX: u64 = 4095;
/// Longest extended attribute stream.
const XATTR_STREAM_MAX: u32 = 128 * 1024;

/// Pages below a map node of height `height` (1..=[`HEIGHT_MAX`]).
#[must_use]
pub fn subtree_pages(height: u32) -> u64 {
    LEAF_SLOTS * INDEX_CHILDREN.pow(height - 1)
}

/// Type of the inode: `st_mode >> 12`, 0 for an impossible one.
#[must_use]
pub fn kind(record: &InodeRecord) -> u8 {
    u8::try_from(record.attributes.mode.get() >> 12).unwrap_or(0)
}

fn is_device(kind: u8) -> bool {
    let kind = FileKind::from_code(kind);
    matches!(
        kind,
        Some(FileKind::CharacterDevice | FileKind::BlockDevice)
    )
}

/// The fields of a record in use that have a value they cannot have: the name of each, the value,
/// and what it may be.
pub fn impossible_fields(
    ino: Ino,
    record: &InodeRecord,
) -> impl Iterator<Item = (&'static str, u64, &'static str)> {
    let rules = common_rules(ino, record)
        .into_iter()
        .chain(type_rules(ino, record));
    let broken = |(field, got, holds, must): Rule| (!holds).then_some((field, got, must));
    rules.filter_map(broken)
}

/// A field, its value, whether it may have it, and what it may have.
type Rule = (&'static str, u64, bool, &'static str);

fn common_rules(ino: Ino, record: &InodeRecord) -> [Rule; 10] {
    let flags = record.attributes.flags.get();
    let reserved = record.attributes.reserved.iter();
    let reserved = reserved.chain(&record.data.reserved);
    let dirt = reserved.filter(|byte| **byte != 0).count();
    let xattr = record.attributes.xattr_bytes.get();
    let nanos = |time: super::inode::Time| {
        (
            u64::from(time.nanos.get()),
            time.nanos.get() < 1_000_000_000,
            "below 1000000000",
        )
    };
    let time = |field, time| {
        let (got, holds, must) = nanos(time);
        (field, got, holds, must)
    };
    [
        (
            "flags",
            u64::from(flags),
            flags & !(FLAG_ORPHAN | FLAG_LONG_LINK) == 0,
            "known",
        ),
        (
            "number in the data",
            record.data.ino.get(),
            record.data.ino.get() == ino.0,
            "its own",
        ),
        ("reserved bytes", to_u64(dirt), dirt == 0, "zero"),
        (
            "xattr length",
            u64::from(xattr),
            xattr <= XATTR_STREAM_MAX,
            "at most 128 KiB",
        ),
        (
            "xattr root",
            record.attributes.xattr_root.get(),
            (record.attributes.xattr_root.get() == 0) == (xattr == 0),
            "set exactly if there are attributes",
        ),
        time("atime nanoseconds", record.data.atime),
        time("mtime nanoseconds", record.data.mtime),
        time("ctime nanoseconds of attributes", record.attributes.ctime),
        time("ctime nanoseconds of data", record.data.ctime),
        time("btime nanoseconds", record.attributes.btime),
    ]
}

fn type_rules(ino: Ino, record: &InodeRecord) -> [Rule; 8] {
    let kind = kind(record);
    let (size, root) = (record.data.size.get(), record.data.map_root.get());
    let (height, blocks) = (record.data.map_height.get(), record.data.blocks.get());
    let long = record.attributes.flags.get() & FLAG_LONG_LINK != 0;
    let device = is_device(kind);
    let parent = record.attributes.parent.get();
    let pages_max = DIRECT_SLOTS + subtree_pages(HEIGHT_MAX);
    let size_holds = match kind {
        REGULAR => size <= pages_max * BLOCK_BYTES_U64,
        SYMLINK => (1..=LINK_MAX).contains(&size),
        _ => size == 0,
    };
    let root_holds = match kind {
        REGULAR => (root == 0) == (height == 0),
        SYMLINK => (root != 0) == long,
        DIRECTORY => true,
        _ => root == 0,
    };
    let parent_holds = match kind {
        DIRECTORY if ino == Ino::ROOT => parent == Ino::ROOT.0,
        DIRECTORY => parent != 0,
        REGULAR if record.attributes.carries() => true,
        _ => parent == 0,
    };
    let long_holds = long == (kind == SYMLINK && size > to_u64(BODY_BYTES));
    [
        ("size", size, size_holds, "what its type can have"),
        (
            "map root",
            root,
            root_holds,
            "set exactly if its type needs it",
        ),
        (
            "map height",
            u64::from(height),
            height <= HEIGHT_MAX,
            "at most 4",
        ),
        (
            "map height",
            u64::from(height),
            height == 0 || kind == REGULAR,
            "0: not a file",
        ),
        (
            "blocks",
            blocks,
            blocks == 0 || kind == REGULAR,
            "0: not a file",
        ),
        (
            "device number",
            record.attributes.rdev.get(),
            device || record.attributes.rdev.get() == 0,
            "0: no device",
        ),
        (
            "parent",
            parent,
            parent_holds,
            "a directory's parent (0 for others)",
        ),
        (
            "flags",
            u64::from(record.attributes.flags.get()),
            long_holds,
            "long link exactly if it is longer than 288",
        ),
    ]
}
