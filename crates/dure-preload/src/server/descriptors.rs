//! Descriptors of the server that calls of the program need, too.
//!
//! **Problem.** The library's files, rings and the way to the kernel are numbers, and the server and
//! the program have tables of their own: a program that closes all it knows, or is replaced, must not
//! take the server's with it. **Structure.** The server fills the low numbers while it opens
//! ([`Fence`]), so that all of its own get high ones; they are sent to the program, which puts copies at
//! the same numbers. **Invariants.** No number below the fence is one of the library's; the program's
//! copies are closed by `exec` and in children. **On a crash** nothing is kept.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use dure_sync::atomic::{AtomicU32, Ordering};
use rustix::fs::{Mode, OFlags};
use rustix::io::{DupFlags, Errno};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use rustix::process::{Resource, Rlimit};

/// The fence, where the program may open as many files.
const FENCE: RawFd = 1024;
/// How many numbers from the fence on are looked at.
const LOOKED_AT: RawFd = 1024;
/// Descriptors in one message; the kernel takes 253.
const IN_MESSAGE: usize = 64;
/// Bytes of a message at most.
const MESSAGE_BYTES: usize = 4096;

/// First and end of the numbers that were passed on to the program.
static PASSED_ON: [AtomicU32; 2] = [const { AtomicU32::new(0) }; 2];

/// The numbers that were passed on.
pub(super) fn passed_on() -> Range<RawFd> {
    let [start, end] = &PASSED_ON;
    start.load(Ordering::Relaxed).cast_signed()..end.load(Ordering::Relaxed).cast_signed()
}

/// Whether a descriptor was passed on.
pub(super) fn is_passed_on(fd: RawFd) -> bool {
    passed_on().contains(&fd)
}

/// In a forked child: it uses none.
pub(super) fn close_passed_on() {
    for fd in passed_on() {
        // SAFETY: the child has a copy of it, and uses none.
        unsafe { libc::syscall(libc::SYS_close, fd) };
    }
    PASSED_ON[1].store(0, Ordering::Relaxed);
}

/// A way between the server and the program.
pub(super) fn way() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
    rustix::net::socketpair(AddressFamily::UNIX, kind, flags, None)
}

/// Keeps the numbers below from what is opened.
pub(super) struct Fence(RawFd);

/// Lets this process open as many files as it may.
fn raise_limit() -> Rlimit {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    let _ = rustix::process::setrlimit(Resource::Nofile, raised);
    limit
}

impl Fence {
    pub(super) fn begin() -> Fence {
        let limit = raise_limit();
        let most = limit.maximum.map_or(RawFd::MAX, |most| {
            RawFd::try_from(most).unwrap_or(RawFd::MAX)
        });
        let may = limit
            .current
            .map_or(RawFd::MAX, |may| RawFd::try_from(may).unwrap_or(RawFd::MAX));
        // Of a program that may open few files, and no more, some are taken.
        let fence = FENCE.min(may).min(most - most / 4);
        let Ok(filler) =
            rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        else {
            return Fence(0);
        };
        let mut last = filler.as_raw_fd();
        std::mem::forget(filler);
        while last < fence {
            // SAFETY: it is open.
            let filled = unsafe { BorrowedFd::borrow_raw(last) };
            let Ok(next) = rustix::io::fcntl_dupfd_cloexec(filled, 0) else {
                break;
            };
            last = next.as_raw_fd();
            if last < fence {
                std::mem::forget(next);
            }
        }
        Fence(fence)
    }

    /// The numbers of what was opened.
    pub(super) fn numbers(&self) -> Vec<RawFd> {
        let is_open = |fd: &RawFd| {
            // SAFETY: it asks whether it is open.
            let fd = unsafe { BorrowedFd::borrow_raw(*fd) };
            rustix::io::fcntl_getfd(fd).is_ok()
        };
        (self.0..self.0 + LOOKED_AT).filter(is_open).collect()
    }

    /// Closes all below but `kept` and standard error, where a server that fails says why.
    pub(super) fn end(self, kept: &[RawFd]) {
        for fd in 0..self.0 {
            if fd != libc::STDERR_FILENO && !kept.contains(&fd) {
                // SAFETY: a filler, or a copy of the program's.
                unsafe { libc::syscall(libc::SYS_close, fd) };
            }
        }
    }
}

/// Sends descriptors with their numbers, and then that there are no more.
pub(super) fn send(way: &OwnedFd, numbers: &[RawFd]) -> rustix::io::Result<()> {
    for some in numbers.chunks(IN_MESSAGE) {
        let bytes: Vec<u8> = some.iter().flat_map(|fd| fd.to_le_bytes()).collect();
        // SAFETY: they are open, and stay so.
        let fds: Vec<_> = some
            .iter()
            .map(|fd| unsafe { BorrowedFd::borrow_raw(*fd) })
            .collect();
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(IN_MESSAGE))];
        let mut control = SendAncillaryBuffer::new(&mut room);
        control.push(SendAncillaryMessage::ScmRights(&fds));
        let message = [IoSlice::new(&bytes)];
        rustix::net::sendmsg(way, &message, &mut control, SendFlags::NOSIGNAL)?;
    }
    rustix::net::send(way, b"!", SendFlags::NOSIGNAL).map(drop)
}

/// Says why there is no server.
pub(super) fn say_failed(way: &OwnedFd, why: &str) {
    let mut message = b"?".to_vec();
    message.extend(why.bytes().take(MESSAGE_BYTES - 1));
    let _ = rustix::net::send(way, &message, SendFlags::NOSIGNAL);
}

/// Takes what [`send`] sends, until there is no more.
pub(super) fn take(way: &OwnedFd) -> Result<(), String> {
    let limit = raise_limit();
    let taken = loop {
        match take_some(way) {
            Ok(true) => {}
            Ok(false) => break Ok(()),
            Err(why) => break Err(why),
        }
    };
    let _ = rustix::process::setrlimit(Resource::Nofile, limit);
    taken
}

/// Whether there may be more.
fn take_some(way: &OwnedFd) -> Result<bool, String> {
    let mut bytes = [0; MESSAGE_BYTES];
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(IN_MESSAGE))];
    let mut control = RecvAncillaryBuffer::new(&mut room);
    let got = {
        let mut message = [IoSliceMut::new(&mut bytes)];
        rustix::net::recvmsg(way, &mut message, &mut control, RecvFlags::CMSG_CLOEXEC)
    };
    let len = match got {
        Ok(got) => got.bytes,
        Err(Errno::INTR) => return Ok(true),
        Err(error) => return Err(error.to_string()),
    };
    match &bytes[..len] {
        [] => return Err("no process can be made for the volume".into()),
        b"!" => return Ok(false),
        [b'?', why @ ..] => return Err(String::from_utf8_lossy(why).into_owned()),
        _ => {}
    }
    let numbers = bytes[..len]
        .as_chunks::<4>()
        .0
        .iter()
        .map(|bytes| RawFd::from_le_bytes(*bytes));
    let fds = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    for (fd, number) in fds.flatten().zip(numbers) {
        put_at(fd.as_fd(), number).map_err(|error| format!("descriptor {number}: {error}"))?;
    }
    Ok(true)
}

/// Puts a copy at `number`, which is free: the program has opened nothing yet.
fn put_at(fd: BorrowedFd<'_>, number: RawFd) -> rustix::io::Result<()> {
    // SAFETY: it asks whether it is open.
    let place = unsafe { BorrowedFd::borrow_raw(number) };
    if rustix::io::fcntl_getfd(place) != Err(Errno::BADF) {
        return Err(Errno::BUSY);
    }
    // SAFETY: it is nobody's.
    let mut place =
        std::mem::ManuallyDrop::new(unsafe { std::os::fd::FromRawFd::from_raw_fd(number) });
    rustix::io::dup3(fd, &mut place, DupFlags::CLOEXEC)?;
    let [start, end] = &PASSED_ON;
    if end.load(Ordering::Relaxed) == 0 {
        start.store(number.cast_unsigned(), Ordering::Relaxed);
    }
    end.fetch_max(number.cast_unsigned() + 1, Ordering::Relaxed);
    Ok(())
}
