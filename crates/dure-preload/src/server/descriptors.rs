//! Descriptors of the server that calls of the program need, too.
//!
//! **Problem.** The library's files, rings and the way to the kernel are numbers, and the server and
//! the program must have tables of their own: a program that closes all it knows, or is replaced, must
//! not take the server's with it. **Structure.** While it opens, the server shares the table of the
//! program, whose low numbers are filled ([`Fence`]), so that all that is opened gets high ones. Then
//! the program leaves with a copy of the table ([`Fence::part`]), in which everything has the same
//! number, and each side closes what is the other's. **Invariants.** No number below the fence is one of
//! the library's; the program's copies are closed by `exec` and in children. **On a crash** nothing is
//! kept.

use std::ops::Range;
use std::os::fd::{AsRawFd, IntoRawFd, RawFd};

use dure_sync::atomic::{AtomicU32, Ordering};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Resource, Rlimit};

/// The fence, where the program may open as many files.
const FENCE: RawFd = 1024;

/// First and end of the numbers that were passed on to the program. Written before it begins.
static PASSED_ON: [AtomicU32; 2] = [const { AtomicU32::new(0) }; 2];

/// The numbers that were passed on.
pub(super) fn passed_on() -> Range<RawFd> {
    let [start, end] = &PASSED_ON;
    start.load(Ordering::Relaxed).cast_signed()..end.load(Ordering::Relaxed).cast_signed()
}

/// Closes what is the library's.
pub(super) fn close(fd: RawFd) {
    // SAFETY: callers name what is theirs.
    unsafe { libc::syscall(libc::SYS_close, fd) };
}

/// The greatest number that is open, and 1.
fn end_of_open() -> std::io::Result<RawFd> {
    let names = std::fs::read_dir("/proc/self/fd")?.filter_map(Result::ok);
    let numbers = names.filter_map(|name| name.file_name().to_str()?.parse().ok());
    Ok(numbers.max().unwrap_or(0) + 1)
}

/// In a forked child: it uses none.
pub(super) fn close_passed_on() {
    passed_on().for_each(close);
    PASSED_ON[1].store(0, Ordering::Relaxed);
}

/// How many files this process may open.
pub(super) fn limit() -> Rlimit {
    rustix::process::getrlimit(Resource::Nofile)
}

/// Lets this process, and those that it makes, open as many files as it may.
fn raise_limit() {
    let limit = limit();
    restore(Rlimit {
        current: limit.maximum,
        ..limit
    });
}

/// Lets this process open so many files; it could before.
pub(super) fn restore(limit: Rlimit) {
    let _ = rustix::process::setrlimit(Resource::Nofile, limit);
}

/// Fills the numbers below it.
pub(super) struct Fence {
    number: RawFd,
    filled: Vec<RawFd>,
}

impl Fence {
    /// In the table of the program, before it begins.
    pub(super) fn begin() -> Fence {
        let limit = limit();
        raise_limit();
        let number = |limit: Option<u64>| limit.and_then(|limit| RawFd::try_from(limit).ok());
        let most = number(limit.maximum).unwrap_or(RawFd::MAX);
        let may = number(limit.current).unwrap_or(RawFd::MAX);
        // Of a program that may open few files, and no more, some are taken.
        let mut fence = Fence {
            number: FENCE.min(may).min(most - most / 4),
            filled: Vec::new(),
        };
        let filler = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
        let mut filler = filler.ok();
        while let Some(last) = filler.filter(|last| last.as_raw_fd() < fence.number) {
            filler = rustix::io::fcntl_dupfd_cloexec(&last, 0).ok();
            fence.filled.push(last.into_raw_fd());
        }
        fence
    }

    /// Frees the numbers that were filled.
    fn end(&self) {
        self.filled.iter().copied().for_each(close);
    }

    /// In the server, which has a table of its own now: closes all that is the program's, but `kept` and
    /// standard error, where a server that fails says why.
    pub(super) fn end_in_server(&self, kept: RawFd) {
        for fd in 0..self.number {
            if fd != libc::STDERR_FILENO && fd != kept {
                close(fd);
            }
        }
    }

    /// In the program, which leaves the table to the server.
    pub(super) fn part(&self) -> Result<(), String> {
        use rustix::thread::{UnshareFlags, unshare_unsafe};
        // SAFETY: the program has no other thread that uses descriptors.
        let parted = unsafe { unshare_unsafe(UnshareFlags::FILES) };
        parted.map_err(|error| format!("a table of descriptors for the program: {error}"))?;
        self.end();
        let end = end_of_open().map_err(|error| format!("/proc/self/fd: {error}"))?;
        PASSED_ON[0].store(self.number.cast_unsigned(), Ordering::Relaxed);
        PASSED_ON[1].store(end.cast_unsigned(), Ordering::Relaxed);
        Ok(())
    }
}
