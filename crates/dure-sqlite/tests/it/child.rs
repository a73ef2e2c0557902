//! A child of fork.

use dure::{CreateOptions, Volume};
use dure_sqlite::lend;

/// Regression: it became the owner of the volumes that its parent has open, and could write to them.
#[test]
fn a_child_lends_nothing_while_its_parent_has_volumes_open() {
    let folder = tempfile::tempdir().unwrap();
    let options = CreateOptions {
        image_bytes: Some(32 << 20),
        ..CreateOptions::default()
    };
    let paths = ["first.img", "second.img"].map(|name| folder.path().join(name));
    let [first, second] = paths
        .each_ref()
        .map(|path| Volume::create(path, &options).unwrap());
    let _lent = lend(&paths[0], &first).unwrap();
    // SAFETY: the child makes one call, which takes no lock, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused = lend(&paths[1], &second).is_err_and(|error| error.errno() == libc::EBUSY);
        // SAFETY: ends the child without its parent's destructors.
        unsafe { libc::_exit(i32::from(!refused)) };
    }
    let mut status = -1;
    // SAFETY: waits for the child that was just made.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!((waited, status), (child, 0));
}
