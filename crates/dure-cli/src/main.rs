//! The `dure` command; also `mkfs.dure`, `mount.dure` and `fsck.dure` by its name.

use std::process::ExitCode;

/// Inodes and nodes come and go in odd sizes on all cores, often freed on another core than they
/// were made on. The system's allocator took a third of a create's time for that.
#[cfg(not(dure_backend = "sim"))]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    dure_cli::main(std::env::args_os().collect())
}
