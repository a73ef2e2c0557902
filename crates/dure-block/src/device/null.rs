//! A device that does nothing.
//!
//! **Problem.** To know what the layers above cost, the device must cost nothing; to see them
//! starve of tags, its requests must be under way for a while. **Structure.** Reads return zeroes,
//! everything else succeeds. [`Irq`] says who completes a request, as `irqmode` of the kernel's
//! `null_blk` does: the submitter, or a thread of the submitting core (`interrupt`).
//! **Invariants.** A thread completes requests of one core in their order. A request that the device
//! has when it is dropped is complete before it is gone. **Crash.** It has nothing to lose.

mod interrupt;
#[cfg(test)]
mod tests;

use std::time::Duration;

use dure_sync::{PerCore, core_count};

use crate::{Device, DeviceInfo, Io, Op, Request, Result};
use interrupt::Interrupts;

/// Who completes the requests of a null device.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Irq {
    /// The submitter, while it submits: `irqmode=0`. No request is ever under way.
    #[default]
    None,
    /// Another thread of the submitter's core, as soon as it runs: `irqmode=1`.
    Softirq,
    /// That thread, when this time (`completion_nsec`) is over: `irqmode=2`.
    Timer(Duration),
}

/// The null device.
#[derive(Debug)]
pub struct NullDevice {
    info: DeviceInfo,
    /// Those of each core; `None`: the submitter completes requests.
    interrupts: Option<PerCore<Interrupts>>,
}

impl NullDevice {
    /// A null device of `blocks` blocks, whose requests are complete at once.
    #[must_use]
    pub fn new(name: &str, blocks: u64) -> Self {
        Self::with_irq(name, blocks, Irq::None)
    }

    /// A null device of `blocks` blocks, whose requests `irq` completes.
    ///
    /// # Panics
    /// If `irq` needs threads, and the system cannot start one for each core.
    #[must_use]
    pub fn with_irq(name: &str, blocks: u64, irq: Irq) -> Self {
        let after = match irq {
            Irq::None => None,
            Irq::Softirq => Some(Duration::ZERO),
            Irq::Timer(after) => Some(after),
        };
        let mut info = DeviceInfo::in_memory(name, blocks);
        info.in_memory = after.is_none();
        Self {
            info,
            interrupts: after
                .map(|after| PerCore::new(core_count(), |core| Interrupts::start(core, after))),
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
        if let Some(interrupts) = &self.interrupts {
            interrupts.local().call();
        }
        Ok(())
    }

    fn submit(&self, mut request: Request) {
        let Some(interrupts) = &self.interrupts else {
            return request.run_on(self);
        };
        request.dispatched();
        if request.bio().op() == Op::Read {
            let segments = request.segments_mut();
            segments.iter_mut().for_each(|s| s.as_mut_slice().fill(0));
        }
        interrupts.local().submit(request);
    }
}
