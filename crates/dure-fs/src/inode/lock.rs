//! The one place where the locks of several inodes are taken together: in ascending inode number.

use dure_sync::RwLockWriteGuard;

use super::{Inode, InodeState};
use crate::ranks::INODE;
use crate::units::Ino;

/// Most inodes one operation locks: two directories, the inode that moves, the one it replaces.
pub(crate) const LOCKS_MAX: usize = 4;

/// The write locks of up to four inodes.
#[derive(Debug)]
pub(crate) struct LockedInodes<'i> {
    guards: [Option<(Ino, RwLockWriteGuard<'i, INODE, InodeState>)>; LOCKS_MAX],
}

impl<'i> LockedInodes<'i> {
    /// Locks each of the inodes once, whatever their order and however often they are named.
    pub(crate) fn lock<const N: usize>(mut inodes: [&'i Inode; N]) -> LockedInodes<'i> {
        const { assert!(N <= LOCKS_MAX) };
        inodes.sort_unstable_by_key(|inode| inode.ino);
        let mut guards = [const { None }; LOCKS_MAX];
        let mut last = None;
        for (inode, place) in inodes.into_iter().zip(&mut guards) {
            if last != Some(inode.ino) {
                *place = Some((inode.ino, inode.state.write_ordered()));
                last = Some(inode.ino);
            }
        }
        LockedInodes { guards }
    }

    /// The state of one of them.
    pub(crate) fn get(&self, inode: &Inode) -> &InodeState {
        let mut all = self.guards.iter().flatten();
        &all.find(|(ino, _)| *ino == inode.ino)
            .expect("it was locked")
            .1
    }

    /// The state of one of them, to be changed.
    pub(crate) fn get_mut(&mut self, inode: &Inode) -> &mut InodeState {
        let mut all = self.guards.iter_mut().flatten();
        &mut all
            .find(|(ino, _)| *ino == inode.ino)
            .expect("it was locked")
            .1
    }
}
