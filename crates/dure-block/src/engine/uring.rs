//! `io_uring`: several requests in flight from one core.
//!
//! **Problem.** A core that waits for each request in turn gets one request's latency; threads that
//! wait for it cost a wake-up. **Structure.** A ring per core, created at first use. Submitting
//! puts a request into the ring's table and its entry into the submission queue; `kick` passes the
//! entries to the kernel. A task that waits becomes the ring's *reaper*: it holds `reaping`, sleeps
//! in the kernel, and completes the requests that arrive, its own and others'. A task that finds a
//! reaper there sleeps on `turn`.
//!
//! # Ownership of requests
//! **Invariants.** A request is in the table from before the kernel gets it until its completion is
//! reaped, so its memory stays. Completions are run under `reaping`: a holder that finds its
//! request incomplete knows that the kernel still has it. A ring is dropped only when nothing is in
//! flight. `submitting` is held over the submitting system call, `reaping` over the waiting one;
//! both belong to one core's ring.
//!
//! **Crash.** See [`crate::engine`].

use std::fmt;
use std::io::ErrorKind;

use dure_sync::atomic::{AtomicU32, Ordering};
use dure_sync::{Mutex, MutexGuard, futex, thread};
use io_uring::{IoUring, opcode, types};
use rustix::fd::AsRawFd;

use crate::engine::{Target, psync};
use crate::rank::{REAPING_RANK, SUBMITTING_RANK};
use crate::{BLOCK_BYTES, Op, OsError, Poll, Request, Result, Slot, WriteFlags};

/// Submission queue entries; completions have twice as many and overflow into kernel memory.
const ENTRIES: u32 = 256;

/// The memory of a vectored request, for the kernel.
struct IoVectors(
    #[expect(
        dead_code,
        reason = "only the kernel reads it, through the submission entry"
    )]
    Vec<libc::iovec>,
);

// JUSTIFICATION: `iovec` holds raw pointers, which keeps the table of requests from being shared.
// SAFETY: the pointers are only stored here for the kernel; no code reads through them.
unsafe impl Send for IoVectors {}

/// A request that the kernel has.
struct InFlight {
    request: Request,
    bytes: usize,
    /// Lives as long as the entry that points to it.
    _vectors: IoVectors,
}

#[derive(Default)]
struct Table {
    entries: Vec<Option<InFlight>>,
    free: Vec<usize>,
    /// Entries pushed since the last kick that succeeded.
    pushed: Vec<usize>,
    in_flight: usize,
}

/// One ring.
pub(crate) struct Ring {
    uring: IoUring,
    submitting: Mutex<SUBMITTING_RANK, Table>,
    reaping: Mutex<REAPING_RANK, ()>,
    /// Incremented by the reaper when it has completed requests or leaves; non-reapers sleep on it.
    turn: AtomicU32,
    /// Non-reapers between reading `turn` and waking.
    sleepers: AtomicU32,
}

impl Ring {
    pub(crate) fn new() -> std::result::Result<Self, OsError> {
        // Without COOP_TASKRUN: completions must arrive while the submitter computes and another
        // task waits.
        let uring = IoUring::new(ENTRIES)
            .map_err(|error| OsError::new(error.raw_os_error().unwrap_or(libc::EIO)))?;
        Ok(Self {
            uring,
            submitting: Mutex::default(),
            reaping: Mutex::new(()),
            turn: AtomicU32::new(0),
            sleepers: AtomicU32::new(0),
        })
    }

    /// Takes a read, write or flush.
    pub(crate) fn submit(&self, target: &Target, mut request: Request) {
        let mut table = self.submitting.lock();
        let (entry, bytes, vectors) = prepare(target, &mut request);
        let flight = InFlight {
            request,
            bytes,
            _vectors: vectors,
        };
        let index = table.free.pop().unwrap_or_else(|| {
            table.entries.push(None);
            table.entries.len() - 1
        });
        table.entries[index] = Some(flight);
        table.in_flight += 1;
        let entry = entry.user_data(u64::try_from(index).expect("a usize fits in 64 bits"));
        loop {
            // SAFETY: `submitting` is held, so there is no other submission queue object.
            let mut queue = unsafe { self.uring.submission_shared() };
            // SAFETY: the memory that the entry points to is owned by the table until the
            // completion is reaped, and does not move: it is on the heap.
            let push = unsafe { queue.push(&entry) };
            drop(queue);
            if push.is_ok() {
                break;
            }
            self.kick_locked(&mut table);
            thread::yield_now();
        }
        table.pushed.push(index);
    }

    /// Passes all submitted requests to the kernel.
    pub(crate) fn kick(&self) {
        self.kick_locked(&mut self.submitting.lock());
    }

    fn kick_locked(&self, table: &mut Table) {
        let mut pushed = std::mem::take(&mut table.pushed);
        if pushed.is_empty() {
            return;
        }
        for index in &pushed {
            if let Some(flight) = &mut table.entries[*index] {
                flight.request.dispatched();
            }
        }
        // The kernel may take fewer than all, or none, when it lacks memory or the completion queue
        // is full; the next kick passes what it left, and every waiter kicks.
        match self.uring.submitter().submit() {
            Ok(taken) => drop(pushed.drain(..taken.min(pushed.len()))),
            Err(error) if is_transient(&error) => {}
            Err(error) => panic!("io_uring_enter failed on a ring that was set up: {error}"),
        }
        table.pushed = pushed;
    }

    /// Returns when the request of `slot` is complete.
    pub(crate) fn wait(&self, target: &Target, slot: &Slot) {
        while !slot.is_done() {
            match self.reaping.try_lock() {
                Some(reaping) => {
                    self.kick();
                    if self.reap(target, &reaping) == 0 && !slot.is_done() {
                        self.sleep_in_kernel(&reaping);
                        self.reap(target, &reaping);
                    }
                    drop(reaping);
                    self.pass_turn();
                }
                None => self.sleep_for_turn(slot),
            }
        }
    }

    /// Runs the completions that have arrived, or waits for one if any request is in flight.
    pub(crate) fn poll(&self, target: &Target, mode: Poll) -> usize {
        self.kick();
        let Some(reaping) = self.reaping.try_lock() else {
            return 0;
        };
        let mut count = self.reap(target, &reaping);
        if count == 0 && mode == Poll::One && self.submitting.lock().in_flight > 0 {
            self.sleep_in_kernel(&reaping);
            count = self.reap(target, &reaping);
        }
        drop(reaping);
        self.pass_turn();
        count
    }

    /// Waits until the kernel has a completion for this ring.
    fn sleep_in_kernel(&self, _reaping: &MutexGuard<'_, REAPING_RANK, ()>) {
        if !self.submitting.lock().pushed.is_empty() {
            // The kernel would not take all requests: do not wait for one it does not have.
            return thread::yield_now();
        }
        const GET_EVENTS: u32 = 1;
        // SAFETY: no argument is passed, and nothing is submitted.
        let entered = unsafe { self.uring.submitter().enter::<()>(0, 1, GET_EVENTS, None) };
        if let Err(error) = entered
            && !is_transient(&error)
        {
            panic!("io_uring_enter failed on a ring that was set up: {error}");
        }
    }

    fn reap(&self, target: &Target, _reaping: &MutexGuard<'_, REAPING_RANK, ()>) -> usize {
        let mut count = 0;
        loop {
            // SAFETY: `reaping` is held, so there is no other completion queue object.
            let mut queue = unsafe { self.uring.completion_shared() };
            let Some(entry) = queue.next() else {
                return count;
            };
            drop(queue);
            let index = usize::try_from(entry.user_data())
                .expect("the user data of a request is its index");
            let flight = {
                let mut table = self.submitting.lock();
                table.free.push(index);
                table.in_flight -= 1;
                table.entries[index]
                    .take()
                    .expect("the kernel completes a request once")
            };
            finish(target, flight, entry.result());
            count += 1;
        }
    }

    fn sleep_for_turn(&self, slot: &Slot) {
        // SeqCst: either the reaper sees us in `sleepers`, or we see its `turn`.
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let seen = self.turn.load(Ordering::SeqCst);
        match self.reaping.try_lock() {
            // The reaper has just left: it may have raised `turn` before we loaded `seen`. Another
            // task may have gone to sleep because we held the lock.
            Some(reaping) => {
                drop(reaping);
                self.pass_turn();
            }
            None if slot.is_done() => {}
            None => drop(futex::wait(&self.turn, seen, None)),
        }
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
    }

    fn pass_turn(&self) {
        // SeqCst: see `sleep_for_turn`.
        self.turn.fetch_add(1, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            futex::wake(&self.turn, u32::MAX);
        }
    }

    /// Waits until the kernel has no request of this ring any more.
    pub(crate) fn drain(&self, target: &Target) {
        while self.submitting.lock().in_flight > 0 {
            self.poll(target, Poll::One);
        }
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring").finish_non_exhaustive()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        assert_eq!(
            self.submitting.get_mut().in_flight,
            0,
            "a ring is drained before it is dropped"
        );
    }
}

fn is_transient(error: &std::io::Error) -> bool {
    error.kind() == ErrorKind::Interrupted
        || matches!(
            error.raw_os_error(),
            Some(libc::EAGAIN | libc::EBUSY | libc::ENOMEM)
        )
}

/// The submission entry of a request, its length in bytes, and the vectors the entry points to.
fn prepare(target: &Target, request: &mut Request) -> (io_uring::squeue::Entry, usize, IoVectors) {
    let fd = types::Fd(target.fd.as_raw_fd());
    let (op, lba, flags) = {
        let bio = request.bio();
        (bio.op(), bio.lba(), bio.flags())
    };
    let offset = psync::byte_offset(lba);
    let mode = if flags.contains(WriteFlags::FUA) {
        libc::RWF_DSYNC
    } else {
        0
    };
    let mut vectors: Vec<libc::iovec> = request
        .segments_mut()
        .iter_mut()
        .map(|segment| {
            let bytes = segment.as_mut_slice();
            libc::iovec {
                iov_base: bytes.as_mut_ptr().cast(),
                iov_len: bytes.len(),
            }
        })
        .collect();
    let bytes = vectors.iter().map(|vector| vector.iov_len).sum();
    let count = u32::try_from(vectors.len()).expect("a request has fewer than 2^32 segments");
    // The kernel need not read a vector of one.
    let single = match vectors.as_slice() {
        [one] => u32::try_from(one.iov_len)
            .ok()
            .map(|len| (one.iov_base.cast(), len)),
        _ => None,
    };
    let entry = match (op, single) {
        (Op::Read, Some((base, len))) => opcode::Read::new(fd, base, len).offset(offset).build(),
        (Op::Write, Some((base, len))) => opcode::Write::new(fd, base, len)
            .offset(offset)
            .rw_flags(mode)
            .build(),
        (Op::Read, None) => opcode::Readv::new(fd, vectors.as_mut_ptr(), count)
            .offset(offset)
            .build(),
        (Op::Write, None) => opcode::Writev::new(fd, vectors.as_mut_ptr(), count)
            .offset(offset)
            .rw_flags(mode)
            .build(),
        (Op::Flush, _) => opcode::Fsync::new(fd)
            .flags(types::FsyncFlags::DATASYNC)
            .build(),
        (Op::Discard, _) => unreachable!("discards are carried out synchronously"),
    };
    (entry, bytes, IoVectors(vectors))
}

/// Completes a request with the kernel's result.
fn finish(target: &Target, flight: InFlight, code: i32) {
    let InFlight {
        mut request, bytes, ..
    } = flight;
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

/// Continues a transfer of which `done` bytes were done, with plain system calls.
fn transfer_rest(
    target: &Target,
    request: &mut Request,
    mut done: usize,
) -> std::result::Result<(), OsError> {
    let (op, flags) = (request.bio().op(), request.bio().flags());
    let mut offset = psync::byte_offset(request.bio().lba());
    for segment in request.segments_mut() {
        let memory = segment.as_mut_slice();
        let bytes = memory.len();
        assert!(
            bytes.is_multiple_of(BLOCK_BYTES),
            "buffers are whole blocks"
        );
        let skip = done.min(bytes);
        let at = offset + u64::try_from(skip).expect("a usize fits in 64 bits");
        match op {
            Op::Read => psync::read(target, at, &mut memory[skip..])?,
            Op::Write => psync::write(target, at, &memory[skip..], flags)?,
            Op::Flush | Op::Discard => unreachable!("a flush or discard has no data to transfer"),
        }
        done -= skip;
        offset += u64::try_from(bytes).expect("a usize fits in 64 bits");
    }
    Ok(())
}
