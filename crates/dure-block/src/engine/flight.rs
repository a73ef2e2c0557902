//! A submitted request while the kernel has it.
//!
//! **Problem.** The kernel reads and writes memory of a request until it completes it, and may do
//! a part of it only. **Structure.** [`Flight`] owns the request and the vectors that name its
//! memory; `finish` completes it with what the kernel said. **Invariants.** Memory stays where it is
//! as long as the flight lives. A transfer that was cut short is continued by plain system calls.
//! **Crash.** See [`crate::engine`].

use std::mem;

use dure_sync::Arc;

use crate::engine::{Target, psync};
use crate::{BLOCK_BYTES, BlockBuf, Lba, Op, OsError, Request, Result, WriteFlags};

/// The memory of a request of several segments, for the kernel.
struct IoVectors(Vec<libc::iovec>);

// JUSTIFICATION: `iovec` holds raw pointers, which keeps the table of requests from being shared.
// SAFETY: the pointers are only stored here for the kernel; no code reads through them.
unsafe impl Send for IoVectors {}

/// Where the data of a request is.
pub(super) enum Memory {
    /// A flush has none.
    None,
    /// One piece: address, bytes, and its number if it was registered.
    One(*mut u8, u32, Option<u16>),
    /// Several: address and number of the vectors, which the flight owns.
    Several(*mut libc::iovec, u32),
}

/// What the kernel is asked for.
pub(super) struct Transfer {
    pub(super) op: Op,
    pub(super) offset: u64,
    pub(super) memory: Memory,
    /// Flags of the call, as of `pwritev2`.
    pub(super) flags: i32,
}

/// A request that the kernel has.
pub(crate) struct Flight {
    request: Request,
    bytes: usize,
    /// Empty if there is one segment: the kernel need not read a vector of one.
    vectors: IoVectors,
}

impl Flight {
    pub(crate) fn new(request: Request) -> Self {
        Self {
            request,
            bytes: 0,
            vectors: IoVectors(Vec::new()),
        }
    }

    pub(super) fn dispatched(&mut self) {
        self.request.dispatched();
    }

    /// What to ask the kernel for. What it points to lives as long as this flight.
    pub(super) fn transfer(&mut self) -> Transfer {
        let (op, lba, flags) = {
            let bio = self.request.bio();
            (bio.op(), bio.lba(), bio.flags())
        };
        let offset = psync::byte_offset(lba);
        let flags = match flags.contains(WriteFlags::FUA) {
            true => libc::RWF_DSYNC,
            false => 0,
        };
        let memory = match self.request.segments_mut() {
            [] => Memory::None,
            [segment] => {
                let registered = segment.registered();
                let bytes = segment.as_mut_slice();
                self.bytes = bytes.len();
                match u32::try_from(bytes.len()) {
                    Ok(length) => Memory::One(bytes.as_mut_ptr(), length, registered),
                    Err(_) => self.several(),
                }
            }
            _ => self.several(),
        };
        Transfer {
            op,
            offset,
            memory,
            flags,
        }
    }

    fn several(&mut self) -> Memory {
        let segments = self.request.segments_mut();
        let vector = |bytes: &mut [u8]| libc::iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: bytes.len(),
        };
        self.vectors.0 = segments
            .iter_mut()
            .map(|segment| vector(segment.as_mut_slice()))
            .collect();
        self.bytes = self.vectors.0.iter().map(|vector| vector.iov_len).sum();
        let count = u32::try_from(self.vectors.0.len());
        let count = count.expect("a request has fewer than 2^32 segments");
        Memory::Several(self.vectors.0.as_mut_ptr(), count)
    }

    /// Completes the request with the kernel's result.
    pub(super) fn finish(self, target: &Arc<Target>, code: i32) {
        let Self {
            mut request, bytes, ..
        } = self;
        let result = match usize::try_from(code) {
            Err(_) => Err(OsError::new(code.saturating_neg())),
            Ok(done) if done == bytes => Ok(()),
            Ok(done) => transfer_rest(target, &mut request, done),
        };
        let bio = request.bio();
        let (op, lba, blocks) = (bio.op(), bio.lba(), bio.blocks());
        let result: Result<()> = result.map_err(|os| target.error(op, lba, blocks, os));
        request.complete(result);
    }
}

impl Flight {
    /// Completes the request with an error while the kernel may still use its memory, which
    /// therefore stays allocated for ever; other memory takes its place in the bio.
    pub(super) fn abandon(mut self, target: &Arc<Target>, code: i32) {
        assert!(code < 0, "an abandoned request has failed");
        for segment in self.request.segments_mut() {
            let other = BlockBuf::zeroed(segment.blocks());
            mem::forget(mem::replace(segment, other));
        }
        mem::forget(mem::take(&mut self.vectors.0));
        self.finish(target, code);
    }
}

/// Continues a transfer of which `done` bytes were done, with plain system calls.
fn transfer_rest(
    target: &Target,
    request: &mut Request,
    mut done: usize,
) -> std::result::Result<(), OsError> {
    let (op, flags) = (request.bio().op(), request.bio().flags());
    let mut lba = request.bio().lba();
    for segment in request.segments_mut() {
        let memory = segment.as_mut_slice();
        let bytes = memory.len();
        assert!(
            bytes.is_multiple_of(BLOCK_BYTES),
            "buffers are whole blocks"
        );
        let skip = done.min(bytes);
        let at = psync::byte_offset(lba) + length(skip);
        match op {
            Op::Read => psync::read(target, at, &mut memory[skip..])?,
            Op::Write => psync::write(target, at, &memory[skip..], flags)?,
            Op::Flush | Op::Discard => unreachable!("a flush or discard has no data to transfer"),
        }
        done -= skip;
        lba = Lba::new(lba.number() + crate::blocks_of(bytes));
    }
    Ok(())
}

fn length(bytes: usize) -> u64 {
    u64::try_from(bytes).expect("a usize fits in 64 bits")
}
