//! The server of the program: a process that shares its memory, and outlives it.
//!
//! **Problem.** The volume has to be open where the program's calls are, and the mount has to be served
//! when the program is replaced by `exec`, killed, or has ended before its children.
//! **Structure.** Before the program begins, a thread of it, the helper, makes a process that shares
//! the memory: the server (`process`). It opens the volume and mounts it, and has the descriptors that
//! calls need in common with the program (`descriptors`). The helper sleeps until the program ends; then the
//! kernel writes a word, and the server unmounts.
//! **Invariants.** The server is a child of `dure run`, blocks all signals, and has descriptors of its
//! own. It uses the thread-local storage of the helper, which never does. **On a crash** of the server
//! the mount answers ENOTCONN; of the program, see `crate`.

mod descriptors;
mod mappings;
mod process;
mod replaced;

use std::ffi::OsStr;
use std::io::Write;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use descriptors::Fence;
use dure::run::{Order, PRELOAD, Word};
use dure::{Credentials, File, Mount, Volume};
use dure_sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use dure_sync::{Arc, clock, thread};
use replaced::{Answers, Asked, GIVEN, IN_USE, LOST};
use rustix::fs::{AtFlags, OFlags, StatxFlags};

pub(crate) use replaced::Environment;

use crate::description::Description;
use crate::{hooks, mapped, signals, slot, table};

/// The mount of the volume, while calls may use it. Written by the server before the program begins, and
/// by what ends the short way.
static MOUNT: AtomicPtr<Mount> = AtomicPtr::new(std::ptr::null_mut());
/// Number of the program's process.
static PROGRAM: AtomicU32 = AtomicU32::new(0);
/// Milliseconds between two looks whether the mount has users, at most.
const LOOK_MAX_MS: u64 = 200;
/// How long threads of a program that has ended or is replaced may take to be gone.
const DYING: Duration = Duration::from_secs(2);
/// Exit status of a program that did not begin.
const NOT_BEGUN: i32 = 126;

/// Where words for `dure run` go.
struct Socket(UnixStream);

impl Socket {
    fn say(&mut self, word: &Word) {
        // Nobody listens any more: there is nobody to tell.
        let _ = self.0.write_all(word.line().as_bytes());
    }
}

/// Starts the server, if `dure run` has ordered one, and returns when it serves.
pub(crate) fn begin() {
    let Some((order, names)) = Order::of(|name| std::env::var_os(name)) else {
        return;
    };
    let libraries = std::env::var_os(PRELOAD).unwrap_or_default();
    for name in names {
        // SAFETY: the program has one thread yet.
        unsafe { std::env::remove_var(name) };
    }
    let (library, others) = dure::run::preloaded(&libraries);
    match others {
        // SAFETY: as above.
        Some(others) => unsafe { std::env::set_var(PRELOAD, others) },
        // SAFETY: as above.
        None => unsafe { std::env::remove_var(PRELOAD) },
    }
    let me = rustix::process::getpid().as_raw_nonzero().get();
    PROGRAM.store(me.cast_unsigned(), Ordering::Relaxed);
    // SAFETY: `dure run` has opened it for this process.
    let socket = unsafe { OwnedFd::from_raw_fd(order.socket) };
    let asked = order.before.map(|before| replaced::ask(before, &order));
    let enters = match asked {
        None => Ok(order.begins_inside.then(|| order.at.clone())),
        Some(Asked::Free(was)) => Ok(was),
        Some(Asked::InUse) => {
            // It has no helper, and no descriptors of the library.
            PROGRAM.store(0, Ordering::Relaxed);
            return;
        }
        Some(Asked::Lost) => Err(format!("{}: its server is lost", order.at.display())),
    };
    // The numbers of the program before are the library's: this one is to be the program's again.
    let socket = rustix::io::fcntl_dupfd_cloexec(&socket, 0).unwrap_or(socket);
    let order = Order {
        socket: socket.as_raw_fd(),
        ..order
    };
    let begun = enters.and_then(|enters| begin_server(&order, library, enters));
    match begun {
        Ok(()) => {
            hooks::begin();
            signals::begin(hooks::REAL_SIGACTION.get());
        }
        Err(why) => {
            Socket(socket.into()).say(&Word::Failed(why));
            process::end(NOT_BEGUN);
        }
    }
}

/// Begins to serve, and enters a directory.
fn begin_server(order: &Order, library: &OsStr, enters: Option<PathBuf>) -> Result<(), String> {
    slot::begin().map_err(|error| format!("a page that children do not have: {error}"))?;
    let standing = replaced::standing().map_err(|error| format!("/proc/thread-self: {error}"))?;
    let limit = descriptors::limit();
    let fence = Arc::new(Fence::begin());
    let answers = replaced::begin(order, library, standing);
    let answers = answers.map_err(|error| format!("a socket for the next program: {error}"))?;
    let job = (order.clone(), Arc::clone(&fence));
    process::begin(Box::new(move || serve(&job.0, &job.1, answers)));
    let begun = process::wait_until_it_serves().and_then(|()| {
        let parted = fence.part();
        process::program_goes_on();
        parted
    });
    descriptors::restore(limit);
    begun?;
    enters.map_or(Ok(()), |place| {
        let entered = rustix::process::chdir(&place);
        entered.map_err(|error| format!("{}: {error}", place.display()))
    })
}

/// What the server does, in a process of its own, whose descriptors are the program's until that parts.
fn serve(order: &Order, fence: &Fence, answers: Answers) {
    let (volume, mount) = match order.carry_out() {
        Ok(opened) => opened,
        Err(why) => return process::serves(Err(why)),
    };
    let place = mappings::device(mount.path());
    let mount = Box::into_raw(Box::new(mount));
    MOUNT.store(mount, Ordering::SeqCst);
    process::serves(Ok(()));
    process::wait_until_the_program_goes_on();
    fence.end_in_server(order.socket);
    answers.begin_in_server();
    // SAFETY: its copy of the program's, which has its own.
    let mut socket = Socket(unsafe { OwnedFd::from_raw_fd(order.socket) }.into());
    socket.say(&Word::Ready);
    let program = process::Program::of(PROGRAM.load(Ordering::Relaxed));
    process::wait_for_the_end_of_the_program();
    thread::leave_threads();
    MOUNT.store(std::ptr::null_mut(), Ordering::SeqCst);
    // SAFETY: it was made above, and no call takes it from now on; those that are under way are
    // waited for before it is used.
    let mount = unsafe { Box::from_raw(mount) };
    let program = (program, answers);
    finish(&mut socket, (order, place), program, (volume, mount));
}

/// Unmounts and closes when the last user has left, or what the program was replaced by asks.
fn finish(
    socket: &mut Socket,
    (order, place): (&Order, Option<(u32, u32)>),
    (program, mut answers): (process::Program, Answers),
    (volume, mut mount): (Volume, Box<Mount>),
) {
    let left = table::close();
    let process = PROGRAM.load(Ordering::Relaxed);
    let begin = clock::monotonic_ns();
    // The thread that replaces the program takes the number of the first one.
    let is_over = || Duration::from_nanos(clock::monotonic_ns() - begin) > DYING;
    if slot::wait_for_the_dead(|thread| process::is_dead(process, thread) || is_over()) {
        socket.say(&Word::Killed);
        // What the program has mapped is written when this process ends, which cannot serve that.
        mount.abort();
        process::end(1);
    }
    left.give_up();
    // What replaces it uses the mount, or asks for the volume.
    let mut is_given = false;
    while !is_given && program.asks(&mut answers) {
        mappings::unmap(mount.path());
        is_given = mount.unmount().is_ok();
        if !is_given {
            // One that another namespace has is gone from here all the same.
            let is_here = mappings::device(mount.path()) == place;
            answers.answer(if is_here { IN_USE } else { LOST });
        }
    }
    if !is_given {
        unmount(socket, &mut mount);
        if order.begins_inside {
            // `dure run` has made it, and left it to whom it served last.
            let _ = std::fs::remove_dir(&order.at);
        }
    }
    drop(mount);
    let closed = volume.close();
    // Only then others can open it.
    drop(volume);
    let is_closed = closed.is_ok();
    socket.say(&match closed {
        Ok(()) if is_given => Word::GivenAway(slot::calls()),
        Ok(()) => Word::Ended(slot::calls()),
        Err(error) => Word::Failed(error.to_string()),
    });
    if is_given {
        answers.answer(if is_closed { GIVEN } else { LOST });
    }
}

/// Unmounts when the last user has left.
fn unmount(socket: &mut Socket, mount: &mut Mount) {
    mappings::unmap(mount.path());
    let mut pause = 1;
    while mount.unmount().is_err() {
        thread::sleep(Duration::from_millis(pause));
        if pause < LOOK_MAX_MS && pause * 2 >= LOOK_MAX_MS {
            socket.say(&Word::InUse);
        }
        pause = (pause * 2).min(LOOK_MAX_MS);
    }
}

/// Has the library do the calls on `fd`, which was opened for `flags`, if it is a file of the volume.
pub(crate) fn opened(fd: RawFd, flags: i32) {
    let is_off = MOUNT.load(Ordering::Relaxed).is_null();
    if fd < 0 || is_off || slot::is_inside() || !slot::is_of_program() {
        return;
    }
    let flags = OFlags::from_bits_retain(flags.cast_unsigned());
    if flags.intersects(OFlags::PATH | OFlags::DIRECTORY) {
        return;
    }
    // One that was left there by a close that went by the hooks.
    let before = table::take(fd);
    let Some(_inside) = slot::Inside::other() else {
        return;
    };
    drop(before);
    take(fd, flags);
}

/// Gives a descriptor that was just opened its description.
fn take(fd: RawFd, flags: OFlags) {
    // SAFETY: it is open: the program has not got it yet.
    let descriptor = unsafe { BorrowedFd::borrow_raw(fd) };
    // What goes wrong here the kernel says of the next call.
    let Some(file) = file_of(descriptor, Credentials::of_process()) else {
        return;
    };
    let how = AtFlags::STATX_DONT_SYNC | AtFlags::EMPTY_PATH;
    let Ok(found) = rustix::fs::statx(descriptor, "", how, StatxFlags::TYPE) else {
        return;
    };
    let device = rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor);
    let appends = flags.contains(OFlags::APPEND);
    let description = Arc::new(Description::new(file, device, appends));
    if flags.contains(OFlags::DIRECT) {
        // It may be read by aio, which ends where the kernel takes the end to be.
        description.becomes_mapped(descriptor);
    }
    table::put_inside(fd, description);
}

/// The library's file, by a thread that is inside.
fn file_of(descriptor: BorrowedFd<'_>, caller: Credentials) -> Option<File> {
    // SAFETY: the server takes it back when no thread is within a call.
    let mount = unsafe { MOUNT.load(Ordering::SeqCst).as_ref() }?;
    mount.file(descriptor, caller).ok()?
}

/// What `fd` leads to is about to be mapped, if it is a file of the volume.
pub(crate) fn maps(fd: RawFd) {
    let is_off = MOUNT.load(Ordering::Relaxed).is_null();
    if fd < 0 || is_off || slot::is_inside() || !slot::is_of_program() {
        return;
    }
    let Some(_inside) = slot::Inside::other() else {
        return;
    };
    // SAFETY: what is not open is no file of the volume.
    let descriptor = unsafe { BorrowedFd::borrow_raw(fd) };
    if let Some(file) = file_of(descriptor, Credentials::root()) {
        mapped::begin(file.ino(), descriptor);
    }
}

/// Whether a descriptor is one that calls of the library need.
pub(crate) fn is_ours(fd: RawFd) -> bool {
    descriptors::passed_on().contains(&fd) && is_program()
}

/// Whether this is the program's process, not its server, nor a child.
pub(crate) fn is_program() -> bool {
    let me = rustix::process::getpid().as_raw_nonzero().get();
    PROGRAM.load(Ordering::Relaxed) == me.cast_unsigned()
}

/// The descriptors that calls of the library need.
pub(crate) fn our_descriptors() -> std::ops::Range<RawFd> {
    if is_program() {
        descriptors::passed_on()
    } else {
        0..0
    }
}

/// The program is about to end: calls that begin go to the kernel, and those under way are waited for.
pub(crate) fn leave() {
    if !is_program() {
        return;
    }
    MOUNT.store(std::ptr::null_mut(), Ordering::SeqCst);
    // An open that is under way may still enter a description.
    for _ in 0..2 {
        let left = table::close();
        slot::wait_for(|_| true);
        slot::inside(|| left.give_up());
    }
}

/// In a forked child: all goes to the kernel.
pub(crate) fn forget() {
    slot::forget();
    descriptors::close_passed_on();
}
