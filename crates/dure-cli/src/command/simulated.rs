//! The program for simulated cores, for builds that run on real ones.
//!
//! **Problem.** Simulated cores take another build of the whole stack. **Structure.** An installed
//! program finds that build in libexec; one in the target folder of the sources has it built.
//! **Invariants.** What it prints goes to its caller, and so does its exit code. **Crash.** Nothing is
//! kept.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

/// Where the program for simulated cores is.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    Installed(PathBuf),
    /// To be built in these sources.
    Sources(PathBuf),
}

fn find(program: &Path) -> Option<Found> {
    let prefix = program.parent()?.parent()?;
    let installed = prefix.join("libexec/dure/dure-simulated");
    if installed.is_file() {
        return Some(Found::Installed(installed));
    }
    // In target/PROFILE of the sources.
    let sources = prefix.parent()?;
    let ours = sources.join("xtask/src/sim.rs").is_file();
    ours.then(|| Found::Sources(sources.to_owned()))
}

/// The program for simulated cores, built if need be.
pub(crate) fn program() -> Result<PathBuf> {
    let program = std::env::current_exe().context("where this program is")?;
    match find(&program) {
        Some(Found::Installed(path)) => Ok(path),
        Some(Found::Sources(sources)) => {
            let mut build = Command::new("cargo");
            build.args(["xtask", "sim", "program"]).current_dir(sources);
            let output = build.stderr(Stdio::inherit()).output();
            let output = output.with_context(|| format!("cannot start {build:?}"))?;
            ensure!(
                output.status.success(),
                "{build:?} ended with {}",
                output.status
            );
            let path = String::from_utf8(output.stdout).context("a path")?;
            Ok(path.trim_end().into())
        }
        None => bail!(
            "this build of dure runs on real cores, and no build for simulated ones is installed: run \
             `cargo xtask sim` with the same arguments in the sources, or install with \
             `cargo xtask dist --simulation`"
        ),
    }
}

/// Becomes that program, with the arguments of this one.
pub(crate) fn run() -> Result<u8> {
    let program = program()?;
    let mut command = Command::new(&program);
    let error = command.args(std::env::args_os().skip(1)).exec();
    Err(error).with_context(|| program.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_build_for_simulated_cores_is_found_where_it_is_installed_or_built() {
        let folder = tempfile::tempdir().unwrap();
        let file = |path: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, "").unwrap();
            path
        };
        let installed = file("usr/bin/dure");
        assert_eq!(find(&installed), None);
        let other = file("usr/libexec/dure/dure-simulated");
        assert_eq!(find(&installed), Some(Found::Installed(other)));
        let built = file("sources/target/release/dure");
        assert_eq!(find(&built), None);
        file("sources/xtask/src/sim.rs");
        let sources = folder.path().join("sources");
        assert_eq!(find(&built), Some(Found::Sources(sources)));
    }
}
