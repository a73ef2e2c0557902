//! The one place where the locks of several inodes are taken together: in ascending inode number.

use std::ops::Deref;

use dure_sync::{RwLockWriteGuard, SpreadReadGuard};

use super::{Inode, InodeState};
use crate::ranks::INODE;
use crate::units::Ino;

/// Most inodes one operation locks: two directories, the inode that moves, the one it replaces.
pub(crate) const LOCKS_MAX: usize = 4;

/// How an operation has an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Access {
    /// Beside others who share it: a directory whose buckets are locked one by one.
    Shared,
    /// Nobody else has it.
    Alone,
}

/// The lock of one inode.
#[derive(Debug)]
enum Guard<'i> {
    Shared(SpreadReadGuard<'i, INODE, InodeState>),
    Alone(RwLockWriteGuard<'i, INODE, InodeState>),
}

impl Deref for Guard<'_> {
    type Target = InodeState;

    fn deref(&self) -> &InodeState {
        match self {
            Guard::Shared(guard) => guard,
            Guard::Alone(guard) => guard,
        }
    }
}

impl<'i> Guard<'i> {
    /// Locks an inode whose number is above those of all that the task holds.
    fn lock(inode: &'i Inode, access: Access) -> Guard<'i> {
        match access {
            Access::Shared => Guard::Shared(inode.state.read_ordered()),
            Access::Alone => Guard::Alone(inode.state.try_write().unwrap_or_else(|| {
                inode.note_met();
                inode.state.write_ordered()
            })),
        }
    }
}

/// The locks of up to four inodes.
#[derive(Debug)]
pub(crate) struct LockedInodes<'i> {
    guards: [Option<(Ino, Guard<'i>)>; LOCKS_MAX],
}

impl<'i> LockedInodes<'i> {
    /// Locks each of the inodes once, whatever their order and however often they are named: alone, if it
    /// is named so once.
    pub(crate) fn lock<const N: usize>(mut inodes: [(&'i Inode, Access); N]) -> LockedInodes<'i> {
        const { assert!(N <= LOCKS_MAX) };
        inodes.sort_unstable_by_key(|(inode, access)| (inode.ino, std::cmp::Reverse(*access)));
        let mut guards = [const { None }; LOCKS_MAX];
        let mut last = None;
        for ((inode, access), place) in inodes.into_iter().zip(&mut guards) {
            if last != Some(inode.ino) {
                *place = Some((inode.ino, Guard::lock(inode, access)));
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

    /// How one of them is held.
    pub(crate) fn access(&self, inode: &Inode) -> Access {
        let mut all = self.guards.iter().flatten();
        match all.find(|(ino, _)| *ino == inode.ino) {
            Some((_, Guard::Alone(_))) => Access::Alone,
            Some((_, Guard::Shared(_))) => Access::Shared,
            None => panic!("inode {} was locked", inode.ino),
        }
    }

    /// The state of one of them that is held alone, to be changed.
    pub(crate) fn get_mut(&mut self, inode: &Inode) -> &mut InodeState {
        let mut all = self.guards.iter_mut().flatten();
        match all.find(|(ino, _)| *ino == inode.ino) {
            Some((_, Guard::Alone(guard))) => guard,
            _ => panic!("inode {} was locked, and alone", inode.ino),
        }
    }
}
