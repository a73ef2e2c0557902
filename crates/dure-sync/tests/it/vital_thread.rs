//! A thread that others wait for must not die alone.

#![cfg(not(dure_backend = "sim"))]

use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::Duration;

use dure_sync::thread;

const CHILD: &str = "DURE_VITAL_THREAD_PANICS";

/// Runs itself: the child's vital thread panics while its main thread sleeps, and would end well.
#[test]
fn a_vital_thread_that_panics_ends_the_process() {
    if std::env::var_os(CHILD).is_some() {
        let vital = thread::spawn_vital("vital", &[], || panic!("on purpose"));
        thread::sleep(Duration::from_secs(20));
        drop(vital);
        return;
    }
    let itself = std::env::current_exe().expect("a test knows its program");
    let child = Command::new(itself)
        .args([
            "--exact",
            "vital_thread::a_vital_thread_that_panics_ends_the_process",
        ])
        .env(CHILD, "1")
        .output()
        .expect("it runs again");
    let abort = 6;
    assert_eq!(child.status.signal(), Some(abort), "{child:?}");
}

#[test]
fn a_vital_thread_that_ends_leaves_the_process() {
    let vital = thread::spawn_vital("vital", &[], || 7);
    assert_eq!(vital.join().ok(), Some(7));
}
