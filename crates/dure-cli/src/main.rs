//! The `dure` command; also `mkfs.dure`, `mount.dure` and `fsck.dure` by its name.

use std::process::ExitCode;

fn main() -> ExitCode {
    dure_cli::main(std::env::args_os().collect())
}
