//! `dure rm`.

use anyhow::Result;

use crate::args::Rm;
use crate::exit;
use crate::volume::{self, Access};

pub(crate) fn run(args: &Rm) -> Result<u8> {
    let volume = volume::open(&args.volume, Access::Write)?;
    let session = volume.root();
    let mut failed = None;
    for path in &args.paths {
        let is_directory = session
            .symlink_metadata(path)
            .is_ok_and(|data| data.is_dir());
        let removed = match (is_directory, args.recursive) {
            (true, true) => session.remove_dir_all(path),
            _ => session.remove_file(path),
        };
        // The others are removed all the same, as rm(1) does.
        if let Err(error) = removed {
            failed.get_or_insert(error);
        }
    }
    volume::close(&volume, &args.volume)?;
    failed.map_or(Ok(exit::OK), |error| Err(error.into()))
}
