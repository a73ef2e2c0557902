//! A process that shares the memory of the program.
//!
//! **Structure.** The helper, a thread of the program, has the kernel write [`ALIVE`] when it ends,
//! which it does with the program only. It makes the server by clone(2), with a stack of its own, and
//! sleeps. **Invariants.** The helper touches its thread-local storage no more once the server runs: it
//! is the server's, so that what that calls of the C library finds a thread. **On a crash** of the
//! program the server goes on.

use std::os::fd::OwnedFd;
use std::time::Duration;

use dure_sync::atomic::{AtomicU32, Ordering};
use dure_sync::{ProcessOnce, futex, thread, without_signals};
use libc::{c_int, c_long, c_void};
use rustix::process::{PidfdFlags, pidfd_open};

use super::replaced::Answers;

/// 1, and 0 when the helper has ended.
static ALIVE: AtomicU32 = AtomicU32::new(1);
/// Bytes of the server's stack; what is not used takes no memory.
const STACK_BYTES: usize = 8 << 20;

/// What the server does.
pub(super) type Body = Box<dyn FnOnce() + Send>;

/// What the server is at: it opens, serves, or has failed; or the program goes on.
static STAGE: AtomicU32 = AtomicU32::new(OPENS);
const OPENS: u32 = 0;
const SERVES: u32 = 1;
const FAILED: u32 = 2;
const GOES_ON: u32 = 3;
/// 1, and 0 when the server has ended.
static SERVER_ALIVE: AtomicU32 = AtomicU32::new(1);
/// Why it has failed.
static WHY: ProcessOnce<String> = ProcessOnce::new();
/// How long the program sleeps before it looks whether it still has a server.
const LOOKS: Duration = Duration::from_millis(100);

/// Makes the server, which does `body` and ends.
pub(super) fn begin(body: Body) {
    let helper = || thread::spawn("dure-run", move || help(body));
    drop(without_signals(helper));
}

fn stage(stage: u32) {
    STAGE.store(stage, Ordering::SeqCst);
    futex::wake(&STAGE, u32::MAX);
}

/// The server says how it has begun.
pub(super) fn serves(begun: Result<(), String>) {
    match begun {
        Ok(()) => stage(SERVES),
        Err(why) => {
            let _ = WHY.set(why);
            stage(FAILED);
        }
    }
}

/// The program waits for that.
pub(super) fn wait_until_it_serves() -> Result<(), String> {
    loop {
        match STAGE.load(Ordering::SeqCst) {
            SERVES => return Ok(()),
            OPENS if SERVER_ALIVE.load(Ordering::SeqCst) == 0 => {
                return Err("the server of the volume has ended".to_owned());
            }
            OPENS => _ = futex::wait(&STAGE, OPENS, Some(LOOKS)),
            _ => return Err(WHY.get().cloned().unwrap_or_default()),
        }
    }
}

/// The program has descriptors of its own.
pub(super) fn program_goes_on() {
    stage(GOES_ON);
}

/// The server waits for that.
pub(super) fn wait_until_the_program_goes_on() {
    while STAGE.load(Ordering::SeqCst) == SERVES {
        futex::wait(&STAGE, SERVES, None);
    }
}

fn help(body: Body) {
    // SAFETY: the word is never freed.
    unsafe { libc::syscall(libc::SYS_set_tid_address, ALIVE.as_ptr()) };
    let stack = stack();
    let body = Box::into_raw(Box::new(body));
    let shared = libc::CLONE_VM | libc::CLONE_FILES;
    let flags = shared | libc::CLONE_PARENT | libc::CLONE_CHILD_CLEARTID;
    let (none, word) = (std::ptr::null_mut::<c_void>(), SERVER_ALIVE.as_ptr());
    // SAFETY: the stack is new, and nobody frees it; `serve` takes the body; the word is never freed.
    let made = unsafe { libc::clone(serve, stack, flags, body.cast(), none, none, word) };
    if made < 0 {
        serves(Err("no process can be made for the volume".to_owned()));
    }
    await_server();
    // Without a server no call of the program ends, and nobody answers the mount.
    let me = rustix::process::getpid();
    let _ = rustix::process::kill_process(me, rustix::process::Signal::KILL);
}

/// Sleeps as long as the server lives; for ever if the program did not begin, which says why and ends.
/// Touches no thread-local storage.
fn await_server() {
    while SERVER_ALIVE.load(Ordering::SeqCst) != 0 {
        // The kernel wakes it as a word that processes share.
        let shared = rustix::thread::futex::Flags::empty();
        let _ = rustix::thread::futex::wait(&SERVER_ALIVE, shared, 1, None);
    }
    while STAGE.load(Ordering::SeqCst) != GOES_ON {
        rustix::event::pause();
    }
}

/// The end of memory for a stack, which grows down.
fn stack() -> *mut c_void {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::STACK;
    let (access, place) = (ProtFlags::READ | ProtFlags::WRITE, std::ptr::null_mut());
    // SAFETY: new memory.
    let memory = unsafe { mmap_anonymous(place, STACK_BYTES, access, flags) };
    let memory = memory.expect("there is memory for a stack");
    // SAFETY: the end of it.
    unsafe { memory.byte_add(STACK_BYTES) }
}

extern "C" fn serve(body: *mut c_void) -> c_int {
    // Its own session: what a terminal sends to the program is not for it.
    let _ = rustix::process::setsid();
    let _ = rustix::process::chdir("/");
    let _ = rustix::thread::set_name(c"dure-run");
    // SAFETY: the helper's box, which it leaves to the server.
    let body = unsafe { Box::from_raw(body.cast::<Body>()) };
    body();
    end(0)
}

/// Ends the calling process and nothing else: no destructor of the program's is run.
pub(super) fn end(status: i32) -> ! {
    loop {
        // SAFETY: it does not return.
        unsafe { libc::syscall(libc::SYS_exit_group, c_long::from(status)) };
    }
}

/// Waits until the program has ended or is replaced.
pub(super) fn wait_for_the_end_of_the_program() {
    while ALIVE.load(Ordering::SeqCst) != 0 {
        let (word, none) = (ALIVE.as_ptr(), std::ptr::null::<libc::timespec>());
        // The kernel wakes it as a word that processes share: not private.
        // SAFETY: the word is never freed; the call sleeps while it is 1.
        unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAIT, 1, none) };
    }
}

/// The process of the program, which lives on when it is replaced.
pub(super) struct Program(Option<OwnedFd>);

impl Program {
    pub(super) fn of(process: u32) -> Program {
        let process = rustix::process::Pid::from_raw(process.cast_signed());
        let open = |process| pidfd_open(process, PidfdFlags::empty()).ok();
        Program(process.and_then(open))
    }

    /// Waits until it has ended, or what it was replaced by asks; whether that asks.
    pub(super) fn asks(&self, answers: &mut Answers) -> bool {
        let program = self.0.as_ref();
        program.is_some_and(|program| answers.await_question(program))
    }
}

/// Whether a thread of a process has ended.
pub(super) fn is_dead(process: u32, thread: u32) -> bool {
    // SAFETY: it sends nothing.
    let there = unsafe { libc::syscall(libc::SYS_tgkill, process, thread, 0) };
    there != 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)
}
