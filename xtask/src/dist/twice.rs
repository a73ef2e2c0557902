//! `cargo xtask dist --twice`: whether the same sources make the same bytes.
//!
//! **Problem.** A release is worth what its sources are only if others can make it, too: a path, a time
//! or an order of the builder in it, and they cannot. **Structure.** The tracked files are copied to
//! another folder, which this program then takes for the root of the repository. **Invariants.** Nothing
//! built before is used there. **Crash.** The copy is made anew.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::debian::{commit_time, output};
use super::{copy, remove};
use crate::cargo;

/// Builds again in a copy of the sources, and compares with what is in `target`.
pub(super) fn compare(deb: bool) -> Result<()> {
    let copy = cargo::target().join("twice");
    remove(&copy)?;
    copy_tracked(&copy)?;
    let target = copy.join("target");
    let mut again = Command::new(std::env::current_exe()?);
    again
        .args(["dist", "--unjudged"])
        .args(deb.then_some("--deb"));
    again
        .current_dir(&copy)
        .env("CARGO_MANIFEST_DIR", copy.join("xtask"))
        .env("CARGO_TARGET_DIR", &target)
        .env("SOURCE_DATE_EPOCH", commit_time()?);
    cargo::run(again)?;
    let debs = debs(&target)?;
    let (first, second) = (made(&cargo::target(), &debs)?, made(&target, &debs)?);
    let differ = differences(&first, &second);
    if !differ.is_empty() {
        bail!("made twice, these differ: {}", differ.join(", "));
    }
    println!("made twice: {} files, all the same", first.len());
    remove(&copy)
}

/// The files that git knows, as they are now.
fn copy_tracked(to: &Path) -> Result<()> {
    let mut list = Command::new("git");
    list.current_dir(cargo::root()).args(["ls-files", "-z"]);
    let names = output(&mut list)?;
    let files = names.split('\0').filter(|name| !name.is_empty());
    for name in files.filter(|name| cargo::root().join(name).exists()) {
        copy(&cargo::root().join(name), &to.join(name))?;
    }
    Ok(())
}

/// The packages in a folder.
fn debs(target: &Path) -> Result<Vec<PathBuf>> {
    let names = fs::read_dir(target)?.map(|entry| Ok(PathBuf::from(entry?.file_name())));
    let mut names = names.collect::<Result<Vec<_>>>()?;
    names.retain(|name| name.extension().is_some_and(|is| is == "deb"));
    Ok(names)
}

/// What `dist` has made below `target`: mode and bytes, or where a link leads.
fn made(target: &Path, debs: &[PathBuf]) -> Result<BTreeMap<PathBuf, (u32, Vec<u8>)>> {
    let mut found = BTreeMap::new();
    add(target, Path::new("dist"), &mut found)?;
    for name in debs {
        add(target, name, &mut found)?;
    }
    Ok(found)
}

fn add(target: &Path, name: &Path, found: &mut BTreeMap<PathBuf, (u32, Vec<u8>)>) -> Result<()> {
    let path = target.join(name);
    let what = fs::symlink_metadata(&path).with_context(|| path.display().to_string())?;
    if what.is_dir() {
        for entry in fs::read_dir(&path)? {
            add(target, &name.join(entry?.file_name()), found)?;
        }
        return Ok(());
    }
    let bytes = if what.is_symlink() {
        fs::read_link(&path)?.into_os_string().into_encoded_bytes()
    } else {
        fs::read(&path)?
    };
    found.insert(name.to_owned(), (what.permissions().mode(), bytes));
    Ok(())
}

/// The names of what is not in both, or not the same.
fn differences<T: PartialEq>(
    first: &BTreeMap<PathBuf, T>,
    second: &BTreeMap<PathBuf, T>,
) -> Vec<String> {
    let mut names: Vec<&PathBuf> = first.keys().chain(second.keys()).collect();
    names.sort();
    names.dedup();
    names.retain(|name| first.get(*name) != second.get(*name));
    names
        .iter()
        .map(|name| name.display().to_string())
        .collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn another_byte_mode_link_or_name_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let dist = folder.path().join(name).join("dist/bin");
            fs::create_dir_all(&dist).unwrap();
            for file in ["byte", "mode", "same"] {
                fs::write(dist.join(file), "text").unwrap();
            }
            symlink("same", dist.join("link")).unwrap();
            fs::write(folder.path().join(name).join("dure.deb"), "package").unwrap();
            dist
        };
        let (one, two) = (make("one"), make("two"));
        let compared = || {
            let [one, two] = ["one", "two"].map(|name| folder.path().join(name));
            let debs = debs(&two).unwrap();
            differences(&made(&one, &debs).unwrap(), &made(&two, &debs).unwrap())
        };
        assert_eq!(compared(), Vec::<String>::new());
        fs::write(one.join("byte"), "tent").unwrap();
        let mode = fs::Permissions::from_mode(0o700);
        fs::set_permissions(one.join("mode"), mode).unwrap();
        fs::remove_file(one.join("link")).unwrap();
        symlink("byte", one.join("link")).unwrap();
        fs::write(two.join("name"), "text").unwrap();
        fs::write(folder.path().join("two/dure.deb"), "packages").unwrap();
        let of_bin = ["byte", "link", "mode", "name"].map(|name| format!("dist/bin/{name}"));
        assert_eq!(compared(), [&of_bin[..], &["dure.deb".to_owned()]].concat());
    }
}
