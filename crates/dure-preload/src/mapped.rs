//! Files that the program has mapped, and how long the kernel takes them to be.
//!
//! **Problem.** A mapping ends for the kernel where it believes that the file does, and the library makes
//! files longer without a word to it: what is stored there would be `SIGBUS`. **Structure.** Inodes that
//! were mapped once, with the size that the kernel was told last; after a call that ends beyond it the
//! kernel is made to ask. **Invariants.** When such a call returns, the kernel knows the size. **On a
//! crash** nothing is kept.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;

use dure_sync::atomic::{AtomicBool, Ordering};
use dure_sync::{Mutex, ProcessOnce};
use rustix::fs::{AtFlags, StatxFlags, statx};

/// Rank of [`Files`]; no lock is taken while it is held.
const MAPPED: u8 = 25;

/// Sizes by inode.
type Files = Mutex<MAPPED, BTreeMap<u64, u64>>;

static FILES: ProcessOnce<Files> = ProcessOnce::new();
/// Whether there are any. Set before a mapping is there, by its thread: Relaxed.
static ANY: AtomicBool = AtomicBool::new(false);

fn files() -> &'static Files {
    FILES.get_or_init(Files::default)
}

/// Has the kernel ask for the size, which it knows then.
fn told(fd: BorrowedFd<'_>) -> u64 {
    let how = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
    let found = statx(fd, "", how, StatxFlags::SIZE);
    found.map_or(0, |found| found.stx_size)
}

/// `fd`, of the inode, is about to be mapped.
pub(crate) fn begin(inode: u64, fd: BorrowedFd<'_>) {
    ANY.store(true, Ordering::Relaxed);
    files().lock().insert(inode, 0);
    let size = told(fd);
    files().lock().insert(inode, size);
}

/// A call has written up to `end`.
#[inline]
pub(crate) fn written(inode: u64, fd: BorrowedFd<'_>, end: u64) {
    if ANY.load(Ordering::Relaxed) {
        look(inode, fd, |size| end > size);
    }
}

/// A call has set the size.
pub(crate) fn resized(inode: u64, fd: BorrowedFd<'_>) {
    if ANY.load(Ordering::Relaxed) {
        look(inode, fd, |_| true);
    }
}

#[cold]
fn look(inode: u64, fd: BorrowedFd<'_>, differs: impl Fn(u64) -> bool) {
    let known = files().lock().get(&inode).copied();
    if known.is_some_and(differs) {
        let size = told(fd);
        files().lock().insert(inode, size);
    }
}
