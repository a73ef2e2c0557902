//! An allocator that keeps runs repeatable.
//!
//! **Problem.** Cache lines are found from addresses. If two small objects share a line in one run
//! and not in the next, two runs of one seed get different times; so they do if reused memory keeps
//! the line state of its former user. **Structure.** Every block begins on a line of its own, and
//! freeing it clears the state of its lines in the running simulation. **Invariants.** No two
//! blocks share a line. **Crash.** Nothing is kept.

use std::alloc::{GlobalAlloc, Layout, System};

use crate::current;

/// An allocator, with each block on cache lines of its own. For `#[global_allocator]` in programs
/// that simulate.
#[derive(Debug, Default, Clone, Copy)]
pub struct LineAllocator<A = System>(pub A);

fn whole_lines(layout: Layout) -> Option<Layout> {
    layout.align_to(64).ok().map(|layout| layout.pad_to_align())
}

// SAFETY: blocks come from the inner allocator with a layout at least as large and aligned as
// asked; `whole_lines` is a pure function, so freeing uses the layout of allocating.
unsafe impl<A: GlobalAlloc> GlobalAlloc for LineAllocator<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some(layout) = whole_lines(layout) else {
            return std::ptr::null_mut();
        };
        // SAFETY: the layout's size is not zero, as the caller promises for the smaller one.
        let block = unsafe { self.0.alloc(layout) };
        current::allocated(block.addr(), layout.size());
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let layout = whole_lines(layout).expect("it was allocated with this layout");
        current::forget(block.addr(), layout.size());
        // SAFETY: the block was allocated above with the same rounded layout.
        unsafe { self.0.dealloc(block, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let Some(layout) = whole_lines(layout) else {
            return std::ptr::null_mut();
        };
        // SAFETY: the layout's size is not zero, as the caller promises for the smaller one.
        let block = unsafe { self.0.alloc_zeroed(layout) };
        current::allocated(block.addr(), layout.size());
        block
    }
}
