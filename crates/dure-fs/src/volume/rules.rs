//! Switches that leave one ordering rule out, so that the crash tests can show they would notice,
//! and the core that a test pretends to run on.
//!
//! **Problem.** A crash test that never fails proves nothing; and which journal an operation goes
//! to must not depend on where the scheduler put a test. **Structure.** A field per rule; the
//! default has all of them on. **Invariants.** Nothing but tests changes a field. **Crash.** With a
//! rule off, data is lost: that is the purpose.

use dure_sync::Arc;
use dure_sync::atomic::AtomicUsize;

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
    /// An operation depends on what it decided on.
    pub read_marks: bool,
    /// A checkpoint flushes images and tables before it writes the volume header.
    pub tables_before_header: bool,
    /// A checkpoint flushes the volume header before it writes journal headers.
    pub header_before_tails: bool,
    /// Blocks are used again only when the handle that freed them is valid.
    pub reuse_after_valid: bool,
    /// Recovery compares slots that may have been in flight with their data.
    pub data_check: bool,
    /// Write-back writes data before it logs slots.
    pub data_before_log: bool,
    /// A checkpoint writes logged data to its place before the tail passes it.
    pub data_before_tail: bool,
    /// When files get range locks.
    pub ranges: RangeRule,
    /// When attributes of a file change beside its data.
    pub attributes: AttributeRule,
    /// When changes of entries share their directory.
    pub directories: DirectoryRule,
    /// The core every operation runs on, whatever the scheduler says.
    pub core: Option<Arc<AtomicUsize>>,
}

impl Default for VolumeRules {
    fn default() -> Self {
        VolumeRules {
            read_marks: true,
            tables_before_header: true,
            header_before_tails: true,
            reuse_after_valid: true,
            data_check: true,
            data_before_log: true,
            data_before_tail: true,
            ranges: RangeRule::default(),
            attributes: AttributeRule::default(),
            directories: DirectoryRule::default(),
            core: None,
        }
    }
}
