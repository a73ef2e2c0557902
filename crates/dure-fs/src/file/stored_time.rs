//! The time that overwrites without a page cache share; [`super::direct`] says how.

use dure_sync::Mutex;
use dure_sync::atomic::AtomicU64;

use crate::ranks::OVERWRITE_TIMES;

/// The time that an overwrite of a contended file stored last.
#[derive(Debug, Default)]
pub(super) struct StoredTime {
    /// Held by a task that stores times under the shared inode lock.
    pub(super) storing: Mutex<OVERWRITE_TIMES, ()>,
    /// In ns since 1970; 0: none. Written by a holder of the mutex.
    pub(super) last: AtomicU64,
}
