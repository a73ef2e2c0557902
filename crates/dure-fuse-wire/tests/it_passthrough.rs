//! The example, mounted for real by both transports.
//!
//! Where FUSE cannot be used, or the kernel offers no rings, it says so and ends.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a panic is how a test fails, and a test that cannot run says so"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use dure_fuse_wire::mount::{Lazy, unmount};
use dure_sync::thread;

/// Cargo builds it beside the tests.
fn example() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = test.parent().unwrap().parent().unwrap();
    profile.join("examples/passthrough")
}

fn is_mounted(at: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    mounts.contains(&format!(" {} fuse.passthrough ", at.display()))
}

/// Waits until it is mounted, or has ended.
fn wait(server: &mut Child, at: &Path) -> bool {
    for _ in 0..500 {
        if is_mounted(at) {
            return true;
        }
        if server.try_wait().unwrap().is_some() {
            return false;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("it neither mounts nor ends");
}

#[test]
fn a_directory_is_the_same_through_the_mount() {
    for transport in [&[][..], &["--uring"]] {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (below, above) = (from.path(), to.path());
        fs::write(below.join("before"), vec![1; 300_000]).unwrap();
        let mut command = Command::new(example());
        let mut server = command
            .arg(below)
            .arg(above)
            .args(transport)
            .spawn()
            .unwrap();
        if !wait(&mut server, above) {
            println!("not run: it cannot be mounted");
            return;
        }
        assert_eq!(fs::read(above.join("before")).unwrap(), vec![1; 300_000]);
        fs::create_dir(above.join("folder")).unwrap();
        fs::write(above.join("folder/file"), vec![2; 3_000_000]).unwrap();
        assert_eq!(
            fs::read(below.join("folder/file")).unwrap(),
            vec![2; 3_000_000]
        );
        fs::write(above.join("folder/file"), b"short").unwrap();
        assert_eq!(fs::read(below.join("folder/file")).unwrap(), b"short");
        for number in 0..200 {
            fs::write(below.join(format!("folder/n{number}")), b"n").unwrap();
        }
        let listed = fs::read_dir(above.join("folder")).unwrap().count();
        assert_eq!(listed, 201);
        assert!(fs::read(above.join("nothing")).is_err());
        fs::remove_dir_all(above.join("folder")).unwrap();
        fs::remove_file(above.join("before")).unwrap();
        assert_eq!(fs::read_dir(below).unwrap().count(), 0);
        unmount(above, Lazy::No).unwrap();
        assert!(server.wait().unwrap().success());
    }
}
