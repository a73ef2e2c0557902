//! What differs between snapshots.

use dure_store::error::{Error, Result};

use crate::changes::{self, Change};
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
}
