//! What a check brings back: issues and counts.

use crate::issue::{Issue, IssueKind, Severity};
use crate::loss::Loss;

/// More issues are counted but not kept: a hostile image must not fill the memory.
pub const ISSUES_MAX: usize = 10_000;

/// What there is on the volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Regular files.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Symlinks.
    pub symlinks: u64,
    /// Devices, FIFOs and sockets.
    pub others: u64,
    /// Inodes in orphan slots.
    pub orphans: u64,
    /// Live nodes.
    pub nodes: u64,
    /// Blocks of files and node images, and of log segments.
    pub blocks_used: u64,
    /// Blocks of files.
    pub blocks_data: u64,
    /// Blocks of log segments.
    pub blocks_log: u64,
    /// Blocks of the main area.
    pub blocks_total: u64,
    /// Pages whose checksum was compared.
    pub pages_verified: u64,
    /// Snapshots.
    pub snapshots: u64,
}

/// The result of a check.
#[derive(Debug, Clone, Default)]
pub struct Report {
    issues: Vec<Issue>,
    suppressed: u64,
    worst: Option<Severity>,
    pub(super) counts: Counts,
    pub(super) repaired: bool,
    pub(super) losses: Vec<Loss>,
    pub(super) lost: Vec<String>,
}

impl Report {
    /// All issues, in the order in which they were found (at most [`ISSUES_MAX`]).
    #[must_use]
    pub fn issues(&self) -> &[Issue] {
        &self.issues
    }

    /// What a rebuild could not find again, of files and directories.
    #[must_use]
    pub fn losses(&self) -> &[Loss] {
        &self.losses
    }

    /// What it could not find again that belongs to no file.
    #[must_use]
    pub fn lost(&self) -> &[String] {
        &self.lost
    }

    /// Issues that were found but not kept.
    #[must_use]
    pub fn suppressed(&self) -> u64 {
        self.suppressed
    }

    /// What there is on the volume.
    #[must_use]
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Whether a repair has changed the volume.
    #[must_use]
    pub fn repaired(&self) -> bool {
        self.repaired
    }

    /// The worst severity found, repaired issues included.
    #[must_use]
    pub fn worst(&self) -> Option<Severity> {
        self.worst
    }

    /// Whether nothing is wrong or lost: no unrepaired issue is worse than a warning.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.suppressed == 0
            && self
                .issues
                .iter()
                .all(|i| i.repaired || i.kind.severity() == Severity::Warning)
    }

    /// Whether structures are wrong or lost that no safe repair has corrected.
    pub(super) fn needs_rebuild(&self) -> bool {
        let structural = |issue: &Issue| {
            let content = matches!(issue.kind, IssueKind::DataChecksum { .. });
            !issue.repaired && issue.kind.severity() > Severity::Warning && !content
        };
        self.suppressed > 0 || self.issues.iter().any(structural)
    }

    /// Whether nothing at all was found.
    #[must_use]
    pub fn is_spotless(&self) -> bool {
        self.issues.is_empty()
    }

    pub(super) fn has(&self, kind: &IssueKind) -> bool {
        self.issues.iter().any(|issue| issue.kind == *kind)
    }

    pub(super) fn add(&mut self, kind: IssueKind) {
        self.worst = self.worst.max(Some(kind.severity()));
        if self.issues.len() < ISSUES_MAX {
            self.issues.push(Issue {
                kind,
                repaired: false,
            });
        } else {
            self.suppressed += 1;
        }
    }

    pub(super) fn mark_repaired(&mut self, which: impl Fn(&IssueKind) -> bool) {
        for issue in self.issues.iter_mut().filter(|issue| which(&issue.kind)) {
            issue.repaired = true;
            self.repaired = true;
        }
    }
}
