//! The `dure` command; also `mkfs.dure`, `mount.dure` and `fsck.dure` by its name.

use std::process::ExitCode;

/// Inodes and nodes come and go in odd sizes on all cores, often freed on another core than they
/// were made on. The system's allocator took a third of a create's time for that.
#[cfg(not(dure_backend = "sim"))]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The allocator turns huge pages off for the whole process. The slabs of the page cache use all of
/// theirs, and ask for them; so they are allowed again where the kernel gives none unasked.
fn allow_huge_slabs() {
    let mode = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    if mode.is_ok_and(|mode| mode.contains("[madvise]")) {
        // Refused, slabs are of small pages.
        let _ = rustix::thread::disable_transparent_huge_pages(false);
    }
}

#[cfg(not(dure_backend = "sim"))]
mod allocator {
    use std::ffi::{c_int, c_long};

    /// `mi_option_purge_delay`, which the crate gives no name.
    const PURGE_DELAY: c_int = 15;
    /// As before its third version.
    const PURGE_DELAY_MILLISECONDS: c_long = 10;

    // SAFETY: part of the allocator that is linked in; it takes any option and any value, at any
    // time.
    unsafe extern "C" {
        safe fn mi_option_set_default(option: c_int, value: c_long);
    }

    /// Returns freed memory to the system soon. The allocator keeps it for a second, by thread:
    /// with `cache=16M` and 16 tasks that sync that was as much as the cache. But each return
    /// interrupts all processors that the process runs on, so only a small cache asks for it. A
    /// setting in the environment (`MIMALLOC_PURGE_DELAY`) takes precedence.
    pub(super) fn return_memory_soon() {
        mi_option_set_default(PURGE_DELAY, PURGE_DELAY_MILLISECONDS);
    }
}

#[cfg(dure_backend = "sim")]
mod allocator {
    /// Nothing: it is the simulated machine's.
    pub(super) fn return_memory_soon() {}
}

fn main() -> ExitCode {
    allow_huge_slabs();
    let argv = std::env::args_os().collect();
    dure_cli::main(argv, allocator::return_memory_soon)
}
