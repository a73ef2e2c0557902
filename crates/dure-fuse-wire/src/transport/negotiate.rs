//! INIT: what the kernel offers, and what of it is taken.

use thiserror::Error;

use super::Transport;
use super::buffer::IO_BYTES;
use crate::protocol::opcode::init;
use crate::protocol::reply::InitOut;
use crate::protocol::request::InitIn;
use crate::protocol::{MAJOR, MINOR, MINOR_MIN};

/// Without these, layouts differ from those that are parsed.
const NEEDED: u32 = init::MAX_PAGES | init::SETXATTR_EXT;

/// What transports take if it is offered.
const WANTED: u32 = NEEDED | init::BIG_WRITES;

/// What a service takes of what the kernel offers: bits of [`init`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Features {
    /// A kernel that does not offer all of them is refused.
    pub needed: u32,
    /// Taken where they are offered.
    pub wanted: u32,
    /// The same of the other field of flags.
    pub wanted_more: u32,
    /// Largest READ and WRITE, in bytes: whole pages, at most [`IO_BYTES`]. The kernel splits what is
    /// larger.
    pub io_bytes: usize,
}

impl Default for Features {
    fn default() -> Self {
        Features {
            needed: 0,
            wanted: 0,
            wanted_more: 0,
            io_bytes: IO_BYTES,
        }
    }
}

const PAGE: usize = 4096;
/// Read-ahead, write-back and asynchronous direct I/O under way at most.
const BACKGROUND: u16 = 64;
/// Requests in flight at which the kernel pauses write-back.
const CONGESTED: u16 = BACKGROUND / 4 * 3;

/// What to do about an INIT.
#[derive(Debug, Clone, Copy)]
pub enum Negotiated {
    /// Answer; requests follow.
    Agreed(InitOut),
    /// The kernel speaks a later version: send this reply, and it asks again with ours.
    Later(InitOut),
}

/// The kernel's protocol is older than what is spoken here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "the kernel speaks version {major}.{minor} of the FUSE protocol, flags {flags:#x}; {MAJOR}.{MINOR_MIN} or later with flags {needed:#x} is needed (Linux 5.12)"
)]
pub struct TooOld {
    major: u32,
    minor: u32,
    flags: u32,
    needed: u32,
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
    (offer, more): (&InitIn, u32),
    features: &Features,
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
    let needed = NEEDED | features.needed;
    if (major, minor) < (MAJOR, MINOR_MIN) || flags & needed != needed {
        return Err(TooOld {
            major,
            minor,
            flags,
            needed,
        });
    }
    let wanted = WANTED | needed | features.wanted;
    let rings = match transport {
        Transport::Device => 0,
        Transport::Uring => init::EXT_OVER_IO_URING,
    };
    let flags2 = match flags & init::EXT {
        0 => 0,
        _ => features.wanted_more & more | rings,
    };
    let ext = if flags2 == 0 { 0 } else { init::EXT };
    let io_bytes = features.io_bytes.clamp(PAGE, IO_BYTES);
    Ok(Negotiated::Agreed(InitOut {
        major: MAJOR,
        minor: MINOR.min(minor),
        max_readahead: offer.max_readahead,
        flags: wanted & flags | ext,
        flags2,
        max_background: BACKGROUND,
        congestion: CONGESTED,
        max_write: u32::try_from(io_bytes).expect("a megabyte fits in 32 bits"),
        time_granularity: 1,
        max_pages: u16::try_from(io_bytes / PAGE).expect("its pages fit in 16 bits"),
        ..InitOut::default()
    }))
}
