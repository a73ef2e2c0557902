//! Profiles: on which media the volumes of the suites are, and how they are mounted.
//!
//! **Problem.** What holds for a volume on a disk need not hold for one in persistent memory.
//! **Structure.** [`Profile`] says what `mkfs` and each mount get, and answers what a suite has to ask
//! of it. Persistent memory is emulated, in files. **Invariants.** A mount gets no
//! option that its profile refuses. **Crash.** What was copied into emulated memory outlives the
//! server, so a kill of the server is a crash; of the machine it would not be one.

use clap::ValueEnum;

/// `--profile`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Profile {
    /// A disk.
    #[default]
    Disk,
    /// Wholly in persistent memory, without a page cache: each call is durable when it returns.
    Strict,
    /// The same, durable when synced.
    Posix,
    /// Metadata in persistent memory, data on a disk.
    Hybrid,
    /// The same, and dirty pages in persistent memory.
    Nvram,
    /// The same of what is synced; other dirty pages in DRAM.
    NvramSync,
}

impl Profile {
    /// Its word on the command line.
    pub(super) fn name(self) -> String {
        let value = self.to_possible_value().expect("no profile is hidden");
        value.get_name().to_owned()
    }

    /// Whether the volume has a region of persistent memory with its disk.
    pub(super) fn has_region(self) -> bool {
        matches!(self, Profile::Hybrid | Profile::Nvram | Profile::NvramSync)
    }

    /// The mount options that make it.
    pub(super) fn options(self) -> Option<&'static str> {
        Some(match self {
            Profile::Disk => return None,
            Profile::Strict => "nvm=emulated,page_cache=none",
            Profile::Posix => "nvm=emulated,page_cache=none,durability=posix",
            Profile::Hybrid => "nvm=emulated",
            // Less than what most suites write, so that data moves to the disk, too.
            Profile::Nvram => "nvm=emulated,page_cache=nvram,nvram=64M",
            Profile::NvramSync => "nvm=emulated,page_cache=nvram,nvram=64M,nvram_absorb=sync",
        })
    }

    /// Whether it can be mounted with a policy that was drawn.
    pub(super) fn takes(self, policy: &str) -> bool {
        let other_data = matches!(policy, "data=journal" | "data=writeback");
        let logs_images = matches!(policy, "journal=zjournal" | "journal=jbd2");
        match self {
            Profile::Disk | Profile::Hybrid => true,
            Profile::Posix | Profile::Nvram | Profile::NvramSync => !other_data,
            // Calls are durable by themselves with journals of deltas only.
            Profile::Strict => !other_data && !logs_images,
        }
    }

    /// Whether a kill of the server loses what was written and not synced: only then a test that
    /// syncs nothing shows that a loss is noticed.
    pub(super) fn loses_what_is_not_synced(self) -> bool {
        !matches!(self, Profile::Strict | Profile::Nvram)
    }

    /// Whether the volume may be on a block device, which is never used as memory.
    pub(super) fn may_be_a_block_device(self) -> bool {
        self == Profile::Disk || self.has_region()
    }

    /// Whether a mounted volume grows.
    pub(super) fn grows(self) -> bool {
        self == Profile::Disk
    }
}
