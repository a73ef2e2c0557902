//! The rules of files that a test may leave out (`dure_sync::canary`), the store's among them, and
//! when tasks begin to share a file: tests need not wait until two tasks contend.

use dure_store::StoreRules;
use dure_sync::canary::{LeftOut, Rule};

/// When a file gets its range lock, and what writers do with it.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
#[doc(hidden)]
pub enum RangeRule {
    /// When two tasks contend for the file.
    #[default]
    WhenContended,
    /// At its first write.
    AtOnce,
    /// At its first write, and the range that a writer takes excludes no other task.
    Broken(LeftOut),
    /// At its first write, and readers do not check the sequence counts of pages.
    Unchecked(LeftOut),
    /// At its first write, and a file that grows under the shared lock gets its size before its
    /// pages.
    SizeFirst(LeftOut),
}

/// What a change of a file's attributes holds.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
#[doc(hidden)]
pub enum AttributeRule {
    /// Their lock only: users of the data go on.
    #[default]
    Apart,
    /// The inode's state exclusively, too.
    WithData,
    /// Their lock only, and the attributes of before stay in the attribute cache.
    KeptCached(LeftOut),
}

/// When changes of entries hold their directory shared, and what they note there.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
#[doc(hidden)]
pub enum DirectoryRule {
    /// Once two changes have contended.
    #[default]
    WhenContended,
    /// Always.
    AtOnce,
    /// Never.
    Exclusive,
    /// Always, and holders of the shared lock do not count the subdirectories that they add and
    /// remove.
    Uncounted(LeftOut),
}

/// Which rules hold: all of them, except in tests.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
#[doc(hidden)]
pub struct VolumeRules {
    /// Rules of the store.
    pub store: StoreRules,
    /// Write-back writes data before it logs slots.
    pub data_before_log: Rule,
    /// What a reader got from the device counts only if its slots are still the same.
    pub slots_looked_at_again: Rule,
    /// What does not verify in a scrub is damage only if what points to it still says the same.
    pub scrub_looks_again: Rule,
    /// An fsync returns without a round of its own only after one that began later than its call.
    pub later_round: Rule,
    /// When files get range locks.
    pub ranges: RangeRule,
    /// What a change of a file's attributes holds.
    pub attributes: AttributeRule,
    /// When changes of entries hold their directory shared.
    pub directories: DirectoryRule,
}
