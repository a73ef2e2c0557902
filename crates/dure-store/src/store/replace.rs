//! Pages of the data log that cannot be written to their blocks.

use dure_sync::CoreId;

use super::Store;
use crate::data_log::Unplaced;
use crate::error::{Error, Result};
use crate::units::BlockNo;

impl Store {
    /// Finds other blocks for what the checkpoint could not write, and makes that durable; false
    /// when no slot had to change. The caller holds the checkpoint lock and no inode.
    ///
    /// # Errors
    /// The first block's error when one of them finds no other; what a commit reports. The volume
    /// must stop then; the data stays readable.
    pub(super) fn replace_logged(&self, core: CoreId, unplaced: Unplaced) -> Result<bool> {
        let mut any = false;
        let mut replace = |block: &BlockNo| {
            any |= self.find_home(core, *block)?;
            Ok(())
        };
        let replaced = unplaced.blocks.iter().try_for_each(&mut replace);
        // Crash scenario without this: the tail passes the log's copy, and the slot that the medium
        // has names a block that was never written. Committed also when other tasks have changed
        // the slots.
        let replaced = replaced.and_then(|()| self.commit_for_checkpoint());
        self.data_log.end_unplaced(core, &self.space, &unplaced);
        match replaced {
            Ok(()) => Ok(any),
            Err(Error::NoSpace { .. }) => Err(unplaced.error),
            Err(error) => Err(error),
        }
    }
}
