//! Scrubs of a volume.

use std::ops::ControlFlow;

use dure_fs::{ScrubCounts, ScrubOptions, ScrubProgress};

use crate::error::{Context, Result};
use crate::volume::Volume;

impl Volume {
    /// Reads everything that the volume and its snapshots hold in the order of the medium, and
    /// compares it with its checksums; other calls go on meanwhile. Damage is told to `go_on`, by
    /// path, and written elsewhere if memory has what was there. `go_on` is called after every
    /// request. A scrub that it breaks goes on from the cursor that it was told last: see
    /// [`ScrubOptions::from`]. Without a rate the scrub keeps to idle time of the device.
    ///
    /// # Errors
    /// `EROFS` once the volume has stopped. Damage is no error.
    ///
    /// ```
    /// use std::ops::ControlFlow;
    /// let volume = dure::Volume::in_memory(32 << 20)?;
    /// volume.root().write("file", b"text")?;
    /// volume.sync()?;
    /// let counts = volume.scrub(&dure::ScrubOptions::default(), &mut |now| {
    ///     for bad in now.found {
    ///         println!("{:?}: {}", bad.paths, bad.why);
    ///     }
    ///     ControlFlow::Continue(())
    /// })?;
    /// assert_eq!(counts.bad, 0);
    /// # Ok::<(), dure::Error>(())
    /// ```
    pub fn scrub(
        &self,
        options: &ScrubOptions,
        go_on: &mut dyn FnMut(&ScrubProgress<'_>) -> ControlFlow<()>,
    ) -> Result<ScrubCounts> {
        self.file_system().scrub(options, go_on).during("scrub")
    }
}
