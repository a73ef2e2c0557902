//! The server of one hardware queue.
//!
//! **Structure.** A ring with one command for each tag: it fetches a request, or commits the result
//! of one and fetches the next. Descriptors of requests are in a mapping that the driver writes.
//! **Invariants.** Between its arrival and its commit a request's descriptor is the server's; it is
//! copied and checked before it is used. **Crash.** See [`crate::ublk`].

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::ptr::NonNull;

use dure_sync::Arc;
use io_uring::{IoUring, opcode, types};
use rustix::io::{pread, pwrite, retry_on_intr};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use zerocopy::IntoBytes;

use super::abi::{self, Descriptor, IoCommand};
use super::control::os;
use super::{SECTORS_PER_BLOCK, failed};
use crate::{BLOCK_BYTES, Bio, Completion, Error, Lba, Op, Queue, Result, Ticket, WriteFlags};

/// Serves the requests of a hardware queue.
pub struct Server {
    channel: Arc<OwnedFd>,
    device: u32,
    queue: u16,
    depth: u16,
    ring: IoUring,
    descriptors: Descriptors,
}

/// A request that was submitted.
struct Asked {
    tag: u16,
    bytes: u32,
}

impl Server {
    pub(super) fn new(
        channel: Arc<OwnedFd>,
        information: &abi::Information,
        queue: u16,
    ) -> Result<Server> {
        let (device, depth) = (information.device, information.depth);
        let refused = |action, os: crate::OsError| Error::Open {
            path: PathBuf::from(format!("/dev/ublkc{device}")),
            action,
            os,
        };
        let descriptors = Descriptors::new(&channel, queue, depth)
            .map_err(|errno| refused("map the requests of a queue", errno.into()))?;
        let ring = IoUring::builder()
            .setup_coop_taskrun()
            .build(u32::from(depth).next_power_of_two())
            .map_err(|error| refused("make a ring for a queue", os(&error)))?;
        Ok(Server {
            channel,
            device,
            queue,
            depth,
            ring,
            descriptors,
        })
    }

    /// Serves requests on `blocks` until the device is stopped. All of it on one thread, which
    /// serves nothing else.
    ///
    /// # Errors
    /// [`Error::Open`], when the driver refuses to go on. The kernel then has requests that only
    /// another process can serve ([`super::Export::recover`]).
    pub fn serve(mut self, blocks: &Queue) -> Result<()> {
        for tag in 0..self.depth {
            self.push(abi::FETCH, tag, 0);
        }
        let (mut left, mut arrived) = (self.depth, Vec::new());
        let mut refusal = None;
        while left > 0 {
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if is_transient(&error) => {}
                Err(error) => return Err(self.failed(os(&error).errno())),
            }
            for done in self.ring.completion() {
                let tag = u16::try_from(done.user_data()).expect("a tag was pushed");
                match done.result() {
                    0 => arrived.push(tag),
                    code => {
                        left -= 1;
                        // The device is stopped, or its driver has given the server up.
                        if code != -libc::ENODEV {
                            refusal = Some(-code);
                        }
                    }
                }
            }
            self.answer(blocks, &mut arrived);
        }
        refusal.map_or(Ok(()), |errno| Err(self.failed(errno)))
    }

    fn failed(&self, errno: i32) -> Error {
        failed(self.device, "go on serving it", errno)
    }

    /// Carries out what has arrived, all at once, and commits the results.
    fn answer(&mut self, blocks: &Queue, arrived: &mut Vec<u16>) {
        let (mut asked, mut bios) = (Vec::new(), Vec::new());
        for tag in arrived.drain(..) {
            match self.bio(blocks, tag) {
                Ok((bytes, bio)) => {
                    asked.push(Asked { tag, bytes });
                    bios.push(bio);
                }
                Err(errno) => self.push(abi::COMMIT_AND_FETCH, tag, -errno),
            }
        }
        match blocks.submit_all(bios) {
            Ok(tickets) => {
                for (asked, ticket) in asked.iter().zip(tickets) {
                    self.finish(blocks, asked, ticket);
                }
            }
            Err(error) => {
                for asked in asked {
                    self.push(abi::COMMIT_AND_FETCH, asked.tag, -errno_of(&error));
                }
            }
        }
    }

    /// What a request asks for.
    fn bio(&self, blocks: &Queue, tag: u16) -> std::result::Result<(u32, Bio), i32> {
        let descriptor = self.descriptors.get(tag);
        let request = request(&descriptor, blocks.info().blocks)?;
        let count = usize::try_from(request.blocks).map_err(|_| libc::EINVAL)?;
        let bio = match request.op {
            Op::Read => Bio::read(request.lba, blocks.buffer(count)),
            Op::Write => {
                let mut data = blocks.buffer(count);
                self.fetch_data(tag, data.as_mut_slice())?;
                Bio::write(request.lba, data).with_flags(request.flags)
            }
            Op::Flush => Bio::flush(),
            Op::Discard => Bio::discard(request.lba, request.blocks),
        };
        Ok((descriptor.sectors << 9, bio))
    }

    fn finish(&mut self, blocks: &Queue, asked: &Asked, ticket: Ticket) {
        let done = blocks.wait(ticket);
        let result = match &done.result {
            Ok(()) => self.pass_data(asked.tag, &done),
            Err(error) => Err(errno_of(error)),
        };
        let code = match result {
            Ok(()) => i32::try_from(asked.bytes).unwrap_or(i32::MAX),
            Err(errno) => -errno,
        };
        self.push(abi::COMMIT_AND_FETCH, asked.tag, code);
    }

    /// Data of a write, from the kernel.
    fn fetch_data(&self, tag: u16, data: &mut [u8]) -> std::result::Result<(), i32> {
        let (at, mut done) = (abi::data_at(self.queue, tag), 0);
        while done < data.len() {
            let rest = &mut data[done..];
            let from = at + u64::try_from(done).expect("64 bits");
            match retry_on_intr(|| pread(&*self.channel, &mut *rest, from)) {
                Ok(0) => return Err(libc::EIO),
                Ok(count) => done += count,
                Err(errno) => return Err(errno.raw_os_error()),
            }
        }
        Ok(())
    }

    /// Data of a read, to the kernel.
    fn pass_data(&self, tag: u16, done: &Completion) -> std::result::Result<(), i32> {
        let [data] = done.segments.as_slice() else {
            return Ok(());
        };
        if !self.descriptors.get(tag).is_read() {
            return Ok(());
        }
        let (at, mut passed) = (abi::data_at(self.queue, tag), 0);
        while passed < data.as_slice().len() {
            let rest = &data.as_slice()[passed..];
            let to = at + u64::try_from(passed).expect("64 bits");
            match retry_on_intr(|| pwrite(&*self.channel, rest, to)) {
                Ok(0) => return Err(libc::EIO),
                Ok(count) => passed += count,
                Err(errno) => return Err(errno.raw_os_error()),
            }
        }
        Ok(())
    }

    /// Gives the kernel a command for a tag that it does not have.
    fn push(&mut self, operation: u32, tag: u16, result: i32) {
        assert!(tag < self.depth, "tags are those of the queue");
        let command = IoCommand {
            queue: self.queue,
            tag,
            result,
            // Data are copied by calls.
            address: 0,
        };
        let bytes = command.as_bytes().try_into().expect("a command's size");
        let file = types::Fd(self.channel.as_raw_fd());
        let entry = opcode::UringCmd16::new(file, operation)
            .cmd(bytes)
            .build()
            .user_data(u64::from(tag));
        // SAFETY: the command points to no memory.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.expect("the ring has room for a command of each tag");
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("device", &self.device)
            .field("queue", &self.queue)
            .finish_non_exhaustive()
    }
}

/// A descriptor that was checked.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    op: Op,
    lba: Lba,
    blocks: u64,
    flags: WriteFlags,
}

/// Whole blocks of the device, or EINVAL.
fn request(descriptor: &Descriptor, device_blocks: u64) -> std::result::Result<Wanted, i32> {
    let op = match descriptor.operation & abi::OP_MASK {
        abi::OP_READ => Op::Read,
        abi::OP_WRITE => Op::Write,
        abi::OP_FLUSH => Op::Flush,
        abi::OP_DISCARD | abi::OP_WRITE_ZEROES => Op::Discard,
        _ => return Err(libc::EOPNOTSUPP),
    };
    let (sector, sectors) = (descriptor.sector, descriptor.sectors);
    let per_block = u64::from(SECTORS_PER_BLOCK);
    let (lba, blocks) = (sector / per_block, u64::from(sectors) / per_block);
    let whole = sector.is_multiple_of(per_block) && sectors.is_multiple_of(SECTORS_PER_BLOCK);
    let inside = lba
        .checked_add(blocks)
        .is_some_and(|end| end <= device_blocks);
    let has_data = matches!(op, Op::Read | Op::Write);
    let short = blocks << BLOCK_BYTES.trailing_zeros() <= 1 << abi::DATA_BITS;
    if op != Op::Flush && !(whole && inside && (short || !has_data)) {
        return Err(libc::EINVAL);
    }
    let fua = op == Op::Write && descriptor.operation & abi::REQUEST_FUA != 0;
    Ok(Wanted {
        op,
        lba: Lba::new(lba),
        blocks,
        flags: if fua {
            WriteFlags::FUA
        } else {
            WriteFlags::NONE
        },
    })
}

/// What the kernel is told of an error.
fn errno_of(error: &Error) -> i32 {
    match error {
        Error::ReadOnly { .. } => libc::EROFS,
        _ => error.os().map_or(libc::EIO, crate::OsError::errno),
    }
}

fn is_transient(error: &std::io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)
    )
}

impl Descriptor {
    fn is_read(&self) -> bool {
        self.operation & abi::OP_MASK == abi::OP_READ
    }
}

/// The requests of a queue, by tag; written by the driver.
struct Descriptors {
    start: NonNull<Descriptor>,
    count: u16,
    bytes: usize,
}

// SAFETY: it owns a mapping, which any thread may read.
unsafe impl Send for Descriptors {}

impl Descriptors {
    fn new(channel: &OwnedFd, queue: u16, count: u16) -> rustix::io::Result<Descriptors> {
        const PAGE: usize = 4096;
        let most = (usize::from(abi::DEPTH_MOST) * size_of::<Descriptor>()).next_multiple_of(PAGE);
        let bytes = (usize::from(count) * size_of::<Descriptor>()).next_multiple_of(PAGE);
        let offset = u64::try_from(most).expect("64 bits") * u64::from(queue);
        let (access, flags) = (ProtFlags::READ, MapFlags::SHARED | MapFlags::POPULATE);
        // SAFETY: a new mapping at an address of the kernel's choice changes no memory in use.
        let mapped = unsafe { mmap(std::ptr::null_mut(), bytes, access, flags, channel, offset) }?;
        Ok(Descriptors {
            start: NonNull::new(mapped.cast()).expect("no mapping is at 0"),
            count,
            bytes,
        })
    }

    /// A copy. The driver does not write it while the server has the tag.
    fn get(&self, tag: u16) -> Descriptor {
        assert!(tag < self.count, "tags are those of the queue");
        // SAFETY: the tag is below the count, so this lies in the mapping.
        let place = unsafe { self.start.add(usize::from(tag)) };
        // SAFETY: it is aligned as mappings are, and any bytes are a descriptor.
        unsafe { place.read_volatile() }
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: the mapping is this one's, and is not used after the drop.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "munmap failed: {unmapped:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor(operation: u32, sector: u64, sectors: u32) -> Descriptor {
        Descriptor {
            operation,
            sectors,
            sector,
            address: 0,
        }
    }

    #[test]
    fn descriptors_are_whole_blocks_of_the_device_or_refused() {
        let ask = |operation, sector, sectors| request(&descriptor(operation, sector, sectors), 16);
        let write = ask(abi::OP_WRITE | abi::REQUEST_FUA, 8, 16).unwrap();
        assert_eq!(
            (write.op, write.lba, write.blocks),
            (Op::Write, Lba::new(1), 2)
        );
        assert_eq!(write.flags, WriteFlags::FUA);
        assert_eq!(ask(abi::OP_READ, 0, 128).unwrap().flags, WriteFlags::NONE);
        assert_eq!(
            ask(abi::OP_FLUSH, u64::MAX, u32::MAX).unwrap().op,
            Op::Flush
        );
        assert_eq!(ask(abi::OP_WRITE_ZEROES, 0, 8).unwrap().op, Op::Discard);
        for (sector, sectors) in [(1, 8), (0, 7), (0, 136), (128, 8), (u64::MAX - 7, 16)] {
            for op in [abi::OP_READ, abi::OP_WRITE, abi::OP_DISCARD] {
                assert_eq!(
                    ask(op, sector, sectors),
                    Err(libc::EINVAL),
                    "{sector} {sectors}"
                );
            }
        }
        assert_eq!(ask(18, 0, 8), Err(libc::EOPNOTSUPP));
        let long = request(&descriptor(abi::OP_READ, 0, 1 << 17), u64::MAX);
        assert_eq!(long, Err(libc::EINVAL));
    }

    #[test]
    fn data_of_queues_and_tags_do_not_overlap() {
        let most = abi::data_at(0, u16::MAX) + (1 << abi::DATA_BITS);
        assert_eq!(most, abi::data_at(1, 0));
        assert_eq!(abi::data_at(0, 1) - abi::data_at(0, 0), 1 << 25);
    }
}
