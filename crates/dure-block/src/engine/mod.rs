//! Engines: how requests reach the operating system.
//!
//! | engine | one synchronous 4 KiB request | several in flight |
//! |---|---|---|
//! | `psync` | one system call | one after the other |
//! | `uring` | a ring costs more than the call it replaces | one ring per core |
//!
//! **Problem.** No engine is best for everything. **Structure.** Synchronous requests always go
//! through `psync`; submitted ones through `uring` where there is one. **Invariants.** A request
//! is complete when all its bytes are done; the engines continue after partial transfers.
//! **Crash.** Flush is `fdatasync`; FUA is `RWF_DSYNC`.

use dure_sync::Arc;
use rustix::fd::OwnedFd;

use crate::{Error, Lba, Op, OsError};

pub(crate) mod psync;
pub(crate) mod uring;

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
