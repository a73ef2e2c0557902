//! The library for C: header, archive, shared library, pkg-config and the page dure(3).
//!
//! **Structure.** cargo makes the archive of dure-capi; its `link.sh` makes the shared library of
//! that. The manual page is the header. **Invariants.** What is installed works under any prefix:
//! dure.pc finds it by its own place. **Crash.** Run it again.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::copy;
use super::manual::escaped;
use crate::cargo;

/// The file that programs load, and its name for the linker.
pub(super) const SHARED: &str = "libdure.so.0";
const FOR_LINKER: &str = "libdure.so";

/// A file of dure-capi.
fn source(path: &str) -> PathBuf {
    cargo::root().join("crates/dure-capi").join(path)
}

/// Builds the archive; its path.
pub(crate) fn build() -> Result<PathBuf> {
    // Without the crate for Rust, as which programs would have the crates below built once more:
    // not for link-time optimization alone.
    let what = "rustc --release -p dure-capi --lib --crate-type staticlib";
    cargo::release(what, "libdure_c.a")
}

/// Puts it below a prefix, with libraries in its folder `libraries`.
pub(crate) fn install(archive: &Path, prefix: &Path, libraries: &str) -> Result<()> {
    let folder = prefix.join(libraries);
    fs::create_dir_all(&folder)?;
    let mut link = Command::new("sh");
    link.arg(source("link.sh")).arg(archive).arg(&folder);
    cargo::run(link)?;
    fs::remove_file(folder.join(FOR_LINKER))?;
    symlink(SHARED, folder.join(FOR_LINKER))?;
    copy(archive, &folder.join("libdure.a"))?;
    let mut strip = Command::new("strip");
    strip.args(["--strip-debug", "--enable-deterministic-archives"]);
    strip.arg(folder.join("libdure.a")).arg(folder.join(SHARED));
    cargo::run(strip)?;
    texts(prefix, libraries)
}

/// What is not built.
fn texts(prefix: &Path, libraries: &str) -> Result<()> {
    copy(&source("include/dure.h"), &prefix.join("include/dure.h"))?;
    let template = fs::read_to_string(source("dure.pc.in"))?;
    // From the folder of dure.pc, below the libraries, to the prefix.
    let up = "/..".repeat(libraries.split('/').count() + 1);
    let pc = template
        .replace("@PREFIX@", &format!("${{pcfiledir}}{up}"))
        .replace("@LIBDIR@", libraries)
        .replace("@VERSION@", env!("CARGO_PKG_VERSION"));
    let place = prefix.join(libraries).join("pkgconfig");
    fs::create_dir_all(&place)?;
    fs::write(place.join("dure.pc"), pc)?;
    let pages = prefix.join("share/man/man3");
    fs::create_dir_all(&pages)?;
    let header = fs::read_to_string(source("include/dure.h"))?;
    fs::write(pages.join("dure.3"), page(&header)?)?;
    Ok(())
}

/// The manual page: what the header says first, and its declarations.
fn page(header: &str) -> Result<String> {
    let (contract, code) = header.split_once(" */").context("a first comment")?;
    let (_, code) = code.split_once("#endif\n\n").context("an extern \"C\"")?;
    let (code, _) = code.split_once("#ifdef __cplusplus").context("its end")?;
    let mut text = format!(
        ".TH DURE 3 \"\" \"dure {}\" dure\n.SH NAME\ndure \\- volumes, paths and open files \
         without a kernel crossing\n.SH SYNOPSIS\n.nf\n#include <dure.h>\n\n\
         cc PROGRAM.c $(pkg\\-config \\-\\-cflags \\-\\-libs dure)\n.fi\n.SH DESCRIPTION\n",
        env!("CARGO_PKG_VERSION")
    );
    let mut in_list = false;
    let lines = contract.lines().skip(2);
    for line in lines.map(|line| line.trim_start_matches(" *")) {
        let line = line.strip_prefix(' ').unwrap_or(line);
        let words = line.trim_start();
        // An error and what it means; the lines behind it are indented, too.
        if words != line && words.starts_with('-') {
            text.push_str(".br\n");
            in_list = true;
        } else if words == line && (in_list || words.is_empty()) {
            text.push_str(".PP\n");
            in_list = false;
        }
        text.push_str(&escaped(words));
        text.push_str(if words.is_empty() { "" } else { "\n" });
    }
    text.push_str(".SH INTERFACE\n.nf\n");
    for line in code.trim().lines() {
        text.push_str(&escaped(line));
        text.push('\n');
    }
    text.push_str(".fi\n.SH \"SEE ALSO\"\ndure(1)\n");
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_pkg_config_and_page_are_installed() {
        let folder = tempfile::tempdir().unwrap();
        texts(folder.path(), "lib/x86_64-linux-gnu").unwrap();
        let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
        assert!(read("include/dure.h").contains("dure_pread"));
        let pc = read("lib/x86_64-linux-gnu/pkgconfig/dure.pc");
        assert!(pc.contains("prefix=${pcfiledir}/../../..\n"), "{pc}");
        assert!(!pc.contains('@') && pc.contains("Version: 0."), "{pc}");
        let page = read("share/man/man3/dure.3");
        for expected in [
            ".SH NAME",
            "RESULTS. 0 or a count",
            "ssize_t dure_pread(",
            "\\-EINVAL",
        ] {
            assert!(page.contains(expected), "{expected}: {page}");
        }
        assert!(!page.contains("DURE_H"), "{page}");
    }
}
