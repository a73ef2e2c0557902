//! The operations that are measured.

use clap::ValueEnum;

use dure_sync::random::Seeded;

/// Bytes of each thread's private file.
pub(super) const FILE_BYTES: u64 = 1 << 20;
/// Bytes of one read or write.
pub(super) const IO_BYTES: usize = 4096;
/// Bytes after which an appended file is cut to nothing and begins again.
pub(super) const APPEND_BYTES: u64 = 4 << 20;
/// Files a thread keeps of those it creates; the oldest makes room for the next.
pub(super) const CREATED_FILES: u64 = 64;
/// Threads that have a part of the shared file of their own.
pub(super) const SHARED_PARTS: u64 = 64;

/// A loop of one operation, on private files if nothing else is said, warm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Workload {
    /// pwrite of 4 KiB over existing pages, one after the other (`FxMark`: DWOL).
    Overwrite,
    /// pwrite of 4 KiB over existing pages in a part of one file that all threads share (DWOM).
    OverwriteShared,
    /// pread of 4 KiB of cached pages, one after the other.
    Read,
    /// stat of a path two directories deep.
    Stat,
    /// create, close and unlink of an empty file in a private directory.
    CreateUnlink,
    /// pwrite of 4 KiB and fsync (DWSL).
    OverwriteFsync,
    /// pwrite of 4 KiB at the end and fsync.
    AppendFsync,
    /// create, pwrite of 4 KiB and fsync, in a private directory; unlink of a file 64 creations
    /// old.
    CreateFsync,
}

impl Workload {
    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Workload::Overwrite => "overwrite",
            Workload::OverwriteShared => "overwrite-shared",
            Workload::Read => "read",
            Workload::Stat => "stat",
            Workload::CreateUnlink => "create-unlink",
            Workload::OverwriteFsync => "overwrite-fsync",
            Workload::AppendFsync => "append-fsync",
            Workload::CreateFsync => "create-fsync",
        }
    }
}

/// What is written: bytes no device can compress or leave out (zram does both), another page for
/// each thread. Every target gets the same.
#[must_use]
pub(crate) fn content(thread: usize) -> Vec<u8> {
    let seed = u64::try_from(thread).unwrap_or(0).wrapping_mul(0x1_0001);
    let mut random = Seeded::new(seed);
    let mut bytes = Vec::with_capacity(IO_BYTES);
    while bytes.len() < IO_BYTES {
        bytes.extend_from_slice(&random.next_u64().to_le_bytes());
    }
    bytes
}
