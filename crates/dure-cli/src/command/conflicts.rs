//! `dure sim conflicts`: which calls that commute share a written cache line.
//!
//! **Structure.** In a build for simulated cores (cfg `dure_backend="sim"`) `report` plays the
//! pairs; any other build finds that program, or has it built, and execs it. **Invariants.** The
//! exit code is that of the program which ran. **Crash.** Nothing is kept.

use anyhow::Result;

use crate::args::SimConflicts;

#[cfg(dure_backend = "sim")]
mod report;

#[cfg(dure_backend = "sim")]
pub(crate) fn run(args: &SimConflicts) -> Result<u8> {
    report::run(args)
}

#[cfg(not(dure_backend = "sim"))]
pub(crate) fn run(args: &SimConflicts) -> Result<u8> {
    become_simulated::run(args)
}

#[cfg(not(dure_backend = "sim"))]
mod become_simulated {
    use std::os::unix::process::CommandExt;
    use std::path::Path;
    use std::process::Command;

    use anyhow::{Context, Result, bail};
    use dure_fs::MountOptions;

    use crate::args::SimConflicts;
    use crate::command::sim;

    pub(super) fn run(args: &SimConflicts) -> Result<u8> {
        // Report wrong policies before anything is built.
        sim::with_policies(MountOptions::default(), &args.mount)?;
        let program = std::env::current_exe().context("where this program is")?;
        let Some(mut command) = simulated(&program) else {
            bail!(
                "this build of dure runs on real cores, and no build for simulated ones is installed: run \
                 `cargo xtask sim conflicts` in the sources, or install with `cargo xtask dist --simulation`"
            );
        };
        // The arguments as given, without "dure", "sim" and "conflicts".
        command.args(std::env::args_os().skip(3));
        let error = command.exec();
        Err(error).with_context(|| format!("cannot start {command:?}"))
    }

    /// What runs `dure sim conflicts` on simulated cores, if this program knows one.
    pub(super) fn simulated(program: &Path) -> Option<Command> {
        let prefix = program.parent()?.parent()?;
        let installed = prefix.join("libexec/dure/dure-simulated");
        if installed.is_file() {
            let mut command = Command::new(installed);
            command.args(["sim", "conflicts"]);
            return Some(command);
        }
        // In target/PROFILE of the sources.
        let sources = prefix.parent()?;
        let ours = sources.join("xtask/src/sim.rs").is_file();
        ours.then(|| {
            let mut command = Command::new("cargo");
            command.current_dir(sources);
            command.args(["xtask", "sim", "conflicts"]);
            command
        })
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
            assert!(simulated(&installed).is_none());
            let other = file("usr/libexec/dure/dure-simulated");
            assert_eq!(simulated(&installed).unwrap().get_program(), other);
            let built = file("sources/target/release/dure");
            assert!(simulated(&built).is_none());
            file("sources/xtask/src/sim.rs");
            let command = simulated(&built).unwrap();
            assert_eq!(command.get_program(), "cargo");
            assert_eq!(
                command.get_current_dir().unwrap(),
                folder.path().join("sources")
            );
        }
    }
}
