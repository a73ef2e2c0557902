//! Small trees of directories and files, as granules.

use std::collections::{BTreeMap, BTreeSet};

use super::change::Operation;

pub(crate) const ROOT: u8 = 0;
pub(crate) const NAMES: [u8; 2] = [0, 1];
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    Inode(u8),
    /// One name of a directory.
    Bucket(u8, u8),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Value {
    Directory { links: u8, parent: u8 },
    File { links: u8 },
    Entry(u8),
}

pub(crate) type Tree = BTreeMap<Key, Value>;

#[derive(Debug, Clone)]
pub(crate) struct State {
    pub(crate) tree: Tree,
    pub(crate) free: Vec<u8>,
}

pub(crate) fn entries(tree: &Tree, directory: u8) -> impl Iterator<Item = (u8, u8)> + '_ {
    NAMES
        .into_iter()
        .filter_map(move |name| match tree.get(&Key::Bucket(directory, name)) {
            Some(Value::Entry(inode)) => Some((name, *inode)),
            _ => None,
        })
}

pub(crate) fn is_directory(tree: &Tree, inode: u8) -> bool {
    matches!(tree.get(&Key::Inode(inode)), Some(Value::Directory { .. }))
}

pub(crate) fn parent_of(tree: &Tree, inode: u8) -> Option<u8> {
    match tree.get(&Key::Inode(inode)) {
        Some(Value::Directory { parent, .. }) => Some(*parent),
        _ => None,
    }
}

impl State {
    pub(crate) fn start() -> Self {
        let root = Value::Directory {
            links: 2,
            parent: ROOT,
        };
        Self {
            tree: BTreeMap::from([(Key::Inode(ROOT), root)]),
            free: vec![1, 2, 3, 4, 5],
        }
    }

    pub(crate) fn lookup(&self, directory: u8, name: u8) -> Option<u8> {
        entries(&self.tree, directory)
            .find(|(found, _)| *found == name)
            .map(|(_, inode)| inode)
    }

    pub(crate) fn reachable(&self) -> Vec<u8> {
        let mut found = Vec::new();
        let mut stack = vec![ROOT];
        while let Some(directory) = stack.pop() {
            found.push(directory);
            let below = entries(&self.tree, directory).map(|(_, inode)| inode);
            stack.extend(below.filter(|inode| is_directory(&self.tree, *inode)));
        }
        found
    }

    pub(crate) fn operations(&self) -> Vec<Operation> {
        let mut all = Vec::new();
        let directories = self.reachable();
        let places = || {
            directories
                .iter()
                .flat_map(|directory| NAMES.map(|name| (*directory, name)))
        };
        for (directory, name) in places() {
            let Some(inode) = self.lookup(directory, name) else {
                if !self.free.is_empty() {
                    all.push(Operation::Mkdir(directory, name));
                    all.push(Operation::Create(directory, name));
                }
                continue;
            };
            let one_link = matches!(
                self.tree.get(&Key::Inode(inode)),
                Some(Value::File { links: 1 })
            );
            if !is_directory(&self.tree, inode) {
                all.push(Operation::Unlink(directory, name));
            } else if entries(&self.tree, inode).next().is_none() {
                all.push(Operation::Rmdir(directory, name));
            }
            for (to, to_name) in places().filter(|place| *place != (directory, name)) {
                all.push(Operation::Rename(directory, name, to, to_name));
                if one_link && self.lookup(to, to_name).is_none() {
                    all.push(Operation::Link(directory, name, to, to_name));
                }
            }
        }
        all
    }
}

/// What is wrong with a tree, if anything is.
pub(crate) fn unsound(tree: &Tree) -> Option<String> {
    let mut names: BTreeMap<u8, u8> = BTreeMap::new();
    let mut visited = BTreeSet::from([ROOT]);
    let mut stack = vec![ROOT];
    while let Some(directory) = stack.pop() {
        for (name, inode) in entries(tree, directory) {
            *names.entry(inode).or_default() += 1;
            match tree.get(&Key::Inode(inode)) {
                None => return Some(format!("name {directory}/{name} of free inode {inode}")),
                Some(Value::Directory { parent, .. }) => {
                    if !visited.insert(inode) {
                        return Some(format!("directory {inode} has two parents"));
                    }
                    if *parent != directory {
                        return Some(format!("directory {inode} in {directory} says {parent}"));
                    }
                    stack.push(inode);
                }
                Some(_) => {}
            }
        }
    }
    tree.iter().find_map(|(key, value)| match (key, value) {
        (Key::Inode(inode), Value::Directory { .. }) if !visited.contains(inode) => {
            Some(format!("directory {inode} is unreachable"))
        }
        (Key::Inode(inode), Value::File { links }) => {
            let found = names.get(inode).copied().unwrap_or(0);
            (found != *links).then(|| format!("file {inode} has {links} links and {found} names"))
        }
        (Key::Bucket(directory, _), _) if !is_directory(tree, *directory) => {
            Some(format!("an entry in {directory}, which is no directory"))
        }
        _ => None,
    })
}

pub(crate) fn write(tree: &mut Tree, writes: &BTreeMap<Key, Option<Value>>) {
    for (key, value) in writes {
        match value {
            Some(value) => tree.insert(*key, *value),
            None => tree.remove(key),
        };
    }
}
