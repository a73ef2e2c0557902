//! Operations of a caller on an inode: permission check, change, and its side effects (set-id bits,
//! access lists). Shared by [`crate::Session`], which starts from a path, and [`crate::File`],
//! which starts from a descriptor.

use dure_fs::{FileKind, FileSystem, InodeRef, Permissions, SetAttributes, SetTime};
use rustix::io::Errno;

use crate::credentials::Credentials;
use crate::metadata::{FileTimes, TimeChange, to_time};
use crate::permission::{self, Access, SET_GID, SET_UID, mode_of};
use crate::volume::Shared;
use crate::walk::{self, Result};

/// A caller on a volume.
#[derive(Clone, Copy)]
pub(crate) struct Actor<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) caller: &'a Credentials,
}

impl Actor<'_> {
    pub(crate) fn fs(&self) -> &FileSystem {
        &self.shared.fs
    }

    pub(crate) fn check(&self, inode: &InodeRef, want: Access) -> Result<()> {
        let executes = want.contains(Access::EXECUTE) && inode.kind() != FileKind::Directory;
        if self.caller.is_root() && !executes {
            return Ok(());
        }
        walk::check(self.fs(), self.caller, inode, want)
    }

    pub(crate) fn permissions(&self, inode: &InodeRef) -> Result<Permissions> {
        Ok(self.fs().permissions(inode)?)
    }

    fn set(&self, inode: &InodeRef, changes: &SetAttributes) -> Result<()> {
        self.shared.change_attributes(inode, changes)?;
        if changes
            .mode
            .is_some_and(|mode| mode & (SET_UID | SET_GID) != 0)
        {
            self.shared.set_id_given();
        }
        Ok(())
    }

    pub(crate) fn chmod(&self, inode: &InodeRef, mode: u32) -> Result<()> {
        let node = self.permissions(inode)?;
        let mode = permission::mode_after_chmod(self.caller, &node, mode)?;
        self.set(
            inode,
            &SetAttributes {
                mode: Some(mode),
                ..SetAttributes::default()
            },
        )
    }

    pub(crate) fn chown(&self, inode: &InodeRef, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        let node = self.permissions(inode)?;
        permission::check_chown(self.caller, &node, uid, gid)?;
        let mode = permission::mode_after_chown(self.caller, &node);
        let mode = (mode != mode_of(&node)).then_some(mode);
        self.set(
            inode,
            &SetAttributes {
                uid,
                gid,
                mode,
                ..SetAttributes::default()
            },
        )
    }

    pub(crate) fn set_times(&self, inode: &InodeRef, times: FileTimes) -> Result<()> {
        let FileTimes { accessed, modified } = times;
        if (accessed, modified) == (TimeChange::Keep, TimeChange::Keep) {
            return Ok(());
        }
        let node = self.permissions(inode)?;
        if !self.caller.owns(node.uid) {
            // Both to now: a caller with write permission may do that. Anything else only the owner
            // may.
            if (accessed, modified) != (TimeChange::Now, TimeChange::Now) {
                return Err(Errno::PERM.into());
            }
            self.check(inode, Access::WRITE)?;
        }
        let set = |change| match change {
            TimeChange::Keep => None,
            TimeChange::Now => Some(SetTime::Now),
            TimeChange::Set(time) => Some(SetTime::At(to_time(time))),
        };
        let changes = SetAttributes {
            atime: set(accessed),
            mtime: set(modified),
            ..SetAttributes::default()
        };
        self.set(inode, &changes)
    }

    pub(crate) fn truncate(&self, inode: &InodeRef, size: u64) -> Result<()> {
        let mut changes = SetAttributes {
            size: Some(size),
            ..SetAttributes::default()
        };
        if !self.caller.is_root() {
            let node = self.permissions(inode)?;
            let mode = permission::mode_after_write(self.caller, &node);
            changes.mode = (mode != mode_of(&node)).then_some(mode);
        }
        self.set(inode, &changes)
    }

    /// Clears set-id bits after a write by a caller that is not root.
    #[cold]
    pub(crate) fn drop_set_id(&self, inode: &InodeRef) -> Result<()> {
        let node = self.permissions(inode)?;
        let mode = permission::mode_after_write(self.caller, &node);
        if mode != mode_of(&node) {
            let changes = SetAttributes {
                mode: Some(mode),
                ..SetAttributes::default()
            };
            self.shared.change_attributes(inode, &changes)?;
        }
        Ok(())
    }
}
