//! The allocator of `dure`, made repeatable.
//!
//! **Problem.** mimalloc clears memory that is asked for zeroed, unless it knows that it is. That
//! depends on what was freed before: a row's background changed by 1.7 million instructions from
//! build to build. **Structure.** [`Repeatable`] is mimalloc, but clears always. **Invariants.** As
//! [`GlobalAlloc`] wants them. **On a crash** nothing remains.

use std::alloc::{GlobalAlloc, Layout};

use mimalloc::MiMalloc;

/// mimalloc without its knowledge of zeroed pages.
pub(crate) struct Repeatable;

// SAFETY: all calls go to mimalloc, with the arguments as they come.
unsafe impl GlobalAlloc for Repeatable {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's.
        unsafe { MiMalloc.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's; the memory came from `alloc` or `realloc` above.
        unsafe { MiMalloc.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: as in `dealloc`.
        unsafe { MiMalloc.realloc(ptr, layout, new_size) }
    }

    // `alloc_zeroed` is that of the trait: `alloc`, and clear.
}
