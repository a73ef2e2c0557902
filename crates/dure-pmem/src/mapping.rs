//! The memory of a region.
//!
//! **Problem.** Only a mapping with `MAP_SYNC` promises that what the processor has made durable
//! stays reachable: the file system has made the file's own blocks durable before it lets them be
//! written. **Structure.** A [`Mapping`] of a file, tried with `MAP_SYNC` first, or of nothing.
//! **Invariants.** The memory is mapped until the value is dropped, and is never borrowed: it is
//! accessed by address, through `access`. **On a crash** see the crate.

use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use crate::{Error, Result};

/// Whether a region may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Writes are refused.
    Read,
    /// Both.
    ReadWrite,
}

/// What a region must be on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Persistent memory, mapped directly.
    Direct,
    /// Any memory will do: where it is not persistent memory, NVM is emulated.
    Emulation,
}

/// What a region is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Medium {
    /// Persistent memory.
    Direct,
    /// Other memory. What is durable there survives the end of the process at most.
    Emulated,
}

/// Mapped memory.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
    pub(crate) access: Access,
    pub(crate) medium: Medium,
}

// SAFETY: the memory belongs to the mapping, and is accessed by address only, from any thread.
unsafe impl Send for Mapping {}
// SAFETY: as above; accesses at once are allowed (`crate::access`).
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `bytes` bytes of a file.
    ///
    /// # Errors
    /// [`Error::NotDirect`], or that of the system.
    pub(crate) fn of_file(
        file: BorrowedFd<'_>,
        bytes: usize,
        access: Access,
        need: Need,
    ) -> Result<Mapping> {
        let protection = match access {
            Access::Read => ProtFlags::READ,
            Access::ReadWrite => ProtFlags::READ | ProtFlags::WRITE,
        };
        let map = |flags| {
            // SAFETY: a new mapping at a place that the kernel chooses.
            unsafe { mmap(ptr::null_mut(), bytes, protection, flags, file, 0) }
        };
        let direct = map(MapFlags::SHARED_VALIDATE | MapFlags::SYNC);
        match (direct, need) {
            (Ok(base), _) => Ok(Mapping::new(base, bytes, (access, Medium::Direct))),
            (Err(Errno::OPNOTSUPP | Errno::INVAL), Need::Direct) => Err(Error::NotDirect),
            (Err(Errno::OPNOTSUPP | Errno::INVAL), Need::Emulation) => {
                let base = map(MapFlags::SHARED)?;
                Ok(Mapping::new(base, bytes, (access, Medium::Emulated)))
            }
            (Err(errno), _) => Err(errno.into()),
        }
    }

    /// Memory of zeroes without a file.
    ///
    /// # Errors
    /// That of the system.
    pub(crate) fn anonymous(bytes: usize) -> Result<Mapping> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at a place that the kernel chooses.
        let base = unsafe { mmap_anonymous(ptr::null_mut(), bytes, protection, flags) };
        Ok(Mapping::new(
            base?,
            bytes,
            (Access::ReadWrite, Medium::Emulated),
        ))
    }

    fn new(base: *mut std::ffi::c_void, bytes: usize, of: (Access, Medium)) -> Mapping {
        let (access, medium) = of;
        let base = NonNull::new(base.cast()).expect("the kernel maps nothing at address 0");
        Mapping {
            base,
            bytes,
            access,
            medium,
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The address of byte `at`, which is within the mapping.
    pub(crate) fn address(&self, at: usize) -> *mut u8 {
        assert!(at <= self.bytes, "byte {at} of {}", self.bytes);
        self.base.as_ptr().wrapping_add(at)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`'s callers with this length, and no code has its address any more.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
        debug_assert_eq!(unmapped, Ok(()), "a mapping of ours can be unmapped");
    }
}
