//! Snapshots of a volume.

use dure_fs::{Change, MountOptions, SnapshotInfo};

use crate::error::{Context, Result};
use crate::stream;
use crate::volume::Volume;

impl Volume {
    /// The snapshots of the volume, the oldest first.
    #[must_use]
    pub fn snapshots(&self) -> Vec<SnapshotInfo> {
        self.file_system().snapshots()
    }

    /// Takes a snapshot, durably: everything that was acknowledged before this began is in it,
    /// nothing that begins after it returns, and every operation wholly or not at all. The name has
    /// 1 to 64 bytes, no slash and no control character. Tasks that change the volume wait for the
    /// last few milliseconds of it.
    ///
    /// # Errors
    /// `EEXIST`, `EINVAL` for a name that cannot be; `ENOSPC` without the room that it may need for
    /// tables, and for more than 248 snapshots; `EBUSY` when an operation does not end in two
    /// seconds; those of [`Volume::sync`].
    ///
    /// ```
    /// let volume = dure::Volume::in_memory(32 << 20)?;
    /// let session = volume.root();
    /// session.write("file", b"then")?;
    /// volume.create_snapshot("monday")?;
    /// session.write("file", b"now")?;
    /// let monday = volume.open_snapshot("monday", dure::MountOptions::default())?;
    /// assert_eq!(monday.root().read("file")?, b"then");
    /// drop(monday);
    /// volume.delete_snapshot("monday")?;
    /// # Ok::<(), dure::Error>(())
    /// ```
    pub fn create_snapshot(&self, name: &str) -> Result<SnapshotInfo> {
        let created = self.file_system().create_snapshot(name);
        created.during("create snapshot")
    }

    /// Deletes a snapshot, durably; what only it needed is free then.
    ///
    /// # Errors
    /// `ENOENT`; `EBUSY` while it is open, and while a stream is half received or a snapshot half
    /// restored that needs it to be ended; those of the device.
    pub fn delete_snapshot(&self, name: &str) -> Result<()> {
        stream::check_delete(self.file_system(), name)?;
        let deleted = self.file_system().delete_snapshot(name);
        deleted.during("delete snapshot")
    }

    /// Gives a snapshot another name, durably.
    ///
    /// # Errors
    /// `ENOENT`, `EEXIST`, `EINVAL` for a name that cannot be; those of the device.
    pub fn rename_snapshot(&self, name: &str, to: &str) -> Result<()> {
        let renamed = self.file_system().rename_snapshot(name, to);
        renamed.during("rename snapshot")
    }

    /// A snapshot as a volume, read-only, while this volume goes on. Of `options`, those about
    /// memory count. One of a volume that is not open: [`MountOptions::snapshot`].
    ///
    /// # Errors
    /// `ENOENT`; corruption, those of the device.
    pub fn open_snapshot(&self, name: &str, options: MountOptions) -> Result<Volume> {
        let opened = self.file_system().open_snapshot(name, options);
        Volume::of(opened.during("open snapshot")?)
    }

    /// Tells `found` what differs between a snapshot and a later one, or the present: paths from the
    /// root, without a slash in front. What changes meanwhile may be told or not. A file that
    /// another one replaced under its name is modified.
    ///
    /// # Errors
    /// `ENOENT` for a name that is none; corruption, those of the device.
    ///
    /// ```
    /// let volume = dure::Volume::in_memory(32 << 20)?;
    /// volume.create_snapshot("monday")?;
    /// volume.root().write("file", b"new")?;
    /// let mut added = Vec::new();
    /// volume.changes_since("monday", None, |change| {
    ///     if let dure::Change::Added(path) = change {
    ///         added.push(path);
    ///     }
    /// })?;
    /// assert_eq!(added, [b"file"]);
    /// # Ok::<(), dure::Error>(())
    /// ```
    pub fn changes_since(
        &self,
        older: &str,
        later: Option<&str>,
        mut found: impl FnMut(Change),
    ) -> Result<()> {
        let told = self.file_system().changes(older, later, &mut found);
        told.during("compare snapshots")
    }
}
