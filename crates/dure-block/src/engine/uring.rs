//! `io_uring`: requests and completions through queues in memory shared with the kernel.
//!
//! **Problem.** A system call for each request, or for each batch, and an interrupt for each
//! completion, bound a fast device. **Structure.** [`Uring`] is a [`Channel`]; its options choose
//! what replaces the calls and the interrupts. **Invariants.** The submission queue is touched under
//! the ring's `submitting`, the completion queue under its `reaping`. **Crash.** See
//! [`crate::engine`].
//!
//! | option | instead of | needs |
//! |---|---|---|
//! | `iopoll` | interrupts: a waiter polls the device | direct I/O, a driver with poll queues |
//! | `sqpoll` | calls: a kernel thread takes entries, until nothing came for 50 ms | a core for it |
//! | `own_waits` | interrupting the submitter to complete its request | submitters that wait |
//! | `registered` | looking up file and memory for each request | memory that may be locked |

use std::io::ErrorKind;

use dure_sync::Arc;
use io_uring::{IoUring, opcode, squeue, types};
use rustix::fd::AsRawFd;

use crate::buf::Pool;
use crate::engine::Target;
use crate::engine::flight::{Flight, Memory, Transfer};
use crate::engine::ring::{Arrived, Channel, Refused, Take};
use crate::{BlockBuf, Op, OsError};

/// Submission queue entries; completions have twice as many and overflow into kernel memory.
const ENTRIES: u32 = 256;
/// How long the kernel's submitting thread looks for entries before it sleeps.
const SUBMITTER_IDLE_MS: u32 = 50;
const GET_EVENTS: u32 = 1;

/// Buffers that the kernel knows beforehand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Buffers {
    /// How many.
    pub count: u16,
    /// Blocks of each.
    pub blocks: u32,
}

/// How a ring works.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct RingOptions {
    /// Waiters poll the device; without it the device interrupts.
    pub iopoll: bool,
    /// A thread of the kernel takes requests; without it a call passes them.
    pub sqpoll: bool,
    /// Tasks wait only for what they submitted, and asleep: the kernel then completes a request when
    /// its task enters the kernel, and interrupts no task (`COOP_TASKRUN`). Otherwise another
    /// task's wait would last until it does.
    pub own_waits: bool,
    /// The kernel knows the file, and these buffers, which `Queue::buffer` returns.
    pub registered: Option<Buffers>,
}

/// A ring of the kernel.
pub(crate) struct Uring {
    uring: IoUring,
    target: Arc<Target>,
    options: RingOptions,
}

impl Uring {
    /// A ring for `target`, which knows the buffers of `pool` if there is one.
    pub(crate) fn new(
        target: Arc<Target>,
        options: RingOptions,
        pool: Option<&Pool>,
    ) -> Result<Self, OsError> {
        let mut builder = IoUring::builder();
        if options.iopoll {
            builder.setup_iopoll();
        }
        if options.sqpoll {
            builder.setup_sqpoll(SUBMITTER_IDLE_MS);
        }
        if options.own_waits && !options.sqpoll {
            builder.setup_coop_taskrun();
        }
        let uring = builder.build(ENTRIES).map_err(|error| os(&error))?;
        if let Some(pool) = pool {
            let submitter = uring.submitter();
            let file = [target.fd.as_raw_fd()];
            submitter
                .register_files(&file)
                .map_err(|error| os(&error))?;
            // SAFETY: the memory belongs to the pool or to buffers that keep the pool, and goes
            // back to it; the kernel holds the pages until the ring goes.
            unsafe { submitter.register_buffers(&pool.vectors()) }.map_err(|error| os(&error))?;
        }
        Ok(Self {
            uring,
            target,
            options,
        })
    }

    /// Reads the first block, on a ring that no other task uses yet.
    pub(super) fn try_read(&self, mut block: BlockBuf) -> Result<(), OsError> {
        let memory = block.as_mut_slice();
        let length = u32::try_from(memory.len()).expect("a block is small");
        let fd = types::Fd(self.target.fd.as_raw_fd());
        let read = opcode::Read::new(fd, memory.as_mut_ptr(), length).build();
        // SAFETY: the ring is new, so there is no other submission queue object.
        let mut queue = unsafe { self.uring.submission_shared() };
        // SAFETY: the memory lives until the completion has been seen below.
        let pushed = unsafe { queue.push(&read) };
        pushed.expect("a new ring has room");
        drop(queue);
        let completed = self.pass_and_take();
        if completed.is_err() {
            // The kernel may have the memory.
            std::mem::forget(block);
        }
        match completed {
            Ok(code) | Err(code) if code < 0 => Err(OsError::new(-code)),
            _ => Ok(()),
        }
    }

    /// The result of the only entry; or the error of a ring that does not work.
    fn pass_and_take(&self) -> Result<i32, i32> {
        let mut arrived = [Arrived::default()];
        loop {
            self.pass(&mut (), 1).map_err(Refused::code)?;
            let taken = self.take(Take::One, &mut arrived);
            if taken.map_err(Refused::code)? > 0 {
                return Ok(arrived[0].code);
            }
        }
    }

    /// Enters the kernel to look for completions, and to wait for `least` of them, or for a signal.
    fn enter(&self, least: u32) -> Result<(), Refused> {
        // SAFETY: no argument is passed, and nothing is submitted.
        let entered = unsafe {
            let submitter = self.uring.submitter();
            submitter.enter::<()>(0, least, GET_EVENTS, None)
        };
        match entered {
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            Err(error) if is_busy(&error) => Err(Refused::Busy(code(&error))),
            Err(error) => Err(Refused::All(code(&error))),
            Ok(_) => Ok(()),
        }
    }

    /// Makes `io_uring_enter` fail from now on: the number of the ring's file gets another file.
    #[cfg(test)]
    pub(crate) fn fail_calls(&self) {
        let other = std::fs::File::open("/dev/null").unwrap();
        replace_file(&self.uring, &other);
    }

    fn arrived(&self, arrived: &mut [Arrived]) -> usize {
        // SAFETY: `reaping` is held, so there is no other completion queue object.
        let queue = unsafe { self.uring.completion_shared() };
        let mut count = 0;
        for (place, entry) in arrived.iter_mut().zip(queue) {
            *place = Arrived {
                index: usize::try_from(entry.user_data())
                    .expect("the user data of a request is its index"),
                code: entry.result(),
            };
            count += 1;
        }
        count
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        if self.options.registered.is_some() {
            // The kernel ends a ring some time after it is closed; until then it would hold the
            // file, and a block device would stay in use. An error leaves it at that.
            drop(self.uring.submitter().unregister_files());
        }
    }
}

impl Channel for Uring {
    type Flight = Flight;
    type Entries = ();

    fn push(&self, _entries: &mut (), index: usize, flight: &mut Flight) -> bool {
        let entry = match self.options.registered {
            // The number of the file that was registered.
            Some(_) => entry(types::Fd(0), flight.transfer()).flags(squeue::Flags::FIXED_FILE),
            None => entry(types::Fd(self.target.fd.as_raw_fd()), flight.transfer()),
        };
        let entry = entry.user_data(u64::try_from(index).expect("a usize fits in 64 bits"));
        // SAFETY: `submitting` is held, so there is no other submission queue object.
        let mut queue = unsafe { self.uring.submission_shared() };
        // SAFETY: the memory that the entry points to is owned by the flight, which is in the table
        // until its completion is reaped, and does not move: it is on the heap.
        let is_pushed = unsafe { queue.push(&entry) }.is_ok();
        drop(queue);
        if !is_pushed && self.options.sqpoll {
            // The kernel's thread makes room; an error leaves it at asking again.
            drop(self.uring.submitter().squeue_wait());
        }
        is_pushed
    }

    fn pass(&self, _entries: &mut (), pushed: usize) -> Result<usize, Refused> {
        match self.uring.submitter().submit() {
            // The kernel's thread takes what is in the queue, whatever is left there now.
            Ok(_) if self.options.sqpoll => Ok(pushed),
            Ok(0) => Err(Refused::Busy(-libc::EAGAIN)),
            Ok(taken) => Ok(taken.min(pushed)),
            Err(error) if is_busy(&error) => Err(Refused::Busy(code(&error))),
            // The thread may have them all the same: a task that waits for them finds the error.
            Err(_) if self.options.sqpoll => Ok(pushed),
            // The call says that it has taken none.
            Err(error) => Err(Refused::All(code(&error))),
        }
    }

    fn take(&self, take: Take, arrived: &mut [Arrived]) -> Result<usize, Refused> {
        let count = self.arrived(arrived);
        if count > 0 {
            return Ok(count);
        }
        match take {
            Take::One => self.enter(1)?,
            // Completions of a device that is polled are found only by entering the kernel.
            Take::Ready if self.options.iopoll => self.enter(0)?,
            Take::Ready => return Ok(0),
        }
        Ok(self.arrived(arrived))
    }

    fn dispatched(flight: &mut Flight) {
        flight.dispatched();
    }

    fn finish(&self, flight: Flight, code: i32) {
        // Of a file only requests that reach its device are refused, so not always the first. Such
        // a request is carried out by system calls, from its beginning.
        let refused = self.options.iopoll && code == -libc::EOPNOTSUPP;
        flight.finish(&self.target, if refused { 0 } else { code });
    }

    fn abandon(&self, flight: Flight, code: i32) {
        flight.abandon(&self.target, code);
    }
}

fn os(error: &std::io::Error) -> OsError {
    OsError::new(error.raw_os_error().unwrap_or(libc::EIO))
}

fn code(error: &std::io::Error) -> i32 {
    -os(error).errno()
}

fn is_busy(error: &std::io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EAGAIN | libc::EBUSY | libc::EINTR | libc::ENOMEM)
    )
}

/// The submission entry of a transfer.
fn entry(fd: types::Fd, transfer: Transfer) -> squeue::Entry {
    let Transfer {
        op, offset, flags, ..
    } = transfer;
    match (op, transfer.memory) {
        (Op::Read, Memory::One(base, length, Some(number))) => {
            opcode::ReadFixed::new(fd, base, length, number)
                .offset(offset)
                .build()
        }
        (Op::Write, Memory::One(base, length, Some(number))) => {
            opcode::WriteFixed::new(fd, base, length, number)
                .offset(offset)
                .rw_flags(flags)
                .build()
        }
        (Op::Read, Memory::One(base, length, None)) => {
            opcode::Read::new(fd, base, length).offset(offset).build()
        }
        (Op::Write, Memory::One(base, length, None)) => opcode::Write::new(fd, base, length)
            .offset(offset)
            .rw_flags(flags)
            .build(),
        (Op::Read, Memory::Several(vectors, count)) => opcode::Readv::new(fd, vectors, count)
            .offset(offset)
            .build(),
        (Op::Write, Memory::Several(vectors, count)) => opcode::Writev::new(fd, vectors, count)
            .offset(offset)
            .rw_flags(flags)
            .build(),
        (Op::Flush, _) => opcode::Fsync::new(fd)
            .flags(types::FsyncFlags::DATASYNC)
            .build(),
        (Op::Read | Op::Write, Memory::None) => unreachable!("a bio of data has memory"),
        (Op::Discard, _) => unreachable!("discards are carried out synchronously"),
    }
}

/// Gives the number of an open file to another file.
#[cfg(test)]
pub(crate) fn replace_file(file: &impl AsRawFd, by: &impl AsRawFd) {
    // SAFETY: both numbers are those of open files, and no code keeps the file that is closed.
    let number = unsafe { libc::dup2(by.as_raw_fd(), file.as_raw_fd()) };
    assert_eq!(number, file.as_raw_fd());
}
