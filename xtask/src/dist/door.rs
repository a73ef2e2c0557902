//! The file system for RocksDB, in C++: `rocksdb/`.
//!
//! **Problem.** RocksDB's interface is of one version of RocksDB, whose headers may not be here.
//! **Structure.** `rocksdb/build.sh` compiles it against a prefix that has libdure; without headers it is
//! left out, which is said. **Invariants.** It needs libdure and librocksdb by the names of their versions.
//! **Crash.** Run it again.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::library;
use crate::cargo;

/// What programs load.
pub(super) const NAME: &str = "libdure_rocksdb.so";
/// A header of RocksDB, and the package that has it.
const HEADER: &str = "/usr/include/rocksdb/file_system.h";
const PACKAGE: &str = "librocksdb-dev";

/// The command that makes it in `folder`, with libdure below `prefix`.
pub(crate) fn command(prefix: &Path, folder: &Path) -> Command {
    let mut build = Command::new("sh");
    build.arg(cargo::root().join("rocksdb/build.sh"));
    build.arg(prefix).arg(folder);
    build
}

/// A prefix with nothing but the library for C, built now.
pub(crate) fn library_in(prefix: &Path) -> Result<PathBuf> {
    library::install(&library::build()?, prefix, "lib")?;
    Ok(prefix.to_owned())
}

/// Puts it next to libdure, if it can be made here.
pub(super) fn install(dist: &Path) -> Result<()> {
    if !Path::new(HEADER).is_file() {
        println!("left out: lib/{NAME}, which needs {PACKAGE}");
        return Ok(());
    }
    let libraries = dist.join("lib");
    let mut build = command(dist, &libraries);
    // The number of the build is of what a debugger needs, too, which has paths.
    build.env("CXXFLAGS", "-g0");
    cargo::run(build)?;
    let mut strip = Command::new("strip");
    strip.arg("--strip-unneeded").arg(libraries.join(NAME));
    cargo::run(strip)
}
