//! What one user or group has, and may have.

use dure_store::format::quota::{Limits, Usage};

use super::amount::{Amount, Spender};

/// What an owner has, of blocks and inodes; on lines of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Account {
    blocks: Amount,
    inodes: Amount,
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

impl Account {
    /// Counts all of `usage`, or nothing: then says of what there is no more to be had.
    pub(super) fn take(&self, by: Spender, usage: Usage) -> Result<(), &'static str> {
        let (blocks, inodes) = (signed(usage.blocks), signed(usage.inodes));
        if blocks > 0 && !self.blocks.take(by, blocks) {
            return Err("blocks");
        }
        if inodes > 0 && !self.inodes.take(by, inodes) {
            self.blocks.give(by, blocks);
            return Err("inodes");
        }
        Ok(())
    }

    pub(super) fn give(&self, by: Spender, usage: Usage) {
        if usage.blocks > 0 {
            self.blocks.give(by, signed(usage.blocks));
        }
        if usage.inodes > 0 {
            self.inodes.give(by, signed(usage.inodes));
        }
    }

    /// Counts whatever the limits are.
    pub(super) fn add(&self, usage: Usage) {
        self.blocks.add(signed(usage.blocks));
        self.inodes.add(signed(usage.inodes));
    }

    pub(super) fn usage(&self) -> Usage {
        Usage {
            blocks: self.blocks.sum(),
            inodes: self.inodes.sum(),
        }
    }

    pub(super) fn limits(&self) -> Limits {
        let (blocks, grace) = self.blocks.bounds();
        let (inodes, _) = self.inodes.bounds();
        Limits {
            blocks,
            inodes,
            grace,
        }
    }

    /// Sets the limits; those before. `now` as for [`Amount::set`].
    pub(super) fn limit(&self, limits: &Limits, now: i64) -> Limits {
        let before = self.limits();
        self.blocks.set(limits.blocks, limits.grace, now);
        self.inodes.set(limits.inodes, limits.grace, now);
        before
    }
}
