//! Files and directories of a volume that is not mounted.

use std::path::PathBuf;

/// `dure ls`.
#[derive(Debug, clap::Args)]
pub struct Ls {
    /// A block device or image file that is not mounted.
    pub volume: PathBuf,
    /// Files or directories in the volume.
    #[arg(default_value = "/")]
    pub paths: Vec<PathBuf>,
    /// Type, permissions, links, owner, size and time of each entry.
    #[arg(long, short)]
    pub long: bool,
    /// Directories below, too.
    #[arg(long, short = 'R')]
    pub recursive: bool,
}

/// `dure cat`.
#[derive(Debug, clap::Args)]
pub struct Paths {
    /// A block device or image file that is not mounted.
    pub volume: PathBuf,
    /// Files in the volume.
    #[arg(required = true)]
    pub paths: Vec<PathBuf>,
}

/// `dure put`, `dure get` and `dure clone`.
#[derive(Debug, clap::Args)]
pub struct Copy {
    /// A block device or image file that is not mounted.
    pub volume: PathBuf,
    /// What to copy, then where to: into it if it is a directory, else to that name.
    #[arg(required = true, num_args = 2.., value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Say nothing.
    #[arg(long, short)]
    pub quiet: bool,
}

/// `dure rm`.
#[derive(Debug, clap::Args)]
pub struct Rm {
    /// A block device or image file that is not mounted.
    pub volume: PathBuf,
    /// What to remove.
    #[arg(required = true)]
    pub paths: Vec<PathBuf>,
    /// Directories with all they hold.
    #[arg(long, short)]
    pub recursive: bool,
    /// Also all that the root directory holds.
    #[arg(long)]
    pub no_preserve_root: bool,
}

/// `dure mkdir`.
#[derive(Debug, clap::Args)]
pub struct Mkdir {
    /// A block device or image file that is not mounted.
    pub volume: PathBuf,
    /// Directories to make.
    #[arg(required = true)]
    pub paths: Vec<PathBuf>,
    /// Parents too; existing directories are no error.
    #[arg(long, short)]
    pub parents: bool,
}
