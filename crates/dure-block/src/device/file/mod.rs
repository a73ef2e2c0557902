//! Image files and block devices.
//!
//! **Problem.** Real media: open them safely, bypass the page cache, and really flush.
//! **Structure.** [`open_file`] checks what it opens and excludes other openers; synchronous
//! requests are plain system calls, submitted ones go through a ring per core
//! ([`crate::Queue::submit`]). **Invariants.** A block device is open `O_EXCL`, an image file is
//! locked, under whatever name (`claim`), as long as the device lives (unless the options say
//! otherwise). Direct I/O never gets misaligned memory: that goes through an aligned copy.
//! **Crash.** Completed writes may be lost until a flush (`fdatasync`), whichever cache they were
//! in.
//!
//! Measured (docs/performance/history/notes-device.md): a single synchronous 4 KiB request
//! costs less by system call than by ring, many requests in flight cost less by ring; so the
//! engine is chosen per call.

mod claim;
#[cfg(test)]
pub(crate) mod loop_device;
mod open;
#[cfg(test)]
mod tests;

use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{FileType, fstat};

use dure_sync::atomic::{AtomicBool, Ordering};
use dure_sync::{Arc, CoreId, Mutex, OnceLock, PerCore, core_count, current_core};

pub use open::{
    Allocation, Direct, Engine, OpenOptions, Sharing, create_image, open_file, resize_image,
};

use claim::Claim;
pub use claim::DeviceClaim;

use crate::buf::Pool;
use crate::engine::ring::{Ring, Take};
pub use crate::engine::uring::{Buffers, RingOptions};
use crate::engine::{Aio, Flight, Kernel, Target, Uring, psync};
use crate::rank::BOUNCE_RANK;
use crate::{BLOCK_BYTES, BlockBuf, Device, DeviceInfo, Io, Lba, Op, OsError, Poll, Request};
use crate::{Result, Slot, WriteFlags, blocks_of};

/// Size of the aligned copy of each core; longer requests go through it in pieces.
const BOUNCE_BLOCKS: usize = 64;

/// An image file or block device.
#[derive(Debug)]
pub struct FileDevice {
    info: DeviceInfo,
    target: Arc<Target>,
    /// Excludes other openers.
    _claim: Claim,
    engine: Engine,
    /// Whether the driver has queues that can be polled.
    is_polled: bool,
    /// Set when the kernel has refused a polled request. Relaxed: it only saves a call.
    refuses_polling: AtomicBool,
    /// Buffers that the rings know.
    pool: Option<Arc<Pool>>,
    /// The ring of each core, created at first use; `None`: the kernel refused one. No slots at all
    /// if the engine has no rings.
    rings: Option<PerCore<OnceLock<Option<Ring<Kernel>>>>>,
    /// [231] Memory for misaligned requests; held over the I/O of one piece.
    bounce: PerCore<Mutex<BOUNCE_RANK, BlockBuf>>,
}

impl FileDevice {
    fn new(
        info: DeviceInfo,
        target: Target,
        claim: Claim,
        engine: Engine,
        is_polled: bool,
    ) -> Self {
        let has_rings = !matches!(engine, Engine::Psync | Engine::Pvsync2);
        let rings = has_rings.then(|| PerCore::new(core_count(), |_| OnceLock::new()));
        let bounce = PerCore::new(core_count(), |_| Mutex::new(BlockBuf::default()));
        let pool = match engine {
            Engine::Uring(options) => options.registered,
            _ => None,
        };
        let pool = pool.map(|buffers| {
            let blocks = usize::try_from(buffers.blocks).expect("32 bits fit in a usize");
            Arc::new(Pool::new(buffers.count, blocks))
        });
        Self {
            info,
            target: Arc::new(target),
            _claim: claim,
            engine,
            is_polled,
            refuses_polling: AtomicBool::new(false),
            pool,
            rings,
            bounce,
        }
    }

    /// Whether the kernel has what the engine needs, for this file.
    fn try_engine(&self) -> std::result::Result<(), OsError> {
        let mut block = BlockBuf::zeroed(1);
        let has_blocks = self.info.blocks > 0;
        let first = Io::Read {
            lba: Lba::new(0),
            out: block.as_mut_slice(),
        };
        match self.engine {
            Engine::Auto | Engine::Psync => Ok(()),
            Engine::Pvsync2 if has_blocks => psync::execute_polled(&self.target, first),
            Engine::Pvsync2 => Ok(()),
            Engine::Libaio | Engine::Uring(_) => {
                let ring = Ring::new(self.kernel()?);
                let polls = matches!(self.engine, Engine::Uring(options) if options.iopoll);
                match polls && has_blocks {
                    true => ring.channel().try_read(block),
                    false => Ok(()),
                }
            }
        }
    }

    /// A new interface to the kernel.
    fn kernel(&self) -> std::result::Result<Kernel, OsError> {
        let target = Arc::clone(&self.target);
        match self.engine {
            Engine::Libaio => Aio::new(target).map(Kernel::Aio),
            Engine::Uring(options) => {
                Uring::new(target, options, self.pool.as_deref()).map(Kernel::Uring)
            }
            _ => Uring::new(target, RingOptions::default(), None).map(Kernel::Uring),
        }
    }

    /// The open file or block device.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.target.fd.as_fd()
    }

    /// Whether it is a block device, not a file.
    pub(super) fn is_block_device(&self) -> bool {
        fstat(&self.target.fd)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice)
    }

    /// Changes the device's number of blocks.
    fn with_blocks(mut self, blocks: u64) -> Self {
        self.info.blocks = blocks;
        self
    }

    /// Whether submitted requests go through rings.
    #[must_use]
    pub fn uses_rings(&self) -> bool {
        self.ring(current_core()).is_some()
    }

    /// Makes the rings of all cores now. Those that are made at first use are open in the process that
    /// uses them first, which may share its memory, but not its descriptors, with others.
    #[must_use]
    pub fn with_all_rings(self) -> FileDevice {
        for slot in self.rings.iter().flat_map(|rings| rings.iter()) {
            self.ring_in(slot);
        }
        self
    }

    /// Whether the driver has queues that can be polled: else a polling caller waits for the
    /// interrupt of the device all the same.
    #[must_use]
    pub fn is_polled(&self) -> bool {
        self.is_polled
    }

    fn ring(&self, core: CoreId) -> Option<&Ring<Kernel>> {
        self.ring_in(self.rings.as_ref()?.get(core))
    }

    fn ring_in<'a>(&self, slot: &'a OnceLock<Option<Ring<Kernel>>>) -> Option<&'a Ring<Kernel>> {
        slot.get_or_init(|| self.kernel().ok().map(Ring::new))
            .as_ref()
    }

    fn existing_rings(&self) -> impl Iterator<Item = &Ring<Kernel>> {
        let slots = self.rings.iter().flat_map(|rings| rings.iter());
        slots.filter_map(|slot| slot.get()?.as_ref())
    }

    /// Whether a ring takes requests of this kind: none discards, and one that polls has only reads
    /// and writes.
    fn rings_take(&self, op: Op) -> bool {
        match op {
            Op::Read | Op::Write => true,
            Op::Flush => !matches!(self.engine, Engine::Uring(options) if options.iopoll),
            Op::Discard => false,
        }
    }

    fn is_aligned(&self, memory: &[u8]) -> bool {
        memory
            .as_ptr()
            .addr()
            .is_multiple_of(self.info.memory_alignment)
    }

    fn memory_is_aligned(&self, io: &Io<'_>) -> bool {
        match io {
            Io::Read { out, .. } => self.is_aligned(out),
            Io::Write { parts, .. } => parts.iter().all(|part| self.is_aligned(part)),
            Io::Flush | Io::Discard { .. } => true,
        }
    }

    /// Executes a request whose memory is not aligned, in pieces through an aligned copy.
    #[cold]
    fn execute_copied(&self, io: Io<'_>) -> std::result::Result<(), OsError> {
        let mut bounce = self.bounce.local().lock();
        bounce.resize(BOUNCE_BLOCKS);
        let pieces = BOUNCE_BLOCKS * BLOCK_BYTES;
        match io {
            Io::Read { mut lba, out } => {
                for piece in out.chunks_mut(pieces) {
                    let memory = &mut bounce.as_mut_slice()[..piece.len()];
                    psync::read(&self.target, psync::byte_offset(lba), memory)?;
                    piece.copy_from_slice(memory);
                    lba = lba.offset(blocks_of(piece.len()));
                }
            }
            Io::Write {
                mut lba,
                parts,
                flags,
            } => {
                for piece in parts.iter().flat_map(|part| part.chunks(pieces)) {
                    let memory = &mut bounce.as_mut_slice()[..piece.len()];
                    memory.copy_from_slice(piece);
                    self.write_piece(lba, memory, flags)?;
                    lba = lba.offset(blocks_of(piece.len()));
                }
            }
            Io::Flush | Io::Discard { .. } => {
                unreachable!("a flush or discard has no memory to transfer")
            }
        }
        Ok(())
    }

    /// Executes a request without polling.
    #[inline]
    fn call(&self, io: Io<'_>) -> Result<()> {
        let (op, lba, blocks) = (io.op(), io.lba(), io.blocks());
        let result = if self.memory_is_aligned(&io) {
            psync::execute(&self.target, io)
        } else {
            self.execute_copied(io)
        };
        result.map_err(|os| self.target.error(op, lba, blocks, os))
    }

    /// Executes a request without polling, and makes all later ones do so.
    #[cold]
    fn call_unpolled(&self, io: Io<'_>) -> Result<()> {
        self.refuses_polling.store(true, Ordering::Relaxed);
        self.call(io)
    }

    fn write_piece(
        &self,
        lba: Lba,
        piece: &[u8],
        flags: WriteFlags,
    ) -> std::result::Result<(), OsError> {
        psync::write(&self.target, psync::byte_offset(lba), piece, flags)
    }
}

impl Device for FileDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn reopened(&self, blocks: Option<u64>) -> Result<Option<Arc<dyn Device>>> {
        Ok(Some(crate::share(open::reopen(self, blocks)?)))
    }

    #[inline]
    fn execute(&self, io: Io<'_>) -> Result<()> {
        if self.engine == Engine::Pvsync2 {
            return self.execute_polled(io, 0);
        }
        self.call(io)
    }

    /// The caller does not sleep first: the call cannot be begun and waited for apart.
    fn execute_polled(&self, io: Io<'_>, _sleep_ns: u64) -> Result<()> {
        if self.refuses_polling.load(Ordering::Relaxed) || !self.memory_is_aligned(&io) {
            return self.call(io);
        }
        let (op, lba, blocks) = (io.op(), io.lba(), io.blocks());
        let refused = OsError::new(libc::EOPNOTSUPP);
        // The memory of the request is wanted again if the kernel refuses.
        let result = match io {
            Io::Read { lba, out } => {
                let polled = Io::Read {
                    lba,
                    out: &mut *out,
                };
                match psync::execute_polled(&self.target, polled) {
                    Err(os) if os == refused => return self.call_unpolled(Io::Read { lba, out }),
                    result => result,
                }
            }
            Io::Write { lba, parts, flags } => {
                let io = || Io::Write { lba, parts, flags };
                match psync::execute_polled(&self.target, io()) {
                    Err(os) if os == refused => return self.call_unpolled(io()),
                    result => result,
                }
            }
            Io::Flush | Io::Discard { .. } => psync::execute(&self.target, io),
        };
        result.map_err(|os| self.target.error(op, lba, blocks, os))
    }

    fn buffer(&self, blocks: usize) -> BlockBuf {
        let registered = self.pool.as_ref().and_then(|pool| Pool::take(pool, blocks));
        registered.unwrap_or_else(|| BlockBuf::zeroed(blocks))
    }

    fn submit(&self, request: Request) {
        let core = current_core();
        match self.ring(core) {
            Some(ring) if self.rings_take(request.bio().op()) => {
                request.set_hint(u32::from(core.number()));
                ring.submit(Flight::new(request));
            }
            _ => request.run_on(self),
        }
    }

    fn kick(&self) {
        // A task that has migrated since `submit` left its requests in the ring of another core:
        // they start at the latest when it waits.
        if let Some(ring) = self.ring(current_core()) {
            ring.kick();
        }
    }

    fn poll(&self, mode: Poll) -> usize {
        let own = self.ring(current_core());
        let mine = |take| own.map_or(0, |ring| ring.poll(take));
        match mode {
            Poll::Own => mine(Take::One),
            Poll::OwnReady => mine(Take::Ready),
            Poll::Ready | Poll::One => {
                let mut count = mine(Take::Ready);
                if count == 0 {
                    let rings = self.existing_rings();
                    count = rings.map(|ring| ring.poll(Take::Ready)).sum();
                }
                match mode {
                    Poll::One if count == 0 => mine(Take::One),
                    _ => count,
                }
            }
        }
    }

    fn wait(&self, slot: &Slot) {
        if slot.is_done() {
            return;
        }
        let core = CoreId::new(u16::try_from(slot.hint()).expect("the hint is a core number"));
        let ring = self
            .ring(core)
            .expect("the request was submitted to this ring");
        ring.wait(|| slot.is_done());
    }
}

impl Drop for FileDevice {
    fn drop(&mut self) {
        // The kernel must not write into freed memory of requests that no task waited for.
        self.existing_rings().for_each(Ring::drain);
    }
}
