//! The inodes of the model: what a name or an inode number leads to, and the structural rules
//! (types, links, emptiness, loops). No paths and no permissions; see [`super::ModelFs`] for those.

use std::collections::BTreeMap;

use rustix::io::Errno;

use super::data::{Data, SIZE_MAX};
use super::node::{AllocateKind, Body, Kind, New, Node, RenameKind};

/// Result of a model operation.
pub type Result<T> = std::result::Result<T, Errno>;

/// The root directory.
pub const ROOT: u64 = 1;
/// Longest name.
pub const NAME_MAX: usize = 255;

/// All inodes.
#[derive(Debug, Clone)]
pub struct Store {
    nodes: BTreeMap<u64, Node>,
    next: u64,
}

impl Default for Store {
    fn default() -> Self {
        let root = New::directory(0o755, 0, 0).into_node(ROOT);
        Store {
            nodes: BTreeMap::from([(ROOT, root)]),
            next: ROOT + 1,
        }
    }
}

impl Store {
    /// The inode `ino`, which must exist.
    #[must_use]
    pub fn node(&self, ino: u64) -> &Node {
        self.nodes
            .get(&ino)
            .expect("the model was asked for an inode that exists")
    }

    /// The inode `ino`, which must exist, for changing it.
    pub fn node_mut(&mut self, ino: u64) -> &mut Node {
        self.nodes
            .get_mut(&ino)
            .expect("the model was asked for an inode that exists")
    }

    /// Changes every inode.
    pub fn each_mut(&mut self, change: impl FnMut(&mut Node)) {
        self.nodes.values_mut().for_each(change);
    }

    /// The inode `ino`, if it exists.
    #[must_use]
    pub fn find(&self, ino: u64) -> Option<&Node> {
        self.nodes.get(&ino)
    }

    /// Names in the directory `dir`.
    ///
    /// # Errors
    /// `NOTDIR`.
    pub fn entries(&self, dir: u64) -> Result<&BTreeMap<Vec<u8>, u64>> {
        match &self.node(dir).body {
            Body::Directory { entries, .. } => Ok(entries),
            _ => Err(Errno::NOTDIR),
        }
    }

    fn entries_mut(&mut self, dir: u64) -> &mut BTreeMap<Vec<u8>, u64> {
        let node = self.node_mut(dir);
        node.mtime = None;
        match &mut node.body {
            Body::Directory { entries, .. } => entries,
            _ => unreachable!("checked to be a directory"),
        }
    }

    /// What `..` means in `dir`.
    #[must_use]
    pub fn parent(&self, dir: u64) -> u64 {
        match &self.node(dir).body {
            Body::Directory { parent, .. } => *parent,
            _ => unreachable!("only directories are asked for their parent"),
        }
    }

    fn set_parent(&mut self, dir: u64, to: u64) {
        if let Body::Directory { parent, .. } = &mut self.node_mut(dir).body {
            *parent = to;
        }
    }

    /// The inode behind `name` in `dir`.
    ///
    /// # Errors
    /// `NOTDIR`, `NAMETOOLONG`.
    pub fn lookup(&self, dir: u64, name: &[u8]) -> Result<Option<u64>> {
        let entries = self.entries(dir)?;
        if name.len() > NAME_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        Ok(entries.get(name).copied())
    }

    fn is_directory(&self, ino: u64) -> bool {
        self.node(ino).kind() == Kind::Directory
    }

    fn may_add(&self, dir: u64, name: &[u8]) -> Result<()> {
        if self.lookup(dir, name)?.is_some() {
            return Err(Errno::EXIST);
        }
        if self.node(dir).nlink == 0 {
            return Err(Errno::NOENT);
        }
        Ok(())
    }

    /// Makes an inode and its first name.
    ///
    /// # Errors
    /// `NOTDIR`, `NAMETOOLONG`, `EXIST`, `NOENT` in a removed directory.
    pub fn create(&mut self, dir: u64, name: &[u8], new: New) -> Result<u64> {
        self.may_add(dir, name)?;
        let ino = self.insert(new.into_node(dir));
        self.entries_mut(dir).insert(name.to_vec(), ino);
        if self.is_directory(ino) {
            self.node_mut(dir).nlink += 1;
        }
        Ok(ino)
    }

    /// Makes a file without a name.
    ///
    /// # Errors
    /// `NOTDIR`, `NOENT` in a removed directory.
    pub fn temporary(&mut self, dir: u64, new: New) -> Result<u64> {
        self.entries(dir)?;
        if self.node(dir).nlink == 0 {
            return Err(Errno::NOENT);
        }
        let mut node = new.into_node(dir);
        node.nlink = 0;
        node.linkable = true;
        node.opens = 1;
        Ok(self.insert(node))
    }

    fn insert(&mut self, node: Node) -> u64 {
        let ino = self.next;
        self.next += 1;
        self.nodes.insert(ino, node);
        ino
    }

    /// Gives `ino` another name.
    ///
    /// # Errors
    /// `PERM` for a directory, `NOENT` for a deleted file, and those of `create`.
    pub fn link(&mut self, ino: u64, dir: u64, name: &[u8]) -> Result<()> {
        self.may_add(dir, name)?;
        if self.is_directory(ino) {
            return Err(Errno::PERM);
        }
        let node = self.node_mut(ino);
        if node.nlink == 0 && !node.linkable {
            return Err(Errno::NOENT);
        }
        node.nlink += 1;
        self.entries_mut(dir).insert(name.to_vec(), ino);
        Ok(())
    }

    /// Takes the name of a non-directory away.
    ///
    /// # Errors
    /// `NOTDIR`, `NOENT`, `ISDIR`.
    pub fn unlink(&mut self, dir: u64, name: &[u8]) -> Result<()> {
        let ino = self.lookup(dir, name)?.ok_or(Errno::NOENT)?;
        if self.is_directory(ino) {
            return Err(Errno::ISDIR);
        }
        self.entries_mut(dir).remove(name);
        self.drop_link(ino);
        Ok(())
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `NOTDIR`, `NOENT`, `NOTEMPTY`.
    pub fn rmdir(&mut self, dir: u64, name: &[u8]) -> Result<()> {
        let ino = self.lookup(dir, name)?.ok_or(Errno::NOENT)?;
        if !self.entries(ino)?.is_empty() {
            return Err(Errno::NOTEMPTY);
        }
        self.entries_mut(dir).remove(name);
        self.node_mut(dir).nlink -= 1;
        self.drop_link(ino);
        Ok(())
    }

    fn drop_link(&mut self, ino: u64) {
        let node = self.node_mut(ino);
        node.nlink = if node.kind() == Kind::Directory {
            0
        } else {
            node.nlink - 1
        };
        node.linkable = false;
        self.drop_if_unused(ino);
    }

    fn drop_if_unused(&mut self, ino: u64) {
        let node = self.node(ino);
        if node.nlink == 0 && node.opens == 0 {
            self.nodes.remove(&ino);
        }
    }

    /// Another descriptor refers to `ino`.
    pub fn pin(&mut self, ino: u64) {
        self.node_mut(ino).opens += 1;
    }

    /// A descriptor of `ino` is closed.
    pub fn unpin(&mut self, ino: u64) {
        self.node_mut(ino).opens -= 1;
        self.drop_if_unused(ino);
    }

    /// Whether `ancestor` is `dir` or above it.
    #[must_use]
    pub fn is_above(&self, ancestor: u64, dir: u64) -> bool {
        let mut at = dir;
        loop {
            if at == ancestor {
                return true;
            }
            if at == ROOT {
                return false;
            }
            at = self.parent(at);
        }
    }

    /// Moves `from` in `from_dir` to `to` in `to_dir`.
    ///
    /// # Errors
    /// `NOENT`, `EXIST`, `INVAL` (below itself), `NOTDIR`, `ISDIR`, `NOTEMPTY`.
    pub fn rename(
        &mut self,
        (from_dir, from): (u64, &[u8]),
        (to_dir, to): (u64, &[u8]),
        kind: RenameKind,
    ) -> Result<()> {
        let source = self.lookup(from_dir, from)?.ok_or(Errno::NOENT)?;
        let target = self.lookup(to_dir, to)?;
        match (kind, target) {
            (RenameKind::NoReplace, Some(_)) => return Err(Errno::EXIST),
            (RenameKind::Exchange, None) => return Err(Errno::NOENT),
            _ => {}
        }
        if target == Some(source) {
            return Ok(());
        }
        if self.is_directory(source) && self.is_above(source, to_dir) {
            return Err(Errno::INVAL);
        }
        if kind == RenameKind::Exchange {
            let target = target.expect("checked above");
            if self.is_directory(target) && self.is_above(target, from_dir) {
                return Err(Errno::INVAL);
            }
            self.exchange((from_dir, from, source), (to_dir, to, target));
            return Ok(());
        }
        if self.node(to_dir).nlink == 0 {
            return Err(Errno::NOENT);
        }
        if let Some(target) = target {
            self.may_replace(source, target)?;
            match self.is_directory(target) {
                true => self.rmdir(to_dir, to)?,
                false => self.unlink(to_dir, to)?,
            }
        }
        self.entries_mut(from_dir).remove(from);
        self.entries_mut(to_dir).insert(to.to_vec(), source);
        self.moved(source, from_dir, to_dir);
        Ok(())
    }

    fn may_replace(&self, source: u64, target: u64) -> Result<()> {
        match (self.is_directory(source), self.is_directory(target)) {
            (true, false) => Err(Errno::NOTDIR),
            (false, true) => Err(Errno::ISDIR),
            (true, true) if !self.entries(target)?.is_empty() => Err(Errno::NOTEMPTY),
            _ => Ok(()),
        }
    }

    fn exchange(&mut self, a: (u64, &[u8], u64), b: (u64, &[u8], u64)) {
        self.entries_mut(a.0).insert(a.1.to_vec(), b.2);
        self.entries_mut(b.0).insert(b.1.to_vec(), a.2);
        self.moved(a.2, a.0, b.0);
        self.moved(b.2, b.0, a.0);
    }

    /// A directory has another parent now.
    fn moved(&mut self, ino: u64, from_dir: u64, to_dir: u64) {
        if from_dir != to_dir && self.is_directory(ino) {
            self.set_parent(ino, to_dir);
            self.node_mut(from_dir).nlink -= 1;
            self.node_mut(to_dir).nlink += 1;
        }
    }

    fn data_mut(&mut self, ino: u64) -> Result<&mut Data> {
        let node = self.node_mut(ino);
        match &mut node.body {
            Body::File(data) => {
                node.mtime = None;
                Ok(data)
            }
            Body::Directory { .. } => Err(Errno::ISDIR),
            _ => Err(Errno::INVAL),
        }
    }

    /// Reads from a regular file.
    ///
    /// # Errors
    /// `ISDIR`, `INVAL`.
    pub fn read(&self, ino: u64, offset: u64, len: u64) -> Result<Vec<u8>> {
        match &self.node(ino).body {
            Body::File(data) => Ok(data.read(offset, len)),
            Body::Directory { .. } => Err(Errno::ISDIR),
            _ => Err(Errno::INVAL),
        }
    }

    /// Writes to a regular file.
    ///
    /// # Errors
    /// `ISDIR`, `INVAL`, `FBIG`.
    pub fn write(&mut self, ino: u64, offset: u64, bytes: &[u8]) -> Result<()> {
        let len = u64::try_from(bytes.len()).expect("64 bits");
        if offset.checked_add(len).is_none_or(|end| end > SIZE_MAX) {
            return Err(Errno::FBIG);
        }
        if bytes.is_empty() {
            return Ok(());
        }
        self.data_mut(ino)?.write(offset, bytes);
        Ok(())
    }

    /// Cuts or extends a regular file.
    ///
    /// # Errors
    /// `ISDIR`, `INVAL`, `FBIG`.
    pub fn truncate(&mut self, ino: u64, size: u64) -> Result<()> {
        if size > SIZE_MAX {
            return Err(Errno::FBIG);
        }
        self.data_mut(ino)?.truncate(size);
        Ok(())
    }

    /// `fallocate`.
    ///
    /// # Errors
    /// `INVAL` for an empty range, `FBIG`, `ISDIR`.
    pub fn allocate(&mut self, ino: u64, kind: AllocateKind, offset: u64, len: u64) -> Result<()> {
        if len == 0 {
            return Err(Errno::INVAL);
        }
        let end = offset
            .checked_add(len)
            .filter(|end| *end <= SIZE_MAX)
            .ok_or(Errno::FBIG)?;
        let data = self.data_mut(ino)?;
        match kind {
            AllocateKind::KeepSize => {}
            AllocateKind::Extend => data.extend(end),
            AllocateKind::Punch => data.punch(offset, len),
            AllocateKind::Zero => {
                data.punch(offset, len);
                data.extend(end);
            }
        }
        Ok(())
    }
}
