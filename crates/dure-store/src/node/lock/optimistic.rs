//! Readers write nothing: they copy what they want to see, and look whether somebody wrote it
//! meanwhile. Writers lock only the granules they change.

use std::ops::Range;

use dure_sync::{VersionedLock, VersionedReadGuard, VersionedWriteGuard};

use super::{Granule, Granules, Head};
use crate::format::node::{GRANULES_MAX, NodeKind};
use crate::ranks::GRANULE;

/// What is copied to the stack in small.
const SMALL: usize = 64;
/// No map's or directory's granule is larger.
const MEDIUM: usize = NodeKind::Leaf.payload();
/// No granule at all is larger.
const LARGE: usize = NodeKind::Blob.payload();

/// A granule that nobody changes.
pub(crate) type Shared<'n> = VersionedReadGuard<'n, GRANULE, Head>;
type Alone<'n> = VersionedWriteGuard<'n, GRANULE, Head>;

/// Each granule behind a lock of its own.
#[derive(Debug)]
pub(crate) struct Locked(Box<[Line]>);

/// A lock on a line of its own: who changes a granule writes none that others look at for the next
/// one. Lines are not paired here, since a node has up to eight.
#[derive(Debug)]
#[repr(align(64))]
struct Line(VersionedLock<GRANULE, Head>);

impl Locked {
    pub(super) fn new(granules: impl Iterator<Item = Granule>) -> Locked {
        Locked(
            granules
                .map(|granule| Line(VersionedLock::new(granule.head, granule.payload)))
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
        let mut held = Held([const { None }; GRANULES_MAX]);
        for index in granules.iter() {
            let at = usize::from(index);
            held.0[at] = Some(self.0[at].0.write_ordered());
        }
        held
    }
}

/// Some granules, alone.
#[derive(Debug)]
pub(crate) struct Held<'n>([Option<Alone<'n>>; GRANULES_MAX]);

impl<'n> Held<'n> {
    pub(super) fn get(&self, index: u8) -> &Alone<'n> {
        self.0[usize::from(index)]
            .as_ref()
            .expect("only granules that are held are looked at")
    }

    pub(super) fn get_mut(&mut self, index: u8) -> &mut Alone<'n> {
        self.0[usize::from(index)]
            .as_mut()
            .expect("only granules that are held are changed")
    }
}
