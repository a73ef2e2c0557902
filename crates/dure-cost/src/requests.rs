//! Requests to a device that does nothing: what the block layer costs.

use anyhow::Result;
use dure_block::null::NullDevice;
use dure_block::{Bio, BlockBuf, Lba, Queue, QueueConfig, Ticket, share};
use dure_sync::Arc;

use crate::counted::{Operation, ROUND_CALLS};
use crate::scene::Scene;

const BLOCKS: u64 = 1 << 16;
/// Requests that are submitted together and then waited for.
const DEPTH: usize = 32;

/// Submits requests and waits for them.
pub(crate) struct Depth {
    scene: Scene,
    queue: Arc<Queue>,
    buffers: Vec<BlockBuf>,
    tickets: Vec<Ticket>,
}

impl Depth {
    pub(crate) fn new(scene: Scene) -> Depth {
        let device = share(NullDevice::new("null", BLOCKS));
        Depth {
            scene,
            queue: Queue::new(device, QueueConfig::default()),
            buffers: (0..DEPTH).map(|_| BlockBuf::zeroed(1)).collect(),
            tickets: Vec::with_capacity(DEPTH),
        }
    }
}

impl Operation for Depth {
    fn prepare(&mut self, _count: usize) -> Result<()> {
        Ok(())
    }

    fn call(&mut self, index: usize) -> Result<()> {
        let lba = |n: usize| Lba::new(u64::try_from(index * DEPTH + n).expect("few blocks"));
        let buffers = self.buffers.drain(..).enumerate();
        let bios = buffers.map(|(n, buffer)| Bio::write(lba(n), buffer));
        self.tickets.extend(self.queue.submit_all(bios)?);
        for ticket in self.tickets.drain(..) {
            self.buffers
                .extend(self.queue.wait(ticket).into_segments()?);
        }
        Ok(())
    }

    fn undo(&mut self, _count: usize) -> Result<()> {
        Ok(())
    }

    fn scene(&self) -> &Scene {
        &self.scene
    }

    fn changes(&self) -> bool {
        false
    }

    fn units(&self) -> usize {
        DEPTH
    }
}

const _: () = assert!(ROUND_CALLS * DEPTH < 1 << 16);
