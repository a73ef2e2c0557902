//! `cargo xtask dist --deb`: a Debian package of what is installed.
//!
//! **Problem.** A user that installs a file system wants its package manager to know of it.
//! **Structure.** What `dist` installs below `/usr`, with Debian's rules: the program stripped,
//! pages compressed, licences and changes in their files; then dpkg-deb. [`judge`] asks lintian.
//! **Invariants.** The same sources make the same package: times are those of the commit.
//! **Crash.** Run it again.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::{copy_all, install, remove};
use crate::cargo;

/// The uploader of the package replaces it.
const MAINTAINER: &str = "dure maintainers <maintainers@dure.example>";
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What lintian must not complain of.
const OVERRIDES: &str = "# No package of Debian's archive, so nobody has asked for it there.\n\
                         dure: initial-upload-closes-no-bugs\n";

/// What the files for the next boot do, now; no kernel has to have the switch.
const POSTINST: &str = "#!/bin/sh
set -e
switch=/sys/module/fuse/parameters/enable_uring
if [ \"$1\" = configure ] && [ -w \"$switch\" ]; then
    echo Y > \"$switch\" || true
fi
";

const DESCRIPTION: &str = "\
Description: many-core, crash-safe file system in user space
 dure is a file system for machines with many cores. Operations on data that
 no other core uses share no cache line with them, all data and metadata have
 checksums, and no crash loses what was synced.
 .
 This package has the program dure with the helpers that mkfs(8), mount(8),
 umount(8) and fsck(8) call. A mount goes through FUSE and needs no kernel
 module of its own; dure ls, get and put need no mount at all.
";

/// Makes the package; its path.
pub(crate) fn package(program: &Path) -> Result<PathBuf> {
    let staging = cargo::target().join("deb");
    remove(&staging)?;
    let root = staging.join("root");
    install(program, &root.join("usr"))?;
    let run = |command: &mut Command| output(command).map(drop);
    run(Command::new("strip")
        .args([
            "--strip-all",
            "--remove-section=.comment",
            "--remove-section=.note",
        ])
        .arg(root.join("usr/bin/dure")))?;
    documents(&root.join("usr/share/doc/dure"))?;
    let overrides = root.join("usr/share/lintian/overrides");
    fs::create_dir_all(&overrides)?;
    fs::write(overrides.join("dure"), OVERRIDES)?;
    compress_all(&root.join("usr/share/man"))?;
    modes(&root)?;
    let control = control(&staging, &root)?;
    let debian = root.join("DEBIAN");
    fs::create_dir(&debian)?;
    fs::write(debian.join("md5sums"), sums(&root)?)?;
    fs::write(debian.join("control"), control)?;
    fs::write(debian.join("postinst"), POSTINST)?;
    modes(&debian)?;
    let executable = fs::Permissions::from_mode(0o755);
    fs::set_permissions(debian.join("postinst"), executable)?;
    let architecture = architecture()?;
    let package = cargo::target().join(format!("dure_{VERSION}-1_{architecture}.deb"));
    run(Command::new("dpkg-deb")
        .env("SOURCE_DATE_EPOCH", commit_time("%ct")?)
        .args(["--root-owner-group", "--build"])
        .args([&root, &package]))?;
    Ok(package)
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
fn output(command: &mut Command) -> Result<String> {
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

/// When the sources were committed.
fn commit_time(format: &str) -> Result<String> {
    let mut git = Command::new("git");
    git.current_dir(cargo::root()).args(["log", "-1"]);
    let text = output(git.arg(format!("--format={format}")))?;
    Ok(text.trim().to_owned())
}

fn control(staging: &Path, root: &Path) -> Result<String> {
    // dpkg-shlibdeps wants the source package of what it looks at.
    fs::create_dir(staging.join("debian"))?;
    fs::write(
        staging.join("debian/control"),
        "Source: dure\n\nPackage: dure\nArchitecture: any\n",
    )?;
    let mut shlibdeps = Command::new("dpkg-shlibdeps");
    shlibdeps
        .current_dir(staging)
        .args(["-O", "root/usr/bin/dure"]);
    let depends = output(&mut shlibdeps)?;
    let depends = depends.trim().strip_prefix("shlibs:Depends=");
    let depends = depends.context("dpkg-shlibdeps")?;
    let size = output(
        Command::new("du")
            .args(["-k", "-s", "--apparent-size"])
            .arg(root),
    )?;
    let size = size.split_whitespace().next().context("du")?;
    let architecture = architecture()?;
    Ok(format!(
        "Package: dure\nVersion: {VERSION}-1\nArchitecture: {architecture}\nMaintainer: {MAINTAINER}\n\
         Installed-Size: {size}\nDepends: {depends}\nRecommends: fuse3\nSection: admin\n\
         Priority: optional\n{DESCRIPTION}"
    ))
}

/// Licences, changes and examples, where Debian looks for them.
fn documents(folder: &Path) -> Result<()> {
    let licence = |name: &str| fs::read_to_string(cargo::root().join(name));
    let mit = indented(&licence("LICENSE-MIT")?);
    let copyright = format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\
         Upstream-Name: dure\n\nFiles: *\nCopyright: 2026 the dure authors\n\
         License: Expat or Apache-2.0\n\nLicense: Expat\n{mit}\nLicense: Apache-2.0\n \
         On Debian systems, the whole text of the Apache License 2.0 is in\n \
         /usr/share/common-licenses/Apache-2.0.\n"
    );
    fs::write(folder.join("copyright"), copyright)?;
    for name in ["LICENSE-MIT", "LICENSE-APACHE"] {
        fs::remove_file(folder.join(name))?;
    }
    fs::rename(folder.join("CHANGELOG.md"), folder.join("changelog"))?;
    let changes = format!(
        "dure ({VERSION}-1) unstable; urgency=medium\n\n  * What is new is in changelog.gz.\n\n \
         -- {MAINTAINER}  {}\n",
        commit_time("%aD")?
    );
    fs::write(folder.join("changelog.Debian"), changes)?;
    for name in ["changelog", "changelog.Debian"] {
        compress(&folder.join(name))?;
    }
    let examples = folder.join("examples");
    copy_all(&folder.join("docs/user/examples"), &examples)?;
    remove(&folder.join("docs/user/examples"))
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
