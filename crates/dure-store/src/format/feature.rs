//! Feature flags of a volume. A flag is never given another meaning; numbers are never reused.
//!
//! * `incompat`: a reader that does not know the flag must not touch the volume.
//! * `ro_compat`: it may read but must not write.
//! * `compat`: it may ignore the flag.

/// Incompatible features this version knows. None yet.
pub const INCOMPAT_KNOWN: u64 = 0;
/// Read-only compatible features this version knows. None yet.
pub const RO_COMPAT_KNOWN: u64 = 0;
