//! Feature flags of a volume. A flag is never given another meaning; numbers are never reused.
//!
//! * `incompat`: a reader that does not know the flag must not touch the volume.
//! * `ro_compat`: it may read but must not write.
//! * `compat`: it may ignore the flag.

/// Incompatible: the volume lies on several media, and the superblock has their table.
pub const INCOMPAT_MEDIA: u64 = 1;
/// Incompatible features this version knows.
pub const INCOMPAT_KNOWN: u64 = INCOMPAT_MEDIA;
/// Read-only compatible: the media are stamped by each mount for writing (`format::stamp`).
pub const RO_COMPAT_STAMPS: u64 = 1;
/// Read-only compatible features this version knows.
pub const RO_COMPAT_KNOWN: u64 = RO_COMPAT_STAMPS;
