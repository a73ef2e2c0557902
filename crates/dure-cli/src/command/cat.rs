//! `dure cat`.

use std::io::Read;

use anyhow::{Context, Result};
use dure_bench::print;

use crate::args::Paths;
use crate::exit;
use crate::volume::{self, Access};

pub(crate) fn run(args: &Paths) -> Result<u8> {
    let volume = volume::open(&args.volume, Access::Read)?;
    let session = volume.root();
    let mut buffer = vec![0; 1 << 20];
    for path in &args.paths {
        let at = || args.volume.display().to_string();
        let mut file = session.open(path).with_context(at)?;
        loop {
            let got = file.read(&mut buffer).with_context(at)?;
            if got == 0 {
                break;
            }
            print::bytes(&buffer[..got]);
        }
    }
    Ok(exit::OK)
}
