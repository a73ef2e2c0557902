//! The operations that are measured.

use clap::ValueEnum;

/// Bytes of each thread's private file.
pub const FILE_BYTES: u64 = 1 << 20;
/// Bytes of one read or write.
pub const IO_BYTES: usize = 4096;

/// A loop of one operation on private files, warm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Workload {
    /// pwrite of 4 KiB over existing pages, one after the other.
    Overwrite,
    /// pread of 4 KiB of cached pages, one after the other.
    Read,
    /// stat of a path two directories deep.
    Stat,
    /// create, close and unlink of an empty file in a private directory.
    CreateUnlink,
    /// pwrite of 4 KiB and fsync.
    OverwriteFsync,
}

impl Workload {
    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Workload::Overwrite => "overwrite",
            Workload::Read => "read",
            Workload::Stat => "stat",
            Workload::CreateUnlink => "create-unlink",
            Workload::OverwriteFsync => "overwrite-fsync",
        }
    }

    /// Operations between two looks at the clock.
    #[must_use]
    pub fn batch(self) -> u64 {
        match self {
            Workload::OverwriteFsync => 1,
            Workload::CreateUnlink => 8,
            _ => 64,
        }
    }
}
