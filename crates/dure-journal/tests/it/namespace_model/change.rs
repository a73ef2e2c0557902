//! Namespace operations: what each writes, and what it reads to decide.

use std::collections::{BTreeMap, BTreeSet};

use super::rules::{ParentState, Rules};
use super::tree::{Key, NAMES, ROOT, State, Value, entries, is_directory, parent_of};

/// What is read to decide, and may or may not be marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Read {
    /// The parent's inode.
    Parent(Key),
    /// Every ancestor of a directory's new place.
    Ancestor(Key),
    /// Every bucket of a directory that must be empty.
    Empty(Key),
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Operation {
    Mkdir(u8, u8),
    Create(u8, u8),
    Unlink(u8, u8),
    Rmdir(u8, u8),
    Link(u8, u8, u8, u8),
    Rename(u8, u8, u8, u8),
}

/// One operation in the making: what it writes (`None` frees) and what it read.
pub(crate) struct Change<'a> {
    pub(crate) state: &'a State,
    pub(crate) rules: &'a Rules,
    pub(crate) writes: BTreeMap<Key, Option<Value>>,
    pub(crate) reads: BTreeSet<Read>,
}

impl Change<'_> {
    pub(crate) fn inode(&self, inode: u8) -> Option<Value> {
        let key = Key::Inode(inode);
        self.writes
            .get(&key)
            .copied()
            .unwrap_or_else(|| self.state.tree.get(&key).copied())
    }

    pub(crate) fn put(&mut self, key: Key, value: Option<Value>) {
        self.writes.insert(key, value);
    }

    pub(crate) fn parent_changes(&mut self, directory: u8, links_more: u8, links_less: u8) {
        self.reads.insert(Read::Parent(Key::Inode(directory)));
        if self.rules.parent == ParentState::Inode
            && let Some(Value::Directory { links, parent }) = self.inode(directory)
        {
            let links = links + links_more - links_less;
            self.put(
                Key::Inode(directory),
                Some(Value::Directory { links, parent }),
            );
        }
    }

    pub(crate) fn drop_link(&mut self, inode: u8) {
        let left = match self.inode(inode) {
            Some(Value::File { links }) if links > 1 => Some(Value::File { links: links - 1 }),
            _ => None,
        };
        self.put(Key::Inode(inode), left);
    }

    pub(crate) fn read_empty(&mut self, directory: u8) {
        self.reads
            .extend(NAMES.map(|name| Read::Empty(Key::Bucket(directory, name))));
    }

    /// `None` if the operation is refused.
    pub(crate) fn rename(&mut self, from: u8, name: u8, to: u8, to_name: u8) -> Option<()> {
        let inode = self.state.lookup(from, name)?;
        let replaced = self.state.lookup(to, to_name);
        if replaced == Some(inode) {
            return None;
        }
        let directory = is_directory(&self.state.tree, inode);
        if directory {
            let mut ancestor = to;
            loop {
                if ancestor == inode {
                    return None;
                }
                self.reads.insert(Read::Ancestor(Key::Inode(ancestor)));
                if ancestor == ROOT {
                    break;
                }
                ancestor = parent_of(&self.state.tree, ancestor)?;
            }
        }
        if let Some(replaced) = replaced {
            if is_directory(&self.state.tree, replaced) != directory {
                return None;
            }
            if directory {
                if entries(&self.state.tree, replaced).next().is_some() {
                    return None;
                }
                self.put(Key::Inode(replaced), None);
                self.read_empty(replaced);
            } else {
                self.drop_link(replaced);
            }
        }
        self.put(Key::Bucket(from, name), None);
        self.put(Key::Bucket(to, to_name), Some(Value::Entry(inode)));
        let moves_up = directory && from != to;
        match self.inode(inode) {
            Some(Value::Directory { links, .. }) if moves_up => {
                self.put(
                    Key::Inode(inode),
                    Some(Value::Directory { links, parent: to }),
                );
            }
            same if self.rules.rename_writes_inode => self.put(Key::Inode(inode), same),
            _ => {}
        }
        self.parent_changes(from, 0, u8::from(moves_up));
        if to != from || (directory && replaced.is_some()) {
            let replaces = directory && replaced.is_some();
            self.parent_changes(to, u8::from(moves_up), u8::from(replaces));
        }
        Some(())
    }

    /// `None` if the operation is refused.
    pub(crate) fn apply(&mut self, operation: Operation) -> Option<()> {
        match operation {
            Operation::Mkdir(directory, name) | Operation::Create(directory, name) => {
                let inode = *self.state.free.first()?;
                let mkdir = matches!(operation, Operation::Mkdir(..));
                let value = if mkdir {
                    Value::Directory {
                        links: 2,
                        parent: directory,
                    }
                } else {
                    Value::File { links: 1 }
                };
                self.put(Key::Inode(inode), Some(value));
                self.put(Key::Bucket(directory, name), Some(Value::Entry(inode)));
                self.parent_changes(directory, u8::from(mkdir), 0);
            }
            Operation::Unlink(directory, name) => {
                let inode = self.state.lookup(directory, name)?;
                self.put(Key::Bucket(directory, name), None);
                self.drop_link(inode);
                self.parent_changes(directory, 0, 0);
            }
            Operation::Rmdir(directory, name) => {
                let inode = self.state.lookup(directory, name)?;
                self.put(Key::Bucket(directory, name), None);
                self.put(Key::Inode(inode), None);
                self.parent_changes(directory, 0, 1);
                self.read_empty(inode);
            }
            Operation::Link(directory, name, to, to_name) => {
                let inode = self.state.lookup(directory, name)?;
                if let Some(Value::File { links }) = self.inode(inode) {
                    self.put(Key::Inode(inode), Some(Value::File { links: links + 1 }));
                }
                self.put(Key::Bucket(to, to_name), Some(Value::Entry(inode)));
                self.parent_changes(to, 0, 0);
            }
            Operation::Rename(from, name, to, to_name) => self.rename(from, name, to, to_name)?,
        }
        Some(())
    }
}
