//! Pins: references to an inode.
//!
//! **Problem.** A path ends in a pin of its last directory, and every open file is one. Pins that
//! many cores take of one inode must not contend for one count, and yet the last pin of an inode
//! without a name deletes it.
//!
//! **Structure.** [`Pins`] counts. Once cores have contended for the count, each core counts
//! references in a slot of its own (`dure_sync::PerCoreRefs`), which holds one pin of the count.
//!
//! **Invariants.** The count rises from 0, and slots are opened, only under the lock of the inode's
//! shard: hence a claim under that lock, exclusive, is final. An open slot keeps the inode. So a
//! task that must know whether the inode is used first closes the slots, and holds a pin in the
//! count itself, since a per-core reference looks like the others of its slot. The slots of an
//! inode without a name stay closed, and its last pin to go brings the count to 0.
//!
//! **On a crash** the orphan slots name the inodes without a name.

use std::ops::Deref;

use dure_store::error::{Error, Result};
use dure_store::format::name::FileKind;
use dure_store::units::Ino;
use dure_sync::atomic::{AtomicBool, AtomicU32, Ordering};
use dure_sync::{Arc, Counted, PerCoreCounted, PerCoreRef, PerCoreRefs};

use super::{Above, Inode, InodeId, Inodes};

/// The uses of an inode, and what is read when it is pinned: nothing here changes when its state
/// does, so that pins share no line with changes.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Pins {
    count: AtomicU32,
    per_core: PerCoreRefs<Inode>,
    /// The link count is 0. Written by the holder of the inode's state or attributes; read by the
    /// task that drops the last pin.
    unlinked: AtomicBool,
    /// Claimed for deletion: no task can pin it any more. Written under the shard's lock,
    /// exclusive.
    pub(super) dying: AtomicBool,
    /// CLOCK reference bit.
    pub(super) referenced: AtomicBool,
    /// Tasks have contended for changes of this directory's entries: from then on such changes hold
    /// it shared.
    pub(super) contended: AtomicBool,
}

impl Pins {
    /// One pin, the caller's.
    pub(super) fn one(unlinked: bool) -> Pins {
        Pins {
            count: AtomicU32::new(1),
            per_core: PerCoreRefs::default(),
            unlinked: AtomicBool::new(unlinked),
            dying: AtomicBool::new(false),
            referenced: AtomicBool::new(false),
            contended: AtomicBool::new(false),
        }
    }

    /// Whether the link count is 0. The caller has claimed the inode for deletion, or is inserting
    /// it: no task changes the count concurrently.
    pub(super) fn is_unlinked(&self) -> bool {
        // Relaxed: the shard's lock orders a claim after the change, and a new inode is private.
        self.unlinked.load(Ordering::Relaxed)
    }
}

impl PerCoreCounted for Inode {
    fn per_core(&self) -> &PerCoreRefs<Inode> {
        &self.pins.per_core
    }

    fn ended(this: &Arc<Inode>) {
        if this.unpin() {
            this.unpinned(this.state().above());
        }
    }
}

impl Inode {
    /// Pins the inode. The caller holds its shard's lock.
    pub(super) fn pin(this: &Arc<Inode>) -> Result<InodeRef> {
        // Acquire: pairs with the Release in `claim`.
        if this.pins.dying.load(Ordering::Acquire) {
            return Err(Error::NotFound);
        }
        // Relaxed: a hint. Load first, so that a hot inode's line stays shared where it can.
        if !this.pins.referenced.load(Ordering::Relaxed) {
            this.pins.referenced.store(true, Ordering::Relaxed);
        }
        let slots = &this.pins.per_core;
        let per_core = slots.borrow().or_else(|| {
            // Acquire: pairs with the Release in `set_unlinked`, which then waits for the shard's
            // lock.
            let may_open = slots.is_wanted() && !this.pins.unlinked.load(Ordering::Acquire);
            may_open
                .then(|| slots.open(|| Inode::counted(this)))
                .flatten()
        });
        Ok(match per_core {
            Some(reference) => InodeRef::new(this.id(), Pin::PerCore(reference)),
            None => InodeRef::new(this.id(), Pin::Counted(Inode::counted(this))),
        })
    }

    /// Adds a pin to the count. The caller has one, or holds the shard's lock.
    fn counted(this: &Arc<Inode>) -> Counted<Inode> {
        // Relaxed: a pin exists, so that the count cannot reach 0 meanwhile, or the shard's lock
        // orders it against a claim.
        let before = this.pins.count.fetch_add(1, Ordering::Relaxed);
        assert!(before < u32::MAX, "2^32 pins of one inode");
        Counted::new(this.clone())
    }

    /// Takes a pin from the count. Returns whether it was the last.
    fn unpin(&self) -> bool {
        // AcqRel: the last one sees `unlinked` as stored by any task that dropped a pin before it.
        let before = self.pins.count.fetch_sub(1, Ordering::AcqRel);
        assert!(before > 0, "a pin is dropped that was not taken");
        before == 1
    }

    /// The last pin is gone.
    fn unpinned(&self, above: &dyn Above) {
        // Acquire: pairs with the Release in `claim`, and below with that in `set_unlinked`.
        if self.pins.dying.load(Ordering::Acquire) {
            return;
        }
        let unlinked = self.pins.unlinked.load(Ordering::Acquire);
        if unlinked {
            above.delete_unpinned(self);
        } else if self.access_time().is_pending() {
            above.relieve_inodes();
        }
    }

    /// Whether the count is above `pins`. Final for the exclusive holder of the shard's lock; else
    /// only a hint.
    pub(super) fn has_more_pins(&self, pins: u32) -> bool {
        // Acquire: pairs with the unpin of the last user.
        self.pins.count.load(Ordering::Acquire) > pins
    }

    /// Closes the slots. The caller holds the shard's lock exclusively and does not use the inode.
    pub(super) fn close_slots(&self) {
        self.pins.per_core.close(|pin| {
            // Nothing to delete here: of an inode without a name the slots are closed, or the task
            // that is about to close them has a pin.
            let inode = pin.into_object();
            let last = inode.unpin();
            // Acquire: as in `unpinned`.
            assert!(
                !last || !inode.pins.unlinked.load(Ordering::Acquire),
                "a name"
            );
        });
    }

    /// Whether a slot is open. Only a hint.
    pub(super) fn has_open_slots(&self) -> bool {
        self.pins.per_core.has_open_slots()
    }

    /// Sets or clears whether dropping the last pin deletes the inode. The caller holds the number
    /// of names exclusively (the inode's state or its attributes), and a pin.
    pub(crate) fn set_unlinked(&self, inodes: &Inodes, unlinked: bool) {
        // Relaxed: only the exclusive holder of the number of names changes it. Unchanged, it is
        // not written: other cores read the line.
        if self.pins.unlinked.load(Ordering::Relaxed) == unlinked {
            return;
        }
        // Release: pairs with the Acquire in `unpinned` and `pin`; the caller drops its own pin
        // later.
        self.pins.unlinked.store(unlinked, Ordering::Release);
        inodes.cache.name_changed(unlinked);
        if unlinked {
            // A task that read the old value opens its slot before this gets the lock; no slot is
            // opened afterwards.
            inodes.cache.wait_for_pins(self);
            // The caller's pin is in the count, or keeps its slot's there: none that is dropped
            // here is the last.
            self.pins.per_core.close(drop);
        }
    }
}

/// A use of an inode: as long as one exists, the inode stays, even without a name. The last one to
/// go deletes an inode without a name.
#[derive(Debug)]
pub struct InodeRef {
    pin: Pin,
    /// Stored next to the reference, so that reading it does not touch the inode's lines.
    id: InodeId,
}

/// How it is counted.
#[derive(Debug)]
enum Pin {
    Counted(Counted<Inode>),
    PerCore(PerCoreRef<Inode>),
}

impl InodeRef {
    fn new(id: InodeId, pin: Pin) -> InodeRef {
        InodeRef { pin, id }
    }

    /// Takes over a pin that was counted already.
    pub(crate) fn from_pinned(inode: Arc<Inode>) -> InodeRef {
        debug_assert!(inode.has_more_pins(0), "a pin that is not counted");
        InodeRef::new(inode.id(), Pin::Counted(Counted::new(inode)))
    }

    /// The inode.
    #[inline]
    pub(crate) fn inode(&self) -> &Arc<Inode> {
        match &self.pin {
            Pin::Counted(pin) => pin,
            Pin::PerCore(pin) => pin,
        }
    }

    /// Which inode it is, without keeping it.
    #[must_use]
    pub fn id(&self) -> InodeId {
        self.id
    }

    /// Drops it where no operation may begin, because a checkpoint runs. If it was the last use of
    /// an inode without a name, the next mount deletes that.
    pub(crate) fn leave(self) {
        let inode = Inode::counted(self.inode());
        // Neither this pin nor one that a slot gives back with it is the last.
        drop(self);
        let inode = inode.into_object();
        // Acquire: as in `unpinned`.
        if inode.unpin() && inode.pins.unlinked.load(Ordering::Acquire) {
            inode.state().above().leave_deletion(&inode);
        }
    }

    /// This use, with a pin of its own: the count does not tell references of one slot apart.
    fn into_counted(self) -> InodeRef {
        let pin = Inode::counted(self.inode());
        // What `self` had goes back now, and is not the last pin.
        InodeRef::new(self.id, Pin::Counted(pin))
    }

    /// Drops it for a caller that has what is above the inodes, so that the end of the pin needs no
    /// reference to it.
    fn release(self, above: &dyn Above) {
        let pin = match self.pin {
            Pin::Counted(pin) => Some(pin),
            Pin::PerCore(reference) => reference.end(),
        };
        if let Some(pin) = pin {
            let inode = pin.into_object();
            if inode.unpin() {
                inode.unpinned(above);
            }
        }
    }

    /// Whether no name leads to it: its last use deletes it.
    #[must_use]
    pub fn is_unlinked(&self) -> bool {
        // Relaxed: the task that made the change has returned before the caller asks about it.
        self.inode().pins.unlinked.load(Ordering::Relaxed)
    }

    /// Its number.
    #[must_use]
    pub fn ino(&self) -> Ino {
        self.id.ino()
    }

    /// Its type.
    #[must_use]
    pub fn kind(&self) -> FileKind {
        self.id.kind()
    }

    /// Generation of the inode number.
    #[must_use]
    pub fn generation(&self) -> u32 {
        self.id.generation()
    }
}

impl Clone for InodeRef {
    fn clone(&self) -> InodeRef {
        let inode = self.inode();
        let pin = match inode.pins.per_core.borrow() {
            Some(reference) => Pin::PerCore(reference),
            None => Pin::Counted(Inode::counted(inode)),
        };
        InodeRef::new(self.id, pin)
    }
}

/// A pin whose user has what is above the inodes when it drops it.
#[derive(Debug)]
pub(crate) struct LocalRef<'v> {
    /// `None` only while it is dropped.
    pin: Option<InodeRef>,
    inodes: &'v Inodes,
    above: &'v dyn Above,
}

impl<'v> LocalRef<'v> {
    pub(crate) fn new(pin: InodeRef, inodes: &'v Inodes, above: &'v dyn Above) -> LocalRef<'v> {
        let pin = Some(pin);
        LocalRef { pin, inodes, above }
    }

    /// The pin, for a caller that releases it itself.
    pub(crate) fn keep(mut self) -> InodeRef {
        self.pin
            .take()
            .expect("a reference has its pin until it is dropped")
    }

    /// Whether other tasks use the inode. The caller holds no lock of a shard. Only a hint.
    pub(crate) fn is_shared(&mut self) -> bool {
        self.pin = self.pin.take().map(InodeRef::into_counted);
        let inode = self.inode();
        if inode.has_more_pins(1) {
            // Pins that only unused slots hold are not uses.
            inode.pins.per_core.close(drop);
        }
        inode.has_more_pins(1)
    }

    /// Claims the inode for deletion if no other task uses it. The caller asks
    /// [`LocalRef::is_shared`] first, else the claim may fail without need. After it no task can
    /// pin the inode, and the caller must free it.
    pub(crate) fn claim(&self) -> bool {
        matches!(
            self.pin,
            Some(InodeRef {
                pin: Pin::Counted(_),
                ..
            })
        ) && self.inodes.cache.claim(self.inode(), 1)
    }
}

impl Deref for LocalRef<'_> {
    type Target = InodeRef;

    fn deref(&self) -> &InodeRef {
        self.pin
            .as_ref()
            .expect("a reference has its pin until it is dropped")
    }
}

impl Drop for LocalRef<'_> {
    fn drop(&mut self) {
        if let Some(pin) = self.pin.take() {
            pin.release(self.above);
        }
    }
}
