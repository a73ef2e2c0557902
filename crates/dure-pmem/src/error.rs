//! What can go wrong with persistent memory.

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong.
#[expect(clippy::error_impl_error, reason = "users write dure_pmem::Error")]
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The medium has lost these bytes, or the file has become shorter: the processor reported a
    /// memory error (SIGBUS).
    #[error("memory error in the {bytes} bytes from {at} of a region of persistent memory")]
    Poison {
        /// Offset of the access in the region.
        at: u64,
        /// Length of the access.
        bytes: u64,
    },
    /// The access is not within the region.
    #[error("{bytes} bytes at {at} are outside a region of {region_bytes} bytes")]
    OutOfRange {
        /// Offset of the access.
        at: u64,
        /// Its length.
        bytes: u64,
        /// Length of the region.
        region_bytes: u64,
    },
    /// The region was mapped for reading.
    #[error("a write to a region of persistent memory that is open for reading only")]
    ReadOnly,
    /// The file is not on persistent memory, or its file system does not map it directly.
    #[error(
        "the file is not on persistent memory: its file system maps it through the page cache \
         (MAP_SYNC is refused); mount that with -o dax, or ask for emulated NVM"
    )]
    NotDirect,
    /// The region cannot be mapped.
    #[error("cannot map persistent memory: {}", std::io::Error::from_raw_os_error(*errno))]
    Map {
        /// Error number of the system.
        errno: i32,
    },
}

impl From<rustix::io::Errno> for Error {
    fn from(errno: rustix::io::Errno) -> Error {
        Error::Map {
            errno: errno.raw_os_error(),
        }
    }
}
