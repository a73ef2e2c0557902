//! A page that one task drops and another takes.

use std::mem::ManuallyDrop;

use dure_sync::{Arc, PageBox, PageSlabs, thread};
use loom::cell::UnsafeCell;

use super::{BOTH, check};

/// What the pages of the first slab hold, in a form that loom watches.
struct Shadows([UnsafeCell<u32>; 16]);

// SAFETY: loom watches that accesses to the cells are ordered; that is what the model is about.
unsafe impl Sync for Shadows {}

impl Shadows {
    fn change(&self, page: &PageBox<4096>) {
        let n = page.as_ptr().addr() / 4096 % 16;
        self.0[n].with_mut(|value| {
            // SAFETY: as above.
            unsafe { *value += 1 };
        });
    }
}

/// The taker holds all pages of the slab but the one the other drops: it gets that one, after the
/// other has finished with it, or one of another slab. (Nothing is dropped on the way: when the
/// model fails, a drop would touch loom's atomics while it unwinds.)
fn dropped_page_is_taken() {
    let shadows = Arc::new(Shadows(std::array::from_fn(|_| UnsafeCell::new(0))));
    let mut slabs = ManuallyDrop::new(PageSlabs::<4096>::default());
    let page = ManuallyDrop::new(slabs.take());
    let kept: Vec<_> = (0..14).map(|_| ManuallyDrop::new(slabs.take())).collect();
    shadows.change(&page);
    let address = page.as_ptr().addr();
    let others = Arc::clone(&shadows);
    let other = thread::spawn("other", move || {
        others.change(&page);
        drop(ManuallyDrop::into_inner(page));
    });
    let again = ManuallyDrop::new(slabs.take());
    if again.as_ptr().addr() == address {
        shadows.change(&again);
    }
    other.join().expect("it does not panic");
    kept.into_iter()
        .chain([again])
        .map(ManuallyDrop::into_inner)
        .for_each(drop);
    drop(ManuallyDrop::into_inner(slabs));
}

#[test]
fn page_is_over_before_it_is_taken_again() {
    check(dropped_page_is_taken, BOTH);
}
