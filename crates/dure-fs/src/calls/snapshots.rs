//! Snapshots of the volume.

use dure_store::error::Result;
use dure_store::snapshot::SnapshotInfo;

use crate::volume::FileSystem;

impl FileSystem {
    /// The snapshots of the volume, the oldest first.
    #[must_use]
    pub fn snapshots(&self) -> Vec<SnapshotInfo> {
        self.0.store.snapshots.list()
    }

    /// Refuses what [`FileSystem::delete_snapshot`] would refuse at present, and deletes nothing.
    ///
    /// # Errors
    /// `NoSnapshot`; `SnapshotBusy` while it is mounted.
    pub fn check_snapshot_unused(&self, name: &str) -> Result<()> {
        self.0.store.snapshots.find_unused(name).map(drop)
    }

    /// Takes a snapshot: everything that was acknowledged before this began is in it, nothing that
    /// begins after it returns, and every operation wholly or not at all. Durable on return.
    /// Operations that change the volume wait for the last part of it: a checkpoint of what changed
    /// in the few milliseconds before.
    ///
    /// # Errors
    /// `BadOption` for a name that cannot be (1 to 64 bytes, no slash, no control character, not `.`
    /// or `..`), `SnapshotExists`, `SnapshotBusy`; `NoSpace` when there are not as many blocks as it
    /// may need for the tables as they are, or 248 snapshots; those of [`FileSystem::sync`].
    pub fn create_snapshot(&self, name: &str) -> Result<SnapshotInfo> {
        self.sync()?;
        self.0.store.create_snapshot(name)
    }

    /// Whether a snapshot may have this name, and there may be one more: what a caller asks that has
    /// much to do before it takes one.
    ///
    /// # Errors
    /// `BadOption`, `SnapshotExists`, `NoSpace` as of [`FileSystem::create_snapshot`].
    pub fn check_snapshot(&self, name: &str) -> Result<()> {
        self.0.store.check_snapshot(name)
    }

    /// Deletes a snapshot, durably. What only it needed is free when this returns.
    ///
    /// # Errors
    /// `NoSnapshot`; `SnapshotBusy` while it is mounted; `Stopped`, device errors.
    pub fn delete_snapshot(&self, name: &str) -> Result<()> {
        self.0.store.delete_snapshot(name)
    }

    /// Gives a snapshot another name, durably.
    ///
    /// # Errors
    /// `NoSnapshot`, `SnapshotExists`, `BadOption` for a name that cannot be; `Stopped`, device
    /// errors.
    pub fn rename_snapshot(&self, name: &str, to: &str) -> Result<()> {
        self.0.store.rename_snapshot(name, to)
    }
}
