//! What happens when handles become valid.

use dure_journal::{Effects, Settle};
use dure_sync::Arc;
use dure_sync::atomic::AtomicUsize;

use crate::alloc::AllocPolicy;
use crate::data_log::DataLog;
use crate::node::nat::Nat;
use crate::partition::partition_of;
use crate::space::{Effect, Space};

/// Turns the effects of valid handles into free blocks and nids.
#[derive(Debug)]
pub struct Settler {
    pub(crate) space: Arc<Space>,
    pub(crate) nat: Arc<Nat>,
    pub(crate) data_log: Arc<DataLog>,
    pub(crate) cores: usize,
    pub(crate) alloc: AllocPolicy,
    /// As in the rules of the mount options.
    pub(crate) core: Option<Arc<AtomicUsize>>,
}

impl Settle for Settler {
    type Effect = Effect;

    fn settle(&self, effects: Effects<Effect>) {
        let core = self
            .alloc
            .partition(partition_of(self.cores, self.core.as_deref()));
        for effect in &effects {
            if let Effect::NidFree { nid, version } = *effect {
                self.nat.give(core, nid, version);
            }
        }
        // Before the space map: a block can be allocated again as soon as that has it.
        self.space.settle(self.data_log.pass(core, effects));
    }
}
