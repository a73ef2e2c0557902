//! Readers write nothing: they copy what they want to see, and check a sequence count for a change
//! meanwhile. Writers lock only the granules they change.

use std::ops::Range;

use dure_sync::{SeqLock, SeqLockReadGuard, SeqLockWriteGuard};
use smallvec::SmallVec;

use super::{Granule, Granules, Head};
use crate::format::node::NodeKind;
use crate::ranks::GRANULE;

/// What is copied to the stack in small.
const SMALL: usize = 64;
/// No map's or directory's granule is larger.
const MEDIUM: usize = NodeKind::Leaf.payload(0);
/// No granule at all is larger.
const LARGE: usize = NodeKind::Blob.payload(0);

/// A granule, locked against changes.
pub(crate) type Shared<'n> = SeqLockReadGuard<'n, GRANULE, Head>;
type Exclusive<'n> = SeqLockWriteGuard<'n, GRANULE, Head>;

/// Each granule behind a lock of its own.
#[derive(Debug)]
pub(crate) struct Locked(Box<[Line]>);

/// A lock on a line of its own: a change of a granule writes no line that readers of the next one
/// use. Lines are not paired here, since a node has up to sixteen.
#[derive(Debug)]
#[repr(align(64))]
struct Line(SeqLock<GRANULE, Head>);

impl Locked {
    pub(super) fn new(granules: impl Iterator<Item = Granule>) -> Locked {
        Locked(
            granules
                .map(|granule| Line(SeqLock::new(granule.head, granule.payload)))
                .collect(),
        )
    }

    #[inline]
    pub(super) fn look<R>(
        &self,
        index: u8,
        range: Range<usize>,
        look: impl FnOnce(&[u8]) -> R,
    ) -> R {
        // The copy is made to be overwritten: the less of it the better.
        let len = range.len();
        if len <= SMALL {
            self.look_at_copy::<SMALL, R>(index, range, look)
        } else if len <= MEDIUM {
            self.look_at_copy::<MEDIUM, R>(index, range, look)
        } else {
            self.look_at_copy::<LARGE, R>(index, range, look)
        }
    }

    #[inline]
    fn look_at_copy<const MAX: usize, R>(
        &self,
        index: u8,
        range: Range<usize>,
        look: impl FnOnce(&[u8]) -> R,
    ) -> R {
        let mut copy = [0; MAX];
        let copy = &mut copy[..range.len()];
        self.load(index, range.start, copy);
        look(copy)
    }

    /// Copies bytes of a granule, as they are at one moment.
    #[inline]
    pub(crate) fn load(&self, index: u8, at: usize, out: &mut [u8]) {
        self.0[usize::from(index)].0.load(at, out);
    }

    pub(super) fn read(&self, at: usize) -> Shared<'_> {
        self.0[at].0.read()
    }

    /// Several only in ascending nid.
    pub(super) fn hold(&self, granules: Granules) -> Held<'_> {
        let mut held = SmallVec::new();
        for index in granules.iter() {
            held.push((index, self.0[usize::from(index)].0.write_ordered()));
        }
        Held(held)
    }
}

/// Some granules, locked exclusively, in ascending order. An operation rarely changes more than two
/// of a node that is not new.
#[derive(Debug)]
pub(crate) struct Held<'n>(SmallVec<[(u8, Exclusive<'n>); 2]>);

impl<'n> Held<'n> {
    #[inline]
    pub(super) fn get(&self, index: u8) -> &Exclusive<'n> {
        let found = self.0.iter().find(|(held, _)| *held == index);
        &found.expect("the granule is locked by the caller").1
    }

    #[inline]
    pub(super) fn get_mut(&mut self, index: u8) -> &mut Exclusive<'n> {
        let found = self.0.iter_mut().find(|(held, _)| *held == index);
        &mut found.expect("the granule is locked by the caller").1
    }
}
