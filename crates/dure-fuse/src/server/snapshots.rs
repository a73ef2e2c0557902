//! The directory `.snapshots` of a mount: a symlink for each snapshot, to where it is shown.
//!
//! **Problem.** A mount that can be written cannot have a part that cannot: the kernel opens files
//! without asking and collects what is written to them, and only then the server could refuse it.
//! **Structure.** So a snapshot is a mount of its own, read-only, outside this one (inside, umount(8)
//! would say "busy"); [`SnapshotPlaces`] makes it when the link is read for the first time. Directory
//! and links have node ids that no inode has ([`nodes::HIDDEN`]); no listing of the root shows them.
//!
//! **Invariants.** A real entry of the root with this name hides the directory. The kernel is to
//! keep no name and no attribute of it; it keeps a listing until the directory's time changes, and the
//! target of a link, which has another node id after a mount of a snapshot has ended, so that it is
//! read again. **Crash.** Nothing is on the volume.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use dure_fs::format::inode::Time;
use dure_fs::units::Ino;
use dure_fs::{FileKind, FileSystem, SnapshotInfo};
use dure_fuse_wire::Errno;
use dure_sync::Arc;

use super::{Answer, Attr, Entry, Listed, Server, errno};
use crate::nodes;

/// Its name in the root.
pub const SNAPSHOTS: &[u8] = b".snapshots";

/// Mounts snapshots of a mounted volume where users can look into them.
pub trait SnapshotPlaces: fmt::Debug + Send + Sync {
    /// The directory of a snapshot, whether it is mounted there or not.
    fn directory(&self, snapshot: &SnapshotInfo) -> PathBuf;

    /// Mounts it there, unless it is.
    ///
    /// # Errors
    /// What the reader of the link is told.
    fn show(&self, volume: &FileSystem, snapshot: &SnapshotInfo) -> Result<(), Errno>;

    /// How many mounts have ended.
    fn ended(&self) -> u32;
}

impl<T: SnapshotPlaces> SnapshotPlaces for Arc<T> {
    fn directory(&self, snapshot: &SnapshotInfo) -> PathBuf {
        (**self).directory(snapshot)
    }

    fn show(&self, volume: &FileSystem, snapshot: &SnapshotInfo) -> Result<(), Errno> {
        (**self).show(volume, snapshot)
    }

    fn ended(&self) -> u32 {
        (**self).ended()
    }
}

impl Server {
    /// Where snapshots are shown, if the volume has any.
    fn places(&self) -> Option<&dyn SnapshotPlaces> {
        let places = self.snapshots.as_deref()?;
        (!self.volume.snapshots().is_empty()).then_some(places)
    }

    /// Whether the name is that of the directory, or in it.
    #[must_use]
    pub fn is_of_snapshots(&self, parent: u64, name: &[u8]) -> bool {
        nodes::is_hidden(parent) || (name == SNAPSHOTS && nodes::ino_of(parent) == Ino::ROOT)
    }

    /// A name that no inode has.
    pub(super) fn hidden_name(&self, parent: u64, name: &[u8]) -> Answer<Option<Entry>> {
        match self.is_of_snapshots(parent, name) && self.places().is_some() {
            true => Ok(Some(self.hidden_entry(nodes::HIDDEN)?)),
            false => Ok(None),
        }
    }

    /// LOOKUP below the directory, and of "." and ".." of what is hidden.
    pub(super) fn hidden_lookup(&self, parent: u64, name: &[u8]) -> Answer<Option<Entry>> {
        let is_directory = parent == nodes::HIDDEN;
        match name {
            b"." => return self.hidden_entry(parent).map(Some),
            b".." if is_directory => {
                let root = self.volume.inode(Ino::ROOT).map_err(errno)?;
                return self.entry(&root).map(Some);
            }
            b".." => return self.hidden_entry(nodes::HIDDEN).map(Some),
            _ if !is_directory => return Err(libc::ENOTDIR),
            _ => {}
        }
        let snapshots = self.volume.snapshots();
        let found = snapshots.iter().find(|one| one.name.as_bytes() == name);
        let entry = |attr| Entry { attr };
        Ok(found
            .map(|one| self.hidden_link(one))
            .transpose()?
            .map(entry))
    }

    fn hidden_entry(&self, node: u64) -> Answer<Entry> {
        let attr = self.hidden_attributes(node)?;
        Ok(Entry { attr })
    }

    /// The snapshot of a link.
    fn hidden_snapshot(&self, node: u64) -> Answer<SnapshotInfo> {
        let id = nodes::ino_of(node).0 & !nodes::HIDDEN;
        let mut snapshots = self.volume.snapshots().into_iter();
        snapshots.find(|one| one.id == id).ok_or(libc::ESTALE)
    }

    /// GETATTR of the directory or a link.
    pub(super) fn hidden_attributes(&self, node: u64) -> Answer<Attr> {
        if node != nodes::HIDDEN {
            return self.hidden_link(&self.hidden_snapshot(node)?);
        }
        let root = self.volume.inode(Ino::ROOT).map_err(errno)?;
        let root = self.volume.attributes(&root).map_err(errno)?;
        let snapshots = self.volume.snapshots();
        let newest = snapshots.iter().map(|one| one.created).max();
        let attr = self.hidden((nodes::HIDDEN, 1), newest.unwrap_or_default(), &root);
        Ok(Attr {
            permissions: attr.permissions & 0o555,
            nlink: 2,
            size: snapshots.len() as u64,
            // The kernel keeps a listing until this time changes.
            mtime: Time {
                nanos: digest(&snapshots).into(),
                ..attr.mtime
            },
            ..attr
        })
    }

    fn hidden_link(&self, snapshot: &SnapshotInfo) -> Answer<Attr> {
        let places = self.places().ok_or(libc::ESTALE)?;
        let root = self.volume.inode(Ino::ROOT).map_err(errno)?;
        let root = self.volume.attributes(&root).map_err(errno)?;
        let life = places.ended().wrapping_add(1);
        let target = places.directory(snapshot).into_os_string();
        Ok(Attr {
            kind: FileKind::Symlink,
            permissions: 0o777,
            nlink: 1,
            size: target.len() as u64,
            ..self.hidden((nodes::HIDDEN | snapshot.id, life), snapshot.created, &root)
        })
    }

    /// What directory and links have in common: owner of the root, times of a snapshot.
    fn hidden(&self, (ino, life): (u64, u32), created: i64, root: &dure_fs::Attributes) -> Attr {
        let at = Time {
            secs: created.into(),
            nanos: 0.into(),
        };
        Attr {
            ino,
            generation: life,
            rdev: 0,
            blocks: 0,
            atime: at,
            mtime: at,
            ctime: at,
            btime: at,
            ..self.attr_of(root)
        }
    }

    /// READLINK of a link: the snapshot is shown when this returns.
    pub(super) fn hidden_target(&self, node: u64) -> Answer<Vec<u8>> {
        let snapshot = self.hidden_snapshot(node)?;
        let places = self.places().ok_or(libc::ESTALE)?;
        places.show(&self.volume, &snapshot)?;
        Ok(places.directory(&snapshot).into_os_string().into_vec())
    }

    /// READDIR of the directory: everything after `position` in one batch, as there are at most
    /// some hundreds.
    pub(super) fn hidden_listing(&self, node: u64, position: u64) -> Answer<Vec<Listed>> {
        if node != nodes::HIDDEN {
            return Err(libc::ENOTDIR);
        }
        let dots = [(nodes::HIDDEN, b"." as &[u8]), (Ino::ROOT.0, b"..")];
        let dots = dots.map(|(ino, name)| (ino, FileKind::Directory, name.to_vec()));
        let snapshots = self.volume.snapshots().into_iter();
        let links = snapshots.map(|one| {
            let ino = nodes::HIDDEN | one.id;
            (ino, FileKind::Symlink, one.name.into_bytes())
        });
        // The position of a link is its number, so that a deletion moves no other.
        let cookie = |ino: u64, place: u64| match ino & !nodes::HIDDEN {
            id if ino & nodes::HIDDEN != 0 && id > 0 => id + 2,
            _ => place,
        };
        let all = dots.into_iter().chain(links).zip(1..);
        let listed = all.map(|((ino, kind, name), place)| Listed {
            ino,
            cookie: cookie(ino, place),
            kind,
            name,
        });
        Ok(listed.filter(|one| one.cookie > position).collect())
    }
}

/// A number below 10^9 that changes with the list of snapshots.
fn digest(snapshots: &[SnapshotInfo]) -> u32 {
    let mut hasher = DefaultHasher::new();
    for one in snapshots {
        (one.id, &one.name).hash(&mut hasher);
    }
    let digest = hasher.finish() % 1_000_000_000;
    u32::try_from(digest).expect("less than 2^32")
}
