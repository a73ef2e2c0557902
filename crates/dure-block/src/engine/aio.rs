//! `libaio`: the older interface to several requests in flight, by its system calls.
//!
//! **Problem.** Where io_uring is not allowed, requests still have to be in flight together.
//! **Structure.** [`Aio`] is a [`Channel`]: entries are kept until they are passed, many with one
//! call; completions are asked for by another. **Invariants.** A context has room for what the ring
//! has in flight, else the kernel takes fewer. Requests of files that are not open for direct I/O
//! are carried out by the kernel before the call returns: slow, and right. A request that the
//! kernel refuses to take is complete with that error. **Crash.** See [`crate::engine`].

use dure_sync::Arc;
use rustix::fd::AsRawFd;

use crate::engine::Target;
use crate::engine::flight::{Flight, Memory};
use crate::engine::ring::{Arrived, Channel, Refused, Take};
use crate::{Op, OsError};

/// Requests that a context has room for.
const ENTRIES: libc::c_long = 256;

const PREAD: u16 = 0;
const PWRITE: u16 = 1;
const FDSYNC: u16 = 3;
const PREADV: u16 = 7;
const PWRITEV: u16 = 8;

/// A request, as `io_submit` reads it (`struct iocb` of little-endian machines).
#[derive(Debug, Default, Clone, Copy)]
#[repr(C)]
pub(crate) struct Iocb {
    data: u64,
    key: u32,
    rw_flags: i32,
    opcode: u16,
    priority: i16,
    file: u32,
    memory: u64,
    bytes: u64,
    offset: u64,
    reserved: u64,
    flags: u32,
    result_file: u32,
}

/// A completion, as `io_getevents` writes it (`struct io_event`).
#[derive(Debug, Default, Clone, Copy)]
#[repr(C)]
struct IoEvent {
    data: u64,
    object: u64,
    result: i64,
    second_result: i64,
}

const _: () = assert!(size_of::<Iocb>() == 64 && size_of::<IoEvent>() == 32);
const _: () = assert!(cfg!(target_endian = "little"));

/// A context of the kernel.
pub(crate) struct Aio {
    context: libc::c_ulong,
    target: Arc<Target>,
}

impl Aio {
    pub(crate) fn new(target: Arc<Target>) -> Result<Self, OsError> {
        let mut context: libc::c_ulong = 0;
        // SAFETY: the call writes the context's number to the word it is given.
        let made = unsafe { libc::syscall(libc::SYS_io_setup, ENTRIES, &raw mut context) };
        match made {
            0 => Ok(Self { context, target }),
            _ => Err(last_error()),
        }
    }
}

impl Channel for Aio {
    type Flight = Flight;
    type Entries = Vec<Iocb>;

    fn push(&self, entries: &mut Vec<Iocb>, index: usize, flight: &mut Flight) -> bool {
        let transfer = flight.transfer();
        let (memory, bytes) = match transfer.memory {
            Memory::None => (0, 0),
            Memory::One(base, length, _) => (base.addr(), u64::from(length)),
            Memory::Several(vectors, count) => (vectors.addr(), u64::from(count)),
        };
        let several = matches!(transfer.memory, Memory::Several(..));
        entries.push(Iocb {
            data: number(index),
            rw_flags: transfer.flags,
            opcode: match (transfer.op, several) {
                (Op::Read, false) => PREAD,
                (Op::Read, true) => PREADV,
                (Op::Write, false) => PWRITE,
                (Op::Write, true) => PWRITEV,
                (Op::Flush, _) => FDSYNC,
                (Op::Discard, _) => unreachable!("discards are carried out synchronously"),
            },
            file: self
                .target
                .fd
                .as_raw_fd()
                .try_into()
                .expect("an open file has a number"),
            memory: number(memory),
            bytes,
            offset: transfer.offset,
            ..Iocb::default()
        });
        true
    }

    fn pass(&self, entries: &mut Vec<Iocb>, pushed: usize) -> Result<usize, Refused> {
        assert_eq!(entries.len(), pushed, "each flight has an entry");
        let mut pointers: Vec<*mut Iocb> = entries.iter_mut().map(std::ptr::from_mut).collect();
        let count = libc::c_long::try_from(pushed).expect("few requests");
        // SAFETY: the pointers lead to entries that live over the call, which copies them; the
        // memory that they name is owned by flights in the table until they are complete.
        let passed = unsafe {
            libc::syscall(
                libc::SYS_io_submit,
                self.context,
                count,
                pointers.as_mut_ptr(),
            )
        };
        match usize::try_from(passed) {
            Ok(taken) => {
                entries.drain(..taken);
                Ok(taken)
            }
            Err(_) => {
                let error = last_error();
                if is_busy(error) {
                    return Err(Refused::Busy(-error.errno()));
                }
                // It says so of the first; the others are tried again without it.
                entries.remove(0);
                Err(Refused::First(-error.errno()))
            }
        }
    }

    fn take(&self, take: Take, arrived: &mut [Arrived]) -> Result<usize, Refused> {
        const MOST: usize = 16;
        let mut events = [IoEvent::default(); MOST];
        let most = libc::c_long::try_from(arrived.len().min(MOST)).expect("few completions");
        // The call waits for the least number, not for the most.
        let least = libc::c_long::from(take == Take::One);
        // SAFETY: the call writes at most `most` events to the array, which has room for them.
        let count = unsafe {
            libc::syscall(
                libc::SYS_io_getevents,
                self.context,
                least,
                most,
                events.as_mut_ptr(),
                std::ptr::null_mut::<libc::timespec>(),
            )
        };
        let Ok(count) = usize::try_from(count) else {
            let error = last_error();
            return match error.errno() {
                libc::EINTR => Ok(0),
                code if is_busy(error) => Err(Refused::Busy(-code)),
                code => Err(Refused::All(-code)),
            };
        };
        for (place, event) in arrived.iter_mut().zip(&events[..count]) {
            *place = Arrived {
                index: index_of(event.data),
                code: i32::try_from(event.result).expect("a transfer is shorter than 2 GiB"),
            };
        }
        Ok(count)
    }

    fn dispatched(flight: &mut Flight) {
        flight.dispatched();
    }

    fn finish(&self, flight: Flight, code: i32) {
        flight.finish(&self.target, code);
    }

    fn abandon(&self, flight: Flight, code: i32) {
        flight.abandon(&self.target, code);
    }
}

impl Drop for Aio {
    fn drop(&mut self) {
        // SAFETY: the context is this one's own; the ring was drained, so nothing is in flight. An
        // error would leave the context to the end of the process.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
    }
}

fn index_of(data: u64) -> usize {
    usize::try_from(data).expect("the data of a request is its index")
}

fn number(of: usize) -> u64 {
    u64::try_from(of).expect("a usize fits in 64 bits")
}

fn last_error() -> OsError {
    let error = std::io::Error::last_os_error().raw_os_error();
    OsError::new(error.unwrap_or(libc::EIO))
}

fn is_busy(error: OsError) -> bool {
    matches!(error.errno(), libc::EAGAIN | libc::EINTR | libc::ENOMEM)
}
