//! The directories above a directory, while the rename lock keeps them where they are.

use dure_store::error::{Error, Result};
use dure_store::units::Ino;

use crate::inode::InodeRef;
use crate::namespace::Names;

impl Names {
    /// Walks up from `directory` to the root, which must not lead through `moved`.
    pub(super) fn ancestors(
        &self,
        directory: &InodeRef,
        moved: Ino,
        all: &mut Vec<InodeRef>,
    ) -> Result<()> {
        let mut at = directory.clone();
        let first = all.len();
        loop {
            if at.ino() == moved {
                return Err(Error::Loop);
            }
            let parent = Ino(at.inode().attributes().parent.get());
            let gone = at.inode().state().read().gone;
            let is_root = at.ino() == Ino::ROOT;
            all.push(at);
            if is_root {
                return Ok(());
            }
            if gone {
                return Err(Error::NotFound);
            }
            at = self.inodes.inode(parent)?;
            // Floyd's cycle detection: the fast pointer meets the slow one. Parents do not change
            // meanwhile.
            if all[first.midpoint(all.len())].ino() == at.ino() {
                return Err(Error::Corrupt {
                    what: format!("directory {} is above itself", at.ino()),
                    at: at.inode().node.nid.0,
                    want: Ino::ROOT.0,
                    got: at.ino().0,
                });
            }
        }
    }
}
