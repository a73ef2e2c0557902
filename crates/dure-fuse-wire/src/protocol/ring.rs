//! Layouts of FUSE over io_uring (Linux 6.14): what an entry of a ring holds, and its commands.
//!
//! A request has its header, the record of its operation and the rest ("payload": names, data) at
//! three places; its reply has a header and a payload, which overwrites that of the request.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// What the kernel fills in for a request, and reads of a reply, apart from the payload.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct RingHeaders {
    /// The header of the request, later that of the reply.
    pub header: [u8; 128],
    /// The record of the operation.
    pub record: [u8; 128],
    /// About the payload.
    pub entry: RingEntryInOut,
}
const _: () = assert!(size_of::<RingHeaders>() == 288);

/// The part of an entry that belongs to the ring.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct RingEntryInOut {
    /// None are defined.
    pub flags: u64,
    /// Names the request in the command that answers it.
    pub commit_id: u64,
    /// Bytes of the payload.
    pub payload_bytes: u32,
    /// Not used.
    pub padding: u32,
    /// Not used.
    pub reserved: u64,
}
const _: () = assert!(size_of::<RingEntryInOut>() == 32);

/// Makes an entry known to the kernel.
pub const REGISTER: u32 = 1;
/// Answers the request in an entry, and waits for the next.
pub const COMMIT_AND_FETCH: u32 = 2;

/// Arguments of a command.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct RingCommand {
    /// None are defined.
    pub flags: u64,
    /// The request that is answered.
    pub commit_id: u64,
    /// The queue: the number of a CPU.
    pub queue: u16,
    /// Not used.
    pub padding: [u8; 6],
}
const _: () = assert!(size_of::<RingCommand>() == 24);
