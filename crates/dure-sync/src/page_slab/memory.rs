//! Where slabs come from: small ones from the allocator, large ones from the kernel.
//!
//! **Problem.** A large slab should be one huge page, and must not be cleared twice. **Structure.**
//! An anonymous mapping of twice its size, of which only the aligned half is kept. **Invariants.**
//! Memory is zero, and lies on a multiple of its size. **Crash.** Nothing is kept.

use std::alloc::{self, Layout};
use std::ptr::NonNull;

/// Memory of this many bytes and more is mapped: a huge page of x86-64.
const MAPPED_MIN: usize = 2 << 20;

/// `layout.size()` zeroes, aligned to their size.
pub(super) fn allocate(layout: Layout) -> NonNull<u8> {
    let memory = if is_mapped(layout) {
        map(layout.size())
    } else {
        // SAFETY: the layout is not empty.
        NonNull::new(unsafe { alloc::alloc_zeroed(layout) })
    };
    memory.unwrap_or_else(|| alloc::handle_alloc_error(layout))
}

/// Frees memory.
///
/// # Safety
/// It comes from [`allocate`] with this layout, and is not used any more.
pub(super) unsafe fn free(memory: NonNull<u8>, layout: Layout) {
    if is_mapped(layout) {
        // The kernel joins neighbouring mappings, and may refuse to cut one in two once the process
        // has very many: then the memory stays, which harms less than a panic. SAFETY: the mapping
        // is the caller's, and is not used any more.
        let _: rustix::io::Result<()> =
            unsafe { rustix::mm::munmap(memory.as_ptr().cast(), layout.size()) };
    } else {
        // SAFETY: the caller promises that it was allocated with this layout.
        unsafe { alloc::dealloc(memory.as_ptr(), layout) };
    }
}

/// Miri maps nothing.
fn is_mapped(layout: Layout) -> bool {
    layout.size() >= MAPPED_MIN && !cfg!(miri)
}

fn map(bytes: usize) -> Option<NonNull<u8>> {
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice changes no memory that is in use.
    let whole =
        unsafe { mmap_anonymous(std::ptr::null_mut(), 2 * bytes, access, MapFlags::PRIVATE).ok()? };
    let before = whole.addr().next_multiple_of(bytes) - whole.addr();
    let memory = whole.wrapping_byte_add(before);
    if before > 0 {
        // SAFETY: this part of the new mapping is not used. If the kernel refuses, it stays as
        // address space without memory.
        let _: rustix::io::Result<()> = unsafe { munmap(whole, before) };
    }
    if before < bytes {
        // SAFETY: as above.
        let _: rustix::io::Result<()> =
            unsafe { munmap(memory.wrapping_byte_add(bytes), bytes - before) };
    }
    // The kernel may decline.
    // SAFETY: the advice changes nothing about what the memory holds.
    let _: rustix::io::Result<()> = unsafe { madvise(memory, bytes, Advice::LinuxHugepage) };
    NonNull::new(memory.cast())
}
