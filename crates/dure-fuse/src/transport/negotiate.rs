//! INIT: what the kernel offers, and what of it dure takes.

use thiserror::Error;

use super::buffer::IO_BYTES;
use crate::protocol::opcode::init;
use crate::protocol::reply::InitOut;
use crate::protocol::request::InitIn;
use crate::protocol::{MAJOR, MINOR, MINOR_MIN};

/// Everything dure can use. Locks are left to the kernel (one mount is all who can lock), as is
/// dropping set-id bits at a write; splicing buys nothing for data that is checked by the processor
/// anyway.
const WANTED: u32 = init::ASYNC_READ
    | init::BIG_WRITES
    | init::DONT_MASK
    | init::DO_READDIRPLUS
    | init::READDIRPLUS_AUTO
    | init::ASYNC_DIO
    | init::WRITEBACK_CACHE
    | init::NO_OPEN_SUPPORT
    | init::PARALLEL_DIROPS
    | init::POSIX_ACL
    | init::MAX_PAGES
    | init::CACHE_SYMLINKS;

const PAGE: usize = 4096;
/// Pages of a request at most, when the kernel asks for no number.
const PAGES_OF_OLD: usize = 32;
/// Read-ahead, write-back and asynchronous direct I/O under way at most.
const BACKGROUND: u16 = 64;
/// From so many on the kernel lets write-back rest.
const CONGESTED: u16 = BACKGROUND / 4 * 3;

/// What to do about an INIT.
#[derive(Debug, Clone, Copy)]
pub enum Negotiated {
    /// Answer; requests follow.
    Agreed(InitOut),
    /// The kernel speaks a later version: answer, and it asks again with ours.
    Later(InitOut),
}

/// The kernel's protocol is older than what dure speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "the kernel speaks version {major}.{minor} of the FUSE protocol; {MAJOR}.{MINOR_MIN} or later is needed (Linux 3.15)"
)]
pub struct TooOld {
    major: u32,
    minor: u32,
}

/// Decides on an INIT.
///
/// # Errors
/// [`TooOld`].
pub fn negotiate(offer: &InitIn) -> Result<Negotiated, TooOld> {
    let &InitIn { major, minor, .. } = offer;
    if major > MAJOR {
        return Ok(Negotiated::Later(InitOut {
            major: MAJOR,
            minor: MINOR,
            ..InitOut::default()
        }));
    }
    if (major, minor) < (MAJOR, MINOR_MIN) {
        return Err(TooOld { major, minor });
    }
    let flags = WANTED & offer.flags;
    let pages = if flags & init::MAX_PAGES == 0 {
        PAGES_OF_OLD
    } else {
        IO_BYTES / PAGE
    };
    Ok(Negotiated::Agreed(InitOut {
        major: MAJOR,
        minor: MINOR.min(minor),
        max_readahead: offer.max_readahead,
        flags,
        max_background: BACKGROUND,
        congestion: CONGESTED,
        max_write: u32::try_from(pages * PAGE).expect("a megabyte"),
        time_granularity: 1,
        max_pages: u16::try_from(pages).expect("a few hundred"),
        ..InitOut::default()
    }))
}
