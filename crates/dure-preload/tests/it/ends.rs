//! Programs that end in the middle.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::time::Duration;

use dure::run::Word;
use dure_sync::thread;

use crate::run::{Place, dure_is_clean, replace, start};

const PAGE: [u8; 4096] = [7; 4096];

/// Writes without end, after something that is synced, and while it maps a page that it has changed.
pub(crate) fn writes() {
    let mapped = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open("mapped");
    let mapped = mapped.unwrap();
    mapped.set_len(4096).unwrap();
    let (access, null) = (libc::PROT_READ | libc::PROT_WRITE, std::ptr::null_mut());
    // SAFETY: new memory.
    let page = unsafe { libc::mmap(null, 4096, access, libc::MAP_SHARED, mapped.as_raw_fd(), 0) };
    // SAFETY: a page that may be written to.
    unsafe { page.cast::<u8>().write_volatile(7) };
    let file = File::create("file").unwrap();
    file.write_all_at(b"synced", 0).unwrap();
    file.sync_all().unwrap();
    eprintln!("it writes");
    for round in 0_u64.. {
        file.write_all_at(&PAGE, 4096 * (1 + round % 100)).unwrap();
    }
}

fn end_by(signal: i32) -> Option<(Place, Word)> {
    let place = Place::new()?;
    let mut running = start(&place, "writes");
    running.wait_for("it writes");
    thread::sleep(Duration::from_millis(20));
    let process = running.child.id().cast_signed();
    // SAFETY: a child that was not waited for.
    assert_eq!(unsafe { libc::kill(process, signal) }, 0);
    let ended = running.end();
    assert_eq!(ended.status.signal(), Some(signal));
    assert_eq!(place.read("file")[..6], *b"synced");
    Some((place, ended.word))
}

#[test]
fn a_program_that_a_signal_ends_loses_nothing() {
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGUSR1] {
        let Some((place, word)) = end_by(signal) else {
            return;
        };
        assert!(matches!(word, Word::Ended(_)), "{word:?}");
        assert_eq!(place.read("file")[4096..8192], PAGE);
        dure_is_clean(&place.image());
    }
}

/// Within a call: as if the machine had ended. Between two: as by any signal.
/// Regression: a server whose program was killed within a call never ended, as the kernel waited for it to
/// write what the program had mapped.
#[test]
fn a_program_that_is_killed_loses_nothing_that_it_synced() {
    for _ in 0..4 {
        let Some((place, word)) = end_by(libc::SIGKILL) else {
            return;
        };
        match word {
            Word::Ended(_) => dure_is_clean(&place.image()),
            word => assert_eq!(word, Word::Killed),
        }
    }
}

/// Fails to be replaced, and is then, by a program that uses the volume.
pub(crate) fn execs() {
    let file = File::create("file").unwrap();
    file.write_all_at(b"sown", 0).unwrap();
    for nothing in ["/no/such", "/dev/null", "/"] {
        let failed = std::process::Command::new(nothing).exec();
        file.write_all_at(b"sown", 0).unwrap();
        assert!(failed.raw_os_error().is_some(), "{failed}");
    }
    let lines = "cat file > copy && ls && sleep 0.2 && echo reaped >> copy";
    panic!(
        "{}",
        std::process::Command::new("sh").args(["-c", lines]).exec()
    );
}

#[test]
fn a_program_that_is_replaced_leaves_the_volume_to_the_next() {
    let Some(place) = Place::new() else { return };
    let ended = start(&place, "execs").end();
    assert_eq!(ended.given_away, 1, "{}", ended.printed);
    assert!(ended.status.success(), "{}", ended.printed);
    assert!(ended.printed.contains("copy\nfile\n"), "{}", ended.printed);
    assert!(matches!(ended.word, Word::Ended(_)), "{:?}", ended.word);
    assert_eq!(place.read("copy"), b"sownreaped\n");
}

/// Leaves a sign where it is.
pub(crate) fn goes_on() {
    File::create("there").unwrap();
}

#[test]
fn a_program_that_replaces_another_goes_by_the_answer_of_its_server() {
    let Some(place) = Place::new() else { return };
    let me = |answer: &[u8]| replace(&place, "$$", answer);
    let (status, word) = me(b"y");
    assert!(status.success() && place.has_gone_on(), "{status}");
    assert!(matches!(word, Some(Word::Ended(_))), "{word:?}");
    let (status, word) = me(b"n");
    assert!(status.success() && place.has_gone_on(), "{status}");
    assert_eq!(word, None, "the other server serves on");
    for lost in [b"l".as_slice(), b""] {
        let (status, word) = me(lost);
        assert_eq!(status.code(), Some(126));
        assert!(matches!(word, Some(Word::Failed(_))), "{word:?}");
        assert!(!place.has_gone_on());
    }
    // A child that has found the order does not ask.
    let (status, word) = replace(&place, "1", b"y");
    assert!(status.success() && place.has_gone_on(), "{status}");
    assert_eq!(word, None);
    dure_is_clean(&place.image());
}

/// Is ended by the C library, which has a lock then: a thread of it may not what another one may.
pub(crate) fn disagrees() {
    let file = File::create("file").unwrap();
    file.write_all_at(b"sown", 0).unwrap();
    let _other = thread::spawn("other", || thread::sleep(Duration::from_secs(60)));
    // It gives up to be root, but not what root may, and uses that.
    // SAFETY: for this thread.
    unsafe { libc::prctl(libc::PR_SET_KEEPCAPS, 1, 0, 0, 0) };
    // SAFETY: numbers only.
    assert_eq!(unsafe { libc::setresuid(65534, 65534, 65534) }, 0);
    let mut sets = rustix::thread::capabilities(None).unwrap();
    sets.effective = sets.permitted;
    rustix::thread::set_capabilities(None, sets).unwrap();
    // SAFETY: no groups.
    unsafe { libc::setgroups(0, std::ptr::null()) };
}

/// Regression: the server waited for a lock of the C library that a thread of the program had when that
/// ended, and the volume stayed in use.
#[test]
fn a_program_that_ends_within_the_c_library_leaves_the_volume() {
    let Some(place) = Place::new() else { return };
    let ended = start(&place, "disagrees").end();
    assert_eq!(
        ended.status.signal(),
        Some(libc::SIGABRT),
        "{}",
        ended.printed
    );
    assert!(matches!(ended.word, Word::Ended(_)), "{:?}", ended.word);
    assert_eq!(place.read("file"), b"sown");
}
