//! `dure mkdir`.

use anyhow::Result;

use crate::args::Mkdir;
use crate::exit;
use crate::volume::{self, Access};

pub(crate) fn run(args: &Mkdir) -> Result<u8> {
    let volume = volume::open(&args.volume, Access::Write)?;
    let session = volume.root();
    let mut failed = None;
    for path in &args.paths {
        let made = if args.parents {
            session.create_dir_all(path)
        } else {
            session.create_dir(path)
        };
        if let Err(error) = made {
            failed.get_or_insert(error);
        }
    }
    volume::close(&volume, &args.volume)?;
    failed.map_or(Ok(exit::OK), |error| Err(error.into()))
}
