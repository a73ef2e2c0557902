//! A device whose writes and flushes take a configured time.
//!
//! **Problem.** Whether commits share flushes shows only on slow flushes, and test machines rarely
//! have a slow device. **Structure.** A decorator: sleeps, then calls the device below. Several
//! requests sleep at the same time, as in a device with a deep queue. **Invariants.** It has a
//! volatile cache: flushes reach it. **Crash.** As the device below.

use std::time::Duration;

use dure_sync::{Arc, thread};

use crate::{Device, DeviceInfo, Io, Result};

/// A slow device.
#[derive(Debug)]
pub struct DelayDevice {
    below: Arc<dyn Device>,
    info: DeviceInfo,
    write: Duration,
    flush: Duration,
}

impl DelayDevice {
    /// Makes writes to `below` take at least `write` longer, and flushes `flush`.
    #[must_use]
    pub fn new(below: Arc<dyn Device>, write: Duration, flush: Duration) -> Self {
        let info = DeviceInfo {
            volatile_cache: true,
            ..below.info().clone()
        };
        Self {
            below,
            info,
            write,
            flush,
        }
    }
}

impl Device for DelayDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn execute(&self, io: Io<'_>) -> Result<()> {
        let delay = match io {
            Io::Write { .. } => self.write,
            Io::Flush => self.flush,
            Io::Read { .. } | Io::Discard { .. } => Duration::ZERO,
        };
        if !delay.is_zero() {
            thread::sleep(delay);
        }
        self.below.execute(io)
    }
}
