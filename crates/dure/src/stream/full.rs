//! A stream of everything: the tree, depth first. Memory grows with the directories on the way to the
//! one that is read, and with the names of inodes that have several.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use dure_fs::{FileSystem, Named};

use super::body::{Source, inode_of};
use super::format::Record;
use super::send::Output;
use super::shown;
use crate::error::{Context, Result};

/// What is to be done next.
enum Step {
    Enter(Named),
    /// All in this directory was sent.
    Leave(Named),
}

pub(super) fn send(fs: &FileSystem, output: &mut Output<'_>) -> Result<()> {
    let root = fs.root_name().at("send", shown(&[]))?;
    let mut steps = vec![Step::Leave(root.clone())];
    below(fs, &root, &mut steps)?;
    let mut links: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    while let Some(step) = steps.pop() {
        match step {
            Step::Leave(named) => {
                let inode = &inode_of(fs, &named)?;
                let named = &named;
                Source { fs, inode, named }.directory(output)?;
            }
            Step::Enter(named) => {
                let ino = named.attributes.ino.0;
                if let Some(of) = links.get(&ino) {
                    let path = &named.path;
                    output.record(path, &Record::Link { of, path })?;
                    continue;
                }
                let inode = inode_of(fs, &named)?;
                output.make(fs, &inode, &named)?;
                if named.is_directory() {
                    steps.push(Step::Leave(named.clone()));
                    below(fs, &named, &mut steps)?;
                    continue;
                }
                let (named, inode) = (&named, &inode);
                Source { fs, inode, named }.whole(output)?;
                if named.attributes.nlink > 1 {
                    links.insert(ino, named.path.clone());
                }
            }
        }
    }
    Ok(())
}

/// Adds what is in a directory, in the order in which the inodes lie on the medium.
fn below(fs: &FileSystem, directory: &Named, steps: &mut Vec<Step>) -> Result<()> {
    let names = fs.names(directory).at("send", shown(&directory.path))?;
    let mut names: Vec<Named> = names.into_values().collect();
    names.sort_by_key(|named| Reverse(named.attributes.ino));
    steps.extend(names.into_iter().map(Step::Enter));
    Ok(())
}
