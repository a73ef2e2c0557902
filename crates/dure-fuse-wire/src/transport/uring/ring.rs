//! A ring of the kernel.
//!
//! **Structure.** An `io_uring` with commands of 128 bytes, on which only its thread works: the
//! kernel then does what it has to in that thread's system calls. An eventfd is its bell.
//! **Invariants.** The memory of an entry lives, at one address, from its command's submission
//! until its completion. **Crash.** The kernel ends the connection's requests with the process.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use dure_sync::{Arc, thread};
use io_uring::squeue::Entry128;
use io_uring::{IoUring, cqueue, opcode, types};
use rustix::event::{EventfdFlags, eventfd};
use zerocopy::{FromZeros, Immutable, IntoBytes};

use super::entry::Entry;
use super::idle::Idle;
use super::port::{Arrival, Bell, Port};
use crate::protocol::ring::{COMMIT_AND_FETCH, REGISTER, RingCommand};
use crate::transport::device::Channel;

/// Opcode of a command for the file.
const URING_CMD: u8 = 46;
/// The file is one of those registered with the ring.
const FIXED_FILE: u8 = 1;
/// How many `iovec`s describe an entry.
const VECTORS: u32 = 2;
/// Before the next try of a call that found no memory.
const UNTIL_MEMORY: Duration = Duration::from_millis(1);
/// Marks the bell's read.
const BELL: u64 = u64::MAX;

/// A submission entry of 128 bytes that holds a command.
#[derive(FromZeros, IntoBytes, Immutable)]
#[repr(C, align(8))]
struct Command {
    opcode: u8,
    flags: u8,
    priority: u16,
    file: i32,
    operation: u32,
    padding: u32,
    address: u64,
    len: u32,
    command_flags: u32,
    user_data: u64,
    unused: u64,
    arguments: RingCommand,
    rest: [u8; 56],
}
const _: () = assert!(size_of::<Command>() == size_of::<Entry128>());
const _: () = assert!(align_of::<Command>() == align_of::<Entry128>());

/// An eventfd.
#[derive(Debug)]
pub struct EventBell(Arc<OwnedFd>);

impl Bell for EventBell {
    fn ring(&self) {
        let rung = rustix::io::write(&*self.0, 1_u64.as_bytes());
        debug_assert!(rung.is_ok(), "an eventfd counts far: {rung:?}");
    }
}

/// A ring that is set up.
pub struct Ring {
    uring: IoUring<Entry128, cqueue::Entry>,
    channel: Channel,
    event: Arc<OwnedFd>,
    /// What the bell's read reads.
    rung: Box<u64>,
    /// Entries that the kernel has.
    held: Vec<Option<Entry>>,
    /// Changes its thread's policy.
    idle: Option<Idle>,
}

impl Ring {
    /// For `entries` entries. It works for the thread that calls [`Ring::begin`].
    ///
    /// # Errors
    /// What io_uring_setup(2) says.
    pub fn new(channel: Channel, entries: usize) -> io::Result<Ring> {
        // One more: the bell's read.
        let commands = u32::try_from(entries + 1).expect("a ring has few entries");
        let uring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_r_disabled()
            .build(commands.next_power_of_two())?;
        Ok(Ring {
            uring,
            channel,
            event: Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?),
            rung: Box::new(0),
            held: (0..entries).map(|_| None).collect(),
            idle: None,
        })
    }

    /// Its bell.
    #[must_use]
    pub fn bell(&self) -> EventBell {
        EventBell(Arc::clone(&self.event))
    }

    /// The calling thread serves it from now on.
    ///
    /// # Errors
    /// What io_uring_register(2) says.
    pub fn begin(&mut self) -> io::Result<()> {
        let submitter = self.uring.submitter();
        submitter.register_enable_rings()?;
        submitter.register_files(&[self.channel.raw()])?;
        self.await_bell();
        Ok(())
    }

    /// Its thread, which has called [`Idle::begin`], changes its policy as it is woken.
    pub(super) fn gives_way(&mut self, idle: Option<Idle>) {
        self.idle = idle;
    }

    fn await_bell(&mut self) {
        let (event, into) = (self.event.as_raw_fd(), &raw mut *self.rung);
        let read = opcode::Read::new(types::Fd(event), into.cast(), 8).build();
        self.push(Entry128::from(read.user_data(BELL)));
    }

    fn give(&mut self, entry: Entry, operation: u32) {
        let index = entry.index();
        let command = Command {
            opcode: URING_CMD,
            flags: FIXED_FILE,
            operation,
            address: entry.vectors(),
            len: VECTORS,
            user_data: u64::try_from(index).expect("an index has 64 bits"),
            arguments: entry.command(),
            ..Command::new_zeroed()
        };
        assert!(self.held[index].is_none(), "an entry is at one place");
        self.held[index] = Some(entry);
        // SAFETY: both have 128 bytes in the order that the kernel defines; any bytes are valid.
        self.push(unsafe { std::mem::transmute::<Command, Entry128>(command) });
    }

    fn push(&mut self, command: Entry128) {
        // SAFETY: what a command points to is the memory of an entry in `held`, or the bell's
        // word, which both stay where they are until the command is complete.
        let pushed = unsafe { self.uring.submission().push(&command) };
        pushed.expect("the queue has room for a command of each entry");
    }

    fn reap(&mut self, arrived: &mut Vec<Arrival>) {
        let mut bell = false;
        for done in self.uring.completion() {
            let Ok(index) = usize::try_from(done.user_data()) else {
                continue;
            };
            if done.user_data() == BELL {
                bell = true;
                continue;
            }
            let entry = self.held[index].take();
            let entry = entry.expect("the kernel completes a command once");
            arrived.push(match done.result() {
                0.. => Arrival::Request(entry),
                error => Arrival::Lost(entry, -error),
            });
        }
        if bell {
            self.await_bell();
            arrived.push(Arrival::Bell);
        }
    }

    /// Hands commands to the kernel, and waits for so many completions.
    fn enter(&mut self, completions: usize) -> io::Result<()> {
        let Err(error) = self.uring.submit_and_wait(completions) else {
            return Ok(());
        };
        match error.raw_os_error() {
            // A signal; or completions have to be taken first.
            Some(libc::EINTR | libc::EBUSY) => Ok(()),
            Some(libc::EAGAIN | libc::ENOMEM) => {
                thread::sleep(UNTIL_MEMORY);
                Ok(())
            }
            _ => Err(error),
        }
    }
}

impl Port for Ring {
    fn register(&mut self, entry: Entry) {
        self.give(entry, REGISTER);
    }

    fn commit(&mut self, entry: Entry) {
        self.give(entry, COMMIT_AND_FETCH);
    }

    fn submit(&mut self, arrived: &mut Vec<Arrival>) -> io::Result<()> {
        while !self.uring.submission().is_empty() {
            self.enter(0)?;
        }
        self.reap(arrived);
        Ok(())
    }

    fn wait(&mut self, arrived: &mut Vec<Arrival>) -> io::Result<()> {
        self.enter(1)?;
        if let Some(idle) = &mut self.idle {
            idle.woken();
        }
        self.reap(arrived);
        Ok(())
    }

    fn held(&self) -> usize {
        self.held.iter().flatten().count()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // The kernel may still write to the memory of what it has not given back, and to the bell's
        // word: a helper rings after the ring's thread has taken its entry, perhaps the last.
        std::mem::forget(std::mem::take(&mut self.rung));
        for entry in self.held.drain(..).flatten() {
            std::mem::forget(entry);
        }
    }
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring")
            .field("held", &self.held())
            .finish_non_exhaustive()
    }
}
