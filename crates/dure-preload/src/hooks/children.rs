//! Calls that make processes, or give them descriptors, and those that end this one.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use libc::{
    FILE, c_char, c_int, msghdr, pid_t, posix_spawn_file_actions_t, posix_spawnattr_t, ssize_t,
};

use super::hook;
use crate::real::Real;
use crate::server::Environment;
use crate::{server, table};

unsafe extern "C" {
    static environ: *const *mut c_char;
}

type Spawn = unsafe extern "C" fn(
    *mut pid_t,
    *const c_char,
    *const posix_spawn_file_actions_t,
    *const posix_spawnattr_t,
    *const *mut c_char,
    *const *mut c_char,
) -> c_int;
/// exec(2) of what is named so.
type ExecBy<N> = unsafe extern "C" fn(N, *const *mut c_char, *const *mut c_char) -> c_int;
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

hook!(execve:
    (path: *const c_char, arguments: *const *mut c_char, environment: *const *mut c_char) -> c_int
    = replace_by_path);
hook!(execvpe:
    (name: *const c_char, arguments: *const *mut c_char, environment: *const *mut c_char) -> c_int
    = replace_by_name);
hook!(execv: (path: *const c_char, arguments: *const *mut c_char) -> c_int = replace_here_by_path);
hook!(execvp: (name: *const c_char, arguments: *const *mut c_char) -> c_int = replace_here_by_name);
hook!(fexecve:
    (fd: c_int, arguments: *const *mut c_char, environment: *const *mut c_char) -> c_int
    = replace_by_descriptor);

static EXECVE: Real<ExecBy<*const c_char>> = Real::new("execve\0");
static EXECVPE: Real<ExecBy<*const c_char>> = Real::new("execvpe\0");

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
/// `program` is the file that `named` names.
unsafe fn replace<N: Copy>(
    (real, named): (ExecBy<N>, N),
    program: impl FnOnce() -> Option<PathBuf>,
    arguments: *const *mut c_char,
    environment: *const *mut c_char,
) -> c_int {
    server::leave();
    // A child allocates nothing: it may have been forked while another thread did.
    let program = server::is_program().then(program).flatten();
    // SAFETY: the caller's.
    let ours = program.and_then(|program| unsafe { Environment::of(&program, environment) });
    if let Some(ours) = ours {
        // SAFETY: the caller's arguments, and an environment as it is to be.
        let failed = unsafe { real(named, arguments, ours.as_ptr()) };
        if std::io::Error::last_os_error().raw_os_error() != Some(libc::E2BIG) {
            return failed;
        }
        // What was added was too much.
    }
    // SAFETY: the caller's arguments.
    unsafe { real(named, arguments, environment) }
}

/// A path or a name; null is left to the C library.
unsafe fn named<'a>(text: *const c_char) -> Option<&'a OsStr> {
    // SAFETY: the caller's.
    let text = (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) });
    text.map(|text| OsStr::from_bytes(text.to_bytes()))
}

unsafe fn replace_by_path(
    real: ExecBy<*const c_char>,
    path: *const c_char,
    arguments: *const *mut c_char,
    environment: *const *mut c_char,
) -> c_int {
    // SAFETY: the caller's path.
    let program = || unsafe { named(path) }.map(PathBuf::from);
    // SAFETY: the caller's arguments.
    unsafe { replace((real, path), program, arguments, environment) }
}

unsafe fn replace_by_name(
    real: ExecBy<*const c_char>,
    name: *const c_char,
    arguments: *const *mut c_char,
    environment: *const *mut c_char,
) -> c_int {
    // SAFETY: the caller's name.
    let program = || unsafe { named(name) }.and_then(dure::run::find);
    // SAFETY: the caller's arguments.
    unsafe { replace((real, name), program, arguments, environment) }
}

unsafe fn replace_here_by_path(
    _: unsafe extern "C" fn(*const c_char, *const *mut c_char) -> c_int,
    path: *const c_char,
    arguments: *const *mut c_char,
) -> c_int {
    // SAFETY: the program's, which no other thread changes now.
    let environment = unsafe { environ };
    // SAFETY: the caller's arguments.
    unsafe { replace_by_path(EXECVE.get(), path, arguments, environment) }
}

unsafe fn replace_here_by_name(
    _: unsafe extern "C" fn(*const c_char, *const *mut c_char) -> c_int,
    name: *const c_char,
    arguments: *const *mut c_char,
) -> c_int {
    // SAFETY: the program's, which no other thread changes now.
    let environment = unsafe { environ };
    // SAFETY: the caller's arguments.
    unsafe { replace_by_name(EXECVPE.get(), name, arguments, environment) }
}

unsafe fn replace_by_descriptor(
    real: ExecBy<c_int>,
    fd: c_int,
    arguments: *const *mut c_char,
    environment: *const *mut c_char,
) -> c_int {
    let program = || Some(format!("/proc/self/fd/{fd}").into());
    // SAFETY: the caller's arguments.
    unsafe { replace((real, fd), program, arguments, environment) }
}

unsafe fn end(real: End, status: c_int) -> ! {
    server::leave();
    // SAFETY: it does not return.
    unsafe { real(status) }
}
