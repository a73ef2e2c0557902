//! Calls that change users and groups.
//!
//! **Problem.** The C library has every thread of the process change them, and ends that if one cannot. A
//! program with one thread may have given that rights which the helper of its server lacks
//! (PR_SET_KEEPCAPS). **Structure.** Where the program has one thread the kernel is asked, for that.
//! **Invariants.** The helper and the server stay whom they were. **On a crash** nothing is kept.

use libc::{c_int, c_long, gid_t, size_t, uid_t};

use super::hook;
use crate::server;

/// "As it is."
const SAME: uid_t = uid_t::MAX;
/// The program's and the helper.
const THREADS: usize = 2;

type One = unsafe extern "C" fn(uid_t) -> c_int;
type Two = unsafe extern "C" fn(uid_t, uid_t) -> c_int;
type Three = unsafe extern "C" fn(uid_t, uid_t, uid_t) -> c_int;
type Groups = unsafe extern "C" fn(size_t, *const gid_t) -> c_int;

hook!(setuid: (id: uid_t) -> c_int = set_user);
hook!(setgid: (id: gid_t) -> c_int = set_group);
hook!(seteuid: (id: uid_t) -> c_int = set_effective_user);
hook!(setegid: (id: gid_t) -> c_int = set_effective_group);
hook!(setreuid: (real: uid_t, effective: uid_t) -> c_int = set_two_users);
hook!(setregid: (real: gid_t, effective: gid_t) -> c_int = set_two_groups);
hook!(setresuid: (real: uid_t, effective: uid_t, saved: uid_t) -> c_int = set_three_users);
hook!(setresgid: (real: gid_t, effective: gid_t, saved: gid_t) -> c_int = set_three_groups);
hook!(setgroups: (count: size_t, groups: *const gid_t) -> c_int = set_groups);

fn has_one_thread() -> bool {
    server::is_program()
        && std::fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() == THREADS)
}

/// What the kernel answers, if it is to be asked.
fn of_thread(number: c_long, ids: [uid_t; 3]) -> Option<c_int> {
    let [one, two, three] = ids;
    // SAFETY: numbers only.
    let ask = || unsafe { libc::syscall(number, one, two, three) };
    has_one_thread().then(|| if ask() == 0 { 0 } else { -1 })
}

unsafe fn set_user(real: One, id: uid_t) -> c_int {
    // SAFETY: the caller's argument.
    of_thread(libc::SYS_setuid, [id, 0, 0]).unwrap_or_else(|| unsafe { real(id) })
}

unsafe fn set_group(real: One, id: gid_t) -> c_int {
    // SAFETY: the caller's argument.
    of_thread(libc::SYS_setgid, [id, 0, 0]).unwrap_or_else(|| unsafe { real(id) })
}

unsafe fn set_effective_user(real: One, id: uid_t) -> c_int {
    // SAFETY: the caller's argument.
    of_thread(libc::SYS_setresuid, [SAME, id, SAME]).unwrap_or_else(|| unsafe { real(id) })
}

unsafe fn set_effective_group(real: One, id: gid_t) -> c_int {
    // SAFETY: the caller's argument.
    of_thread(libc::SYS_setresgid, [SAME, id, SAME]).unwrap_or_else(|| unsafe { real(id) })
}

unsafe fn set_two_users(real: Two, one: uid_t, two: uid_t) -> c_int {
    // SAFETY: the caller's arguments.
    of_thread(libc::SYS_setreuid, [one, two, 0]).unwrap_or_else(|| unsafe { real(one, two) })
}

unsafe fn set_two_groups(real: Two, one: gid_t, two: gid_t) -> c_int {
    // SAFETY: the caller's arguments.
    of_thread(libc::SYS_setregid, [one, two, 0]).unwrap_or_else(|| unsafe { real(one, two) })
}

unsafe fn set_three_users(real: Three, one: uid_t, two: uid_t, three: uid_t) -> c_int {
    let ids = [one, two, three];
    // SAFETY: the caller's arguments.
    of_thread(libc::SYS_setresuid, ids).unwrap_or_else(|| unsafe { real(one, two, three) })
}

unsafe fn set_three_groups(real: Three, one: gid_t, two: gid_t, three: gid_t) -> c_int {
    let ids = [one, two, three];
    // SAFETY: the caller's arguments.
    of_thread(libc::SYS_setresgid, ids).unwrap_or_else(|| unsafe { real(one, two, three) })
}

unsafe fn set_groups(real: Groups, count: size_t, groups: *const gid_t) -> c_int {
    if !has_one_thread() {
        // SAFETY: the caller's arguments.
        return unsafe { real(count, groups) };
    }
    // SAFETY: likewise.
    match unsafe { libc::syscall(libc::SYS_setgroups, count, groups) } {
        0 => 0,
        _ => -1,
    }
}
