//! INIT: what the kernel offers, and what of it dure takes.

use thiserror::Error;

use super::Transport;
use super::buffer::IO_BYTES;
use crate::protocol::opcode::init;
use crate::protocol::reply::InitOut;
use crate::protocol::request::InitIn;
use crate::protocol::{MAJOR, MINOR, MINOR_MIN};

/// Offered by every kernel that is served. Clearing set-id bits is the server's task: otherwise the
/// kernel would ask for an attribute before each write(2).
const NEEDED: u32 = init::MAX_PAGES | init::HANDLE_KILLPRIV_V2 | init::SETXATTR_EXT;

/// What dure takes if it is offered. Locks are left to the kernel, as every caller comes through
/// this one mount; splicing buys nothing for data that the processor checksums anyway. Not
/// `READDIRPLUS_AUTO`: the kernel would ask for the attributes of a listing's first part only, and
/// then for those of each name beyond; it keeps listings, so it asks for each once. Not
/// `ASYNC_DIO`: a buffered read may put the old content of a page in the kernel's cache while an
/// asynchronous direct write of it is in flight, and the kernel does not invalidate it.
const WANTED: u32 = NEEDED
    | init::ASYNC_READ
    | init::BIG_WRITES
    | init::DONT_MASK
    | init::DO_READDIRPLUS
    | init::NO_OPEN_SUPPORT
    | init::NO_OPENDIR_SUPPORT
    | init::PARALLEL_DIROPS
    | init::POSIX_ACL
    | init::CACHE_SYMLINKS;

const PAGE: usize = 4096;
/// Pages of a request at most.
const PAGES: usize = IO_BYTES / PAGE;
/// Read-ahead, write-back and asynchronous direct I/O under way at most.
const BACKGROUND: u16 = 64;
/// Requests in flight at which the kernel pauses write-back.
const CONGESTED: u16 = BACKGROUND / 4 * 3;

/// Which cache a write(2) fills before it returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WriteCache {
    /// In dure's cache: each write(2) is a WRITE, which is answered before it returns. So write(2)
    /// says ENOSPC, and what it took is visible to every later request.
    #[default]
    Through,
    /// In the kernel's cache, which sends WRITEs later. Then write(2) cannot report a lack of
    /// space, and the server does not see data, sizes and times that wait there.
    Back,
}

/// What to do about an INIT.
#[derive(Debug, Clone, Copy)]
pub enum Negotiated {
    /// Answer; requests follow.
    Agreed(InitOut),
    /// The kernel speaks a later version: send this reply, and it asks again with ours.
    Later(InitOut),
}

/// The kernel's protocol is older than what dure speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "the kernel speaks version {major}.{minor} of the FUSE protocol, flags {flags:#x}; {MAJOR}.{MINOR_MIN} or later with flags {NEEDED:#x} is needed (Linux 5.12)"
)]
pub struct TooOld {
    major: u32,
    minor: u32,
    flags: u32,
}

/// Whether the kernel offers to send requests through rings; `more` are its further flags.
#[must_use]
pub fn offers_rings(offer: &InitIn, more: u32) -> bool {
    offer.flags & init::EXT != 0 && more & init::EXT_OVER_IO_URING != 0
}

/// Decides on an INIT. With `Transport::Uring` the kernel, which has to offer it, waits until all
/// rings are registered before it sends anything else.
///
/// # Errors
/// [`TooOld`].
pub fn negotiate(
    offer: &InitIn,
    cache: WriteCache,
    transport: Transport,
) -> Result<Negotiated, TooOld> {
    let &InitIn {
        major,
        minor,
        flags,
        ..
    } = offer;
    if major > MAJOR {
        return Ok(Negotiated::Later(InitOut {
            major: MAJOR,
            minor: MINOR,
            ..InitOut::default()
        }));
    }
    if (major, minor) < (MAJOR, MINOR_MIN) || flags & NEEDED != NEEDED {
        return Err(TooOld {
            major,
            minor,
            flags,
        });
    }
    let wanted = match cache {
        WriteCache::Through => WANTED,
        WriteCache::Back => WANTED | init::WRITEBACK_CACHE,
    };
    let (ext, flags2) = match transport {
        Transport::Device => (0, 0),
        Transport::Uring => (init::EXT, init::EXT_OVER_IO_URING),
    };
    Ok(Negotiated::Agreed(InitOut {
        major: MAJOR,
        minor: MINOR.min(minor),
        max_readahead: offer.max_readahead,
        flags: wanted & flags | ext,
        flags2,
        max_background: BACKGROUND,
        congestion: CONGESTED,
        max_write: u32::try_from(IO_BYTES).expect("a request of a megabyte fits in 32 bits"),
        time_granularity: 1,
        max_pages: u16::try_from(PAGES).expect("the pages of a request fit in 16 bits"),
        ..InitOut::default()
    }))
}
