//! A device whose flushes block until they are let through: several commits are in flight at once.

use std::fmt;

use dure_block::{Device, DeviceInfo, Io, Result};
use dure_sync::{Arc, Condvar, Mutex};

/// Above every lock that is held over I/O.
const GATE_RANK: u8 = 226;

#[derive(Debug, Default)]
struct State {
    closed: bool,
    /// Flushes that may pass although it is closed.
    passes: usize,
}

/// Lets flushes pass, or holds them back.
#[derive(Debug, Default)]
pub struct Gate {
    state: Mutex<GATE_RANK, State>,
    changed: Condvar,
}

impl Gate {
    /// From now on flushes wait.
    pub fn close(&self) {
        self.state.lock().closed = true;
    }

    /// Lets all flushes through.
    pub fn open(&self) {
        *self.state.lock() = State::default();
        self.changed.notify_all();
    }

    /// Lets one flush through: one that waits, or the next.
    pub fn let_one(&self) {
        self.state.lock().passes = 1;
        self.changed.notify_all();
    }

    fn pass(&self) {
        let mut state = self.state.lock();
        while state.closed && state.passes == 0 {
            state = self.changed.wait(state);
        }
        state.passes = state.passes.saturating_sub(1);
    }
}

/// The device. A recorder goes around it, so that a flush that waits is recorded as submitted.
pub struct GateDevice {
    inner: Arc<dyn Device>,
    gate: Arc<Gate>,
}

impl GateDevice {
    /// Flushes of `inner` pass `gate`.
    #[must_use]
    pub fn new(inner: Arc<dyn Device>, gate: Arc<Gate>) -> GateDevice {
        GateDevice { inner, gate }
    }
}

impl Device for GateDevice {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn execute(&self, io: Io<'_>) -> Result<()> {
        if matches!(io, Io::Flush) {
            self.gate.pass();
        }
        self.inner.execute(io)
    }
}

impl fmt::Debug for GateDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GateDevice")
            .field("gate", &self.gate)
            .finish_non_exhaustive()
    }
}
