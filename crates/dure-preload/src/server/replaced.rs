//! A program that becomes another one by exec(2), which gets the volume.
//!
//! **Problem.** A wrapper (a shell, `env`, `nice`) ends in exec(2) of the program that is meant. That is to
//! have its calls done in it. **Structure.** The server and the program have an end each of a socket. exec
//! leaves the program's end open and puts an order into the environment ([`Environment`]). The
//! library in the new program asks for the volume ([`ask`]). The server closes it if nobody uses the
//! mount ([`Answers`]), and the new program's server opens it; otherwise the old one serves on.
//! **Invariants.** The server answers after the end of the program that it was made for. Only the process
//! of that asks, and only if it may what the program before might ([`standing`]) and has no children.
//! **On a crash** between the two the volume is closed.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use dure::run::{Before, Order, PRELOAD, Program};
use dure_sync::ProcessOnce;
use libc::c_char;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::FdFlags;

use super::descriptors;

/// What the program asks, and is answered.
const GIVE: u8 = b'?';
/// The volume is closed.
pub(super) const GIVEN: u8 = b'y';
/// The mount is served on.
pub(super) const IN_USE: u8 = b'n';
/// Neither.
pub(super) const LOST: u8 = b'l';

/// What an order for the next program is made of. Written before the program begins.
static NEXT: ProcessOnce<Next> = ProcessOnce::new();

/// Those of a process that its server and its children's would be in, too.
const NAMESPACES: [&str; 5] = [
    "mnt",
    "user",
    "pid",
    "pid_for_children",
    "time_for_children",
];

struct Next {
    /// With the program's ends of the sockets.
    order: Order,
    /// The library itself, a path.
    library: OsString,
    standing: Vec<u8>,
}

/// The server's end, which the program must not have.
pub(super) struct Answers(UnixStream);

/// Sleeps until it has ended.
fn await_end(program: &OwnedFd) {
    let mut end = [PollFd::new(program, PollFlags::IN)];
    while poll(&mut end, None).is_err() {}
}

/// Makes the ends, in the table that the program and its server share.
pub(super) fn begin(order: &Order, library: &OsStr, standing: Vec<u8>) -> std::io::Result<Answers> {
    let (asks, answers) = UnixStream::pair()?;
    // SAFETY: `dure run` has opened it for this process.
    let words = unsafe { BorrowedFd::borrow_raw(order.socket) };
    let words = rustix::io::fcntl_dupfd_cloexec(words, 0)?;
    let process = rustix::process::getpid().as_raw_nonzero().get();
    let before = Before {
        socket: asks.into_raw_fd(),
        process: process.cast_unsigned(),
    };
    let order = Order {
        socket: words.into_raw_fd(),
        before: Some(before),
        ..order.clone()
    };
    let _ = NEXT.set(Next {
        order,
        library: library.to_owned(),
        standing,
    });
    Ok(Answers(answers))
}

/// What the calling thread may: users, groups, capabilities, filters, namespaces, limits, and its root. Rules
/// of Landlock do not show.
pub(super) fn standing() -> std::io::Result<Vec<u8>> {
    use std::os::unix::fs::MetadataExt;
    let status = std::fs::read_to_string("/proc/thread-self/status")?;
    let told = |line: &&str| {
        ["Uid:", "Gid:", "Groups:", "Cap", "NoNewPrivs:", "Seccomp"]
            .iter()
            .any(|of| line.starts_with(of))
    };
    let mut standing: String = status.lines().filter(told).collect();
    for of in NAMESPACES {
        let namespace = std::fs::read_link(format!("/proc/thread-self/ns/{of}"))?;
        standing.push_str(&namespace.to_string_lossy());
    }
    standing.push_str(&std::fs::read_to_string("/proc/thread-self/limits")?);
    let root = std::fs::metadata("/")?;
    standing.push_str(&format!(" {} {}", root.dev(), root.ino()));
    Ok(standing.into_bytes())
}

impl Answers {
    /// In the server, which has copies of the program's ends.
    pub(super) fn begin_in_server(&self) {
        if let Some(Next { order, .. }) = NEXT.get() {
            let asks = order.before.map(|before| before.socket);
            asks.into_iter()
                .chain([order.socket])
                .for_each(descriptors::close);
        }
    }

    /// Waits until the program asks, or has ended; whether it asks.
    pub(super) fn await_question(&mut self, program: &OwnedFd) -> bool {
        let mut ends = [program.as_fd(), self.0.as_fd()]
            .map(|end| PollFd::from_borrowed_fd(end, PollFlags::IN));
        while poll(&mut ends, None).is_err() {}
        let mut question = [0];
        let asks = ends[0].revents().is_empty() && matches!(self.0.read(&mut question), Ok(1));
        if !asks {
            // Nobody has the other end any more, or there is nobody.
            await_end(program);
        }
        asks
    }

    /// Says what became of the volume.
    pub(super) fn answer(&mut self, answer: u8) {
        // One that has been killed meanwhile gets none.
        let _ = self.0.write_all(&[answer]);
    }
}

/// The environment of a program that may ask for the volume.
pub(crate) struct Environment {
    variables: Vec<*const c_char>,
    _texts: Vec<CString>,
}

impl Environment {
    /// The environment `given`, and an order for `program`. `None` if that is not to have the volume:
    /// no library can be loaded into it, it may do less than this one, or there are children, which
    /// would find no mount for a moment.
    ///
    /// # Safety
    /// `given` is null, or pointers to texts with a null behind them, which outlive the result.
    pub(crate) unsafe fn of(program: &Path, given: *const *mut c_char) -> Option<Environment> {
        let next = NEXT.get()?;
        let loads = dure::run::kind(program) == Program::Loads;
        if !loads || has_children() || standing().ok()? != next.standing {
            return None;
        }
        // SAFETY: the caller's promise.
        let given = unsafe { texts(given) };
        let value = |text: &CStr| {
            text.to_bytes()
                .strip_prefix(b"LD_PRELOAD=")
                .map(<[u8]>::to_vec)
        };
        let others = given
            .iter()
            .find_map(|text| value(text))
            .map(OsString::from_vec);
        let libraries = dure::run::preload_first(&next.library, others.as_deref());
        let ours = next
            .order
            .variables()
            .into_iter()
            .chain([(PRELOAD, libraries)]);
        let texts: Option<Vec<CString>> =
            ours.map(|(name, value)| variable(name, &value)).collect();
        let texts = texts?;
        let kept = given.iter().filter(|text| value(text).is_none());
        let mut variables: Vec<_> = kept.map(|text| text.as_ptr()).collect();
        variables.extend(texts.iter().map(|text| text.as_ptr()));
        variables.push(std::ptr::null());
        next.leave_open(FdFlags::empty());
        Some(Environment {
            variables,
            _texts: texts,
        })
    }

    /// As exec takes it.
    pub(crate) fn as_ptr(&self) -> *const *mut c_char {
        self.variables.as_ptr().cast()
    }
}

impl Drop for Environment {
    /// The program goes on.
    fn drop(&mut self) {
        if let Some(next) = NEXT.get() {
            next.leave_open(FdFlags::CLOEXEC);
        }
    }
}

impl Next {
    fn leave_open(&self, flags: FdFlags) {
        let asks = self.order.before.map(|before| before.socket);
        for fd in asks.into_iter().chain([self.order.socket]) {
            // SAFETY: the program does not close what is the library's.
            let fd = unsafe { BorrowedFd::borrow_raw(fd) };
            let _ = rustix::io::fcntl_setfd(fd, flags);
        }
    }
}

fn variable(name: &str, value: &OsStr) -> Option<CString> {
    CString::new([name.as_bytes(), b"=", value.as_bytes()].concat()).ok()
}

/// # Safety
/// See [`Environment::of`].
unsafe fn texts<'a>(mut at: *const *mut c_char) -> Vec<&'a CStr> {
    let mut texts = Vec::new();
    if at.is_null() {
        return texts;
    }
    loop {
        // SAFETY: no null was before it.
        let text = unsafe { *at };
        if text.is_null() {
            return texts;
        }
        // SAFETY: the caller's promise.
        texts.push(unsafe { CStr::from_ptr(text) });
        // SAFETY: a null comes later.
        at = unsafe { at.add(1) };
    }
}

fn has_children() -> bool {
    use rustix::process::{WaitId, WaitIdOptions, waitid};
    let how = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    !matches!(waitid(WaitId::All, how), Err(rustix::io::Errno::CHILD))
}

/// What the server of the program before has answered.
pub(super) enum Asked {
    /// It has closed the volume. The program begins here, or where it is.
    Free(Option<PathBuf>),
    /// It serves on.
    InUse,
    /// It does not serve, or not where this program could go on.
    Lost,
}

/// Asks for the volume, in the program that has replaced another one.
pub(super) fn ask(before: Before, order: &Order) -> Asked {
    // SAFETY: the program before has left it open.
    let mut socket = UnixStream::from(unsafe { OwnedFd::from_raw_fd(before.socket) });
    let asks = rustix::process::getpid()
        .as_raw_nonzero()
        .get()
        .cast_unsigned()
        == before.process;
    let Some(was) = std::env::current_dir().ok().filter(|_| asks) else {
        return Asked::InUse;
    };
    let is_inside = was.starts_with(&order.at);
    // Whoever is there has it in use. Only who may come back goes.
    if is_inside
        && [&was, Path::new("/")]
            .into_iter()
            .any(|place| rustix::process::chdir(place).is_err())
    {
        return Asked::InUse;
    }
    let mut answer = [0];
    let asked = socket
        .write_all(&[GIVE])
        .and_then(|()| socket.read_exact(&mut answer));
    match asked.map(|()| answer) {
        Ok([GIVEN]) => Asked::Free(is_inside.then_some(was)),
        Ok([IN_USE]) if !is_inside || rustix::process::chdir(&was).is_ok() => Asked::InUse,
        _ => Asked::Lost,
    }
}
