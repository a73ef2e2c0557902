//! `dure mkdir`.

use anyhow::{Result, anyhow};
use rustix::io::Errno;

use crate::args::Mkdir;
use crate::exit;
use crate::volume::{self, Access};

pub(crate) fn run(args: &Mkdir) -> Result<u8> {
    let volume = volume::open(&args.volume, Access::Write)?;
    let session = volume.root();
    let mut failed = Vec::new();
    for path in &args.paths {
        let made = if args.parents {
            session.create_dir_all(path)
        } else {
            session.create_dir(path)
        };
        // The others are made all the same, as mkdir(1) does.
        if let Err(error) = made {
            let hint = match error.errno() == Errno::NOENT.raw_os_error() {
                true => "; --parents makes its parents",
                false => "",
            };
            failed.push(anyhow!("{}: {error}{hint}", args.volume.display()));
        }
    }
    volume::close(&volume, &args.volume)?;
    exit::unless(failed)
}
