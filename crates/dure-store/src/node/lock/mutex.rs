//! F2FS's page lock: readers and writers lock the node exclusively.

use dure_sync::{Mutex, MutexGuard};

use super::Granule;
use crate::ranks::GRANULE;

/// A node, locked.
pub(crate) type Guard<'n> = MutexGuard<'n, GRANULE, Box<[Granule]>>;

/// All granules behind one lock.
#[derive(Debug)]
pub(crate) struct Locked(Mutex<GRANULE, Box<[Granule]>>);

impl Locked {
    pub(super) fn new(granules: Box<[Granule]>) -> Locked {
        Locked(Mutex::new(granules))
    }

    pub(super) fn lock(&self) -> Guard<'_> {
        self.0.lock()
    }

    /// Several only in ascending nid.
    pub(super) fn lock_ordered(&self) -> Guard<'_> {
        self.0.lock_ordered()
    }
}
