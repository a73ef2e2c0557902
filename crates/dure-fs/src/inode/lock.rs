//! The one place where the locks of several inodes are taken together: in ascending inode number;
//! then, in the same order, those of attributes that change beside others ([`super::beside`]).

use dure_store::units::Ino;
use dure_sync::SpreadReadGuard;

use super::{ForAttributes, Inode, InodeState};
use crate::ranks::INODE;

/// Most inodes one operation locks: two directories, the inode that moves, the one it replaces.
pub(crate) const LOCKS_MAX: usize = 4;

/// How an operation has an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Access {
    /// Beside others who share it: a directory whose buckets are locked one by one.
    Shared,
    /// Its attributes, among them the number of names, beside others who use its data:
    /// `Volume::names_access` said so.
    Beside,
    /// Nobody else has it.
    Alone,
}

/// The lock of one inode.
#[derive(Debug)]
enum Guard<'i> {
    Shared(SpreadReadGuard<'i, INODE, InodeState>),
    Held(ForAttributes<'i>),
}

impl<'i> Guard<'i> {
    /// Locks an inode whose number is above those of all that the task holds; of one whose
    /// attributes are wanted the state only.
    fn lock(inode: &'i Inode, access: Access) -> Guard<'i> {
        if access != Access::Alone {
            return Guard::Shared(inode.state.read_ordered());
        }
        let state = inode.state.try_write().unwrap_or_else(|| {
            inode.note_met();
            inode.state.write_ordered()
        });
        Guard::Held(ForAttributes::Alone(state))
    }

    /// Locks the attributes as well. The states of all inodes are locked.
    fn with_attributes(self, inode: &'i Inode) -> Guard<'i> {
        match self {
            Guard::Shared(state) => Guard::Held(ForAttributes::beside(inode, state)),
            Guard::Held(_) => panic!("inode {} is shared", inode.ino),
        }
    }
}

/// The locks of up to four inodes.
#[derive(Debug)]
pub(crate) struct LockedInodes<'i> {
    guards: [Option<(Ino, Guard<'i>)>; LOCKS_MAX],
}

impl<'i> LockedInodes<'i> {
    /// Locks each of the inodes once, whatever their order and however often they are named: alone,
    /// if it is named so once.
    pub(crate) fn lock<const N: usize>(mut inodes: [(&'i Inode, Access); N]) -> LockedInodes<'i> {
        const { assert!(N <= LOCKS_MAX) };
        inodes.sort_unstable_by_key(|(inode, access)| (inode.ino, std::cmp::Reverse(*access)));
        let mut guards = [const { None }; LOCKS_MAX];
        let mut last = None;
        for (&(inode, access), place) in inodes.iter().zip(&mut guards) {
            if last != Some(inode.ino) {
                *place = Some((inode.ino, Guard::lock(inode, access)));
                last = Some(inode.ino);
            }
        }
        for ((inode, access), place) in inodes.into_iter().zip(&mut guards) {
            if access == Access::Beside
                && let Some((ino, guard)) = place.take()
            {
                *place = Some((ino, guard.with_attributes(inode)));
            }
        }
        LockedInodes { guards }
    }

    fn guard(&self, inode: &Inode) -> &Guard<'i> {
        let mut all = self.guards.iter().flatten();
        match all.find(|(ino, _)| *ino == inode.ino) {
            Some((_, guard)) => guard,
            None => panic!("inode {} was locked", inode.ino),
        }
    }

    /// The state of one of them, with all its attributes.
    pub(crate) fn get(&self, inode: &Inode) -> &InodeState {
        match self.guard(inode) {
            Guard::Shared(state) => state,
            Guard::Held(ForAttributes::Alone(state)) => state,
            Guard::Held(ForAttributes::Beside(_)) => panic!("inode {} has others", inode.ino),
        }
    }

    /// One of them that is not only shared.
    pub(crate) fn attributes(&self, inode: &Inode) -> &ForAttributes<'i> {
        match self.guard(inode) {
            Guard::Held(held) => held,
            Guard::Shared(_) => panic!("inode {} is shared", inode.ino),
        }
    }

    /// The same, to be changed.
    pub(crate) fn attributes_mut(&mut self, inode: &Inode) -> &mut ForAttributes<'i> {
        let mut all = self.guards.iter_mut().flatten();
        match all.find(|(ino, _)| *ino == inode.ino) {
            Some((_, Guard::Held(held))) => held,
            _ => panic!("inode {} was locked, and not only shared", inode.ino),
        }
    }

    /// How one of them is held.
    pub(crate) fn access(&self, inode: &Inode) -> Access {
        match self.guard(inode) {
            Guard::Shared(_) => Access::Shared,
            Guard::Held(ForAttributes::Beside(_)) => Access::Beside,
            Guard::Held(ForAttributes::Alone(_)) => Access::Alone,
        }
    }

    /// The state of one of them that is held alone, to be changed.
    pub(crate) fn get_mut(&mut self, inode: &Inode) -> &mut InodeState {
        match self.attributes_mut(inode) {
            ForAttributes::Alone(state) => state,
            ForAttributes::Beside(_) => panic!("inode {} was locked alone", inode.ino),
        }
    }
}
