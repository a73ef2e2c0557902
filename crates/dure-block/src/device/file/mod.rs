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
//! Measured (docs/performance/results.md): a single synchronous 4 KiB request
//! costs less by system call than by ring, many requests in flight cost less by ring; so the
//! engine is chosen per call.

mod claim;
mod open;
#[cfg(test)]
mod tests;

use rustix::fd::{AsFd, BorrowedFd};

use dure_sync::{CoreId, Mutex, OnceLock, PerCore, core_count, current_core};

pub use open::{
    Allocation, Direct, Engine, OpenOptions, Sharing, create_image, open_file, resize_image,
};

use claim::Claim;
pub use claim::DeviceClaim;

use crate::engine::uring::Ring;
use crate::engine::{Target, psync};
use crate::rank::BOUNCE_RANK;
use crate::{BLOCK_BYTES, BlockBuf, Device, DeviceInfo, Io, Lba, Op, OsError, Poll, Request};
use crate::{Result, Slot, WriteFlags, blocks_of};

/// Size of the aligned copy of each core; longer requests go through it in pieces.
const BOUNCE_BLOCKS: usize = 64;

/// An image file or block device.
#[derive(Debug)]
pub struct FileDevice {
    info: DeviceInfo,
    target: Target,
    /// Excludes other openers.
    _claim: Claim,
    /// The ring of each core, created at first use; `None`: the kernel refused one. No slots at all
    /// if the engine is psync.
    rings: Option<PerCore<OnceLock<Option<Ring>>>>,
    /// [231] Memory for misaligned requests; held over the I/O of one piece.
    bounce: PerCore<Mutex<BOUNCE_RANK, BlockBuf>>,
}

impl FileDevice {
    fn new(info: DeviceInfo, target: Target, claim: Claim, engine: Engine) -> Self {
        let rings =
            (engine != Engine::Psync).then(|| PerCore::new(core_count(), |_| OnceLock::new()));
        let bounce = PerCore::new(core_count(), |_| Mutex::new(BlockBuf::default()));
        Self {
            info,
            target,
            _claim: claim,
            rings,
            bounce,
        }
    }

    /// The open file or block device.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.target.fd.as_fd()
    }

    /// The same device with another number of blocks.
    fn with_blocks(mut self, blocks: u64) -> Self {
        self.info.blocks = blocks;
        self
    }

    /// Whether submitted requests go through rings.
    #[must_use]
    pub fn uses_rings(&self) -> bool {
        self.ring(current_core()).is_some()
    }

    fn ring(&self, core: CoreId) -> Option<&Ring> {
        let slot = self.rings.as_ref()?.get(core);
        slot.get_or_init(|| Ring::new().ok()).as_ref()
    }

    fn existing_rings(&self) -> impl Iterator<Item = &Ring> {
        let slots = self.rings.iter().flat_map(|rings| rings.iter());
        slots.filter_map(|slot| slot.get()?.as_ref())
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

    #[inline]
    fn execute(&self, io: Io<'_>) -> Result<()> {
        let (op, lba, blocks) = (io.op(), io.lba(), io.blocks());
        let result = if self.memory_is_aligned(&io) {
            psync::execute(&self.target, io)
        } else {
            self.execute_copied(io)
        };
        result.map_err(|os| self.target.error(op, lba, blocks, os))
    }

    fn submit(&self, request: Request) {
        let core = current_core();
        match self.ring(core) {
            Some(ring) if request.bio().op() != Op::Discard => {
                request.set_hint(u32::from(core.number()));
                ring.submit(&self.target, request);
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
        if mode == Poll::Own {
            return own.map_or(0, |ring| ring.poll(&self.target, Poll::One));
        }
        let mut count = own.map_or(0, |ring| ring.poll(&self.target, Poll::Ready));
        if count == 0 {
            let rings = self.existing_rings();
            count = rings.map(|ring| ring.poll(&self.target, Poll::Ready)).sum();
        }
        match own {
            Some(ring) if count == 0 && mode == Poll::One => ring.poll(&self.target, Poll::One),
            _ => count,
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
        ring.wait(&self.target, slot);
    }
}

impl Drop for FileDevice {
    fn drop(&mut self) {
        // The kernel must not write into freed memory of requests that no task waited for.
        self.existing_rings()
            .for_each(|ring| ring.drain(&self.target));
    }
}
