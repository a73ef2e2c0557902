//! Rings whose system calls fail for a while, and queues that have no ring of their own. Each test
//! has a mount of its own; where FUSE cannot be used, or the kernel offers no rings, it says so and
//! ends.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::fs;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

use dure_fuse::mount::Lazy;
use dure_fuse::unmount;
use dure_sync::atomic::{AtomicBool, Ordering};
use dure_sync::{Arc, CoreId, core_count, thread};
use rustix::event::{PollFd, PollFlags, poll};

use crate::uring::{filter_calls, mount_ram, stay_on_one_core};

/// io_uring_enter(2).
const ENTER: u32 = 426;
/// The call is made as if nobody had asked.
const GO_ON: u32 = 1;
/// What a ring meets when memory is short, when its completions overflow, and at a signal.
const TRANSIENT: [i32; 4] = [libc::ENOMEM, libc::EAGAIN, libc::EBUSY, libc::EINTR];

/// From now on the calls of io_uring_enter(2) of the calling thread, and of those it starts, ask
/// the listener.
fn listen() -> OwnedFd {
    let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    let listener = filter_calls(ENTER, libc::SECCOMP_RET_USER_NOTIF, flags);
    // SAFETY: the kernel has just given it to us.
    unsafe { OwnedFd::from_raw_fd(listener) }
}

/// Every other call fails, until `is_over`: how many did.
fn fail_in_turn(listener: &OwnedFd, is_over: &AtomicBool) -> usize {
    let (mut calls, mut failed) = (0_usize, 0);
    // Relaxed: it only tells when to end.
    while !is_over.load(Ordering::Relaxed) {
        let mut ready = [PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN)];
        let soon = rustix::event::Timespec {
            tv_sec: 0,
            tv_nsec: 10_000_000,
        };
        if poll(&mut ready, Some(&soon)).unwrap() == 0 {
            continue;
        }
        // SAFETY: it is numbers; the kernel wants zeros.
        let mut asked: libc::seccomp_notif = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel writes one of these.
        let got = unsafe {
            libc::ioctl(
                listener.as_raw_fd(),
                libc::SECCOMP_IOCTL_NOTIF_RECV,
                &raw mut asked,
            )
        };
        if got != 0 {
            // The caller has gone meanwhile, or all have.
            thread::sleep(std::time::Duration::from_millis(1));
            continue;
        }
        let fails = calls % 2 == 0;
        let answer = libc::seccomp_notif_resp {
            id: asked.id,
            val: 0,
            error: if fails {
                -TRANSIENT[failed % TRANSIENT.len()]
            } else {
                0
            },
            flags: if fails { 0 } else { GO_ON },
        };
        calls += 1;
        failed += usize::from(fails);
        // SAFETY: the kernel reads one of these.
        let _ = unsafe {
            libc::ioctl(
                listener.as_raw_fd(),
                libc::SECCOMP_IOCTL_NOTIF_SEND,
                &raw const answer,
            )
        };
    }
    failed
}

/// Writes files from each core, and reads them back.
fn use_from_each_core(root: &Path, files: usize) {
    let users = (0..core_count()).map(|core| {
        let root = root.to_owned();
        let bound = CoreId::new(u16::try_from(core).unwrap());
        thread::spawn_on("user", bound, move || {
            for file in 0..files {
                let at = root.join(format!("{core}-{file}"));
                let text = format!("{file} of {core}");
                fs::write(&at, &text).unwrap();
                assert_eq!(fs::read_to_string(&at).unwrap(), text);
            }
        })
    });
    for user in users.collect::<Vec<_>>() {
        user.join().unwrap();
    }
}

/// No request is lost or answered twice, and the mount ends.
#[test]
fn a_ring_whose_calls_fail_for_want_of_memory_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let Some((volume, session)) = mount_ram(directory.path()) else {
        return;
    };
    let server = thread::spawn("server", move || {
        let listener = listen();
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&is_over);
        let fails = thread::spawn("fails", move || fail_in_turn(&listener, &ends));
        session.run().unwrap();
        // Relaxed: as above.
        is_over.store(true, Ordering::Relaxed);
        fails.join().unwrap()
    });
    use_from_each_core(directory.path(), 50);
    unmount(directory.path(), Lazy::No).unwrap();
    let failed = server.join().unwrap();
    assert!(failed > 50, "only {failed} calls failed");
    volume.close().unwrap();
}

/// A server that may run on one core: its ring has the queues of all others.
#[test]
fn callers_on_cores_without_a_ring_are_answered() {
    let bound = thread::spawn("bound", || {
        stay_on_one_core();
        let directory = tempfile::tempdir().unwrap();
        let Some((volume, session)) = mount_ram(directory.path()) else {
            return;
        };
        let server = thread::spawn("server", move || session.run());
        use_from_each_core(directory.path(), 50);
        unmount(directory.path(), Lazy::No).unwrap();
        server.join().unwrap().unwrap();
        volume.close().unwrap();
    });
    bound.join().unwrap();
}
