//! `alloc=global`: all cores allocate in partition 0, which goes on to the segments and nodes of
//! the others when its own are used up.

use dure_sync::CoreId;

/// The one partition.
pub(super) fn partition() -> CoreId {
    CoreId::new(0)
}
