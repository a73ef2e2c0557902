//! A store without files, for tests of what is below them.

use dure_block::Device;
use dure_sync::Arc;

use super::{Mount, Store};
use crate::frames::FramePool;
use crate::options::{StoreOptions, StoreShares};
use crate::units::to_usize;

/// Mounts the volume on `device`. Dropping the store is a crash.
pub(crate) fn mounted(device: Arc<dyn Device>) -> Store {
    let mount = Mount::begin(device, StoreOptions::default()).expect("a good volume");
    let cores = to_usize(mount.layout().journals.into());
    let shares = StoreShares {
        nodes: 1024,
        logged_pages: 64,
        record_bytes: 1 << 20,
        owners: 1024,
    };
    let frames = Arc::new(FramePool::new(cores, 8, 64));
    let store = mount.run(shares, frames).expect("it mounts");
    store.grow_to_least().expect("there is room");
    store
}
