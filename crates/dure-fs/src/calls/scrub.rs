//! Scrubbing.

use std::ops::ControlFlow;

use dure_store::error::Result;

use crate::scrub::{Scrub, ScrubCounts, ScrubOptions, ScrubProgress};
use crate::volume::FileSystem;

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
    /// `Stopped`. Damage is no error.
    pub fn scrub(
        &self,
        options: &ScrubOptions,
        go_on: &mut dyn FnMut(&ScrubProgress<'_>) -> ControlFlow<()>,
    ) -> Result<ScrubCounts> {
        let volume = &self.0;
        let scrub = Scrub {
            store: &volume.store,
            cleaner: &volume.cleaner,
            names: &volume.names,
            rule: volume.options.volume_rules.scrub_looks_again,
        };
        scrub.run(options, go_on)
    }
}
