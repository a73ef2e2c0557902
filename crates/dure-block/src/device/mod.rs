//! Devices: what stores blocks.
//!
//! | device | stores | use |
//! |---|---|---|
//! | [`null`] | nothing | the cost of the layers above; few tags |
//! | [`ram`] | in memory, sparse | tests, the simulator, in-memory volumes |
//! | [`mod@file`] | in an image file or block device | volumes |
//! | [`nvm`] | in persistent memory, mapped | volumes on DAX files |
//! | [`linear`] | in several devices, one after the other | volumes on several media |
//! | [`overlay`] | in memory, over a shared image | crash states |
//! | [`record`] | in the device below | crash states: keeps a log of writes and flushes |
//! | [`delay`] | in the device below | a slow device: latencies, channels, bandwidth, drives |
//! | [`fault`] | in the device below | errors, torn, lost and misdirected writes, bit rot |
//!
//! **Problem.** The layers above must run unchanged on a real disk, in memory, and on a device
//! that fails or loses writes on purpose. **Structure.** One object-safe trait with a
//! synchronous entry (borrowed memory) and an asynchronous one (owned memory); a device needs
//! only the first. A decorator owns the device below it. **Invariants.** The queue has checked
//! range and length before a device is called. **Crash.** See each device.

use std::fmt::Debug;

use dure_sync::Arc;

use crate::{BlockBuf, Lba, Op, Request, Result, Slot, WriteFlags, blocks_of};

pub mod delay;
pub mod fault;
pub mod file;
pub mod linear;
pub mod null;
pub mod nvm;
pub mod overlay;
pub mod ram;
pub mod record;

/// What a device is and can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Its name in messages.
    pub name: String,
    /// Its size in blocks.
    pub blocks: u64,
    /// Whether seeks cost time.
    pub rotational: bool,
    /// Whether completed writes can be lost before a flush. Without such a cache the queue
    /// completes flushes itself.
    pub volatile_cache: bool,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Longest request; the queue splits longer ones.
    pub max_blocks_per_request: u64,
    /// Memory aligned to this is used as it is, other memory is copied first.
    pub memory_alignment: usize,
    /// Longest aligned write that a power cut cannot tear; 0 = only a 512-byte sector is safe.
    pub atomic_write_blocks: u64,
    /// Whether a discard frees anything.
    pub discard: bool,
    /// Whether it is in memory: a read or a write is a copy, and a flush less, for which no task
    /// needs to wait.
    pub in_memory: bool,
    /// What persistent memory it is in, if it is.
    pub nvm: Option<nvm::Medium>,
}

impl DeviceInfo {
    /// A device in memory: no cache, no limits.
    #[must_use]
    pub fn in_memory(name: &str, blocks: u64) -> Self {
        Self {
            name: name.to_owned(),
            blocks,
            rotational: false,
            volatile_cache: false,
            read_only: false,
            max_blocks_per_request: u64::MAX,
            memory_alignment: 1,
            atomic_write_blocks: 1,
            discard: true,
            in_memory: true,
            nvm: None,
        }
    }
}

/// A synchronous request with borrowed memory.
#[derive(Debug)]
pub enum Io<'a> {
    /// Fills `out`, a whole number of blocks.
    Read {
        /// First block.
        lba: Lba,
        /// Where the data goes.
        out: &'a mut [u8],
    },
    /// Writes `parts` one after the other; each is a whole number of blocks.
    Write {
        /// First block.
        lba: Lba,
        /// The data.
        parts: &'a [&'a [u8]],
        /// [`WriteFlags::FUA`] or none; the queue has done the preflush.
        flags: WriteFlags,
    },
    /// Makes all writes that completed before the call durable.
    Flush,
    /// Makes blocks read as zeroes.
    Discard {
        /// First block.
        lba: Lba,
        /// Number of blocks.
        blocks: u64,
    },
}

impl Io<'_> {
    /// The operation.
    #[must_use]
    pub fn op(&self) -> Op {
        match self {
            Self::Read { .. } => Op::Read,
            Self::Write { .. } => Op::Write,
            Self::Flush => Op::Flush,
            Self::Discard { .. } => Op::Discard,
        }
    }

    /// The first block; 0 for a flush.
    #[must_use]
    pub fn lba(&self) -> Lba {
        match self {
            Self::Read { lba, .. } | Self::Write { lba, .. } | Self::Discard { lba, .. } => *lba,
            Self::Flush => Lba::new(0),
        }
    }

    /// The number of blocks.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        match self {
            Self::Read { out, .. } => blocks_of(out.len()),
            Self::Write { parts, .. } => blocks_of(parts.iter().map(|part| part.len()).sum()),
            Self::Flush => 0,
            Self::Discard { blocks, .. } => *blocks,
        }
    }
}

/// How [`Device::poll`] looks for completions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Poll {
    /// Takes completions that have arrived.
    Ready,
    /// Waits for a completion if a request submitted by this core is under way.
    One,
    /// Like `One`, and looks for completions of requests of this core only.
    Own,
    /// Takes completions of requests of this core that have arrived.
    OwnReady,
}

/// Something that stores blocks.
pub trait Device: Send + Sync + Debug {
    /// What it is and can do; never changes.
    fn info(&self) -> &DeviceInfo;

    /// Executes `io` on the caller's core and returns when it is complete.
    ///
    /// # Errors
    /// The device's error. After a failed write the content of its blocks is unknown, after a
    /// failed flush that of every block written since the last successful one.
    fn execute(&self, io: Io<'_>) -> Result<()>;

    /// Like `execute`, for a caller that would rather look for the completion than sleep: after it
    /// slept `sleep_ns`. A device that cannot be polled does as `execute`.
    ///
    /// # Errors
    /// Those of [`Device::execute`].
    fn execute_polled(&self, io: Io<'_>, sleep_ns: u64) -> Result<()> {
        let _ = sleep_ns;
        self.execute(io)
    }

    /// Memory for submitted requests, of any content: registered with the kernel, if the device does
    /// that and has such a buffer left.
    fn buffer(&self, blocks: usize) -> BlockBuf {
        BlockBuf::zeroed(blocks)
    }

    /// Takes a request; it completes through [`Request::complete`], now or later. The device may
    /// hold it back until [`Device::kick`].
    fn submit(&self, request: Request) {
        request.run_on(self);
    }

    /// Starts all requests that were held back.
    fn kick(&self) {}

    /// Runs completions on this core; returns how many.
    fn poll(&self, mode: Poll) -> usize {
        let _ = mode;
        0
    }

    /// Returns when the request of `slot`, which was submitted to this device, is complete.
    fn wait(&self, slot: &Slot) {
        slot.sleep();
    }

    /// The devices that this one is put together from, for a caller that asks each by itself; none:
    /// it is one. See [`linear`].
    fn parts(&self) -> &[linear::Part] {
        &[]
    }

    /// Like `parts`, for a caller that asks each only for the blocks before its run: a decorator,
    /// which must see all that is done to the space, can let these through.
    fn heads(&self) -> &[linear::Part] {
        self.parts()
    }

    /// Its blocks, if they are in persistent memory and nothing must come between.
    fn nvm_blocks(&self) -> Option<nvm::NvmBlocks> {
        None
    }

    /// Opens the same medium once more, at the size it has now: with `blocks` blocks, which are
    /// given to it first, if it is an image file. This device keeps its size and its claim, so it
    /// must outlive the new one. `None`: only image files and block devices can do that.
    ///
    /// # Errors
    /// [`crate::Error::Open`] with the system's error, also when a block device is to get another
    /// size.
    fn reopened(&self, blocks: Option<u64>) -> Result<Option<Arc<dyn Device>>> {
        let _ = blocks;
        Ok(None)
    }
}

impl<D: Device + ?Sized> Device for Arc<D> {
    fn info(&self) -> &DeviceInfo {
        (**self).info()
    }

    fn execute(&self, io: Io<'_>) -> Result<()> {
        (**self).execute(io)
    }

    fn execute_polled(&self, io: Io<'_>, sleep_ns: u64) -> Result<()> {
        (**self).execute_polled(io, sleep_ns)
    }

    fn buffer(&self, blocks: usize) -> BlockBuf {
        (**self).buffer(blocks)
    }

    fn submit(&self, request: Request) {
        (**self).submit(request);
    }

    fn kick(&self) {
        (**self).kick();
    }

    fn poll(&self, mode: Poll) -> usize {
        (**self).poll(mode)
    }

    fn wait(&self, slot: &Slot) {
        (**self).wait(slot);
    }

    fn parts(&self) -> &[linear::Part] {
        (**self).parts()
    }

    fn heads(&self) -> &[linear::Part] {
        (**self).heads()
    }

    fn nvm_blocks(&self) -> Option<nvm::NvmBlocks> {
        (**self).nvm_blocks()
    }

    fn reopened(&self, blocks: Option<u64>) -> Result<Option<Arc<dyn Device>>> {
        (**self).reopened(blocks)
    }
}

/// Shares a device, for example with a [`crate::Queue`]. To keep a reference of the concrete
/// type, share an `Arc` of it: `share(Arc::clone(&ram))`.
#[must_use]
pub fn share(device: impl Device + 'static) -> Arc<dyn Device> {
    let boxed: Box<dyn Device> = Box::new(device);
    Arc::from(boxed)
}
