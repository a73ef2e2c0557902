//! The slots of a per-core reference count.

use dure_sync::atomic::{AtomicBool, AtomicU32, Ordering};
use dure_sync::{Arc, Counted, PerCoreCounted, PerCoreRef, PerCoreRefs, Weaken, thread};

use super::{BOTH, Watched, canaries, explore_with};

/// An object that is deleted when its last reference has ended.
struct Object {
    count: AtomicU32,
    per_core: PerCoreRefs<Object>,
    /// It opens no slot any more.
    gone: AtomicBool,
    /// Read through references, written by the deletion.
    content: Watched,
    deleted: AtomicU32,
}

impl PerCoreCounted for Object {
    fn per_core(&self) -> &PerCoreRefs<Object> {
        &self.per_core
    }

    fn ended(this: &Arc<Object>) {
        // AcqRel: who deletes comes after all uses.
        if this.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            // SAFETY: loom checks that nobody else accesses the cell meanwhile.
            this.content.0.with_mut(|value| unsafe { *value += 1 });
            assert_eq!(this.deleted.fetch_add(1, Ordering::Relaxed), 0, "once");
        }
    }
}

/// The object, and the reference of the one who made it.
fn made() -> (Arc<Object>, Counted<Object>) {
    let object = Arc::new(Object {
        count: AtomicU32::new(1),
        per_core: PerCoreRefs::default(),
        gone: AtomicBool::new(false),
        content: Watched(loom::cell::UnsafeCell::new(0)),
        deleted: AtomicU32::new(0),
    });
    (Arc::clone(&object), Counted::new(object))
}

fn look(object: &Object) {
    // SAFETY: loom checks that nobody writes the cell meanwhile.
    object
        .content
        .0
        .with(|value| assert_eq!(unsafe { *value }, 0));
}

/// A reference of this core's slot, opened if need be. The caller has a reference.
fn reference(object: &Arc<Object>) -> Option<PerCoreRef<Object>> {
    object.per_core.borrow().or_else(|| {
        object.per_core.open(|| {
            object.count.fetch_add(1, Ordering::Relaxed);
            Counted::new(Arc::clone(object))
        })
    })
}

/// Two borrow; the third closes while they come and go. All references gone: the object is deleted,
/// once.
fn closed_beside_borrowers() {
    let (object, own) = made();
    drop(reference(&object));
    let borrowers = [0, 1].map(|_| {
        let object = Arc::clone(&object);
        thread::spawn("borrower", move || {
            if let Some(found) = object.per_core.borrow() {
                look(&found);
            }
        })
    });
    object.per_core.close(drop);
    drop(own);
    borrowers.into_iter().for_each(|one| one.join().unwrap());
    assert_eq!(object.count.load(Ordering::Acquire), 0);
    assert_eq!(object.deleted.load(Ordering::Relaxed), 1);
}

#[test]
fn a_closed_slot_gives_its_reference_back_once() {
    explore_with(3, closed_beside_borrowers);
    canaries(|| explore_with(3, closed_beside_borrowers), BOTH);
}

/// A slot is filled, emptied and filled again beside others who borrow from it.
fn opened_again() {
    let (object, own) = made();
    let first = reference(&object).unwrap();
    let other = Arc::clone(&object);
    let borrower = thread::spawn("borrower", move || {
        if let Some(found) = other.per_core.borrow() {
            look(&found);
        }
    });
    let theirs = Arc::clone(&object);
    let closer = thread::spawn("closer", move || theirs.per_core.close(drop));
    look(&first);
    drop(first);
    if let Some(found) = reference(&object) {
        look(&found);
    }
    closer.join().unwrap();
    borrower.join().unwrap();
    assert_eq!(object.deleted.load(Ordering::Relaxed), 0);
    object.per_core.close(drop);
    look(&own);
    drop(own);
    assert_eq!(object.deleted.load(Ordering::Relaxed), 1);
}

#[test]
fn a_slot_can_be_opened_again() {
    explore_with(2, opened_again);
    canaries(|| explore_with(2, opened_again), &[Weaken::Acquire]);
}

/// Two open the same slot.
fn opened_by_two() {
    let (object, own) = made();
    object.count.fetch_add(1, Ordering::Relaxed);
    let theirs = Counted::new(Arc::clone(&object));
    let other = thread::spawn("other", move || {
        if let Some(found) = reference(&theirs) {
            look(&found);
        }
        drop(theirs);
    });
    if let Some(found) = reference(&object) {
        look(&found);
    }
    drop(own);
    other.join().unwrap();
    assert_eq!(object.deleted.load(Ordering::Relaxed), 0, "a slot is open");
    object.per_core.close(drop);
    assert_eq!(object.deleted.load(Ordering::Relaxed), 1);
}

#[test]
fn a_slot_is_filled_by_one() {
    explore_with(3, opened_by_two);
    canaries(|| explore_with(3, opened_by_two), BOTH);
}

/// One opens a slot while the other sees to it that the object opens none any more: no slot stays open.
fn opened_beside_the_end() {
    let (object, own) = made();
    object.count.fetch_add(1, Ordering::Relaxed);
    let theirs = Counted::new(Arc::clone(&object));
    let opener = thread::spawn("opener", move || {
        // Relaxed: the fences of the count order it.
        let may_open = || !theirs.gone.load(Ordering::Relaxed);
        let found = theirs.per_core.open_while(may_open, || {
            theirs.count.fetch_add(1, Ordering::Relaxed);
            Counted::new(Arc::clone(&theirs))
        });
        if let Some(found) = found {
            look(&found);
        }
        drop(theirs);
    });
    object.gone.store(true, Ordering::Relaxed);
    object.per_core.shut(drop);
    drop(own);
    opener.join().unwrap();
    assert_eq!(object.deleted.load(Ordering::Relaxed), 1, "no slot is open");
}

#[test]
fn a_slot_does_not_stay_open_behind_the_end() {
    explore_with(3, opened_beside_the_end);
    canaries(
        || explore_with(3, opened_beside_the_end),
        &[Weaken::Acquire, Weaken::Release, Weaken::SeqCst],
    );
}
