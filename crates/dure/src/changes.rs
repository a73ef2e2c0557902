//! Reads and changes of a volume that may be mounted by this process, too.
//!
//! **Problem.** The kernel keeps what it has seen through the mount ([`dure_fuse::coherence`]).
//! **Structure.** Each call of `dure_fs` that reads content or changes anything has its name here,
//! does the same, and then tells the kernel. **Invariants.** Where the volume was never mounted, that is
//! one look at a word that does not change. A call tells before it returns, with no lock of the file
//! system held; a failed write too, as a part of it may be there. **On a crash** nothing is kept.

use std::ops::Range;

use dure_fs::{
    AllocateMode, Begun, Deduped, FileKind, InodeRef, NewInode, ReadMode, RenameMode, Result,
    SetAttributes, SetGid, Stamp, SyncScope, XattrMode,
};
use dure_fuse::Coherence;

use crate::volume::Shared;

/// All of a file.
const ALL: Range<u64> = 0..u64::MAX;

fn range(offset: u64, len: usize) -> Range<u64> {
    offset..offset.saturating_add(u64::try_from(len).expect("a usize fits in 64 bits"))
}

/// Content.
impl Shared {
    #[inline]
    pub(crate) fn read(&self, inode: &InodeRef, offset: u64, bytes: &mut [u8]) -> Result<usize> {
        match self.coherence() {
            None => self.fs.read(inode, offset, bytes, ReadMode::Cached),
            Some(coherence) => self.read_mounted(coherence, inode, (offset, bytes)),
        }
    }

    #[cold]
    fn read_mounted(
        &self,
        coherence: &Coherence,
        inode: &InodeRef,
        (offset, bytes): (u64, &mut [u8]),
    ) -> Result<usize> {
        coherence.settle(inode, range(offset, bytes.len()));
        if !coherence.may_be_mapped() {
            return self.fs.read(inode, offset, bytes, ReadMode::Cached);
        }
        let mut copy = vec![0; bytes.len()];
        let count = self.fs.read(inode, offset, &mut copy, ReadMode::Cached)?;
        bytes[..count].copy_from_slice(&copy[..count]);
        Ok(count)
    }

    /// Where the volume is mounted, the read is done when it has begun.
    pub(crate) fn begin_read(
        &self,
        inode: &InodeRef,
        offset: u64,
        bytes: &mut [u8],
    ) -> Result<Begun> {
        match self.coherence() {
            None => self.fs.begin_read(inode, offset, bytes),
            Some(coherence) => {
                let read = self.read_mounted(coherence, inode, (offset, bytes));
                read.map(Begun::Read)
            }
        }
    }

    #[inline]
    pub(crate) fn write(&self, inode: &InodeRef, offset: u64, bytes: &[u8]) -> Result<usize> {
        match self.coherence() {
            None => self.fs.write(inode, offset, bytes, Stamp::Set),
            Some(coherence) => {
                let write = |bytes: &[u8]| self.fs.write(inode, offset, bytes, Stamp::Set);
                change(coherence, inode, range(offset, bytes.len()), bytes, write)
            }
        }
    }

    #[inline]
    pub(crate) fn append(&self, inode: &InodeRef, bytes: &[u8]) -> Result<(u64, usize)> {
        match self.coherence() {
            None => self.fs.append(inode, bytes),
            Some(coherence) => {
                let behind = self.fs.size(inode)?..u64::MAX;
                let append = |bytes: &[u8]| self.fs.append(inode, bytes);
                change(coherence, inode, behind, bytes, append)
            }
        }
    }

    /// What stands in mappings of the mount is a part of it.
    pub(crate) fn fsync(&self, inode: &InodeRef, scope: SyncScope) -> Result<()> {
        if let Some(coherence) = self.coherence() {
            coherence.settle(inode, ALL);
        }
        self.fs.fsync(inode, scope)
    }

    pub(crate) fn allocate(
        &self,
        inode: &InodeRef,
        mode: AllocateMode,
        (offset, len): (u64, u64),
    ) -> Result<()> {
        let place = offset..offset.saturating_add(len);
        if let Some(coherence) = self.coherence() {
            coherence.settle(inode, place.clone());
        }
        let done = self.fs.allocate(inode, mode, offset, len);
        if let Some(coherence) = self.coherence() {
            coherence.changed(inode, place);
        }
        done
    }

    /// Lets the target share blocks of the source; how many bytes.
    pub(crate) fn clone_range(
        &self,
        (source, from): (&InodeRef, u64),
        (target, to): (&InodeRef, u64),
        len: u64,
    ) -> Result<u64> {
        let place = to..to.saturating_add(len);
        if let Some(coherence) = self.coherence() {
            coherence.settle(source, from..from.saturating_add(len));
            coherence.settle(target, place.clone());
        }
        let done = self.fs.clone_range((source, from), (target, to), len);
        if let Some(coherence) = self.coherence() {
            coherence.changed(target, place);
        }
        done
    }

    /// Lets the target share blocks of the source with the same content: the mount sees no change.
    pub(crate) fn dedupe_range(
        &self,
        (source, from): (&InodeRef, u64),
        (target, to): (&InodeRef, u64),
        len: u64,
    ) -> Result<Deduped> {
        if let Some(coherence) = self.coherence() {
            coherence.settle(source, from..from.saturating_add(len));
            coherence.settle(target, to..to.saturating_add(len));
        }
        self.fs.dedupe_range((source, from), (target, to), len)
    }
}

/// Writes `bytes` somewhere in `place`. They are copied before if they may be a mapping of the mount:
/// copying them could wait for a request, and `write` copies them under locks.
#[cold]
fn change<T>(
    coherence: &Coherence,
    inode: &InodeRef,
    place: Range<u64>,
    bytes: &[u8],
    write: impl FnOnce(&[u8]) -> Result<T>,
) -> Result<T> {
    coherence.settle(inode, place.clone());
    let written = match coherence.may_be_mapped() {
        true => {
            let copy = Vec::from(bytes);
            write(&copy)
        }
        false => write(bytes),
    };
    coherence.changed(inode, place);
    written
}

/// Attributes.
impl Shared {
    pub(crate) fn change_attributes(
        &self,
        inode: &InodeRef,
        changes: &SetAttributes,
    ) -> Result<()> {
        let Some(coherence) = self.coherence() else {
            return self.fs.change_attributes(inode, changes);
        };
        let resizes = changes.size.is_some();
        if resizes {
            coherence.settle(inode, ALL);
        }
        let done = self.fs.change_attributes(inode, changes);
        if resizes {
            coherence.changed(inode, ALL);
        }
        // The mode is a part of an access control list, which the kernel keeps of any inode.
        if changes.mode.is_some() || inode.kind() == FileKind::Directory {
            coherence.attributes_changed(inode);
        }
        done
    }

    pub(crate) fn set_xattr(
        &self,
        inode: &InodeRef,
        (name, value): (&[u8], &[u8]),
        how: (XattrMode, SetGid),
    ) -> Result<()> {
        let done = self.fs.set_xattr_by(inode, name, value, how);
        self.attributes_changed(inode);
        done
    }

    pub(crate) fn remove_xattr(&self, inode: &InodeRef, name: &[u8]) -> Result<()> {
        let done = self.fs.remove_xattr(inode, name);
        self.attributes_changed(inode);
        done
    }

    fn attributes_changed(&self, inode: &InodeRef) {
        if let Some(coherence) = self.coherence() {
            coherence.attributes_changed(inode);
        }
    }
}

/// Names.
impl Shared {
    pub(crate) fn create(&self, dir: &InodeRef, name: &[u8], new: &NewInode) -> Result<InodeRef> {
        let made = self.fs.create(dir, name, new)?;
        self.name_changed(dir, name);
        Ok(made)
    }

    pub(crate) fn mkdir(&self, dir: &InodeRef, name: &[u8], new: &NewInode) -> Result<()> {
        self.fs.mkdir(dir, name, new)?;
        self.name_changed(dir, name);
        Ok(())
    }

    pub(crate) fn symlink(
        &self,
        dir: &InodeRef,
        (name, target): (&[u8], &[u8]),
        new: &NewInode,
    ) -> Result<()> {
        self.fs.symlink(dir, name, target, new)?;
        self.name_changed(dir, name);
        Ok(())
    }

    pub(crate) fn link(&self, inode: &InodeRef, dir: &InodeRef, name: &[u8]) -> Result<()> {
        self.fs.link(inode, dir, name)?;
        self.name_changed(dir, name);
        Ok(())
    }

    pub(crate) fn unlink(&self, dir: &InodeRef, name: &[u8]) -> Result<()> {
        let Some(coherence) = self.coherence() else {
            return self.fs.unlink(dir, name);
        };
        let nameless = self.fs.unlink_and_keep(dir, name)?;
        coherence.name_removed(dir, name, nameless);
        Ok(())
    }

    pub(crate) fn rmdir(&self, dir: &InodeRef, name: &[u8]) -> Result<()> {
        let Some(coherence) = self.coherence() else {
            return self.fs.rmdir(dir, name);
        };
        let nameless = self.fs.rmdir_and_keep(dir, name)?;
        coherence.name_removed(dir, name, nameless);
        Ok(())
    }

    pub(crate) fn rename(
        &self,
        (old_dir, old): (&InodeRef, &[u8]),
        (new_dir, new): (&InodeRef, &[u8]),
        mode: RenameMode,
    ) -> Result<()> {
        let Some(coherence) = self.coherence() else {
            return self.fs.rename(old_dir, old, new_dir, new, mode);
        };
        let nameless = self
            .fs
            .rename_and_keep((old_dir, old), (new_dir, new), mode)?;
        coherence.name_changed(old_dir, old);
        coherence.name_removed(new_dir, new, nameless);
        // What moved has another change time, and a directory another parent.
        for (dir, name) in [(old_dir, old), (new_dir, new)] {
            if let Ok(Some(moved)) = self.fs.lookup(dir, name) {
                coherence.attributes_changed(&moved);
            }
        }
        Ok(())
    }

    fn name_changed(&self, dir: &InodeRef, name: &[u8]) {
        if let Some(coherence) = self.coherence() {
            coherence.name_changed(dir, name);
        }
    }
}
