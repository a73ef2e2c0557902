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

fn main() -> ExitCode {
    allow_huge_slabs();
    dure_cli::main(std::env::args_os().collect())
}
