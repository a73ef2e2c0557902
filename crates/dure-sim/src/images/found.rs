//! What can be read of a volume, damaged or not: a line of text for each path.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use super::base::LAST;
use dure_fs::units::{Ino, to_usize};
use dure_fs::{FileKind, FileSystem, InodeRef, ReadMode, Result, SeekTarget};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// More than any base has: a directory that shows more has a loop.
const ENTRIES_MAX: usize = 3000;
/// What is read of a file at most, piece by piece.
const BYTES_MAX: u64 = 16 << 20;
const PIECE: usize = 64 << 10;

/// Path -> all that can be seen there, or the error.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Found(BTreeMap<Vec<u8>, std::result::Result<String, String>>);

impl Found {
    /// Reads everything that can be read; only a root that cannot be is an error.
    pub(super) fn read(fs: &FileSystem) -> Result<Found> {
        let mut found = Found::default();
        let mut open = vec![(Vec::new(), fs.root()?)];
        while let Some((path, inode)) = open.pop() {
            if inode.kind() == FileKind::Directory {
                found.names(fs, &path, &inode, &mut open);
            }
            let line = line(fs, &inode).map_err(|error| error.to_string());
            found.0.entry(path).or_insert(line);
            if found.0.len() > ENTRIES_MAX {
                found
                    .0
                    .insert(b"...".to_vec(), Err("the tree has a loop".to_owned()));
                break;
            }
        }
        Ok(found)
    }

    /// Names of a directory; those that lead somewhere are opened.
    fn names(
        &mut self,
        fs: &FileSystem,
        path: &[u8],
        dir: &InodeRef,
        open: &mut Vec<(Vec<u8>, InodeRef)>,
    ) {
        let mut names: Vec<(Vec<u8>, Ino)> = Vec::new();
        let listed = fs.read_directory(dir, 0, &mut |entry| {
            names.push((entry.name.to_vec(), entry.ino));
            match names.len() <= ENTRIES_MAX {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        });
        if let Err(error) = listed {
            self.0
                .insert(path.to_vec(), Err(format!("listing: {error}")));
        }
        for (name, ino) in names {
            let below = [path, b"/", name.as_slice()].concat();
            let wrong = match fs.lookup(dir, &name) {
                Ok(Some(inode)) if inode.ino() == ino => {
                    open.push((below, inode));
                    continue;
                }
                Ok(Some(_)) => "lookup finds another inode".to_owned(),
                Ok(None) => "listed, and not found".to_owned(),
                Err(error) => error.to_string(),
            };
            self.0.insert(below, Err(wrong));
        }
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Paths that cannot be read, with the reason.
    pub(super) fn errors(&self) -> impl Iterator<Item = String> + '_ {
        let wrong = |(path, line): (&Vec<u8>, &std::result::Result<String, String>)| {
            let error = line.as_ref().err()?;
            Some(format!("{}: {error}", String::from_utf8_lossy(path)))
        };
        self.0.iter().filter_map(wrong)
    }

    /// Paths that are in both and the same.
    pub(super) fn same_as(&self, other: &Found) -> Vec<Vec<u8>> {
        let both = self.0.iter();
        let both = both.filter(|(path, line)| line.is_ok() && other.0.get(*path) == Some(line));
        both.map(|(path, _)| path.clone()).collect()
    }

    /// What of `paths` is no longer as in `before`, with what is there now. The entries of a
    /// directory are paths of their own.
    pub(super) fn changed(&self, before: &Found, paths: &[Vec<u8>]) -> Option<String> {
        let path = paths
            .iter()
            .find(|path| self.0.get(*path) != before.0.get(*path))?;
        let (was, is) = (before.0.get(path), self.0.get(path));
        Some(format!(
            "{} was {was:?}, is {is:?}",
            String::from_utf8_lossy(path)
        ))
    }

    /// The first path that is not the same in both, but for those that may be lost.
    pub(super) fn difference(&self, before: &Found) -> Option<String> {
        let paths = self.0.keys().chain(before.0.keys());
        let lost = [b"/", LAST.as_bytes()].concat();
        let paths: Vec<_> = paths
            .filter(|path| !path.starts_with(&lost))
            .cloned()
            .collect();
        self.changed(before, &paths)
    }
}

fn line(fs: &FileSystem, inode: &InodeRef) -> Result<String> {
    let attributes = fs.attributes(inode)?;
    let (kind, mode) = (attributes.kind, attributes.mode);
    let mut line = format!("{kind:?} {mode:o} {} {}", attributes.uid, attributes.gid);
    match kind {
        FileKind::File => {
            let sum = sum(fs, inode, attributes.size)?;
            line.push_str(&format!(" size={} sum={sum:x}", attributes.size));
        }
        FileKind::Symlink => line.push_str(&format!(" to={:x}", xxh3_64(&fs.read_link(inode)?))),
        _ => {}
    }
    for name in fs.list_xattr(inode)? {
        let value = fs.get_xattr(inode, &name)?.unwrap_or_default();
        let name = String::from_utf8_lossy(&name).into_owned();
        line.push_str(&format!(" {name}={:x}", xxh3_64(&value)));
    }
    Ok(line)
}

/// A sum of the data of a file, and of where it lies.
fn sum(fs: &FileSystem, inode: &InodeRef, size: u64) -> Result<u64> {
    let (mut sum, mut buffer) = (Xxh3::new(), vec![0; PIECE]);
    let (mut at, mut read) = (0, 0);
    while at < size && read < BYTES_MAX {
        let Some(data) = fs.seek(inode, at, SeekTarget::Data)? else {
            break;
        };
        let hole = fs.seek(inode, data, SeekTarget::Hole)?.unwrap_or(size);
        at = data;
        while at < hole && read < BYTES_MAX {
            let want = to_usize((hole - at).min(dure_fs::units::to_u64(PIECE)));
            let count = fs.read(inode, at, &mut buffer[..want], ReadMode::Bypass)?;
            if count == 0 {
                return Ok(sum.digest());
            }
            sum.update(&at.to_le_bytes());
            sum.update(&buffer[..count]);
            at += dure_fs::units::to_u64(count);
            read += dure_fs::units::to_u64(count);
        }
    }
    Ok(sum.digest())
}
