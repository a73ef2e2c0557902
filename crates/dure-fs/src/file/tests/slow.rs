//! A device on which something happens within a request.

use std::ops::Range;

use dure_block::ram::RamDevice;
use dure_block::{Device, DeviceInfo, Io, Lba, Op, Result};
use dure_sync::{Arc, Mutex};

/// What other tasks do while the device works.
type Event = Box<dyn FnOnce() -> Result<()> + Send>;
const EVENT_RANK: u8 = u8::MAX;

/// A device on which something happens just before a request. It counts as slow.
pub(super) struct Slow {
    ram: Arc<RamDevice>,
    info: DeviceInfo,
    event: Mutex<EVENT_RANK, Option<(Op, Range<Lba>, Event)>>,
}

impl Slow {
    pub(super) fn new(ram: Arc<RamDevice>) -> Slow {
        Slow {
            info: DeviceInfo {
                in_memory: false,
                ..ram.info().clone()
            },
            ram,
            event: Mutex::default(),
        }
    }

    /// `event` comes before the next request of this kind that begins within these blocks.
    pub(super) fn before(
        &self,
        op: Op,
        within: Range<Lba>,
        event: impl FnOnce() -> Result<()> + Send + 'static,
    ) {
        *self.event.lock() = Some((op, within, Box::new(event)));
    }

    /// Whether the event is still to come.
    pub(super) fn waits(&self) -> bool {
        self.event.lock().is_some()
    }
}

impl std::fmt::Debug for Slow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Slow")
    }
}

impl Device for Slow {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn execute(&self, io: Io<'_>) -> Result<()> {
        let event = {
            let mut held = self.event.lock();
            held.take_if(|(op, within, _)| io.op() == *op && within.contains(&io.lba()))
        };
        if let Some((.., event)) = event {
            event()?;
        }
        self.ram.execute(io)
    }
}
