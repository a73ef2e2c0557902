//! A device whose writes and flushes take a configured time.
//!
//! **Problem.** Whether commits share flushes shows only on slow flushes, and test machines rarely
//! have a slow device. **Structure.** A decorator: sleeps, then calls the device below. Several
//! requests sleep at the same time, as in a device with a deep queue, or one after another, as in
//! one whose bandwidth is used up. **Invariants.** It has a
//! volatile cache: flushes reach it. **Crash.** As the device below.

use std::time::Duration;

use dure_sync::atomic::{AtomicU64, Ordering};
use dure_sync::{Arc, clock, thread};

use crate::{BLOCK_BYTES, Device, DeviceInfo, Io, Result};

/// A slow device.
#[derive(Debug)]
pub struct DelayDevice {
    below: Arc<dyn Device>,
    info: DeviceInfo,
    write: Duration,
    flush: Duration,
    /// If requests go one after another: when the last one ends, in ns (Relaxed: a time only), and
    /// what each block of a write takes.
    in_turn: Option<(AtomicU64, Duration)>,
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
            in_turn: None,
        }
    }

    /// Requests go one after another, and a write takes `block` more for each of its blocks.
    #[must_use]
    pub fn in_turn(self, block: Duration) -> Self {
        Self {
            in_turn: Some((AtomicU64::new(0), block)),
            ..self
        }
    }

    /// How long a request of so many blocks, which takes `delay`, has to wait until it is done.
    fn wait(&self, delay: Duration, blocks: usize) -> Duration {
        let Some((busy_until, block)) = &self.in_turn else {
            return delay;
        };
        let now = clock::monotonic_ns();
        let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
        let delay = delay.saturating_add(block.saturating_mul(blocks));
        let delay = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
        let end = |busy: u64| busy.max(now).saturating_add(delay);
        let busy = busy_until
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |busy| Some(end(busy)))
            .expect("the time is always changed");
        Duration::from_nanos(end(busy) - now)
    }
}

impl Device for DelayDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn execute(&self, io: Io<'_>) -> Result<()> {
        let (delay, bytes) = match &io {
            Io::Write { parts, .. } => (self.write, parts.iter().map(|part| part.len()).sum()),
            Io::Flush => (self.flush, 0),
            Io::Read { .. } | Io::Discard { .. } => (Duration::ZERO, 0),
        };
        if !delay.is_zero() {
            thread::sleep(self.wait(delay, bytes / BLOCK_BYTES));
        }
        self.below.execute(io)
    }
}
