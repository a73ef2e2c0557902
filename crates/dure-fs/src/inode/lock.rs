//! The one place where the locks of several inodes are taken together: those of their states in
//! ascending inode number; then, in the same order, those of attributes.

use dure_store::units::Ino;
use dure_sync::{MutexGuard, PerCoreReadGuard, RwLockWriteGuard};

use super::{AttributeState, Inode, InodeState};
use crate::ranks::{ATTRIBUTES, INODE};

/// Maximum number of inodes that one operation locks: two directories, the inode that moves, the
/// one it replaces, the one it leaves behind.
pub(crate) const LOCKS_MAX: usize = 5;

/// How an operation holds an inode. One that is listed twice is held in the later one of these
/// modes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Access {
    /// The state shared: a directory whose buckets are locked one by one.
    Shared,
    /// The attributes only, exclusively: concurrent with readers and writers of the data. For
    /// inodes for which `Inode::attributes_access` returned this.
    Attributes,
    /// The state exclusively: a directory whose entries change.
    Exclusive,
    /// The state and the attributes exclusively.
    Whole,
}

/// The lock of one inode's state.
#[derive(Debug)]
enum State<'i> {
    Shared(PerCoreReadGuard<'i, INODE, InodeState>),
    Exclusive(RwLockWriteGuard<'i, INODE, InodeState>),
}

/// What is held of one inode.
#[derive(Debug)]
struct Locked<'i> {
    ino: Ino,
    // Dropped before the state.
    attributes: Option<MutexGuard<'i, ATTRIBUTES, AttributeState>>,
    state: Option<State<'i>>,
}

impl<'i> Locked<'i> {
    /// Locks the state of an inode whose number is above those of all that the task holds.
    fn lock(inode: &'i Inode, access: Access) -> Locked<'i> {
        let state = match access {
            Access::Attributes => None,
            Access::Shared => Some(State::Shared(inode.state().read_ordered())),
            Access::Exclusive | Access::Whole => {
                let state = inode.state().try_write().unwrap_or_else(|| {
                    inode.note_contended();
                    inode.state().write_ordered()
                });
                Some(State::Exclusive(state))
            }
        };
        Locked {
            ino: inode.ino,
            attributes: None,
            state,
        }
    }
}

/// The locks of up to five inodes.
#[derive(Debug)]
pub(crate) struct LockedInodes<'i> {
    all: [Option<Locked<'i>>; LOCKS_MAX],
}

impl<'i> LockedInodes<'i> {
    /// Locks each of the inodes once, whatever their order and however often they are listed.
    pub(crate) fn lock<const N: usize>(mut inodes: [(&'i Inode, Access); N]) -> LockedInodes<'i> {
        const { assert!(N <= LOCKS_MAX) };
        inodes.sort_unstable_by_key(|(inode, access)| (inode.ino, std::cmp::Reverse(*access)));
        let mut all = [const { None }; LOCKS_MAX];
        let mut last = None;
        for (&(inode, access), place) in inodes.iter().zip(&mut all) {
            if last != Some(inode.ino) {
                *place = Some(Locked::lock(inode, access));
                last = Some(inode.ino);
            }
        }
        for ((inode, access), place) in inodes.into_iter().zip(&mut all) {
            if matches!(access, Access::Attributes | Access::Whole)
                && let Some(locked) = place
            {
                locked.attributes = Some(inode.state().attributes().lock_ordered());
            }
        }
        LockedInodes { all }
    }

    fn find(&self, inode: &Inode) -> &Locked<'i> {
        let found = self.all.iter().flatten().find(|one| one.ino == inode.ino);
        found.unwrap_or_else(|| panic!("inode {} is not locked", inode.ino))
    }

    fn find_mut(&mut self, inode: &Inode) -> &mut Locked<'i> {
        let mut all = self.all.iter_mut().flatten();
        let found = all.find(|one| one.ino == inode.ino);
        found.unwrap_or_else(|| panic!("inode {} is not locked", inode.ino))
    }

    /// The state of one of them.
    pub(crate) fn get(&self, inode: &Inode) -> &InodeState {
        match &self.find(inode).state {
            Some(State::Shared(state)) => state,
            Some(State::Exclusive(state)) => state,
            None => panic!("inode {} is locked for its attributes only", inode.ino),
        }
    }

    /// The state, mutable, of one of them that is held exclusively.
    pub(crate) fn get_mut(&mut self, inode: &Inode) -> &mut InodeState {
        match &mut self.find_mut(inode).state {
            Some(State::Exclusive(state)) => state,
            _ => panic!("inode {} is not locked exclusively", inode.ino),
        }
    }

    /// Whether the state of one of them is held exclusively.
    pub(crate) fn is_exclusive(&self, inode: &Inode) -> bool {
        self.access(inode) == Access::Exclusive
    }

    /// How the state of one of them is held.
    pub(crate) fn access(&self, inode: &Inode) -> Access {
        match self.find(inode).state {
            Some(State::Exclusive(_)) => Access::Exclusive,
            Some(State::Shared(_)) => Access::Shared,
            None => Access::Attributes,
        }
    }

    /// What changes with the attributes of one of them that is locked for that.
    pub(crate) fn attributes(&mut self, inode: &Inode) -> &mut AttributeState {
        match &mut self.find_mut(inode).attributes {
            Some(attributes) => attributes,
            None => panic!("inode {} is locked without its attributes", inode.ino),
        }
    }
}
