//! Switches that leave one ordering rule of the store out, so that the crash tests can show they
//! would notice, and the core that a test pretends to run on.
//!
//! **Problem.** A crash test that never fails proves nothing; and which journal an operation goes
//! to must not depend on where the scheduler put a test. **Structure.** A field per rule; the
//! default has all of them on. **Invariants.** Nothing but tests changes a field. **Crash.** With a
//! rule off, data is lost: that is the purpose.

use dure_sync::Arc;
use dure_sync::atomic::AtomicUsize;

/// Which rules hold. Test-only: every product build uses [`StoreRules::default`].
#[derive(Debug, Clone)]
#[doc(hidden)]
pub struct StoreRules {
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
    /// A checkpoint writes logged data to its place before the tail passes it.
    pub data_before_tail: bool,
    /// The core every operation runs on, whatever the scheduler says.
    pub core: Option<Arc<AtomicUsize>>,
}

impl Default for StoreRules {
    fn default() -> Self {
        StoreRules {
            read_marks: true,
            tables_before_header: true,
            header_before_tails: true,
            reuse_after_valid: true,
            data_check: true,
            data_before_tail: true,
            core: None,
        }
    }
}
