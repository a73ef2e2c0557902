//! `dure umount`.

use anyhow::Result;
use dure_fuse::mount::Lazy;

use crate::args::Umount;
use crate::exit;

pub(crate) fn run(args: &Umount) -> Result<u8> {
    let lazy = if args.lazy { Lazy::Yes } else { Lazy::No };
    dure_fuse::unmount(&args.directory, lazy)?;
    Ok(exit::OK)
}
