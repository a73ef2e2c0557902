//! What the kernel's ublk driver and a server tell each other.
//!
//! **Structure.** Commands, as numbers of ioctl(2); the records they carry; where the driver has
//! descriptors and data of a queue. All are in the byte order of the machine. **Invariants.** Sizes
//! are those of the driver's interface. **Crash.** Nothing is kept.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

const READ: u32 = 2;
const READ_WRITE: u32 = 3;

const fn command(direction: u32, number: u32, bytes: u32) -> u32 {
    direction << 30 | bytes << 16 | 0x75 << 8 | number
}

const CONTROL_BYTES: u32 = 32;
const IO_BYTES: u32 = 16;
const _: () = assert!(size_of::<ControlCommand>() == 32 && size_of::<IoCommand>() == 16);

pub(super) const GET_INFO: u32 = command(READ, 0x02, CONTROL_BYTES);
pub(super) const ADD: u32 = command(READ_WRITE, 0x04, CONTROL_BYTES);
pub(super) const DELETE: u32 = command(READ_WRITE, 0x05, CONTROL_BYTES);
pub(super) const START: u32 = command(READ_WRITE, 0x06, CONTROL_BYTES);
pub(super) const STOP: u32 = command(READ_WRITE, 0x07, CONTROL_BYTES);
pub(super) const SET_PARAMETERS: u32 = command(READ_WRITE, 0x08, CONTROL_BYTES);
pub(super) const GET_PARAMETERS: u32 = command(READ, 0x09, CONTROL_BYTES);
pub(super) const BEGIN_RECOVERY: u32 = command(READ_WRITE, 0x10, CONTROL_BYTES);
pub(super) const END_RECOVERY: u32 = command(READ_WRITE, 0x11, CONTROL_BYTES);
pub(super) const FETCH: u32 = command(READ_WRITE, 0x20, IO_BYTES);
pub(super) const COMMIT_AND_FETCH: u32 = command(READ_WRITE, 0x21, IO_BYTES);

/// When its server ends, the device waits for another one.
pub(super) const USER_RECOVERY: u64 = 1 << 3;
/// Which then gets the requests again that the first one had.
pub(super) const RECOVERY_REISSUE: u64 = 1 << 4;
/// Commands are numbers of ioctl(2).
pub(super) const IOCTL_NUMBERS: u64 = 1 << 6;
/// The server copies data with pread(2) and pwrite(2).
pub(super) const USER_COPY: u64 = 1 << 7;
/// What we ask for, and need.
pub(super) const FLAGS: u64 = USER_RECOVERY | RECOVERY_REISSUE | IOCTL_NUMBERS | USER_COPY;

/// A command is for no queue.
pub(super) const NO_QUEUE: u16 = u16::MAX;

pub(super) const TYPE_BASIC: u32 = 1;
pub(super) const TYPE_DISCARD: u32 = 2;
pub(super) const READ_ONLY: u32 = 1;
pub(super) const ROTATIONAL: u32 = 2;
pub(super) const VOLATILE_CACHE: u32 = 4;
pub(super) const FUA: u32 = 8;

pub(super) const OP_READ: u32 = 0;
pub(super) const OP_WRITE: u32 = 1;
pub(super) const OP_FLUSH: u32 = 2;
pub(super) const OP_DISCARD: u32 = 3;
pub(super) const OP_WRITE_ZEROES: u32 = 5;
pub(super) const OP_MASK: u32 = 0xff;
pub(super) const REQUEST_FUA: u32 = 1 << 13;

/// Longest data of a request, by the place for them.
pub(super) const DATA_BITS: u32 = 25;
const TAG_BITS: u32 = 16;
const DATA_AT: u64 = 0x8000_0000;

/// Most requests of a queue.
pub(super) const DEPTH_MOST: u16 = 4096;

/// Where the data of a request are.
pub(super) fn data_at(queue: u16, tag: u16) -> u64 {
    DATA_AT + (u64::from(queue) << (DATA_BITS + TAG_BITS)) + (u64::from(tag) << DATA_BITS)
}

/// A command to the driver.
#[derive(Debug, Clone, Copy, FromZeros, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct ControlCommand {
    pub(super) device: u32,
    pub(super) queue: u16,
    pub(super) len: u16,
    pub(super) address: u64,
    pub(super) data: u64,
    pub(super) path_len: u16,
    pub(super) padding: u16,
    pub(super) reserved: u32,
}

/// A device.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct Information {
    pub(super) queues: u16,
    pub(super) depth: u16,
    pub(super) state: u16,
    pub(super) padding: u16,
    pub(super) data_bytes_max: u32,
    pub(super) device: u32,
    pub(super) server: i32,
    pub(super) padding_2: u32,
    pub(super) flags: u64,
    pub(super) server_flags: u64,
    pub(super) user: u32,
    pub(super) group: u32,
    pub(super) reserved: [u64; 2],
}
const _: () = assert!(size_of::<Information>() == 64);

/// What a device is like.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct Parameters {
    pub(super) len: u32,
    pub(super) types: u32,
    pub(super) attributes: u32,
    pub(super) logical_block_shift: u8,
    pub(super) physical_block_shift: u8,
    pub(super) io_optimal_shift: u8,
    pub(super) io_minimum_shift: u8,
    pub(super) sectors_max: u32,
    pub(super) chunk_sectors: u32,
    pub(super) sectors: u64,
    pub(super) boundary: u64,
    pub(super) discard_alignment: u32,
    pub(super) discard_granularity: u32,
    pub(super) discard_sectors_max: u32,
    pub(super) zeroes_sectors_max: u32,
    pub(super) discard_segments_max: u16,
    pub(super) reserved: u16,
    /// Part of the next record, which is not used.
    pub(super) rest: u32,
}
const _: () = assert!(size_of::<Parameters>() == 64);

/// A command for a request.
#[derive(Debug, Clone, Copy, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct IoCommand {
    pub(super) queue: u16,
    pub(super) tag: u16,
    pub(super) result: i32,
    pub(super) address: u64,
}

/// What is requested.
#[derive(Debug, Clone, Copy, FromBytes, Immutable)]
#[repr(C)]
pub(super) struct Descriptor {
    pub(super) operation: u32,
    pub(super) sectors: u32,
    pub(super) sector: u64,
    pub(super) address: u64,
}
const _: () = assert!(size_of::<Descriptor>() == 24);
