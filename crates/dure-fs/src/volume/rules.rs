//! The rules of files that a test may leave out (`dure_sync::canary`), and when tasks begin to share
//! a file: tests need not wait until two meet. Those of the store are among them.

use dure_store::StoreRules;
use dure_sync::canary::{LeftOut, Rule};

/// When a file gets its range lock, and what writers do with it.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
#[doc(hidden)]
pub enum RangeRule {
    /// When two tasks meet in the file.
    #[default]
    WhenMet,
    /// At its first write.
    AtOnce,
    /// At its first write, and the range that a writer takes keeps no other out.
    Broken(LeftOut),
    /// At its first write, and readers do not look at the versions of pages.
    Unchecked(LeftOut),
    /// At its first write, and a file that grows beside others has its size before its pages.
    SizeFirst(LeftOut),
}

/// When attributes of a file change beside those who use its data, and what becomes of the changes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
#[doc(hidden)]
pub enum AttributeRule {
    /// When readers have met in the lock of its inode.
    #[default]
    WhenMet,
    /// Always.
    AtOnce,
    /// Never: the inode is had alone.
    Alone,
    /// Always, and who has the inode alone does not look for them.
    Dropped(LeftOut),
}

/// When changes of entries share their directory, and what they note there.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
#[doc(hidden)]
pub enum DirectoryRule {
    /// When two of them have met.
    #[default]
    WhenMet,
    /// Always.
    AtOnce,
    /// Never.
    Alone,
    /// Always, and who shares it does not count the subdirectories that come and go.
    Uncounted(LeftOut),
}

/// Which rules hold: all of them, but for tests.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
#[doc(hidden)]
pub struct VolumeRules {
    /// Rules of the store.
    pub store: StoreRules,
    /// Write-back writes data before it logs slots.
    pub data_before_log: Rule,
    /// When files get range locks.
    pub ranges: RangeRule,
    /// When attributes of a file change beside its data.
    pub attributes: AttributeRule,
    /// When changes of entries share their directory.
    pub directories: DirectoryRule,
}
