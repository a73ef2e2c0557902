//! The programs that a suite needs, installed when they are missing.
//!
//! **Structure.** [`Needs`] is what a suite declares; [`ensure`] makes it true or says why not.
//! **Invariants.** Nothing is installed that is there; `apt-get update` runs at most once.
//! **Crash.** Everything can be run again.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::cargo;

/// What a suite needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Needs {
    /// It mounts, so it needs root and `/dev/fuse`.
    pub(crate) mount: bool,
    /// Programs from the Rust registry, with their versions.
    pub(crate) crates: &'static [(&'static str, &'static str)],
    /// Programs of the system, with the Debian packages that hold them.
    pub(crate) programs: &'static [(&'static str, &'static str)],
}

/// Where programs come from.
#[derive(Debug)]
pub(crate) struct Tools {
    root: PathBuf,
    updated: Cell<bool>,
}

impl Tools {
    /// Programs of the Rust registry go to `target/tools`, or are found in `$DURE_TOOLS`.
    pub(crate) fn new() -> Tools {
        let root = std::env::var_os("DURE_TOOLS");
        Tools {
            root: root.map_or_else(|| cargo::target().join("tools"), PathBuf::from),
            updated: Cell::new(false),
        }
    }

    /// The path of a program from the Rust registry.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.root.join("bin").join(name)
    }

    /// Installs what is missing.
    ///
    /// # Errors
    /// One line that says why the suite cannot run here.
    pub(crate) fn ensure(&self, needs: &Needs) -> Result<()> {
        if needs.mount {
            let root = rustix::process::geteuid().is_root();
            ensure!(root, "it mounts, and only root may (allow_other)");
            std::fs::File::options()
                .read(true)
                .write(true)
                .open("/dev/fuse")
                .context("/dev/fuse")?;
        }
        for (name, version) in needs.crates {
            if !self.program(name).is_file() {
                self.cargo_install(name, version)?;
            }
        }
        let missing = |(program, _): &&(&str, &str)| find(program).is_none();
        let packages: Vec<_> = needs.programs.iter().filter(missing).collect();
        if !packages.is_empty() {
            self.apt_install(packages.iter().map(|(_, package)| *package).collect())?;
        }
        for (program, package) in needs.programs {
            ensure!(
                find(program).is_some(),
                "no {program}, though {package} is installed"
            );
        }
        Ok(())
    }

    fn cargo_install(&self, name: &str, version: &str) -> Result<()> {
        eprintln!("  installing {name} {version} from the Rust registry");
        let mut command = cargo::cargo();
        command
            .args(["install", "--quiet", "--locked", "--version", version, name])
            .arg("--root")
            .arg(&self.root)
            .env_remove("RUSTFLAGS")
            .env_remove("CARGO_TARGET_DIR");
        cargo::run(command).with_context(|| format!("{name} {version} cannot be installed"))
    }

    fn apt_install(&self, packages: Vec<&str>) -> Result<()> {
        let list = packages.join(" ");
        let root = rustix::process::geteuid().is_root();
        ensure!(root, "{list} missing, and only root may install");
        ensure!(
            find("apt-get").is_some(),
            "{list} missing, and there is no apt-get"
        );
        if !self.updated.replace(true) {
            apt(&["update"])?;
        }
        eprintln!("  installing {list}");
        let mut arguments = vec!["install", "-y", "--no-install-recommends"];
        arguments.extend(packages);
        apt(&arguments)
    }
}

fn apt(arguments: &[&str]) -> Result<()> {
    let mut command = Command::new("apt-get");
    command
        .arg("-q")
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    cargo::run(command)
}

/// The path of a program of the system. PostgreSQL's are in a folder of their version.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    folders.extend(["/usr/sbin", "/sbin"].map(PathBuf::from));
    folders.extend(postgres_folders());
    let files = folders.into_iter().map(|folder| folder.join(name));
    files.into_iter().find(|file| file.is_file())
}

/// `/usr/lib/postgresql/N/bin`, newest first.
fn postgres_folders() -> Vec<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql");
    let mut versions: Vec<(u32, PathBuf)> = versions
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let number = entry.file_name().to_str()?.parse().ok()?;
            Some((number, entry.path().join("bin")))
        })
        .collect();
    versions.sort_by_key(|(number, _)| std::cmp::Reverse(*number));
    versions.into_iter().map(|(_, path)| path).collect()
}

/// A command of the system that a suite has declared.
pub(crate) fn command(name: &str) -> Command {
    let found = find(name);
    Command::new(found.as_deref().unwrap_or(Path::new(name)))
}
