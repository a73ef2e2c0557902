//! Our own programs that run on a mount, in Python.
//!
//! **Problem.** A writer must be a process of its own, and make calls that the standard library of
//! Rust does not have; several use databases. **Structure.** The programs are in `xtask/programs`
//! and part of this binary; [`Programs`] writes them where a suite runs them. **Invariants.** They
//! check that a volume is mounted before they write. **Crash.** None.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

/// Debian's: another Python may be first in `PATH`, without the modules of the packages.
pub(crate) const PYTHON: &str = "/usr/bin/python3";

const SOURCES: &[(&str, &str)] = &[
    ("mounted.py", include_str!("../../programs/mounted.py")),
    ("kill.py", include_str!("../../programs/kill.py")),
    ("enospc.py", include_str!("../../programs/enospc.py")),
    (
        "permissions.py",
        include_str!("../../programs/permissions.py"),
    ),
    ("room.py", include_str!("../../programs/room.py")),
];

/// A folder with the programs.
#[derive(Debug)]
pub(crate) struct Programs(PathBuf);

impl Programs {
    /// Puts them below `scratch`, which is outside of the volume.
    pub(crate) fn new(scratch: &Path) -> Result<Programs> {
        let folder = scratch.join("programs");
        fs::create_dir_all(&folder)?;
        for (name, source) in SOURCES {
            fs::write(folder.join(name), source).context(*name)?;
        }
        Ok(Programs(folder))
    }

    /// `python3 NAME ARGUMENTS`.
    pub(crate) fn command(&self, name: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(PYTHON);
        command
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .arg(self.0.join(name))
            .args(arguments);
        command
    }
}

/// A path as an argument.
pub(crate) fn word(path: &Path) -> &str {
    path.to_str()
        .expect("temporary directories have plain names")
}
