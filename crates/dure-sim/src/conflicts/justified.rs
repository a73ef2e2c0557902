//! The shared lines that have a reason. docs/scaling.md tells the same, at more length.

use super::exception::Line;

/// Functions that write a shared line, and why that is right.
pub const REASONS: &[(&str, &str)] = &[];

pub(super) fn reason(line: &Line) -> Option<&'static str> {
    let found = REASONS
        .iter()
        .find(|(class, _)| line.class.ends_with(class));
    found.map(|(_, reason)| *reason)
}
