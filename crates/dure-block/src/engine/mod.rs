//! Engines: how requests reach the operating system.
//!
//! | engine | one synchronous 4 KiB request | several in flight |
//! |---|---|---|
//! | `psync` | one system call | one after the other |
//! | `pvsync2` | the same, and the caller polls the device (`RWF_HIPRI`) | one after the other |
//! | `libaio` | as `psync` | a context per core |
//! | `io_uring` | as `psync`: a ring costs more than the call it replaces | a ring per core |
//!
//! **Problem.** No engine is best for everything. **Structure.** Synchronous requests always go
//! through `psync`; submitted ones through a `ring` over a [`Kernel`] interface where there is one.
//! **Invariants.** A request is complete when all its bytes are done; the engines continue after
//! partial transfers. **Crash.** Flush is `fdatasync`; FUA is `RWF_DSYNC`.

use dure_sync::Arc;
use rustix::fd::OwnedFd;

use crate::{BlockBuf, Error, Lba, Op, OsError};

mod aio;
mod flight;
pub(crate) mod psync;
pub(crate) mod ring;
pub(crate) mod uring;

pub(crate) use aio::Aio;
use aio::Iocb;
pub(crate) use flight::Flight;
use ring::{Arrived, Channel, Refused, Take};
pub(crate) use uring::Uring;

/// An open file or block device, as the engines need it.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) fd: OwnedFd,
    pub(crate) name: Arc<str>,
}

impl Target {
    pub(crate) fn error(&self, op: Op, lba: Lba, blocks: u64, os: OsError) -> Error {
        Error::Io {
            device: self.name.to_string(),
            op,
            lba,
            blocks,
            os,
        }
    }
}

/// An interface of the kernel to requests in flight.
#[expect(
    clippy::large_enum_variant,
    reason = "there is one for each core, and each request goes through it"
)]
pub(crate) enum Kernel {
    Uring(Uring),
    Aio(Aio),
}

impl Kernel {
    /// Reads the first block, to see whether the kernel polls this device.
    pub(crate) fn try_read(&self, block: BlockBuf) -> Result<(), OsError> {
        match self {
            Self::Uring(uring) => uring.try_read(block),
            Self::Aio(_) => Ok(()),
        }
    }
}

impl Channel for Kernel {
    type Flight = Flight;
    /// The entries of libaio; io_uring has none on this side.
    type Entries = Vec<Iocb>;

    fn push(&self, entries: &mut Vec<Iocb>, index: usize, flight: &mut Flight) -> bool {
        match self {
            Self::Uring(uring) => uring.push(&mut (), index, flight),
            Self::Aio(aio) => aio.push(entries, index, flight),
        }
    }

    fn pass(&self, entries: &mut Vec<Iocb>, pushed: usize) -> Result<usize, Refused> {
        match self {
            Self::Uring(uring) => uring.pass(&mut (), pushed),
            Self::Aio(aio) => aio.pass(entries, pushed),
        }
    }

    fn take(&self, take: Take, arrived: &mut [Arrived]) -> Result<usize, Refused> {
        match self {
            Self::Uring(uring) => uring.take(take, arrived),
            Self::Aio(aio) => aio.take(take, arrived),
        }
    }

    fn dispatched(flight: &mut Flight) {
        flight.dispatched();
    }

    fn finish(&self, flight: Flight, code: i32) {
        match self {
            Self::Uring(uring) => uring.finish(flight, code),
            Self::Aio(aio) => aio.finish(flight, code),
        }
    }

    fn abandon(&self, flight: Flight, code: i32) {
        match self {
            Self::Uring(uring) => uring.abandon(flight, code),
            Self::Aio(aio) => aio.abandon(flight, code),
        }
    }
}
