//! A process that shares the memory of the program.
//!
//! **Structure.** The helper, a thread of the program, has the kernel write [`ALIVE`] when it ends,
//! which it does with the program only. It makes the server by clone(2), with a stack of its own, and
//! sleeps. **Invariants.** The helper touches its thread-local storage no more once the server runs: it
//! is the server's, so that what that calls of the C library finds a thread. **On a crash** of the
//! program the server goes on.

use std::os::fd::RawFd;

use dure_sync::atomic::{AtomicU32, Ordering};
use dure_sync::{thread, without_signals};
use libc::{c_int, c_long, c_void};

/// 1, and 0 when the helper has ended.
static ALIVE: AtomicU32 = AtomicU32::new(1);
/// Bytes of the server's stack; what is not used takes no memory.
const STACK_BYTES: usize = 8 << 20;

/// What the server does.
pub(super) type Body = Box<dyn FnOnce() + Send>;

/// Makes the server, which does `body` and ends. `way` is the descriptor of the body's that the program does
/// not keep.
pub(super) fn begin(way: RawFd, body: Body) {
    let helper = || thread::spawn("dure-run", move || help(way, body));
    drop(without_signals(helper));
}

fn help(way: RawFd, body: Body) {
    // SAFETY: the word is never freed.
    unsafe { libc::syscall(libc::SYS_set_tid_address, ALIVE.as_ptr()) };
    let stack = stack();
    let body = Box::into_raw(Box::new(body));
    let flags = libc::CLONE_VM | libc::CLONE_PARENT;
    // SAFETY: the stack is new, and nobody frees it; `serve` takes the body.
    let made = unsafe { libc::clone(serve, stack, flags, body.cast()) };
    if made < 0 {
        // Its descriptor is closed below.
        // SAFETY: no server has it.
        std::mem::forget(unsafe { Box::from_raw(body) });
    }
    // Without a server that is the end of the way, for the program.
    // SAFETY: the server has a copy, and nobody else uses it. The call leaves the thread's storage as
    // it is.
    unsafe { rustix::io::close(way) };
    loop {
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

/// Whether a thread of a process has ended.
pub(super) fn is_dead(process: u32, thread: u32) -> bool {
    // SAFETY: it sends nothing.
    let there = unsafe { libc::syscall(libc::SYS_tgkill, process, thread, 0) };
    there != 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)
}
