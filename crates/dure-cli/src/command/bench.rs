//! `dure bench`.

use anyhow::Result;

use crate::exit;

pub(crate) fn run(args: dure_bench::Args) -> Result<u8> {
    dure_bench::run(&args)?;
    Ok(exit::OK)
}
