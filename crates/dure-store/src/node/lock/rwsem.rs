//! The lock of hybridF2FS's nCache: a reader/writer lock per node.

use dure_sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::Granule;
use crate::ranks::GRANULE;

/// A node, shared with other readers.
pub(crate) type Shared<'n> = RwLockReadGuard<'n, GRANULE, Box<[Granule]>>;
/// A node, exclusive.
pub(crate) type Exclusive<'n> = RwLockWriteGuard<'n, GRANULE, Box<[Granule]>>;

/// All granules behind one lock.
#[derive(Debug)]
pub(crate) struct Locked(RwLock<GRANULE, Box<[Granule]>>);

impl Locked {
    pub(super) fn new(granules: Box<[Granule]>) -> Locked {
        Locked(RwLock::new(granules))
    }

    pub(super) fn read(&self) -> Shared<'_> {
        self.0.read()
    }

    /// Several only in ascending nid.
    pub(super) fn write_ordered(&self) -> Exclusive<'_> {
        self.0.write_ordered()
    }
}
