//! Handlers of the program, and threads.

use std::fs::File;
use std::os::unix::fs::FileExt;

use dure_sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use dure_sync::thread;

use crate::run::run;

const ZERO: libc::timeval = libc::timeval {
    tv_sec: 0,
    tv_usec: 0,
};

static CAME: AtomicU32 = AtomicU32::new(0);
static FILE: AtomicPtr<File> = AtomicPtr::new(std::ptr::null_mut());

/// Writes to the file that the interrupted call may have locked.
extern "C" fn handler(_: libc::c_int) {
    let came = CAME.fetch_add(1, Ordering::Relaxed);
    // SAFETY: it was set before the handler, and lives.
    let file = unsafe { &*FILE.load(Ordering::Relaxed) };
    let written = file.write_at(&came.to_le_bytes(), 0);
    assert!(written.is_ok_and(|count| count == 4));
}

#[test]
fn a_handler_that_writes_to_the_file_never_meets_a_call_on_it() {
    run("handlers", 10_000);
}

pub(crate) fn part() {
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open("file")
        .unwrap();
    FILE.store(
        Box::into_raw(Box::new(file.try_clone().unwrap())),
        Ordering::Relaxed,
    );
    let as_number = handler as extern "C" fn(libc::c_int) as usize;
    // SAFETY: a handler that does what handlers may.
    let before = unsafe { libc::signal(libc::SIGALRM, as_number) };
    assert_eq!(before, libc::SIG_DFL);
    let every = libc::timeval {
        tv_sec: 0,
        tv_usec: 100,
    };
    let timer = libc::itimerval {
        it_interval: every,
        it_value: every,
    };
    // SAFETY: a timer.
    unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()) };
    let page = [7; 4096];
    for round in 0..10_000_u64 {
        // The first page is the handler's, too.
        file.write_all_at(&page, round % 16 * 4096).unwrap();
        if round % 64 == 0 {
            file.sync_data().unwrap();
        }
    }
    let none = libc::itimerval {
        it_interval: ZERO,
        it_value: ZERO,
    };
    // SAFETY: a timer.
    unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const none, std::ptr::null_mut()) };
    // SAFETY: the program's handler, and none.
    let (mine, none) = unsafe {
        (
            libc::signal(libc::SIGALRM, libc::SIG_IGN),
            libc::signal(libc::SIGALRM, libc::SIG_DFL),
        )
    };
    assert_eq!((mine, none), (as_number, libc::SIG_IGN));
    assert!(CAME.load(Ordering::Relaxed) > 100, "{CAME:?} signals came");
}

#[test]
fn threads_open_use_and_close_at_the_same_time() {
    run("threads", 1000);
}

pub(crate) fn threads() {
    let body = |index: usize| {
        for round in 0..200 {
            let name = format!("{index}");
            let mut options = File::options();
            let file = options
                .read(true)
                .write(true)
                .create(true)
                .truncate(true)
                .open(name);
            let file = file.unwrap();
            let text = format!("{index} {round}");
            file.write_all_at(text.as_bytes(), 0).unwrap();
            let mut read = vec![0; text.len()];
            file.read_exact_at(&mut read, 0).unwrap();
            assert_eq!(read, text.as_bytes());
        }
    };
    let threads = (0..4).map(|index| thread::spawn("user", move || body(index)));
    let threads: Vec<_> = threads.collect();
    for thread in threads {
        thread.join().unwrap();
    }
}
