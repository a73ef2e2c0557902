//! `dure run`.

use std::ffi::OsString;
use std::path::PathBuf;

pub(super) const HELP: &str = "\
The volume is open in the program and mounted as well: calls of the program on its files (read, write, fsync and their \
like) are done by the library in the program, everything else and all other processes go through the mount, and both \
see the same files. The mount ends with the last process that uses it.

With VOLUME the program begins in the root of the volume, on a directory of its own, which DURE_DIR names. With \
VOLUME:DIR the volume is mounted on DIR, and the program begins where it is called.

Programs that are linked statically, have set-id bits or are replaced by exec(2) go through the mount; --report says \
how many calls took which way. The status is that of the program, or 128 and the number of the signal that has ended it.";

/// `dure run`.
#[derive(Debug, clap::Args)]
pub struct Run {
    /// A block device or image file that is not mounted; and behind a colon a directory to mount it on.
    #[arg(value_name = "VOLUME[:DIR]")]
    pub place: PathBuf,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub program: Vec<OsString>,
    /// Options of `dure mount` that are of the file system, separated by commas.
    #[arg(short, long, value_name = "OPT", default_value = "")]
    pub options: String,
    /// Say at the end how many calls were done in the program.
    #[arg(long)]
    pub report: bool,
}
