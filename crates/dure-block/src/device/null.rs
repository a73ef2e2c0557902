//! A device that does nothing, at once.
//!
//! **Problem.** To know what the layers above cost, the device must cost nothing. **Structure.**
//! Reads return zeroes, everything else succeeds. **Invariants.** none. **Crash.** It has nothing
//! to lose.

use crate::{Device, DeviceInfo, Io, Result};

/// The null device.
#[derive(Debug)]
pub struct NullDevice {
    info: DeviceInfo,
}

impl NullDevice {
    /// A null device of `blocks` blocks.
    #[must_use]
    pub fn new(name: &str, blocks: u64) -> Self {
        Self {
            info: DeviceInfo::in_memory(name, blocks),
        }
    }
}

impl Device for NullDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn execute(&self, io: Io<'_>) -> Result<()> {
        if let Io::Read { out, .. } = io {
            out.fill(0);
        }
        Ok(())
    }
}
