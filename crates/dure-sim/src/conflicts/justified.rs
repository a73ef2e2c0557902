//! The shared lines that have a reason. docs/design/scaling.md gives the same reasons, and the
//! lines without one.

use super::exception::Line;

const ATTRIBUTES: &str = "attributes of one inode, or the mark that keeps their order with data";
const GRANULE: &str = "one granule: a bucket of both names by hash, attributes of one inode, slots";
const PAGES: &str = "pages that both add to one file";

/// Sources that write a shared line, and why that is right.
pub const REASONS: &[(&str, &str)] = &[
    ("dure/src/file/", "the position of one open file"),
    ("dure-fs/src/file/ranges.rs", "parts of one page"),
    ("dure-fs/src/file/seek_hint.rs", "the end of one file"),
    ("dure-fs/src/file/cached/growth.rs", PAGES),
    ("dure-fs/src/file/cached/page/content.rs", "one page"),
    ("dure-fs/src/file/cached/page/store", PAGES),
    ("dure-fs/src/directory/dentry_cache.rs", "one name"),
    ("dure-fs/src/inode/attribute_lock.rs", ATTRIBUTES),
    ("dure-fs/src/inode/last_writer.rs", ATTRIBUTES),
    ("dure-fs/src/inode/lock.rs", ATTRIBUTES),
    ("dure-store/src/node/lock/", GRANULE),
    ("dure-store/src/node/mod.rs", GRANULE),
    ("dure-store/src/op/finish.rs", GRANULE),
];

pub(super) fn reason(line: &Line) -> Option<&'static str> {
    let writer = line.uses.iter().find(|one| one.access != "Load")?;
    let place = writer.place.at.strip_prefix("crates/")?;
    let found = REASONS.iter().find(|(source, _)| place.starts_with(source));
    found.map(|(_, reason)| *reason)
}
