//! Calls that change users and groups.
//!
//! **Problem.** The C library has every thread of the process change them, and ends that if one can and
//! another one cannot. A program with one thread may have given that rights which the helper of its server
//! lacks (PR_SET_KEEPCAPS). **Structure.** From then on the kernel is asked, for that thread.
//! **Invariants.** The server stays whom it was; the helper until then does what the program does.
//! **On a crash** nothing is kept.

use dure_sync::atomic::{AtomicBool, Ordering};
use libc::{c_int, c_long, gid_t, size_t, uid_t};

use super::hook;
use crate::server;

/// "As it is."
const SAME: uid_t = uid_t::MAX;
/// Links of the folder of threads, with the program's and the helper's.
const LINKS: u64 = 4;
/// The kernel was asked once: the helper is another user. Written by the one thread: Relaxed.
static PARTED: AtomicBool = AtomicBool::new(false);

type One = unsafe extern "C" fn(uid_t) -> c_int;
type Two = unsafe extern "C" fn(uid_t, uid_t) -> c_int;
type Three = unsafe extern "C" fn(uid_t, uid_t, uid_t) -> c_int;
type Groups = unsafe extern "C" fn(size_t, *const gid_t) -> c_int;

hook!(setuid: (id: uid_t) -> c_int = one::<{ libc::SYS_setuid }>);
hook!(setgid: (id: gid_t) -> c_int = one::<{ libc::SYS_setgid }>);
hook!(seteuid: (id: uid_t) -> c_int = effective::<{ libc::SYS_setresuid }>);
hook!(setegid: (id: gid_t) -> c_int = effective::<{ libc::SYS_setresgid }>);
hook!(setreuid: (real: uid_t, effective: uid_t) -> c_int = two::<{ libc::SYS_setreuid }>);
hook!(setregid: (real: gid_t, effective: gid_t) -> c_int = two::<{ libc::SYS_setregid }>);
hook!(setresuid: (real: uid_t, effective: uid_t, saved: uid_t) -> c_int
    = three::<{ libc::SYS_setresuid }>);
hook!(setresgid: (real: gid_t, effective: gid_t, saved: gid_t) -> c_int
    = three::<{ libc::SYS_setresgid }>);
hook!(setgroups: (count: size_t, groups: *const gid_t) -> c_int = set_groups);

/// Whether the program has one thread, which keeps what the helper does not. Allocates nothing.
fn is_apart() -> bool {
    if !server::is_program() {
        return false;
    }
    let threads = rustix::fs::stat(c"/proc/self/task");
    let is_one = threads.is_ok_and(|threads| threads.st_nlink == LINKS);
    // SAFETY: numbers only.
    let kept = |what| unsafe { libc::prctl(what, 0, 0, 0, 0) };
    let keeps = || kept(libc::PR_GET_KEEPCAPS) > 0 || kept(libc::PR_GET_SECUREBITS) > 0;
    is_one && (PARTED.load(Ordering::Relaxed) || keeps())
}

/// What the kernel answers, if it is to be asked.
fn of_thread(number: c_long, ids: [uid_t; 3]) -> Option<c_int> {
    let [one, two, three] = ids;
    // SAFETY: numbers only.
    let ask = || unsafe { libc::syscall(number, one, two, three) };
    is_apart().then(|| {
        PARTED.store(true, Ordering::Relaxed);
        if ask() == 0 { 0 } else { -1 }
    })
}

unsafe fn one<const CALL: c_long>(real: One, id: uid_t) -> c_int {
    // SAFETY: the caller's argument.
    of_thread(CALL, [id, 0, 0]).unwrap_or_else(|| unsafe { real(id) })
}

unsafe fn effective<const CALL: c_long>(real: One, id: uid_t) -> c_int {
    if id == SAME {
        return super::refuse(libc::EINVAL);
    }
    // SAFETY: the caller's argument.
    of_thread(CALL, [SAME, id, SAME]).unwrap_or_else(|| unsafe { real(id) })
}

unsafe fn two<const CALL: c_long>(real: Two, one: uid_t, two: uid_t) -> c_int {
    // SAFETY: the caller's arguments.
    of_thread(CALL, [one, two, 0]).unwrap_or_else(|| unsafe { real(one, two) })
}

unsafe fn three<const CALL: c_long>(real: Three, one: uid_t, two: uid_t, three: uid_t) -> c_int {
    // SAFETY: the caller's arguments.
    of_thread(CALL, [one, two, three]).unwrap_or_else(|| unsafe { real(one, two, three) })
}

unsafe fn set_groups(real: Groups, count: size_t, groups: *const gid_t) -> c_int {
    if !is_apart() {
        // SAFETY: the caller's arguments.
        return unsafe { real(count, groups) };
    }
    // SAFETY: likewise.
    match unsafe { libc::syscall(libc::SYS_setgroups, count, groups) } {
        0 => 0,
        _ => -1,
    }
}
