//! `dure umount`: done when the server has written everything and let go of the volume.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};
use dure_fuse::mount::Lazy;
use dure_sync::{clock, thread};

use crate::args::Umount;
use crate::exit;
use crate::mounts::source_of;
use crate::volume::{self, Access};

/// How long the server may take to write back and close.
const CLOSE_SECONDS: u64 = 600;

pub(crate) fn run(args: &Umount) -> Result<u8> {
    let lazy = if args.lazy { Lazy::Yes } else { Lazy::No };
    let source = source_of(&args.directory);
    dure_fuse::unmount(&args.directory, lazy)?;
    // umount(2) does not wait for the server of a FUSE mount, which still checkpoints and closes.
    if let (Some(source), Lazy::No) = (source, lazy) {
        wait_until_closed(&source)?;
    }
    Ok(exit::OK)
}

fn wait_until_closed(source: &Path) -> Result<()> {
    let start = clock::monotonic_ns();
    let in_use = |error: &anyhow::Error| {
        use dure_block::Error::{Busy, Locked};
        matches!(error.downcast_ref(), Some(Busy { .. } | Locked { .. }))
    };
    while let Err(error) = volume::device(source, Access::Read) {
        if !in_use(&error) {
            // Gone, or not ours to open: nothing to wait for.
            return Ok(());
        }
        if clock::monotonic_ns() - start > CLOSE_SECONDS * 1_000_000_000 {
            bail!(
                "{}: unmounted, but its server has not closed the volume within {CLOSE_SECONDS} s",
                source.display()
            );
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}
