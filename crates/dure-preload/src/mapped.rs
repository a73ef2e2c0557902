//! Files that the program has mapped, and how long the kernel takes them to be.
//!
//! **Problem.** A mapping ends for the kernel where it believes that the file does, and so do copies by
//! descriptor; the library makes files longer without a word to it: what is stored there would be
//! `SIGBUS`. **Structure.** Inodes that were mapped once. After a call that ends beyond what the kernel
//! knows it is made to ask. **Invariants.** When such a call returns, the kernel knows the size. **On a
//! crash** nothing is kept.

use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;

use dure_sync::atomic::{AtomicBool, Ordering};
use dure_sync::{Mutex, ProcessOnce};
use rustix::fs::{AtFlags, StatxFlags, statx};

/// Rank of [`Files`]; no lock is taken while it is held.
const MAPPED: u8 = 25;

/// Inodes.
type Files = Mutex<MAPPED, BTreeSet<u64>>;

static FILES: ProcessOnce<Files> = ProcessOnce::new();
/// Whether there are any. Set before a mapping is there, by its thread: Relaxed.
static ANY: AtomicBool = AtomicBool::new(false);

fn files() -> &'static Files {
    FILES.get_or_init(Files::default)
}

/// The size as the kernel knows it, or asks for it.
fn size(fd: BorrowedFd<'_>, how: AtFlags) -> u64 {
    let found = statx(fd, "", how | AtFlags::EMPTY_PATH, StatxFlags::SIZE);
    found.map_or(0, |found| found.stx_size)
}

/// Has the kernel ask.
pub(crate) fn tell(fd: BorrowedFd<'_>) {
    size(fd, AtFlags::STATX_FORCE_SYNC);
}

/// `fd`, of the inode, is about to be mapped.
pub(crate) fn begin(inode: u64, fd: BorrowedFd<'_>) {
    ANY.store(true, Ordering::Relaxed);
    files().lock().insert(inode);
    tell(fd);
}

/// A call has written up to `end`.
#[inline]
pub(crate) fn written(inode: u64, fd: BorrowedFd<'_>, end: u64) {
    if ANY.load(Ordering::Relaxed) {
        look(inode, fd, |known| end > known);
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
    let is_mapped = files().lock().contains(&inode);
    if is_mapped && differs(size(fd, AtFlags::STATX_DONT_SYNC)) {
        tell(fd);
    }
}
