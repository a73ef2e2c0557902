//! The tree of a mounted volume, read through the file system.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use dure_fs::units::{Ino, to_usize};
use dure_fs::{FileKind, FileSystem, InodeRef, MountOptions, ReadMode, Result};

/// The inode at one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Inode number.
    pub ino: Ino,
    /// Type.
    pub kind: FileKind,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Links.
    pub nlink: u32,
    /// Bytes of a file.
    pub size: u64,
    /// Modification time in seconds.
    pub mtime: i64,
    /// Content of a file, or a link's target.
    pub content: Vec<u8>,
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// Everything by path; the root is the empty path.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tree {
    /// The items.
    pub items: BTreeMap<String, Item>,
    /// [`Tree::digest`] of each snapshot, by its name.
    pub snapshots: BTreeMap<String, u64>,
}

/// More entries or bytes than any workload makes: a volume that shows them is broken.
const ENTRIES_MAX: usize = 10_000;
const BYTES_MAX: u64 = 64 << 20;

impl Tree {
    /// Reads everything, snapshots too.
    ///
    /// # Errors
    /// What went wrong, and at which path.
    pub fn read(fs: &FileSystem) -> std::result::Result<Tree, String> {
        let mut tree = Tree::read_live(fs)?;
        for snapshot in fs.snapshots() {
            let name = snapshot.name;
            let view = fs.open_snapshot(&name, MountOptions::default());
            let view = view.map_err(|error| format!("snapshot {name}: {error}"))?;
            let then = Tree::read_live(&view);
            let then = then.map_err(|what| format!("snapshot {name}: {what}"))?;
            tree.snapshots.insert(name, then.digest());
        }
        Ok(tree)
    }

    /// Reads everything but snapshots.
    ///
    /// # Errors
    /// Those of [`Tree::read`].
    pub fn read_live(fs: &FileSystem) -> std::result::Result<Tree, String> {
        let mut tree = Tree::default();
        let root = fs.root().map_err(|error| format!("root: {error}"))?;
        let mut open = vec![(String::new(), root)];
        while let Some((path, inode)) = open.pop() {
            let fail = |error| format!("/{path}: {error}");
            let item = item(fs, &inode).map_err(fail)?;
            if item.kind == FileKind::Directory {
                for (name, below) in names(fs, &inode).map_err(fail)? {
                    let below_path = if path.is_empty() {
                        name
                    } else {
                        format!("{path}/{name}")
                    };
                    open.push((below_path, below?));
                }
            }
            tree.items.insert(path, item);
            if tree.items.len() > ENTRIES_MAX {
                return Err("the tree has a loop".into());
            }
        }
        Ok(tree)
    }

    /// About the memory it takes.
    pub(super) fn bytes(&self) -> usize {
        let items = self.items.values();
        items.map(|item| 256 + item.content.len()).sum()
    }

    /// A number that differs, all but certainly, where trees differ.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let mut hash = xxhash_rust::xxh3::Xxh3::new();
        let bytes = |bytes: &[u8]| xxhash_rust::xxh3::xxh3_64(bytes);
        for (path, item) in &self.items {
            let Item {
                ino,
                kind,
                mode,
                uid,
                nlink,
                size,
                mtime,
                ..
            } = item;
            let content = bytes(&item.content);
            let text =
                format!("{path:?} {content} {ino} {kind:?} {mode} {uid} {nlink} {size} {mtime}\n");
            hash.update(text.as_bytes());
            for (name, value) in &item.xattrs {
                let (name, value) = (bytes(name), bytes(value));
                hash.update(&name.to_le_bytes());
                hash.update(&value.to_le_bytes());
            }
        }
        for (name, digest) in &self.snapshots {
            hash.update(format!("snapshot {name:?} {digest}\n").as_bytes());
        }
        hash.digest()
    }
}

type Named = (String, std::result::Result<InodeRef, String>);

fn names(fs: &FileSystem, dir: &InodeRef) -> Result<Vec<Named>> {
    let mut listed = Vec::new();
    fs.read_directory(dir, 0, &mut |entry| {
        let name = String::from_utf8_lossy(entry.name).into_owned();
        listed.push((name, entry.ino, entry.kind));
        ControlFlow::Continue(())
    })?;
    let find = |(name, ino, kind): (String, Ino, FileKind)| {
        let found = fs.lookup(dir, name.as_bytes());
        let found = match found {
            Ok(Some(inode)) if inode.ino() == ino && inode.kind() == kind => Ok(inode),
            Ok(Some(inode)) => Err(format!(
                "{name}: readdir says inode {ino} ({kind:?}), lookup inode {} ({:?})",
                inode.ino(),
                inode.kind()
            )),
            Ok(None) => Err(format!("{name}: readdir shows it, lookup does not find it")),
            Err(error) => Err(format!("{name}: {error}")),
        };
        (name, found)
    };
    Ok(listed.into_iter().map(find).collect())
}

fn item(fs: &FileSystem, inode: &InodeRef) -> Result<Item> {
    let attributes = fs.attributes(inode)?;
    let content = match attributes.kind {
        FileKind::File => content(fs, inode, attributes.size)?,
        FileKind::Symlink => fs.read_link(inode)?,
        _ => Vec::new(),
    };
    let mut xattrs = BTreeMap::new();
    for name in fs.list_xattr(inode)? {
        let value = fs.get_xattr(inode, &name)?.unwrap_or_default();
        xattrs.insert(name, value);
    }
    Ok(Item {
        ino: attributes.ino,
        kind: attributes.kind,
        mode: attributes.mode & 0o7777,
        uid: attributes.uid,
        nlink: attributes.nlink,
        size: attributes.size,
        mtime: attributes.mtime.secs.get(),
        content,
        xattrs,
    })
}

fn content(fs: &FileSystem, inode: &InodeRef, size: u64) -> Result<Vec<u8>> {
    let mut bytes = vec![0; to_usize(size.min(BYTES_MAX))];
    let count = fs.read(inode, 0, &mut bytes, ReadMode::Bypass)?;
    bytes.truncate(count);
    Ok(bytes)
}
