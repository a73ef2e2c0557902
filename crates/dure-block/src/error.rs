//! Errors of devices.
//!
//! **Problem.** A failed request must name the device, the operation, the blocks and the system's
//! error; and one failure may have to be reported to many waiters. **Structure.** One cloneable
//! enum. **Invariants.** An error is never swallowed or retried here. **Crash.** Nothing is kept.

use std::fmt;
use std::path::PathBuf;

use crate::count::Count;
use crate::{Lba, Op};

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// An error number of the operating system.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct OsError(i32);

impl OsError {
    /// Input/output error.
    pub const EIO: Self = Self(libc::EIO);
    /// No space left on device.
    pub const ENOSPC: Self = Self(libc::ENOSPC);

    /// The error with this number (positive, as in `errno`).
    #[must_use]
    pub const fn new(errno: i32) -> Self {
        Self(errno)
    }

    /// The number.
    #[must_use]
    pub const fn errno(self) -> i32 {
        self.0
    }
}

impl From<rustix::io::Errno> for OsError {
    fn from(errno: rustix::io::Errno) -> Self {
        Self(errno.raw_os_error())
    }
}

impl fmt::Display for OsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&std::io::Error::from_raw_os_error(self.0), f)
    }
}

impl fmt::Debug for OsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OsError({self})")
    }
}

/// What went wrong.
#[expect(clippy::error_impl_error, reason = "users write dure_block::Error")]
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The device or the operating system refused the request.
    #[error("{device}: {op} of {} at block {lba} failed: {os}", Count::of(*blocks, "block"))]
    Io {
        /// Name of the device.
        device: String,
        /// The operation.
        op: Op,
        /// First block.
        lba: Lba,
        /// Number of blocks.
        blocks: u64,
        /// What the operating system said.
        os: OsError,
    },
    /// The request reaches past the end of the device.
    #[error(
        "{device}: {op} of {blocks} blocks at block {lba} is outside the device, which has \
         {device_blocks} blocks; the volume was made for a larger device, or its metadata is wrong"
    )]
    OutOfRange {
        /// Name of the device.
        device: String,
        /// The operation.
        op: Op,
        /// First block.
        lba: Lba,
        /// Number of blocks.
        blocks: u64,
        /// Size of the device.
        device_blocks: u64,
    },
    /// A submitted request is longer than the device takes.
    #[error(
        "{device}: {op} of {blocks} blocks at block {lba} is longer than the {blocks_max} blocks \
         the device takes at once; submit it in parts"
    )]
    TooLong {
        /// Name of the device.
        device: String,
        /// The operation.
        op: Op,
        /// First block.
        lba: Lba,
        /// Number of blocks.
        blocks: u64,
        /// Longest request of the device.
        blocks_max: u64,
    },
    /// The length is not a whole number of blocks.
    #[error("{device}: {op} of {bytes} bytes at block {lba}: not a multiple of 4096 bytes")]
    Unaligned {
        /// Name of the device.
        device: String,
        /// The operation.
        op: Op,
        /// First block.
        lba: Lba,
        /// Length in bytes.
        bytes: usize,
    },
    /// The device was opened for reading only.
    #[error("{device}: {op} at block {lba} refused: the device is open for reading only")]
    ReadOnly {
        /// Name of the device.
        device: String,
        /// The operation.
        op: Op,
        /// First block.
        lba: Lba,
    },
    /// A driver dropped a request without completing it; the state of the blocks is unknown.
    #[error("{device}: {op} of {} at block {lba} was abandoned by its driver", Count::of(*blocks, "block"))]
    Abandoned {
        /// Name of the device.
        device: String,
        /// The operation.
        op: Op,
        /// First block.
        lba: Lba,
        /// Number of blocks.
        blocks: u64,
    },
    /// The block device is mounted or in use by another program.
    #[error("{}: is mounted or in use (unmount it, or stop the program that has it open)",
        path.display())]
    Busy {
        /// The block device.
        path: PathBuf,
    },
    /// The image file is in use by another process.
    #[error("{}: in use by {holder}, which holds the lock on the file", path.display())]
    Locked {
        /// The image file.
        path: PathBuf,
        /// Process and command, as far as the kernel reports them.
        holder: String,
    },
    /// The file could not be opened, made or sized.
    #[error("{}: cannot {action}: {os}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// What was tried, as a verb phrase.
        action: &'static str,
        /// What the operating system said.
        os: OsError,
    },
    /// The path names something that cannot hold a volume.
    #[error("{}: is a {kind}; a volume needs a regular file or a block device", path.display())]
    WrongFileType {
        /// The path.
        path: PathBuf,
        /// What it is.
        kind: &'static str,
    },
    /// The block device is there, but nothing is behind it.
    #[error("{}: the block device has no size: no medium or file is attached to it (`lsblk` shows the \
        sizes, and `losetup` what is behind loop devices); attach one",
        path.display())]
    NoSize {
        /// The block device.
        path: PathBuf,
    },
    /// The file cannot be mapped as persistent memory.
    #[error("{}: is not on persistent memory: its file system does not map it directly; mount that \
        with -o dax, or leave out what asks for it (nvm=direct, --require-dax)", path.display())]
    NotDirect {
        /// The file.
        path: PathBuf,
    },
    /// A block device is used by requests only.
    #[error("{}: is a block device, which is used by requests; nvm={nvm} needs a file: leave it out",
        path.display())]
    NotMapped {
        /// The block device.
        path: PathBuf,
        /// How it was to be used.
        nvm: &'static str,
    },
    /// The chosen I/O engine is not available.
    #[error("{}: the {engine} engine is not available here: {os}; choose psync or auto",
        path.display())]
    EngineUnavailable {
        /// The file.
        path: PathBuf,
        /// Name of the engine.
        engine: &'static str,
        /// What the operating system said.
        os: OsError,
    },
}

impl Error {
    /// The operating system's error number, if the error came from it.
    #[must_use]
    pub fn os(&self) -> Option<OsError> {
        match self {
            Self::Io { os, .. } | Self::Open { os, .. } | Self::EngineUnavailable { os, .. } => {
                Some(*os)
            }
            _ => None,
        }
    }
}
