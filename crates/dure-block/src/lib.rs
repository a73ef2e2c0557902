//! The block layer: requests, queues, tags and devices.
//!
//! **Problem.** On many cores the block layer stops scaling where cores contend: for one submission
//! queue, for too few request tags, for flushes that run one at a time. And a file system can be
//! shown to survive crashes only if every write and flush can be recorded, reordered, lost and
//! torn.
//!
//! **Structure.**
//! * [`Device`]: what stores blocks. [`ram`], [`overlay`], [`null`] and [`mod@file`] store them,
//!   the *decorators* [`record`] and [`fault`] change what a device does. A device is asked either
//!   synchronously with borrowed memory ([`Device::execute`]: no allocation, no other thread) or
//!   asynchronously with owned memory ([`Device::submit`]).
//! * [`Queue`]: what the upper layers use. It bounds the requests in flight by tags, splits long
//!   requests, coalesces flushes, counts, and stamps each request with the letters of blktrace.
//! * [`Media`]: one linear space of blocks on one device or on several, by requests to a queue or,
//!   in persistent memory, by copies.
//! * [`crash`]: every state a recorded device may be in after a power cut.
//! * [`mod@crc32c`]: the checksum of all that lies on a device.
//!
//! **Invariants.**
//! * A completed write may be lost until a flush that *started after its completion* has
//!   succeeded. [`Queue::flush`] never returns on behalf of a flush that was already under way.
//! * An error is reported to every caller it concerns, and nothing is retried.
//! * Completions run on the core of the caller that waits. No device starts a thread, but a [`null`]
//!   one that is asked to complete requests elsewhere.
//! * Cores share no line on the data path except that of a stolen tag.
//!
//! **Crash.** After a power cut, what was flushed is there; of the writes since, any subset is,
//! and a write of several blocks may be torn between blocks or 512-byte sectors.
//!
//! ```
//! use dure_block::ram::RamDevice;
//! use dure_block::{BLOCK_BYTES, Lba, Queue, QueueConfig, WriteFlags, share};
//!
//! let queue = Queue::new(share(RamDevice::new("ram0", 256)), QueueConfig::default());
//! queue.write(Lba::new(7), &[0x42; BLOCK_BYTES], WriteFlags::NONE)?;
//! queue.flush()?;
//! let mut block = [0; BLOCK_BYTES];
//! queue.read(Lba::new(7), &mut block)?;
//! assert_eq!(block, [0x42; BLOCK_BYTES]);
//! # Ok::<(), dure_block::Error>(())
//! ```

mod bio;
mod buf;
pub mod count;
pub mod crash;
pub mod crc32c;
mod device;
mod engine;
mod error;
mod media;
mod queue;
mod rank;
mod request;
pub mod ublk;

pub use bio::{Bio, Lba, Op, Segments, WriteFlags};
pub use buf::BlockBuf;
pub use device::{
    Device, DeviceInfo, Io, Poll, delay, fault, file, linear, null, nvm, overlay, ram, record,
    share,
};
pub use error::{Error, OsError, Result};
pub use media::{Media, Modules, NodeCounters, NvmModel, UnderWay};
pub use queue::{
    Counters, FlushPolicy, HW_QUEUES_MAX, HwQueue, Hybrid, LateRequest, LateWatch, Merge, Phase,
    Phases, Queue, QueueConfig, Ticket, Trace, TraceRecord, Typical, Wait,
};
pub use request::{Completion, Request, Slot, Stamps};

/// The size of a block: the unit of every address and length in this crate.
pub const BLOCK_BYTES: usize = 4096;

const _: () = assert!(BLOCK_BYTES.is_power_of_two() && BLOCK_BYTES == 4096);

/// Bytes as whole blocks; the caller has checked that they are whole.
pub(crate) fn blocks_of(bytes: usize) -> u64 {
    debug_assert!(
        bytes.is_multiple_of(BLOCK_BYTES),
        "{bytes} bytes are not whole blocks"
    );
    u64::try_from(bytes / BLOCK_BYTES).expect("a usize fits in 64 bits")
}
