//! `dure rm`.

use std::path::Path;

use anyhow::{Result, anyhow, bail};
use dure::Volume;

use crate::args::Rm;
use crate::exit;
use crate::volume::{self, Access};

/// Refuses to empty the volume, before anything more is removed.
fn keep_root(path: &Path, args: &Rm, volume: &Volume) -> Result<()> {
    volume::close(volume, &args.volume)?;
    bail!(
        "{}: is the root of the volume; give --no-preserve-root to remove all there is",
        path.display()
    );
}

pub(crate) fn run(args: &Rm) -> Result<u8> {
    let volume = volume::open(&args.volume, Access::Write)?;
    let session = volume.root();
    let root = session.metadata("/")?.ino();
    let mut failed = Vec::new();
    for path in &args.paths {
        let found = session.symlink_metadata(path).ok();
        if found.as_ref().is_some_and(|found| found.ino() == root) && !args.no_preserve_root {
            keep_root(path, args, &volume)?;
        }
        let is_directory = found.is_some_and(|found| found.is_dir());
        let removed = match (is_directory, args.recursive) {
            (true, true) => session.remove_dir_all(path),
            _ => session.remove_file(path),
        };
        // The others are removed all the same, as rm(1) does.
        if let Err(error) = removed {
            let hint = if is_directory {
                "; --recursive removes it with all it holds"
            } else {
                ""
            };
            failed.push(anyhow!("{}: {error}{hint}", args.volume.display()));
        }
    }
    volume::close(&volume, &args.volume)?;
    exit::unless(failed)
}
