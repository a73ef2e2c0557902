//! Calls on a mounted volume that are not about files.

use std::ops::Range;

use dure_store::error::Result;
use dure_store::units::BLOCK_BYTES_U64;
use dure_store::{Durability, RecoveryStatistics};

use super::FileSystem;

impl FileSystem {
    /// Why the volume has become read-only by itself, if it has.
    #[must_use]
    pub fn stopped(&self) -> Option<String> {
        self.0.store.stopped().map(str::to_owned)
    }

    /// Writes back, commits and, if it is time, checkpoints, as background work does. For tests.
    ///
    /// # Errors
    /// The first failure.
    #[doc(hidden)]
    pub fn background_now(&self) -> Result<()> {
        self.0.background.round_of_all()
    }

    /// Tells the device which blocks within `bytes` are free, in runs of at least `least` bytes,
    /// after what was deleted has become durable. Returns how many bytes that were; less than is
    /// free where other tasks need the last free blocks, and never what the volume has not used yet.
    ///
    /// # Errors
    /// `ReadOnly`, `Stopped`; what a commit reports; a failed discard.
    pub fn trim(&self, bytes: Range<u64>, least: u64) -> Result<u64> {
        self.0.store.check_writable()?;
        self.0.store.commit_all()?;
        let blocks = bytes.start.div_ceil(BLOCK_BYTES_U64)..bytes.end / BLOCK_BYTES_U64;
        let told = self.0.store.trim(blocks, least.div_ceil(BLOCK_BYTES_U64))?;
        Ok(told * BLOCK_BYTES_U64)
    }

    /// Whether there is a device below that [`FileSystem::trim`] is of use to.
    #[must_use]
    pub fn can_trim(&self) -> bool {
        self.0.store.can_trim()
    }

    /// Checkpoints, as when a log is full. For tests.
    ///
    /// # Errors
    /// The first failure, after which the volume is stopped.
    #[doc(hidden)]
    pub fn checkpoint_now(&self) -> Result<()> {
        self.0.store.checkpoint()
    }

    /// Lets the logs grow until they hold `blocks` blocks together. For benches.
    ///
    /// # Errors
    /// `NoSpace` when the volume or the log rings have no room for that; a failed write.
    #[doc(hidden)]
    pub fn grow_logs(&self, blocks: u64) -> Result<()> {
        self.0.store.check_writable()?;
        self.0.store.grow_rings(blocks)
    }

    /// How many files in memory have had a range with an end locked. For tests: it looks at all
    /// inodes in memory.
    #[doc(hidden)]
    #[must_use]
    pub fn files_with_ranges(&self) -> usize {
        self.0
            .inodes
            .cache
            .collect(|inode| inode.ranges().bytes() > 0)
            .len()
    }

    /// How often tasks waited for ranges of files that are in memory. For tests, as above.
    #[doc(hidden)]
    #[must_use]
    pub fn range_waits(&self) -> dure_sync::range_lock::Waits {
        let mut sum = dure_sync::range_lock::Waits::default();
        for inode in self
            .0
            .inodes
            .cache
            .collect(|inode| inode.ranges().are_locked())
        {
            let waits = inode.inode().ranges().waits();
            sum.queued += waits.queued;
            sum.slept += waits.slept;
        }
        sum
    }

    /// The store below the files. For tests: the files do not expect changes there.
    #[cfg(feature = "store")]
    #[must_use]
    pub fn store(&self) -> &dure_store::Store {
        &self.0.store
    }

    /// The volume's layout.
    #[must_use]
    pub fn layout(&self) -> &dure_store::layout::Layout {
        &self.0.store.layout
    }

    /// The options it was mounted with.
    #[must_use]
    pub fn options(&self) -> &super::MountOptions {
        &self.0.options
    }

    /// When what a call has done is durable.
    #[must_use]
    pub fn durability(&self) -> Durability {
        self.0.store.durability()
    }

    /// What this mount recovered; `None` if the volume had been unmounted.
    #[must_use]
    pub fn recovered(&self) -> Option<RecoveryStatistics> {
        self.0.store.recovered
    }

    /// Whether the first superblock is damaged: the volume was found by the last, and a check that
    /// repairs makes it again.
    #[must_use]
    pub fn first_superblock_is_damaged(&self) -> bool {
        self.0.store.first_superblock_is_damaged()
    }
}
