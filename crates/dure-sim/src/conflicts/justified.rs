//! The shared lines that have a reason. docs/design/scaling.md gives the same reasons, and the
//! lines without one.

use super::exception::Line;

/// Functions that write a shared line, and why that is right.
pub const REASONS: &[(&str, &str)] = &[
    (
        "file::File::seek_to",
        "both set the position of one open file, which is one number",
    ),
    (
        "file::ranges::Ranges::share",
        "parts of one page: a range lock's smallest segment is a page",
    ),
    (
        "file::ranges::Ranges::take",
        "parts of one page: a range lock's smallest segment is a page",
    ),
    (
        "directory::dentry_cache::DentryCache::forget",
        "the answer about a name that the other call looks up, or one in its set, is withdrawn",
    ),
];

pub(super) fn reason(line: &Line) -> Option<&'static str> {
    let found = REASONS
        .iter()
        .find(|(class, _)| line.class == *class || line.class == format!("dure::{class}"));
    found.map(|(_, reason)| *reason)
}
