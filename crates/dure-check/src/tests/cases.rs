//! One case for every kind of issue: a volume with exactly that inconsistency.

use super::disk::Disk;

/// A corruption and what the check must say, line by line.
#[derive(Clone, Copy)]
pub(super) struct Case {
    /// The kind of issue it is about.
    pub(super) kind: &'static str,
    /// Makes the volume.
    pub(super) make: fn() -> Disk,
    /// Every issue.
    pub(super) expect: &'static [&'static str],
}
