//! What is said about a scrub. A file in the state directory of the server has the same.

use dure_fs::{BadBlock, BadPart, ScrubCounts};
use serde::{Deserialize, Serialize};

/// What a client wants of the scrub.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "do")]
pub(crate) enum ScrubTask {
    /// Start, or go on.
    Start {
        /// Bytes a second at most.
        rate: Option<u64>,
    },
    Pause,
    /// Only say how it is.
    Status,
}

/// What a scrub is doing.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ScrubState {
    /// There was none.
    #[default]
    Never,
    Running,
    Paused,
    /// It has read everything.
    Complete,
    /// The volume has stopped.
    Failed,
}

/// How the scrub of a volume is, or how the last one was. Counts are of all of it, from its start on.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ScrubReport {
    pub(crate) state: ScrubState,
    /// Where it goes on, as `main:17`.
    pub(crate) cursor: String,
    /// Seconds since 1970 when it was started.
    pub(crate) started: i64,
    /// And when it was complete; 0: not yet.
    pub(crate) ended: i64,
    /// Bytes a second at most, if it was started so.
    pub(crate) rate: Option<u64>,
    #[serde(flatten)]
    pub(crate) counts: ScrubNumbers,
    /// Why it failed.
    pub(crate) error: Option<String>,
    /// What is damaged, the first of it.
    pub(crate) bad: Vec<BadRow>,
    /// How many more there are.
    pub(crate) bad_left_out: u64,
}

/// The counts of a scrub: [`ScrubCounts`].
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ScrubNumbers {
    pub(crate) blocks_total: u64,
    pub(crate) blocks_done: u64,
    pub(crate) blocks_read: u64,
    pub(crate) compared: u64,
    pub(crate) replaced: u64,
    pub(crate) unknown: u64,
    pub(crate) bad_blocks: u64,
    pub(crate) mended: u64,
}

impl ScrubNumbers {
    /// These and those of a part that went on behind them.
    pub(crate) fn and(&self, more: &ScrubCounts) -> ScrubNumbers {
        ScrubNumbers {
            blocks_total: self.blocks_done + more.blocks_total,
            blocks_done: self.blocks_done + more.blocks_done,
            blocks_read: self.blocks_read + more.blocks_read,
            compared: self.compared + more.compared,
            replaced: self.replaced + more.replaced,
            unknown: self.unknown + more.unknown,
            bad_blocks: self.bad_blocks + more.bad,
            mended: self.mended + more.mended,
        }
    }

    /// Damaged blocks that were not mended.
    pub(crate) fn left(&self) -> u64 {
        self.bad_blocks.saturating_sub(self.mended)
    }
}

/// A damaged block.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BadRow {
    pub(crate) block: u64,
    /// `page`, `node` or `structure`.
    pub(crate) part: String,
    /// Inodes that it concerns.
    pub(crate) inodes: Vec<u64>,
    /// The snapshot that it is of, if only that needs it.
    pub(crate) snapshot: Option<String>,
    /// Paths in the volume, or the snapshot, of those that have a name.
    pub(crate) paths: Vec<String>,
    /// Of a page: bytes from the beginning of its file.
    pub(crate) offset: Option<u64>,
    /// What is wrong.
    pub(crate) why: String,
    /// Its content was written elsewhere.
    pub(crate) mended: bool,
}

impl BadRow {
    pub(crate) fn of(bad: &BadBlock) -> BadRow {
        let (part, offset) = match &bad.part {
            BadPart::Page { offset, .. } => ("page", *offset),
            BadPart::Node { .. } => ("node", None),
            _ => ("structure", None),
        };
        let path = |path: &Vec<u8>| format!("/{}", String::from_utf8_lossy(path));
        BadRow {
            block: bad.block.0,
            part: part.into(),
            inodes: bad.inodes().iter().map(|ino| ino.0).collect(),
            paths: bad.paths.iter().map(path).collect(),
            snapshot: bad.snapshot.clone(),
            offset,
            why: bad.why.clone(),
            mended: bad.mended,
        }
    }
}

impl std::fmt::Display for BadRow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "block {}", self.block)?;
        if let Some(snapshot) = &self.snapshot {
            write!(f, " of snapshot {snapshot}")?;
        }
        match (self.paths.is_empty(), self.inodes.first()) {
            (false, _) => write!(f, ": {}", self.paths.join(", "))?,
            (true, Some(first)) => write!(f, ": inode {first}, which has no name")?,
            (true, None) => {}
        }
        if let Some(offset) = self.offset {
            write!(f, ", offset {offset}")?;
        }
        let end = if self.mended { "; mended" } else { "" };
        write!(f, ": {}{end}", self.why)
    }
}
