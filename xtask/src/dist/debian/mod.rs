//! `cargo xtask dist --deb`: Debian packages of what is installed: `dure`, and those of
//! [`library`] and [`door`].
//!
//! **Problem.** A user that installs a file system wants its package manager to know of it.
//! **Structure.** What `dist` installs below `/usr`, with Debian's rules: programs stripped, pages
//! compressed, licences and changes in their files; then dpkg-deb. [`judge`] asks lintian.
//! **Invariants.** The same sources make the same package: times are those of the commit.
//! **Crash.** Run it again.

mod door;
mod library;

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::{copy_all, install, remove};
use crate::cargo;
pub(super) use door::package as door_package;
use library::SHLIBS;
pub(super) use library::packages as library_packages;

/// The uploader of the package replaces it.
const MAINTAINER: &str = "dure maintainers <maintainers@dure.example>";
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What lintian must not complain of, behind the name of the package.
const OVERRIDE: &str = ": initial-upload-closes-no-bugs\n";

/// What the files for the next boot do, now; no kernel has to have the switch.
const POSTINST: &str = "#!/bin/sh
set -e
switch=/sys/module/fuse/parameters/enable_uring
if [ \"$1\" = configure ] && [ -w \"$switch\" ]; then
    echo Y > \"$switch\" || true
fi
";

const DESCRIPTION: &str = "\
Recommends: fuse3
Section: admin
Description: many-core, crash-safe file system in user space
 dure is a file system for machines with many cores. Operations on data that
 no other core uses share no cache line with them, all data and metadata have
 checksums, and no crash loses what was synced.
 .
 This package has the program dure with the helpers that mkfs(8), mount(8),
 umount(8) and fsck(8) call. A mount goes through FUSE and needs no kernel
 module of its own; dure ls, get and put need no mount at all.
";

/// A package: its files below `root`, and what dpkg is told.
struct Deb<'a> {
    name: &'a str,
    root: PathBuf,
    /// A program or library, below the root, whose libraries it depends on.
    needs_of: Option<&'a str>,
    depends: String,
    /// Further lines of the control file, and the description.
    control: &'a str,
    /// Scripts and other files of dpkg: name, text, mode.
    files: &'a [(&'a str, &'a str, u32)],
}

/// The empty folder for the files of a package.
fn new_root(name: &str) -> Result<PathBuf> {
    let staging = cargo::target().join("deb").join(name);
    remove(&staging)?;
    let root = staging.join("root");
    fs::create_dir_all(&root)?;
    Ok(root)
}

/// Makes the package; its path.
pub(crate) fn package(program: &Path) -> Result<PathBuf> {
    let root = new_root("dure")?;
    install(program, &root.join("usr"))?;
    strip(&["--strip-all"], &root.join("usr/bin/dure"))?;
    documents(&root.join("usr/share/doc/dure"))?;
    Deb {
        name: "dure",
        root,
        needs_of: Some("usr/bin/dure"),
        depends: String::new(),
        control: DESCRIPTION,
        files: &[("postinst", POSTINST, 0o755)],
    }
    .make()
}

fn strip(how: &[&str], file: &Path) -> Result<()> {
    let mut strip = Command::new("strip");
    strip.args(how);
    strip.args(["--remove-section=.comment", "--remove-section=.note"]);
    output(strip.arg(file)).map(drop)
}

impl Deb<'_> {
    fn make(&self) -> Result<PathBuf> {
        let Deb { name, root, .. } = self;
        let overrides = root.join("usr/share/lintian/overrides");
        fs::create_dir_all(&overrides)?;
        let reason = "# No package of Debian's archive, so nobody has asked for it there.\n";
        fs::write(overrides.join(name), format!("{reason}{name}{OVERRIDE}"))?;
        let pages = root.join("usr/share/man");
        if pages.exists() {
            compress_all(&pages)?;
        }
        modes(root)?;
        let control = self.control()?;
        let debian = root.join("DEBIAN");
        fs::create_dir(&debian)?;
        fs::write(debian.join("md5sums"), sums(root)?)?;
        fs::write(debian.join("control"), control)?;
        modes(&debian)?;
        for (file, text, mode) in self.files {
            fs::write(debian.join(file), text)?;
            let mode = fs::Permissions::from_mode(*mode);
            fs::set_permissions(debian.join(file), mode)?;
        }
        let file = format!("{name}_{VERSION}-1_{}.deb", architecture()?);
        let package = cargo::target().join(file);
        let mut build = Command::new("dpkg-deb");
        build.env("SOURCE_DATE_EPOCH", commit_time()?);
        build.args(["--root-owner-group", "--build"]);
        output(build.args([root, &package]))?;
        Ok(package)
    }

    fn control(&self) -> Result<String> {
        let Deb { name, root, .. } = self;
        let mut depends = self.depends.clone();
        if let Some(file) = self.needs_of {
            depends.push_str(&libraries_of(root, file)?);
        }
        let lengths = files(root)?.into_iter().map(fs::metadata);
        let size = lengths.map(|file| Ok(file?.len().div_ceil(1024)));
        let size: u64 = size.sum::<Result<u64>>()?;
        let architecture = architecture()?;
        Ok(format!(
            "Package: {name}\nVersion: {VERSION}-1\nArchitecture: {architecture}\n\
             Maintainer: {MAINTAINER}\nInstalled-Size: {size}\nDepends: {depends}\n\
             Priority: optional\n{}",
            self.control
        ))
    }
}

/// The packages of the libraries that a file needs.
fn libraries_of(root: &Path, file: &str) -> Result<String> {
    let staging = root.parent().context("the folder of the package")?;
    // dpkg-shlibdeps wants the source package of what it looks at.
    fs::create_dir(staging.join("debian"))?;
    fs::write(
        staging.join("debian/control"),
        "Source: dure\n\nPackage: dure\nArchitecture: any\n",
    )?;
    // libdure need not be installed where a library that needs it is packed.
    fs::write(staging.join("debian/shlibs.local"), SHLIBS)?;
    let own = cargo::target().join("dist/lib");
    let mut shlibdeps = Command::new("dpkg-shlibdeps");
    shlibdeps.current_dir(staging).arg("-O");
    shlibdeps.arg(format!("-l{}", own.display()));
    let depends = output(shlibdeps.arg(format!("root/{file}")))?;
    let depends = depends.trim().strip_prefix("shlibs:Depends=");
    Ok(depends.context("dpkg-shlibdeps")?.to_owned())
}

/// What lintian finds is an error, up to its warnings.
pub(crate) fn judge(package: &Path) -> Result<()> {
    let mut lintian = Command::new("lintian");
    lintian
        .args(["--allow-root", "--fail-on", "error,warning"])
        .arg(package);
    print!("{}", output(&mut lintian)?);
    println!("lintian: nothing to complain of");
    Ok(())
}

/// Runs a program of the system; its standard output.
pub(super) fn output(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let done = command.output().with_context(|| {
        format!("{name}: is its package installed? (dpkg-dev, binutils, lintian)")
    })?;
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    ensure!(
        done.status.success(),
        "{name}: {}\n{}{}",
        done.status,
        text(&done.stdout),
        text(&done.stderr)
    );
    Ok(text(&done.stdout))
}

fn architecture() -> Result<String> {
    let text = output(Command::new("dpkg").arg("--print-architecture"))?;
    Ok(text.trim().to_owned())
}

/// When the sources were committed, in seconds since 1970; without git `SOURCE_DATE_EPOCH` says it.
pub(super) fn commit_time() -> Result<String> {
    if let Ok(seconds) = std::env::var("SOURCE_DATE_EPOCH") {
        return Ok(seconds);
    }
    let mut git = Command::new("git");
    git.current_dir(cargo::root())
        .args(["log", "-1", "--format=%ct"]);
    Ok(output(&mut git)?.trim().to_owned())
}

/// Licences, changes and examples of the program, where Debian looks for them.
fn documents(folder: &Path) -> Result<()> {
    for name in ["LICENSE-MIT", "LICENSE-APACHE", "CHANGELOG.md"] {
        fs::remove_file(folder.join(name))?;
    }
    licences_and_changes(folder)?;
    let examples = folder.join("examples");
    copy_all(&folder.join("docs/user/examples"), &examples)?;
    remove(&folder.join("docs/user/examples"))
}

fn licences_and_changes(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    let mit = fs::read_to_string(cargo::root().join("LICENSE-MIT"))?;
    let mit = indented(&mit);
    let copyright = format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\
         Upstream-Name: dure\n\nFiles: *\nCopyright: 2026 the dure authors\n\
         License: Expat or Apache-2.0\n\nLicense: Expat\n{mit}\nLicense: Apache-2.0\n \
         On Debian systems, the whole text of the Apache License 2.0 is in\n \
         /usr/share/common-licenses/Apache-2.0.\n"
    );
    fs::write(folder.join("copyright"), copyright)?;
    let changes = cargo::root().join("CHANGELOG.md");
    fs::copy(changes, folder.join("changelog"))?;
    let at = format!("@{}", commit_time()?);
    let date = output(Command::new("date").args(["-u", "-R", "-d", &at]))?;
    let changes = format!(
        "dure ({VERSION}-1) unstable; urgency=medium\n\n  * What is new is in changelog.gz.\n\n \
         -- {MAINTAINER}  {}\n",
        date.trim()
    );
    fs::write(folder.join("changelog.Debian"), changes)?;
    for name in ["changelog", "changelog.Debian"] {
        compress(&folder.join(name))?;
    }
    Ok(())
}

/// A paragraph of a copyright file.
fn indented(text: &str) -> String {
    text.trim_end()
        .lines()
        .fold(String::new(), |mut all, line| {
            let line = line.trim_end();
            all.push(' ');
            all.push_str(if line.is_empty() { "." } else { line });
            all.push('\n');
            all
        })
}

fn compress(path: &Path) -> Result<()> {
    output(Command::new("gzip").args(["-9", "-n"]).arg(path)).map(drop)
}

fn compress_all(folder: &Path) -> Result<()> {
    files(folder)?.iter().try_for_each(|path| compress(path))
}

/// The files below a folder, in order.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            found.extend(files(&entry.path())?);
        } else if kind.is_file() {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

/// Modes that do not depend on the maker of the package.
fn modes(folder: &Path) -> Result<()> {
    let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode));
    set(folder, 0o755)?;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            modes(&entry.path())?;
        } else if kind.is_file() {
            let in_bin = folder.ends_with("bin");
            set(&entry.path(), if in_bin { 0o755 } else { 0o644 })?;
        }
    }
    Ok(())
}

/// `md5sums` of a package.
fn sums(root: &Path) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    for file in files(root)? {
        let name = file.strip_prefix(root).context("below the root")?;
        let mut sum = Command::new("md5sum");
        sum.stdin(Stdio::from(fs::File::open(&file)?));
        let sum = output(&mut sum)?;
        let sum = sum.split_whitespace().next().context("md5sum")?;
        writeln!(text, "{sum}  {}", name.display())?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Empty lines of a licence would end its paragraph.
    #[test]
    fn paragraphs_of_a_copyright_file_have_no_empty_line() {
        assert_eq!(indented("a\n\n  b\n"), " a\n .\n   b\n");
    }
}
