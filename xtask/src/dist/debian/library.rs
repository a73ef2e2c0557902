//! `libdure0`, which programs need, and `libdure-dev`, which their authors need.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::{Deb, VERSION, licences_and_changes, new_root, output, strip};
use crate::cargo;
use crate::dist::library::{SHARED, install};
use crate::dist::{copy, copy_all};

const SHARED_CONTROL: &str = "\
Source: dure
Multi-Arch: same
Section: libs
Description: many-core, crash-safe file system as a library
 Programs that use volumes of dure without a mount, by its interface for C,
 need this library. A call on cached data does not enter the kernel.
";

const DEVELOPMENT_CONTROL: &str = "\
Source: dure
Multi-Arch: same
Section: libdevel
Description: many-core, crash-safe file system as a library (development files)
 Volumes, paths and open files of dure for programs in C and C++, without a
 kernel crossing.
 .
 This package has the header, the archive, the manual page and examples.
";

/// Programs that were linked with it need this package, as old as it is.
pub(super) const SHLIBS: &str =
    concat!("libdure 0 libdure0 (>= ", env!("CARGO_PKG_VERSION"), ")\n");
const TRIGGERS: &str = "activate-noawait ldconfig\n";

/// Makes both packages; their paths.
pub(in crate::dist) fn packages(archive: &Path) -> Result<[PathBuf; 2]> {
    let triplet = output(Command::new("dpkg-architecture").arg("-qDEB_HOST_MULTIARCH"))?;
    let libraries = format!("lib/{}", triplet.trim());
    let development = new_root("libdure-dev")?;
    install(archive, &development.join("usr"), &libraries)?;
    let shared = shared(&development.join("usr").join(&libraries), &libraries)?;
    Ok([shared, development_files(development)?])
}

/// Takes the library from what is installed in `from`.
fn shared(from: &Path, libraries: &str) -> Result<PathBuf> {
    let root = new_root("libdure0")?;
    let place = format!("usr/{libraries}/{SHARED}");
    let library = root.join(&place);
    copy(&from.join(SHARED), &library)?;
    fs::remove_file(from.join(SHARED))?;
    strip(&["--strip-unneeded"], &library)?;
    licences_and_changes(&root.join("usr/share/doc/libdure0"))?;
    let files = [("shlibs", SHLIBS, 0o644), ("triggers", TRIGGERS, 0o644)];
    Deb {
        name: "libdure0",
        root,
        needs_of: Some(&place),
        depends: String::new(),
        control: SHARED_CONTROL,
        files: &files,
    }
    .make()
}

fn development_files(root: PathBuf) -> Result<PathBuf> {
    let documents = root.join("usr/share/doc/libdure-dev");
    licences_and_changes(&documents)?;
    let examples = cargo::root().join("crates/dure-capi/examples/c");
    copy_all(&examples, &documents.join("examples"))?;
    let page = cargo::root().join("docs/user/c.md");
    let name = page.file_name().context("it has a name")?;
    copy(&page, &documents.join(name))?;
    Deb {
        name: "libdure-dev",
        root,
        needs_of: None,
        depends: format!("libdure0 (= {VERSION}-1)"),
        control: DEVELOPMENT_CONTROL,
        files: &[],
    }
    .make()
}
