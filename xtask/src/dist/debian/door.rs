//! `libdure-rocksdb`: the file system for RocksDB, where it was made.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::{Deb, licences_and_changes, new_root, output, strip};
use crate::cargo;
use crate::dist::copy;
use crate::dist::door::NAME;

const CONTROL: &str = "\
Source: dure
Section: libs
Description: many-core, crash-safe file system for RocksDB
 With this library RocksDB's programs have databases in volumes of dure, which
 URIs such as dure:///srv/v.img/db name. It is loaded by LD_PRELOAD, or because
 a program links with it.
";

/// Makes the package of the library below `dist`; its path, or nothing without the library.
pub(in crate::dist) fn package(dist: &Path) -> Result<Option<PathBuf>> {
    let made = dist.join("lib").join(NAME);
    if !made.is_file() {
        return Ok(None);
    }
    let root = new_root("libdure-rocksdb")?;
    let triplet =
        output(std::process::Command::new("dpkg-architecture").arg("-qDEB_HOST_MULTIARCH"))?;
    let place = format!("usr/lib/{}/{NAME}", triplet.trim());
    copy(&made, &root.join(&place))?;
    strip(&["--strip-unneeded"], &root.join(&place))?;
    let documents = root.join("usr/share/doc/libdure-rocksdb");
    licences_and_changes(&documents)?;
    let page = cargo::root().join("docs/user/rocksdb.md");
    let name = page.file_name().context("it has a name")?;
    copy(&page, &documents.join(name))?;
    Deb {
        name: "libdure-rocksdb",
        root,
        needs_of: Some(&place),
        depends: String::new(),
        control: CONTROL,
        files: &[],
    }
    .make()
    .map(Some)
}
