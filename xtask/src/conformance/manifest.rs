//! A tree as text: everything that a copy must preserve.
//!
//! **Problem.** `diff -r` compares names and contents only. **Structure.** One line per entry with
//! type, permissions, owner, size, links, times, target, device, extended attributes and a sum of
//! the content. **Invariants.** Two trees with equal manifests are equal. **Crash.** None.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::io::{ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// How many differences are named.
const NAMED: usize = 10;

/// Path below the root -> type, attributes and content.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Manifest(BTreeMap<PathBuf, String>);

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Detail {
    /// All of it.
    Full,
    /// All but the times and the link counts, which changes outside the entry affect.
    NoTimes,
}

impl Manifest {
    /// The tree at `root`, which is part of it.
    pub(crate) fn of(root: &Path, detail: Detail) -> Result<Manifest> {
        let mut walk = Walk {
            root,
            detail,
            entries: BTreeMap::new(),
            linked: BTreeMap::new(),
        };
        walk.enter(root)?;
        Ok(Manifest(walk.entries))
    }

    /// How many entries there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// An error that names what differs from `self`, the original.
    pub(crate) fn expect_same(&self, copy: &Manifest) -> Result<()> {
        self.expect_within(copy)?;
        let more: Vec<_> = copy
            .0
            .keys()
            .filter(|path| !self.0.contains_key(*path))
            .collect();
        if !more.is_empty() {
            bail!(
                "{} entries too many, such as {}",
                more.len(),
                more[0].display()
            );
        }
        Ok(())
    }

    /// The same, but the copy may have more entries.
    pub(crate) fn expect_within(&self, copy: &Manifest) -> Result<()> {
        let differences: Vec<_> = self
            .0
            .iter()
            .filter_map(|(path, wanted)| match copy.0.get(path) {
                Some(got) if got == wanted => None,
                Some(got) => Some(format!(
                    "{}\n      expected {wanted}\n      got      {got}",
                    path.display()
                )),
                None => Some(format!("{}: missing", path.display())),
            })
            .collect();
        if differences.is_empty() {
            return Ok(());
        }
        let named = differences[..differences.len().min(NAMED)].join("\n    ");
        bail!(
            "{} of {} entries differ:\n    {named}",
            differences.len(),
            self.len()
        )
    }
}

struct Walk<'a> {
    root: &'a Path,
    detail: Detail,
    entries: BTreeMap<PathBuf, String>,
    /// Inode -> the first name under which the walk found it.
    linked: BTreeMap<u64, PathBuf>,
}

impl Walk<'_> {
    fn enter(&mut self, path: &Path) -> Result<()> {
        let metadata = fs::symlink_metadata(path).with_context(|| path.display().to_string())?;
        let below = path
            .strip_prefix(self.root)
            .expect("the path lies below the root")
            .to_owned();
        let line = self
            .line(path, &below, &metadata)
            .with_context(|| path.display().to_string())?;
        self.entries.insert(below, line);
        if metadata.is_dir() {
            let entries = fs::read_dir(path).with_context(|| path.display().to_string())?;
            let mut names = entries
                .map(|entry| Ok(entry?.path()))
                .collect::<Result<Vec<_>>>()?;
            names.sort();
            for name in names {
                self.enter(&name)?;
            }
        }
        Ok(())
    }

    fn line(&mut self, path: &Path, below: &Path, metadata: &Metadata) -> Result<String> {
        let kind = metadata.file_type();
        let mut line = format!(
            "mode={:o} uid={} gid={}",
            metadata.mode(),
            metadata.uid(),
            metadata.gid()
        );
        if self.detail == Detail::Full {
            let (secs, nanos) = (metadata.mtime(), metadata.mtime_nsec());
            line.push_str(&format!(" mtime={secs}.{nanos:09}"));
        }
        if kind.is_file() {
            line.push_str(&format!(" size={} sum={:016x}", metadata.len(), sum(path)?));
        }
        if kind.is_symlink() {
            line.push_str(&format!(" target={}", fs::read_link(path)?.display()));
        }
        if kind.is_block_device() || kind.is_char_device() {
            line.push_str(&format!(" device={}", metadata.rdev()));
        }
        if !metadata.is_dir() && metadata.nlink() > 1 {
            let first = self.linked.entry(metadata.ino());
            let first = first.or_insert_with(|| below.to_owned()).display();
            line.push_str(&format!(" same={first}"));
            if self.detail == Detail::Full {
                line.push_str(&format!(" links={}", metadata.nlink()));
            }
        }
        for (name, value) in attributes(path)? {
            line.push_str(&format!(" {name}={value:016x}"));
        }
        Ok(line)
    }
}

/// The extended attributes that a copy keeps, with a sum of each value.
fn attributes(path: &Path) -> Result<BTreeMap<String, u64>> {
    let mut names = vec![0; 64 << 10];
    let len = match rustix::fs::llistxattr(path, &mut names[..]) {
        Ok(len) => len,
        Err(rustix::io::Errno::NOTSUP) => 0,
        Err(error) => return Err(error).context("listing the extended attributes"),
    };
    let mut found = BTreeMap::new();
    for name in names[..len]
        .split(|&byte| byte == 0)
        .filter(|name| !name.is_empty())
    {
        let name = String::from_utf8_lossy(name).into_owned();
        let mut value = vec![0; 64 << 10];
        let len = rustix::fs::lgetxattr(path, name.as_str(), &mut value[..])
            .with_context(|| format!("reading the extended attribute {name}"))?;
        found.insert(name, fnv(FNV_START, &value[..len]));
    }
    Ok(found)
}

fn sum(path: &Path) -> Result<u64> {
    let mut file = File::open(path)?;
    let (mut state, mut buffer) = (FNV_START, vec![0; 64 << 10]);
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(state),
            Ok(len) => state = fnv(state, &buffer[..len]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error).context("reading"),
        }
    }
}

const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a: a sum against mistakes, not against malice.
fn fnv(state: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(state, |state, &byte| {
        (state ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// The paths of everything below `root` for which `keep` holds, `root` included.
pub(crate) fn paths(root: &Path, keep: impl Fn(&Metadata) -> bool) -> Result<Vec<PathBuf>> {
    let (mut found, mut todo) = (Vec::new(), vec![root.to_owned()]);
    while let Some(path) = todo.pop() {
        let metadata = fs::symlink_metadata(&path).with_context(|| path.display().to_string())?;
        if metadata.is_dir() {
            for entry in fs::read_dir(&path).with_context(|| path.display().to_string())? {
                todo.push(entry?.path());
            }
        }
        if keep(&metadata) {
            found.push(path);
        }
    }
    found.sort_by(|a, b| a.as_os_str().as_bytes().cmp(b.as_os_str().as_bytes()));
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> tempfile::TempDir {
        let tree = tempfile::tempdir().unwrap();
        fs::create_dir(tree.path().join("d")).unwrap();
        fs::write(tree.path().join("d/f"), "one").unwrap();
        fs::hard_link(tree.path().join("d/f"), tree.path().join("g")).unwrap();
        std::os::unix::fs::symlink("d/f", tree.path().join("s")).unwrap();
        tree
    }

    #[test]
    fn a_changed_byte_a_lost_link_and_a_new_entry_are_seen() {
        let (a, b) = (tree(), tree());
        let original = Manifest::of(a.path(), Detail::NoTimes).unwrap();
        let same = Manifest::of(b.path(), Detail::NoTimes).unwrap();
        original.expect_same(&same).unwrap();
        assert_eq!(original.len(), 5);
        assert!(original != Manifest::of(b.path(), Detail::Full).unwrap());

        fs::write(b.path().join("new"), "").unwrap();
        let more = Manifest::of(b.path(), Detail::NoTimes).unwrap();
        original.expect_within(&more).unwrap();
        assert!(original.expect_same(&more).is_err());

        fs::write(b.path().join("d/f"), "two").unwrap();
        let changed = Manifest::of(b.path(), Detail::NoTimes).unwrap();
        assert!(original.expect_within(&changed).is_err());

        fs::remove_file(b.path().join("g")).unwrap();
        fs::write(b.path().join("g"), "one").unwrap();
        fs::write(b.path().join("d/f"), "one").unwrap();
        let unlinked = Manifest::of(b.path(), Detail::NoTimes).unwrap();
        assert!(original.expect_within(&unlinked).is_err());
    }
}
