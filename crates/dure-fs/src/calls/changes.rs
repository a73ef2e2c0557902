//! What differs between snapshots.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};

use dure_store::error::{Error, Result};

use crate::changes::{self, Change, Named, NamesByInode};
use crate::file::regular;
use crate::inode::{Attributes, InodeRef};
use crate::volume::{FileSystem, MountOptions};

/// What a snapshot that is compared may keep in memory.
const CACHE_BYTES: u64 = 64 << 20;

impl FileSystem {
    /// Tells `found` what differs between the snapshot `older` and the snapshot `later`, or the
    /// volume as it is now. What changes meanwhile may be told or not, and of a directory that is
    /// moved meanwhile, what is below it; compare two snapshots where that matters.
    ///
    /// A change of extended attributes is told as any other, but not of a file that was renamed as
    /// well, nor in the tick of the clock in which the snapshot was taken. Names that differ are kept
    /// in memory until all are known, with their attributes: some 300 bytes for each.
    ///
    /// # Errors
    /// `NoSnapshot`; `BadOption` when `later` is the older one; corruption, and those of the device.
    pub fn changes(
        &self,
        older: &str,
        later: Option<&str>,
        found: &mut dyn FnMut(Change),
    ) -> Result<()> {
        let snapshots = self.snapshots();
        let named = |name: &str| {
            let found = snapshots.iter().find(|one| one.name == name);
            found.ok_or_else(|| Error::NoSnapshot { name: name.into() })
        };
        let snapshot = named(older)?;
        if let Some(later) = later
            && named(later)?.id < snapshot.id
        {
            let why = format!("{later} is older than {older}: give the older one first");
            let option = "snapshot";
            return Err(Error::BadOption { option, why });
        }
        let open = |name: &str| {
            let options = MountOptions {
                cache_bytes: CACHE_BYTES,
                ..MountOptions::default()
            };
            self.open_snapshot(name, options)
        };
        let before = open(older)?;
        let after = later.map(open).transpose()?;
        let newer = after.as_ref().unwrap_or(self);
        changes::tell((snapshot.created, &before), newer, found)
    }

    /// The root, as a name.
    ///
    /// # Errors
    /// Corruption, and those of the device.
    pub fn root_name(&self) -> Result<Named> {
        Named::root(self)
    }

    /// The names in a directory; none if it has gone meanwhile.
    ///
    /// # Errors
    /// Corruption, and those of the device.
    pub fn names(&self, directory: &Named) -> Result<BTreeMap<Vec<u8>, Named>> {
        directory.list(self)
    }

    /// Compares the names of an older state of the volume with those of this one: brings each name
    /// that leads to the same inode in both to `same`, the root first, as it was and as it is. Returns
    /// the names that only the older state has, and those that only this one has. Below a directory
    /// that was moved all names are in both of these, the same ones too. They take some 300 bytes each.
    ///
    /// # Errors
    /// Corruption, those of the device, and those of `same`.
    pub fn compare_names(
        &self,
        older: &FileSystem,
        same: &mut dyn FnMut(&Named, &Named) -> Result<()>,
    ) -> Result<(NamesByInode, NamesByInode)> {
        changes::compare((older, self), same)
    }

    /// Whether the change time of a file as it was in a snapshot, taken at `taken` in seconds since
    /// 1970, may be that of a later change, too: content and attributes have to be compared.
    #[must_use]
    pub fn may_have_changed(taken: i64, was: &Attributes) -> bool {
        changes::is_recent(taken, was)
    }

    /// Brings the ranges of a regular file whose pages do not lie where they did in an older state of
    /// the volume, in ascending order, until `each` says stop: all that was changed, and what the
    /// cleaner has moved. No content is read, and no lock is held while `each` runs. Ranges are of
    /// whole pages, and may reach behind the end of the file.
    ///
    /// # Errors
    /// `IsDirectory`, `Invalid` for another type of inode; corruption, those of the device.
    pub fn changed_ranges(
        &self,
        inode: &InodeRef,
        (older, before): (&FileSystem, &InodeRef),
        each: &mut dyn FnMut(Range<u64>) -> ControlFlow<()>,
    ) -> Result<()> {
        let before = (&*older.0.files, regular(before)?);
        self.0.files.changed(regular(inode)?, before, each)
    }
}
