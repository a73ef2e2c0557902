//! Mounts that the kernel sees.

mod cache;
mod handles;
mod mount;
mod ring_calls;
mod room;
mod semantics;
mod uring;

use dure_fs::{FormatOptions, Owner};

/// A volume whose root directory belongs to who runs the tests.
fn format_options() -> FormatOptions {
    FormatOptions {
        owner: Owner {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        },
        ..FormatOptions::default()
    }
}
