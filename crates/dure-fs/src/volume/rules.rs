//! Switches that leave one rule of files out, so that the tests can show they would notice; those
//! of the store are among them ([`StoreRules`], which says what they are for).

use dure_store::StoreRules;

/// When a file gets its range lock, and what writers do with it. Test-only but for the default.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
#[doc(hidden)]
pub enum RangeRule {
    /// When two tasks meet in the file.
    #[default]
    WhenMet,
    /// At its first write.
    AtOnce,
    /// At its first write, and writers share their ranges.
    Broken,
    /// At its first write, and readers do not look at the versions of pages.
    Unchecked,
    /// At its first write, and a file that grows beside others has its size before its pages.
    SizeFirst,
}

/// When attributes of a file change beside those who use its data, and what becomes of the changes.
/// Test-only but for the default.
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
    Dropped,
}

/// When changes of entries share their directory, and what they note there. Test-only but for the
/// default.
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
    Uncounted,
}

/// Which rules hold. Test-only: every product build uses [`VolumeRules::default`].
#[derive(Debug, Clone)]
#[doc(hidden)]
pub struct VolumeRules {
    /// Rules of the store.
    pub store: StoreRules,
    /// Write-back writes data before it logs slots.
    pub data_before_log: bool,
    /// When files get range locks.
    pub ranges: RangeRule,
    /// When attributes of a file change beside its data.
    pub attributes: AttributeRule,
    /// When changes of entries share their directory.
    pub directories: DirectoryRule,
}

impl Default for VolumeRules {
    fn default() -> Self {
        VolumeRules {
            store: StoreRules::default(),
            data_before_log: true,
            ranges: RangeRule::default(),
            attributes: AttributeRule::default(),
            directories: DirectoryRule::default(),
        }
    }
}
