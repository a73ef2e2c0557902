//! Calls that make processes, or give them descriptors, and those that end this one.

use libc::{
    FILE, c_char, c_int, msghdr, pid_t, posix_spawn_file_actions_t, posix_spawnattr_t, ssize_t,
};

use super::hook;
use crate::{server, table};

type Spawn = unsafe extern "C" fn(
    *mut pid_t,
    *const c_char,
    *const posix_spawn_file_actions_t,
    *const posix_spawnattr_t,
    *const *mut c_char,
    *const *mut c_char,
) -> c_int;
type End = unsafe extern "C" fn(c_int) -> !;

hook!(posix_spawn, posix_spawnp:
    (id: *mut pid_t, path: *const c_char, actions: *const posix_spawn_file_actions_t,
     how: *const posix_spawnattr_t, arguments: *const *mut c_char, environment: *const *mut c_char)
    -> c_int = spawn);
hook!(popen: (command: *const c_char, kind: *const c_char) -> *mut FILE = open_pipe);
hook!(system: (command: *const c_char) -> c_int = run_shell);
hook!(sendmsg: (socket: c_int, message: *const msghdr, flags: c_int) -> ssize_t = send);
hook!(vfork: () -> pid_t = fork_instead);
hook!(_exit, _Exit, quick_exit: (status: c_int) -> ! = end);

hook!(execve, execvpe:
    (path: *const c_char, arguments: *const *mut c_char, environment: *const *mut c_char) -> c_int
    = replace_with);
hook!(execv, execvp: (path: *const c_char, arguments: *const *mut c_char) -> c_int = replace);
hook!(fexecve:
    (fd: c_int, arguments: *const *mut c_char, environment: *const *mut c_char) -> c_int
    = replace_by);

/// Has the C library tell of forks.
pub(super) fn begin() {
    extern "C" fn before() {
        table::all_become_shared();
    }
    extern "C" fn in_child() {
        server::forget();
    }
    // SAFETY: the handlers may be called in any thread, and in any child: there they write atomics and
    // close.
    unsafe { libc::pthread_atfork(Some(before), None, Some(in_child)) };
}

unsafe fn spawn(
    real: Spawn,
    id: *mut pid_t,
    path: *const c_char,
    actions: *const posix_spawn_file_actions_t,
    how: *const posix_spawnattr_t,
    arguments: *const *mut c_char,
    environment: *const *mut c_char,
) -> c_int {
    table::all_become_shared();
    // SAFETY: the caller's arguments.
    unsafe { real(id, path, actions, how, arguments, environment) }
}

unsafe fn open_pipe(
    real: unsafe extern "C" fn(*const c_char, *const c_char) -> *mut FILE,
    command: *const c_char,
    kind: *const c_char,
) -> *mut FILE {
    table::all_become_shared();
    // SAFETY: the caller's arguments.
    unsafe { real(command, kind) }
}

unsafe fn run_shell(
    real: unsafe extern "C" fn(*const c_char) -> c_int,
    command: *const c_char,
) -> c_int {
    table::all_become_shared();
    // SAFETY: the caller's arguments.
    unsafe { real(command) }
}

/// A message may carry descriptors.
unsafe fn send(
    real: unsafe extern "C" fn(c_int, *const msghdr, c_int) -> ssize_t,
    socket: c_int,
    message: *const msghdr,
    flags: c_int,
) -> ssize_t {
    // SAFETY: null, or the caller's message.
    if unsafe { message.as_ref() }.is_some_and(|message| message.msg_controllen > 0) {
        table::all_become_shared();
    }
    // SAFETY: the caller's arguments.
    unsafe { real(socket, message, flags) }
}

/// A child that shares the memory would close descriptors in the parent's table.
unsafe fn fork_instead(_: unsafe extern "C" fn() -> pid_t) -> pid_t {
    // SAFETY: what a child of vfork(2) may do, one of fork(2) may do.
    unsafe { libc::fork() }
}

/// The threads of a program that is replaced are killed: none is to be within a call.
unsafe fn replace_with(
    real: unsafe extern "C" fn(*const c_char, *const *mut c_char, *const *mut c_char) -> c_int,
    path: *const c_char,
    arguments: *const *mut c_char,
    environment: *const *mut c_char,
) -> c_int {
    server::leave();
    // SAFETY: the caller's arguments.
    unsafe { real(path, arguments, environment) }
}

unsafe fn replace(
    real: unsafe extern "C" fn(*const c_char, *const *mut c_char) -> c_int,
    path: *const c_char,
    arguments: *const *mut c_char,
) -> c_int {
    server::leave();
    // SAFETY: the caller's arguments.
    unsafe { real(path, arguments) }
}

unsafe fn replace_by(
    real: unsafe extern "C" fn(c_int, *const *mut c_char, *const *mut c_char) -> c_int,
    fd: c_int,
    arguments: *const *mut c_char,
    environment: *const *mut c_char,
) -> c_int {
    server::leave();
    // SAFETY: the caller's arguments.
    unsafe { real(fd, arguments, environment) }
}

unsafe fn end(real: End, status: c_int) -> ! {
    server::leave();
    // SAFETY: it does not return.
    unsafe { real(status) }
}
