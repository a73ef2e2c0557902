//! The transports: requests from `/dev/fuse` or from rings to the service, replies back.
//!
//! **Problem.** Requests of many cores come through one device; each should be answered by any free
//! worker, without a copy and without contention with other cores. **Structure.** [`device`] reads
//! and writes; [`buffer`] is the memory; [`negotiate`] the first request;
//! [`worker`] the loop of a thread, [`crew`] how many threads there are; [`uring`] is the
//! transport by rings, which also has `/dev/fuse`. **Invariants.** A worker has one request at a
//! time and answers it before it takes the next. Nothing the kernel sends makes a worker panic; if
//! one panics all the same, the process ends, and with it the mount, rather than leaving a caller
//! without an answer for ever. **Crash.** The kernel answers ENOTCONN from then on.

pub mod buffer;
pub mod crew;
pub mod device;
mod inherited;
pub mod negotiate;
pub mod uring;
pub mod worker;

/// How requests come from the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Transport {
    /// Through `/dev/fuse`.
    #[default]
    Device,
    /// Through a ring of io_uring for each core, where the kernel offers that; else through
    /// `/dev/fuse`.
    Uring,
}

impl Transport {
    /// One word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Transport::Device => "device",
            Transport::Uring => "uring",
        }
    }
}

#[cfg(test)]
mod tests;
