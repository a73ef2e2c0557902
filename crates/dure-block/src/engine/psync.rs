//! Plain system calls: `pread`, `pwrite`, `preadv2`, `pwritev2`, `fdatasync`, `fallocate`.
//!
//! **Problem.** One small request on a fast device should cost its system call and nothing else.
//! **Structure.** A function for each operation; no allocation. **Invariants.** Interrupted and
//! partial transfers are continued; a transfer of nothing before the end is an error.
//! **Crash.** See [`crate::engine`].

use std::io::{IoSlice, IoSliceMut};

use rustix::fs::{FallocateFlags, fallocate, fdatasync};
use rustix::io::{Errno, ReadWriteFlags, pread, preadv2, pwrite, pwritev2, retry_on_intr};

use crate::engine::Target;
use crate::{BLOCK_BYTES, Io, Lba, OsError, WriteFlags};

/// The most parts of a vectored write in one call.
const PARTS_PER_CALL: usize = 16;

/// A transfer ended before the end of the request, without an error.
const CUT_SHORT: OsError = OsError::EIO;

/// The offset of a block in bytes.
pub(crate) fn byte_offset(lba: Lba) -> u64 {
    const BLOCK: u64 = 4096;
    lba.number()
        .checked_mul(BLOCK)
        .expect("the queue has checked the range")
}

const _: () = assert!(BLOCK_BYTES == 4096);

fn length(bytes: usize) -> u64 {
    u64::try_from(bytes).expect("a usize fits in 64 bits")
}

/// Executes `io`.
#[inline]
pub(crate) fn execute(target: &Target, io: Io<'_>) -> Result<(), OsError> {
    match io {
        Io::Read { lba, out } => read(target, byte_offset(lba), out),
        Io::Write { lba, parts, flags } => match parts {
            [part] => write(target, byte_offset(lba), part, flags),
            parts => write_parts(
                target,
                byte_offset(lba),
                parts,
                flags,
                ReadWriteFlags::empty(),
            ),
        },
        Io::Flush => Ok(retry_on_intr(|| fdatasync(&target.fd))?),
        Io::Discard { lba, blocks } => discard(target, lba, blocks),
    }
}

/// Executes a read or write whose caller polls the device: with `RWF_HIPRI`. The kernel refuses
/// that ([`Errno::OPNOTSUPP`]), or waits for the interrupt, where the driver has no queue to poll.
pub(crate) fn execute_polled(target: &Target, io: Io<'_>) -> Result<(), OsError> {
    match io {
        Io::Read { lba, out } => {
            let (mut done, offset) = (0, byte_offset(lba));
            while done < out.len() {
                let at = offset + length(done);
                let mut part = [IoSliceMut::new(&mut out[done..])];
                let read = || preadv2(&target.fd, &mut part, at, ReadWriteFlags::HIPRI);
                match retry_on_intr(read)? {
                    0 => return Err(CUT_SHORT),
                    count => done += count,
                }
            }
            Ok(())
        }
        Io::Write { lba, parts, flags } => write_parts(
            target,
            byte_offset(lba),
            parts,
            flags,
            ReadWriteFlags::HIPRI,
        ),
        Io::Flush | Io::Discard { .. } => execute(target, io),
    }
}

/// Fills `out` from byte `offset` on.
pub(crate) fn read(target: &Target, offset: u64, out: &mut [u8]) -> Result<(), OsError> {
    let mut done = 0;
    while done < out.len() {
        let rest = &mut out[done..];
        match retry_on_intr(|| pread(&target.fd, &mut *rest, offset + length(done)))? {
            0 => return Err(CUT_SHORT),
            count => done += count,
        }
    }
    Ok(())
}

/// Writes `data` at byte `offset`.
pub(crate) fn write(
    target: &Target,
    offset: u64,
    data: &[u8],
    flags: WriteFlags,
) -> Result<(), OsError> {
    let mut done = 0;
    while done < data.len() {
        let (rest, at) = (&data[done..], offset + length(done));
        let count = if flags.contains(WriteFlags::FUA) {
            let parts = [IoSlice::new(rest)];
            retry_on_intr(|| pwritev2(&target.fd, &parts, at, ReadWriteFlags::DSYNC))?
        } else {
            retry_on_intr(|| pwrite(&target.fd, rest, at))?
        };
        if count == 0 {
            return Err(CUT_SHORT);
        }
        done += count;
    }
    Ok(())
}

fn write_parts(
    target: &Target,
    mut offset: u64,
    parts: &[&[u8]],
    flags: WriteFlags,
    mut mode: ReadWriteFlags,
) -> Result<(), OsError> {
    mode.set(ReadWriteFlags::DSYNC, flags.contains(WriteFlags::FUA));
    for batch in parts.chunks(PARTS_PER_CALL) {
        let mut slices = [IoSlice::new(&[]); PARTS_PER_CALL];
        for (slice, part) in slices.iter_mut().zip(batch) {
            *slice = IoSlice::new(part);
        }
        let slices = &slices[..batch.len()];
        let bytes: usize = batch.iter().map(|part| part.len()).sum();
        let done = retry_on_intr(|| pwritev2(&target.fd, slices, offset, mode))?;
        if done < bytes {
            write_rest(target, offset, batch, done, flags)?;
        }
        offset += length(bytes);
    }
    Ok(())
}

/// Continues a vectored write of which `done` bytes were written.
fn write_rest(
    target: &Target,
    mut offset: u64,
    parts: &[&[u8]],
    mut done: usize,
    flags: WriteFlags,
) -> Result<(), OsError> {
    for part in parts {
        let skip = done.min(part.len());
        write(target, offset + length(skip), &part[skip..], flags)?;
        done -= skip;
        offset += length(part.len());
    }
    Ok(())
}

/// Frees blocks; where the file system or device cannot, writes zeroes, so that they read as
/// zeroes in any case.
fn discard(target: &Target, lba: Lba, blocks: u64) -> Result<(), OsError> {
    if blocks == 0 {
        return Ok(());
    }
    let (offset, bytes) = (byte_offset(lba), byte_offset(Lba::new(blocks)));
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match retry_on_intr(|| fallocate(&target.fd, punch, offset, bytes)) {
        Err(Errno::OPNOTSUPP) => {
            let zero = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
            Ok(retry_on_intr(|| {
                fallocate(&target.fd, zero, offset, bytes)
            })?)
        }
        other => Ok(other?),
    }
}
