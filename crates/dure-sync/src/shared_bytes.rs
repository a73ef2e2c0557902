//! Memory that several tasks may copy from and into at once.
//!
//! **Problem.** Two tasks that write different parts of a file, or a reader beside a writer, meet
//! in one cached page; a `&mut` to its bytes would need a lock per page. **Structure.** A page that
//! is used in two ways: by its owner as plain memory (`bytes_mut`), and by all who can see it
//! through copies in which each byte is an access of its own, as with a relaxed atomic. On x86-64
//! such a copy is one instruction, as fast as `memcpy` (4 KiB: 71 against 75 ns); copies of atomic
//! words, which serve elsewhere, take 155 ns. **Invariants.** A copy beside another one may mix old
//! and new bytes, nothing worse: who wants it whole takes a lock, such as a range of
//! [`crate::range_lock`]. Copies order nothing. **Crash.** Nothing is kept.

use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;

use crate::PageBox;
use crate::backend::{self, Copying};

/// Bytes on a page boundary.
#[derive(Clone)]
#[repr(C, align(4096))]
pub struct AlignedBytes<const N: usize>(pub [u8; N]);

impl<const N: usize> fmt::Debug for AlignedBytes<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBytes<{N}>({:p})", self.0.as_ptr())
    }
}

/// A page that can be copied from and into through a shared reference; see the module.
pub struct SharedBytes<const N: usize>(PageBox<N>);

// SAFETY: through `&self` the bytes are only touched by copies in which each byte is an atomic
// access.
unsafe impl<const N: usize> Sync for SharedBytes<N> {}

impl<const N: usize> From<PageBox<N>> for SharedBytes<N> {
    fn from(page: PageBox<N>) -> Self {
        Self(page)
    }
}

impl<const N: usize> SharedBytes<N> {
    /// The page.
    #[must_use]
    pub fn into_page(self) -> PageBox<N> {
        self.0
    }

    /// The bytes, for the sole owner.
    #[must_use]
    pub fn bytes_mut(&mut self) -> &mut [u8; N] {
        &mut self.0
    }

    /// Copies what is there from byte `at` on into `out`.
    ///
    /// # Panics
    /// If `out` reaches past the end.
    #[inline]
    pub fn load(&self, at: usize, out: &mut [u8]) {
        let first = part(self.0.as_ptr().cast(), N, at..at + out.len());
        // SAFETY: the part has so many bytes, and they are only reached by copies as long as `self`
        // is shared.
        unsafe { copy_out(first, out) };
    }

    /// Copies `bytes` to byte `at` and following.
    ///
    /// # Panics
    /// If they reach past the end.
    #[inline]
    pub fn store(&self, at: usize, bytes: &[u8]) {
        let first = part(self.0.as_ptr().cast(), N, at..at + bytes.len());
        // SAFETY: the part has so many bytes, and they are only reached by copies as long as `self`
        // is shared.
        unsafe { copy_in(bytes, first) };
    }
}

/// As [`SharedBytes`], of a length that is known when it is made, and anywhere in memory. Nobody
/// may have it for himself: those who look at its bytes as plain memory say why they may.
pub(crate) struct SharedSlice {
    /// From `Box::into_raw`, owned.
    bytes: NonNull<[u8]>,
}

// SAFETY: it owns plain bytes.
unsafe impl Send for SharedSlice {}
// SAFETY: through `&self` the bytes are only touched by copies in which each byte is an atomic
// access, and read as plain memory by callers of `as_slice`, who promise that nobody stores
// meanwhile.
unsafe impl Sync for SharedSlice {}

impl From<Box<[u8]>> for SharedSlice {
    fn from(bytes: Box<[u8]>) -> Self {
        Self {
            bytes: NonNull::from(Box::leak(bytes)),
        }
    }
}

impl SharedSlice {
    /// As [`SharedBytes::load`].
    #[inline]
    pub(crate) fn load(&self, at: usize, out: &mut [u8]) {
        let first = part(
            self.bytes.as_ptr().cast(),
            self.bytes.len(),
            at..at + out.len(),
        );
        // SAFETY: the part has so many bytes; nobody writes them but by copies.
        unsafe { copy_out(first, out) };
    }

    /// As [`SharedBytes::store`].
    #[inline]
    pub(crate) fn store(&self, at: usize, bytes: &[u8]) {
        let first = part(
            self.bytes.as_ptr().cast(),
            self.bytes.len(),
            at..at + bytes.len(),
        );
        // SAFETY: the part has so many bytes; nobody reads them as plain memory meanwhile, as
        // callers of `as_slice` promise.
        unsafe { copy_in(bytes, first) };
    }

    /// The bytes.
    ///
    /// # Safety
    /// Nobody stores as long as the slice is used.
    #[inline]
    pub(crate) unsafe fn as_slice(&self) -> &[u8] {
        // SAFETY: the bytes are owned, and the caller promises that nobody writes them.
        unsafe { self.bytes.as_ref() }
    }
}

impl Drop for SharedSlice {
    fn drop(&mut self) {
        // SAFETY: `bytes` was leaked by `from`.
        drop(unsafe { Box::from_raw(self.bytes.as_ptr()) });
    }
}

impl fmt::Debug for SharedSlice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedSlice({:p}, {})", self.bytes, self.bytes.len())
    }
}

/// The first byte of a part of a box of `len` bytes.
#[inline]
fn part(bytes: *mut u8, len: usize, part: Range<usize>) -> *mut u8 {
    assert!(
        part.start <= part.end && part.end <= len,
        "bytes {part:?} of a box of {len}"
    );
    // In bounds, as was just checked.
    bytes.wrapping_add(part.start)
}

/// Copies `out.len()` bytes from `first` on.
///
/// # Safety
/// They may be read, and nobody writes them but by copies of this module.
#[inline]
unsafe fn copy_out(first: *const u8, out: &mut [u8]) {
    let mut done = 0;
    while done < out.len() {
        let from = first.wrapping_add(done);
        let len = backend::before_copy(Copying::Out, from.addr(), out.len() - done);
        let to = out[done..done + len].as_mut_ptr();
        // SAFETY: both have `len` bytes; the target is nobody else's, so they do not overlap.
        unsafe { copy(from, to, len) };
        done += len;
    }
}

/// Copies `bytes` to `first` and following.
///
/// # Safety
/// These may be written, and nobody else touches them but by copies of this module.
#[inline]
unsafe fn copy_in(bytes: &[u8], first: *mut u8) {
    let mut done = 0;
    while done < bytes.len() {
        let to = first.wrapping_add(done);
        let len = backend::before_copy(Copying::In, to.addr(), bytes.len() - done);
        let from = bytes[done..done + len].as_ptr();
        // SAFETY: both have `len` bytes; the source is plain memory of somebody else, so they do
        // not overlap.
        unsafe { copy(from, to, len) };
        done += len;
    }
}

impl<const N: usize> fmt::Debug for SharedBytes<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedBytes<{N}>({:p})", self.0.as_ptr())
    }
}

/// Copies bytes that others may copy from or into meanwhile.
///
/// # Safety
/// `from` may be read and `to` written for `len` bytes, and they do not overlap. Others access
/// these bytes only by such copies, or not at all.
#[inline]
#[cfg(all(target_arch = "x86_64", not(miri)))]
unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    // JUSTIFICATION: an instruction of the machine is no access of the language, so it cannot race
    // with another one; `copy_nonoverlapping` could. As fast as that, twice as fast as atomic
    // words. SAFETY: the caller promises what the instruction needs; the direction flag is clear in
    // Rust.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rcx") len => _,
            inout("rsi") from => _,
            inout("rdi") to => _,
            options(nostack, preserves_flags)
        );
    }
}

/// Copies bytes that others may copy from or into meanwhile.
///
/// # Safety
/// `from` may be read and `to` written for `len` bytes, and they do not overlap. Others access
/// these bytes only by such copies, or not at all.
#[cfg(any(not(target_arch = "x86_64"), miri))]
unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
    const WORD: usize = size_of::<u64>();
    // Words where both sides allow it, single bytes elsewhere.
    let words = from.addr().is_multiple_of(WORD) && to.addr().is_multiple_of(WORD);
    let whole = if words { len / WORD } else { 0 };
    for n in 0..whole {
        // SAFETY: within the source, and aligned; the caller's source is never written by plain
        // accesses meanwhile.
        let word = unsafe { &*from.cast::<AtomicU64>().add(n) };
        // SAFETY: the same of the target.
        let place = unsafe { &*to.cast::<AtomicU64>().add(n) };
        // Relaxed: copies order nothing.
        place.store(word.load(Ordering::Relaxed), Ordering::Relaxed);
    }
    for n in whole * WORD..len {
        // SAFETY: as above.
        let byte = unsafe { &*from.cast::<AtomicU8>().add(n) };
        // SAFETY: as above.
        let place = unsafe { &*to.cast::<AtomicU8>().add(n) };
        // Relaxed: as above.
        place.store(byte.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

#[cfg(all(test, not(dure_backend = "loom")))]
mod tests {
    use super::*;
    use crate::thread;

    fn filled(byte: u8) -> SharedBytes<4096> {
        let mut page = PageBox::zeroed();
        page.fill(byte);
        SharedBytes::from(page)
    }

    #[test]
    fn copies_go_where_they_should() {
        let mut page = filled(1);
        page.store(4000, &[2; 96]);
        page.store(0, &[3; 5]);
        page.store(17, &[]);
        let mut out = [9; 10];
        page.load(0, &mut out);
        assert_eq!(out, [3, 3, 3, 3, 3, 1, 1, 1, 1, 1]);
        page.load(4090, &mut out[..6]);
        assert_eq!(out, [2, 2, 2, 2, 2, 2, 1, 1, 1, 1]);
        assert_eq!(page.bytes_mut()[3999..4001], [1, 2]);
        assert_eq!(page.into_page()[4095], 2);
    }

    #[test]
    #[should_panic(expected = "of a box of 4096")]
    fn a_copy_past_the_end_is_refused() {
        filled(0).store(4095, &[1, 2]);
    }

    #[test]
    fn a_copy_beside_another_has_bytes_of_both() {
        let page = filled(1);
        thread::scope(|scope| {
            scope.spawn(|| (0..2000).for_each(|_| page.store(0, &[2; 4096])));
            let mut out = [0; 4096];
            for _ in 0..2000 {
                page.load(0, &mut out);
                assert!(out.iter().all(|byte| [1, 2].contains(byte)));
            }
        });
    }
}
