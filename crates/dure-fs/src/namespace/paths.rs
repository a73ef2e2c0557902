//! Which paths lead to inodes.
//!
//! **Structure.** Inodes do not say where their names are, so all directories are listed, until each
//! inode was found once. **Invariants.** A directory that cannot be read is left out. Names that
//! change meanwhile may be missed, or be those of before. Nothing is cached, and no access time
//! changes. **Crash.** Nothing is written.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use dure_store::error::Result;
use dure_store::format::name::FileKind;
use dure_store::units::Ino;

use super::Names;
use crate::directory::read::{Listed, Listing, Wanted};

/// What was listed of one directory.
type Listings = Vec<(Ino, FileKind, Vec<u8>)>;

impl Names {
    /// A path from the root, without a slash in front, to each of these inodes that has a name.
    /// `go_on` is asked before each directory; what was found until it breaks is returned.
    pub(crate) fn paths_of(
        &self,
        inodes: &BTreeSet<Ino>,
        go_on: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> BTreeMap<Ino, Vec<u8>> {
        let mut found = BTreeMap::new();
        if inodes.contains(&Ino::ROOT) {
            found.insert(Ino::ROOT, b".".to_vec());
        }
        let mut directories = vec![(Ino::ROOT, Vec::new())];
        // A damaged volume may have a directory in itself.
        let mut seen = BTreeSet::from([Ino::ROOT]);
        while let Some((directory, path)) = directories.pop() {
            if found.len() == inodes.len() || go_on().is_break() {
                break;
            }
            let mut listed = Listings::new();
            let _skipped = self.list_names(directory, &mut listed);
            for (ino, kind, name) in listed {
                let mut path = path.clone();
                if !path.is_empty() {
                    path.push(b'/');
                }
                path.extend(name);
                if inodes.contains(&ino) {
                    found.entry(ino).or_insert_with(|| path.clone());
                }
                if kind == FileKind::Directory && seen.insert(ino) {
                    directories.push((ino, path));
                }
            }
        }
        found
    }

    /// Adds the entries of a directory, as far as they can be read.
    fn list_names(&self, directory: Ino, listed: &mut Listings) -> Result<()> {
        let pin = self.inodes.inode(directory)?;
        if pin.kind() != FileKind::Directory {
            return Ok(());
        }
        let (mut listing, mut from) = (Listing::default(), Some(0));
        while let Some(place) = from {
            listing.clear();
            let state = pin.inode().state().read();
            from = self
                .directories
                .list_node(&state, place, Wanted::All, &mut listing)?;
            let entry = |(entry, name): (&Listed, &[u8])| (entry.ino, entry.kind, name.to_vec());
            listed.extend(listing.iter().map(entry));
        }
        Ok(())
    }
}
