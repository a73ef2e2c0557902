//! Scrubbing.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use dure_store::error::{Error, Result};
use dure_store::units::Ino;

use crate::scrub::{Scrub, ScrubCounts, ScrubOptions, ScrubProgress};
use crate::volume::{FileSystem, MountOptions};

/// What a look into a snapshot may keep in memory, to find the path of what is damaged there.
const PAST_CACHE_BYTES: u64 = 32 << 20;

impl FileSystem {
    /// Reads everything that counts in the order of the medium, and compares it with its checksums:
    /// headers, tables, nodes, and pages of files. What is damaged is told, and written elsewhere if
    /// memory has it. Other calls go on meanwhile.
    ///
    /// `go_on` is called after every request and may break; a scrub from the cursor that it was
    /// told goes on there. It is called with no cursor when all was read, and at no time with a lock
    /// held.
    ///
    /// # Errors
    /// `Stopped`; `Invalid` for a snapshot: a scrub of its volume has it. Damage is no error.
    pub fn scrub(
        &self,
        options: &ScrubOptions,
        go_on: &mut dyn FnMut(&ScrubProgress<'_>) -> ControlFlow<()>,
    ) -> Result<ScrubCounts> {
        let volume = &self.0;
        if volume.store.is_past() {
            return Err(Error::Invalid("a scrub of a snapshot; scrub its volume"));
        }
        let paths = |snapshot: Option<&str>,
                     inodes: &BTreeSet<Ino>,
                     go_on: &mut dyn FnMut() -> ControlFlow<()>| {
            let Some(name) = snapshot else {
                return volume.names.paths_of(inodes, go_on);
            };
            let options = MountOptions {
                cache_bytes: PAST_CACHE_BYTES,
                ..MountOptions::default()
            };
            let past = self.open_snapshot(name, options);
            past.map_or_else(
                |_| BTreeMap::new(),
                |past| past.0.names.paths_of(inodes, go_on),
            )
        };
        let scrub = Scrub {
            store: &volume.store,
            cleaner: &volume.cleaner,
            names: &volume.names,
            paths: &paths,
            rule: volume.options.volume_rules.scrub_looks_again,
        };
        scrub.run(options, go_on)
    }
}
