//! `cargo xtask dist`: what is installed, as it lies below a prefix such as `/usr`.
//!
//! **Structure.** The program; the names by which mkfs(8), mount(8) and fsck(8) call it, as links;
//! manual pages ([`manual`]) and completions ([`completions`]) made from the arguments themselves;
//! documents and licences; the library for C ([`library`]), the extension for SQLite and, where RocksDB's
//! headers are, the file system for RocksDB ([`mod@door`]). [`debian`] makes packages of it.
//! **Invariants.** The folder is made anew and holds nothing else. The same sources make the same bytes
//! ([`mod@twice`]). **Crash.** A half-made folder has another name; run it again.

mod completions;
mod debian;
mod door;
pub(crate) mod library;
mod manual;
mod twice;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use clap::Args;

use crate::cargo;
pub(crate) use debian::{judge, package};
pub(crate) use door::{command as door, library_in};

/// Arguments of `cargo xtask dist`.
#[derive(Debug, Args)]
pub(crate) struct Dist {
    /// Also build the program for simulated cores, which `dure sim conflicts` needs.
    #[arg(long)]
    simulation: bool,
    /// Also make Debian packages, and judge them with lintian. Needs the packages dpkg-dev, binutils
    /// and lintian.
    #[arg(long)]
    deb: bool,
    /// Do it again with a copy of the sources in another folder, and name each file that differs.
    #[arg(long, conflicts_with = "simulation")]
    twice: bool,
    /// Do not ask lintian.
    #[arg(long, hide = true)]
    unjudged: bool,
}

/// The name by which a tool of the system calls a subcommand.
const NAMES: [(&str, Option<&str>); 7] = [
    ("mkfs.dure", Some("mkfs")),
    ("mount.dure", Some("mount")),
    ("fsck.dure", Some("check")),
    // mount(8) of type fuse.dure; the page of mount.dure describes it.
    ("mount.fuse.dure", None),
    // umount(8), the same way.
    ("umount.dure", Some("umount")),
    ("umount.fuse.dure", None),
    // A mounted block device is of type fuseblk.dure.
    ("umount.fuseblk.dure", None),
];

const DOCUMENTS: [&str; 6] = [
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "LICENSE-MIT",
    "LICENSE-APACHE",
];

impl Dist {
    pub(crate) fn run(self) -> Result<()> {
        let program = cargo::build_dure()?;
        let dist = cargo::target().join("dist");
        let making = cargo::target().join("dist.new");
        remove(&making)?;
        install(&program, &making)?;
        let archive = library::build()?;
        library::install(&archive, &making, "lib")?;
        let extension = making.join("lib/libdure_sqlite.so");
        install_library(&cargo::build_extension()?, &extension)?;
        let preload = making.join("lib/dure/libdure_preload.so");
        install_library(&cargo::build_preload()?, &preload)?;
        door::install(&making)?;
        if self.simulation {
            let simulated = cargo::build_simulated_dure()?;
            copy(&simulated, &making.join("libexec/dure/dure-simulated"))?;
        }
        remove(&dist)?;
        fs::rename(&making, &dist).with_context(|| dist.display().to_string())?;
        println!("{}", dist.display());
        if self.deb {
            let mut packages = vec![package(&program)?];
            packages.extend(debian::library_packages(&archive)?);
            packages.extend(debian::door_package(&dist)?);
            for package in packages {
                println!("{}", package.display());
                if !self.unjudged {
                    judge(&package)?;
                }
            }
        }
        if self.twice {
            twice::compare(self.deb)?;
        }
        Ok(())
    }
}

pub(crate) fn remove(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    Ok(())
}

/// What switches FUSE over io_uring on at boot: where `fuse` is a module, and where it is not. A
/// kernel that knows no rings passes over both.
const RINGS: [(&str, &str); 2] = [
    (
        "lib/modprobe.d/dure.conf",
        "# Mounts of dure ask for it; of other FUSE servers, those that do.\n\
         options fuse enable_uring=1\n",
    ),
    (
        "lib/tmpfiles.d/dure.conf",
        "# As modprobe.d/dure.conf, where the kernel has FUSE built in.\n\
         w- /sys/module/fuse/parameters/enable_uring - - - - Y\n",
    ),
];

/// Units of systemd, which lie among the examples: nothing of them runs before someone enables it.
const UNITS: [&str; 2] = ["dure-scrub@.service", "dure-scrub@.timer"];

fn install(program: &Path, dist: &Path) -> Result<()> {
    copy(program, &dist.join("bin/dure"))?;
    fs::create_dir_all(dist.join("sbin"))?;
    for (name, _) in NAMES {
        symlink("../bin/dure", dist.join("sbin").join(name))?;
    }
    manual::write(&dist.join("share/man"))?;
    completions::write(dist)?;
    for (name, text) in RINGS {
        let path = dist.join(name);
        fs::create_dir_all(path.parent().context("it has a folder")?)?;
        fs::write(path, text)?;
    }
    for name in UNITS {
        let unit = cargo::root().join("docs/user/examples").join(name);
        copy(&unit, &dist.join("lib/systemd/system").join(name))?;
    }
    let documents = dist.join("share/doc/dure");
    for name in DOCUMENTS {
        copy(&cargo::root().join(name), &documents.join(name))?;
    }
    copy_all(&cargo::root().join("docs"), &documents.join("docs"))
}

/// A library that programs load, without what a debugger needs.
fn install_library(library: &Path, installed: &Path) -> Result<()> {
    copy(library, installed)?;
    let mut strip = Command::new("strip");
    strip.arg("--strip-unneeded").arg(installed);
    cargo::run(strip)
}

/// A folder and the folders in it.
pub(crate) fn copy_all(from: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(from).with_context(|| from.display().to_string())? {
        let path = entry?.path();
        let copied = to.join(path.file_name().context("files have names")?);
        if path.is_dir() {
            copy_all(&path, &copied)?;
        } else {
            copy(&path, &copied)?;
        }
    }
    Ok(())
}

pub(crate) fn copy(from: &Path, to: &Path) -> Result<()> {
    let folder = to.parent().context("it has a folder")?;
    fs::create_dir_all(folder)?;
    fs::copy(from, to).with_context(|| from.display().to_string())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn what_is_installed_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        fs::write(&program, "x").unwrap();
        let dist = folder.path().join("dist");
        install(&program, &dist).unwrap();
        for name in ["mkfs.dure", "mount.dure", "mount.fuse.dure", "fsck.dure"] {
            assert_eq!(
                fs::read(dist.join("sbin").join(name)).unwrap(),
                b"x",
                "{name}"
            );
            let page = dist.join("share/man/man8").join(format!("{name}.8"));
            assert!(fs::metadata(page).unwrap().len() > 10, "{name}");
        }
        for command in dure_cli::args::Args::command().get_subcommands() {
            let page = format!("share/man/man1/dure-{}.1", command.get_name());
            let text = fs::read_to_string(dist.join(&page)).unwrap();
            assert!(
                text.contains(".SH SYNOPSIS") && text.contains(".SH EXAMPLES"),
                "{page}"
            );
        }
        let system = fs::read_to_string(dist.join("share/man/man8/mkfs.dure.8")).unwrap();
        assert!(
            system.contains("mkfs.dure 8") && system.contains("journals"),
            "{system}"
        );
        for (_, place) in completions::PLACES {
            let text = fs::read_to_string(dist.join(place)).unwrap();
            assert!(
                text.contains("mkfs") && text.contains("journal=per-core"),
                "{place}"
            );
        }
        assert!(
            dist.join("share/doc/dure/docs/design/durability.md")
                .is_file()
        );
        assert!(dist.join("share/doc/dure/LICENSE-MIT").is_file());
        for (name, _) in RINGS {
            let text = fs::read_to_string(dist.join(name)).unwrap();
            assert!(text.contains("enable_uring"), "{name}");
        }
    }
}
