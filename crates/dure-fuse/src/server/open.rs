//! Open files, where the process uses the volume, too; elsewhere the kernel does without.
//!
//! **Problem.** What the kernel may have of a file has to be known, and how long an answer holds
//! ([`crate::coherence`]). **Structure.** OPEN and RELEASE are counted, and content passes the kernel's
//! cache by. **Invariants.** An open file is noted before the kernel hears that it is open. **On a
//! crash** nothing of this remains.

use dure_fs::{FileKind, InodeRef};
use dure_fuse_wire::protocol::ROOT;

use super::{Answer, Attr, Server};
use crate::coherence::Mode;
use crate::nodes;

/// How long the kernel may cache an entry, also a negative one: without end. Every change of one goes
/// through the kernel, which locks the directory against lookups meanwhile, or is told to it.
pub(crate) const ENTRY_SECONDS: u64 = u64::MAX;
/// How long it may cache attributes of what is no directory. Every request that changes them comes
/// from the kernel, which then drops what it has. Only of `st_ctime`, `st_atime` and `st_blocks` may
/// it keep an old value for so long: if a GETATTR runs while a rename, a SETXATTR, a READ or a
/// FALLOCATE does, its reply may come after that of the change. For size, mode, owner and link count
/// the kernel notices that (its `attr_version`).
const ATTR_SECONDS: u64 = 3600;
/// How long it may cache attributes of a directory, for whose changes the kernel notices nothing of
/// the kind: its times and link count may be old for so long.
const DIRECTORY_ATTR_SECONDS: u64 = 1;

impl Server {
    /// OPEN and OPENDIR. `None`: the kernel opens files without asking.
    ///
    /// # Errors
    /// An errno.
    pub fn open(&self, node: u64, mode: Mode) -> Answer<Option<()>> {
        let Some(coherence) = &self.coherence else {
            return Ok(None);
        };
        coherence.opened(self.inode(node)?, mode);
        Ok(Some(()))
    }

    /// RELEASE and RELEASEDIR.
    pub fn release(&self, node: u64, mode: Mode) {
        if let Some(coherence) = &self.coherence {
            coherence.released(node, mode);
        }
    }

    /// A READ for pages of the kernel's cache.
    pub fn caches(&self, node: u64) {
        if let Some(coherence) = &self.coherence {
            coherence.caches(node);
        }
    }

    /// What a name that is lent leads to: [`crate::coherence::Coherence::lend_name`].
    pub(super) fn lent(&self, directory: &InodeRef, name: &[u8]) -> Option<InodeRef> {
        let coherence = self.coherence.as_ref()?;
        match directory.ino().0 {
            ROOT => coherence.lent(name),
            _ => None,
        }
    }

    /// Whether the end of a file may be elsewhere than the kernel takes it to be.
    #[must_use]
    pub fn knows_the_end_better(&self) -> bool {
        self.coherence.is_some()
    }

    /// How long it may cache those that come with a name, or after a change. Where changes come from
    /// elsewhere, too, not at all: the kernel drops an older answer to a GETATTR when it is told of a
    /// change, but not one by which it first hears of an inode, or that of a SETATTR.
    #[must_use]
    pub fn attr_seconds_of_entry(&self, attr: &Attr) -> u64 {
        match self.coherence {
            Some(_) => 0,
            None => self.attr_seconds(attr),
        }
    }

    /// How long the kernel may cache attributes, in seconds. It is not told when a write clears
    /// set-id bits, and must not run a changed program with them. Of a volume that the process uses,
    /// too, it is told of directories only.
    #[must_use]
    pub fn attr_seconds(&self, attr: &Attr) -> u64 {
        let set_id = u32::from(attr.permissions) & (libc::S_ISUID | libc::S_ISGID);
        match (attr.kind, set_id) {
            _ if nodes::is_hidden(attr.ino) => 0,
            (FileKind::Directory, _) => DIRECTORY_ATTR_SECONDS,
            (_, 0) if self.coherence.is_none() => ATTR_SECONDS,
            _ => 0,
        }
    }
}
