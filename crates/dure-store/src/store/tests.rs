//! A store without files, for tests of what is below them.

use dure_block::Device;
use dure_sync::Arc;

use super::{Mount, Store};
use crate::error::Result;
use crate::frames::FramePool;
use crate::options::{StoreOptions, StoreShares};
use crate::units::to_usize;

/// Mounts the volume on `device`. Dropping the store is a crash.
pub(crate) fn mounted(device: Arc<dyn Device>) -> Store {
    mounted_with(device, StoreOptions::default())
}

/// Mounts the volume on `device` with these options. Dropping the store is a crash.
pub(crate) fn mounted_with(device: Arc<dyn Device>, options: StoreOptions) -> Store {
    let mount = Mount::begin(device, options).expect("a good volume");
    let store = run(mount).expect("it mounts");
    store.grow_to_least().expect("there is room");
    store
}

/// Completes a mount.
pub(crate) fn run(mount: Mount) -> Result<Store> {
    let cores = to_usize(mount.layout().journals.into());
    let shares = StoreShares {
        nodes: 1024,
        logged_pages: 64,
        record_bytes: 1 << 20,
        owners: 1024,
    };
    let frames = Arc::new(FramePool::new(cores, 8, 64));
    mount.run(shares, frames)
}
