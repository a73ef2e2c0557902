//! Memory that several tasks may copy from and into at once.
//!
//! **Problem.** Two tasks that write different parts of a file, or a reader concurrent with a
//! writer, access one cached page; a `&mut` to its bytes would need a lock per page. **Structure.**
//! A page is used in two ways: by its sole owner as plain memory (`bytes_mut`), and by all that
//! share it through copies in which each byte is an access of its own, as with a relaxed atomic. On
//! x86-64 such a copy consists of machine instructions, as fast as `memcpy` (4 KiB: 71 against 75
//! ns); other targets copy atomic words, which take 155 ns. **Invariants.** A copy that races with
//! another may mix old and new bytes, nothing worse: a caller that needs a whole one takes a lock,
//! such as a range of [`crate::range_lock`]. Copies order nothing. **Crash.** Nothing is kept.

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
pub struct AtomicBytes<const N: usize>(PageBox<N>);

// SAFETY: through `&self` the bytes are only touched by copies in which each byte is an atomic
// access.
unsafe impl<const N: usize> Sync for AtomicBytes<N> {}

impl<const N: usize> From<PageBox<N>> for AtomicBytes<N> {
    fn from(page: PageBox<N>) -> Self {
        Self(page)
    }
}

impl<const N: usize> AtomicBytes<N> {
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

    /// Copies the bytes from `at` on into `out`.
    #[inline]
    pub fn load(&self, at: usize, out: &mut [u8]) {
        let first = part(self.0.as_ptr().cast(), N, at..at + out.len());
        // SAFETY: the part has so many bytes, and they are only accessed by copies while `self` is
        // shared.
        unsafe { copy_out(first, out) };
    }

    /// Copies `bytes` to `at` and following.
    #[inline]
    pub fn store(&self, at: usize, bytes: &[u8]) {
        let first = part(self.0.as_ptr().cast(), N, at..at + bytes.len());
        // SAFETY: the part has so many bytes, and they are only accessed by copies while `self` is
        // shared.
        unsafe { copy_in(bytes, first) };
    }
}

/// Like [`AtomicBytes`], but of a length set at run time, and of any alignment. It has no
/// `bytes_mut`: callers that read its bytes as plain memory state why they may.
pub(crate) struct AtomicSlice {
    /// From `Box::into_raw`, owned.
    bytes: NonNull<[u8]>,
}

// SAFETY: it owns plain bytes.
unsafe impl Send for AtomicSlice {}
// SAFETY: through `&self` the bytes are only touched by copies in which each byte is an atomic
// access, and read as plain memory by callers of `as_slice`, which promise that no task stores
// meanwhile.
unsafe impl Sync for AtomicSlice {}

impl From<Box<[u8]>> for AtomicSlice {
    fn from(bytes: Box<[u8]>) -> Self {
        Self {
            bytes: NonNull::from(Box::leak(bytes)),
        }
    }
}

impl AtomicSlice {
    /// Like [`AtomicBytes::load`].
    #[inline]
    pub(crate) fn load(&self, at: usize, out: &mut [u8]) {
        let first = part(
            self.bytes.as_ptr().cast(),
            self.bytes.len(),
            at..at + out.len(),
        );
        // SAFETY: the part has so many bytes; they are written only by copies.
        unsafe { copy_out(first, out) };
    }

    /// Like [`AtomicBytes::store`].
    #[inline]
    pub(crate) fn store(&self, at: usize, bytes: &[u8]) {
        let first = part(
            self.bytes.as_ptr().cast(),
            self.bytes.len(),
            at..at + bytes.len(),
        );
        // SAFETY: the part has so many bytes; no task reads them as plain memory meanwhile, as
        // callers of `as_slice` promise.
        unsafe { copy_in(bytes, first) };
    }

    /// The bytes.
    ///
    /// # Safety
    /// No task stores as long as the slice is used.
    #[inline]
    pub(crate) unsafe fn as_slice(&self) -> &[u8] {
        // SAFETY: the bytes are owned, and the caller promises that no task writes them.
        unsafe { self.bytes.as_ref() }
    }
}

impl Drop for AtomicSlice {
    fn drop(&mut self) {
        // SAFETY: `bytes` was leaked by `from`.
        drop(unsafe { Box::from_raw(self.bytes.as_ptr()) });
    }
}

impl fmt::Debug for AtomicSlice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AtomicSlice({:p}, {})", self.bytes, self.bytes.len())
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
/// The bytes may be read, and are written only by copies of this module.
#[inline]
unsafe fn copy_out(first: *const u8, out: &mut [u8]) {
    let mut done = 0;
    while done < out.len() {
        let from = first.wrapping_add(done);
        let len = backend::before_copy(Copying::Out, from.addr(), out.len() - done);
        let to = out[done..done + len].as_mut_ptr();
        // SAFETY: both have `len` bytes; the target is borrowed exclusively, so they do not
        // overlap.
        unsafe { copy(from, to, len) };
        done += len;
    }
}

/// Copies `bytes` to `first` and following.
///
/// # Safety
/// The target may be written, and is accessed only by copies of this module.
#[inline]
unsafe fn copy_in(bytes: &[u8], first: *mut u8) {
    let mut done = 0;
    while done < bytes.len() {
        let to = first.wrapping_add(done);
        let len = backend::before_copy(Copying::In, to.addr(), bytes.len() - done);
        let from = bytes[done..done + len].as_ptr();
        // SAFETY: both have `len` bytes; the source is a plain slice, which the target cannot be
        // part of, so they do not overlap.
        unsafe { copy(from, to, len) };
        done += len;
    }
}

impl<const N: usize> fmt::Debug for AtomicBytes<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AtomicBytes<{N}>({:p})", self.0.as_ptr())
    }
}

/// From this length on one instruction copies all bytes. By registers and by it, on an Intel Xeon:
/// 496 bytes take 21 and 33 ns, 1 KiB 35 and 35, 4 KiB 109 and 67.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const LONG: usize = 1024;

/// Copies bytes that other tasks may copy from or into concurrently.
///
/// # Safety
/// `from` may be read and `to` written for `len` bytes, and they do not overlap. Other tasks access
/// these bytes only by such copies, or not at all.
#[inline]
#[cfg(all(target_arch = "x86_64", not(miri)))]
unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    // JUSTIFICATION: a machine instruction is not an access in the language's memory model, so it
    // cannot be a data race; `copy_nonoverlapping` could.
    if len >= LONG {
        // SAFETY: the caller promises what the instruction needs; the direction flag is clear in
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
    } else {
        // SAFETY: the caller promises it.
        unsafe { copy_short(from, to, len) };
    }
}

/// A copy of as many bytes as one register has, or four of them.
///
/// # Safety
/// The requirements of [`copy`].
#[cfg(all(target_arch = "x86_64", not(miri)))]
macro_rules! by_register {
    ($name:ident, $class:ident, $($step:literal),+; $($register:ident),+) => {
        #[inline]
        unsafe fn $name((from, to): (*const u8, *mut u8)) {
            // JUSTIFICATION: as in `copy`. SAFETY: the caller promises that these bytes may be
            // copied.
            unsafe {
                std::arch::asm!(
                    $($step),+,
                    $($register = out($class) _,)+
                    from = in(reg) from,
                    to = in(reg) to,
                    options(nostack, preserves_flags)
                );
            }
        }
    };
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
by_register!(copy_1, reg_byte, "mov {a}, [{from}]", "mov [{to}], {a}"; a);
#[cfg(all(target_arch = "x86_64", not(miri)))]
by_register!(copy_4, reg, "mov {a:e}, [{from}]", "mov [{to}], {a:e}"; a);
#[cfg(all(target_arch = "x86_64", not(miri)))]
by_register!(copy_8, reg, "mov {a}, [{from}]", "mov [{to}], {a}"; a);
#[cfg(all(target_arch = "x86_64", not(miri)))]
by_register!(copy_16, xmm_reg, "movdqu {a}, [{from}]", "movdqu [{to}], {a}"; a);
#[cfg(all(target_arch = "x86_64", not(miri)))]
by_register!(
    copy_64, xmm_reg,
    "movdqu {a}, [{from}]", "movdqu {b}, [{from} + 16]",
    "movdqu {c}, [{from} + 32]", "movdqu {d}, [{from} + 48]",
    "movdqu [{to}], {a}", "movdqu [{to} + 16], {b}",
    "movdqu [{to} + 32], {c}", "movdqu [{to} + 48], {d}";
    a, b, c, d
);

/// Like [`copy`], register by register. The last register may copy bytes again that were copied
/// before: the same ones, unless another task changes them meanwhile.
///
/// # Safety
/// The requirements of [`copy`].
#[cfg(all(target_arch = "x86_64", not(miri)))]
unsafe fn copy_short(from: *const u8, to: *mut u8, len: usize) {
    let at = |at: usize| (from.wrapping_add(at), to.wrapping_add(at));
    let mut done = 0;
    while len - done >= 64 {
        // SAFETY: 64 bytes are left.
        unsafe { copy_64(at(done)) };
        done += 64;
    }
    while len - done >= 16 {
        // SAFETY: 16 bytes are left.
        unsafe { copy_16(at(done)) };
        done += 16;
    }
    if done == len {
        return;
    }
    // The last register ends where the bytes end.
    match len {
        // SAFETY: there are so many bytes before the end.
        16.. => unsafe { copy_16(at(len - 16)) },
        8.. => {
            // SAFETY: the first eight of at least eight.
            unsafe { copy_8(at(0)) };
            // SAFETY: the last eight.
            unsafe { copy_8(at(len - 8)) };
        }
        4.. => {
            // SAFETY: the first four of at least four.
            unsafe { copy_4(at(0)) };
            // SAFETY: the last four.
            unsafe { copy_4(at(len - 4)) };
        }
        _ => {
            for byte in 0..len {
                // SAFETY: one of them.
                unsafe { copy_1(at(byte)) };
            }
        }
    }
}

/// Copies bytes that other tasks may copy from or into concurrently.
///
/// # Safety
/// `from` may be read and `to` written for `len` bytes, and they do not overlap. Other tasks access
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

    fn filled(byte: u8) -> AtomicBytes<4096> {
        let mut page = PageBox::zeroed();
        page.fill(byte);
        AtomicBytes::from(page)
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
    fn copies_of_all_lengths_and_places_take_these_bytes_only() {
        let mut pattern = PageBox::<4096>::zeroed();
        for (byte, n) in pattern.iter_mut().zip((1..=251_u8).cycle()) {
            *byte = n;
        }
        let pattern = AtomicBytes::from(pattern);
        for len in (0..200).chain([496, 504, 1023, 1024, 1025, 2000]) {
            for at in [0, 1, 7, 33] {
                let mut out = vec![0; len];
                pattern.load(at, &mut out);
                let expected = (1..=251_u8).cycle().skip(at);
                assert!(out.iter().copied().eq(expected.take(len)), "{len} at {at}");
                let mut page = filled(0);
                page.store(at, &out);
                let bytes = page.bytes_mut();
                assert_eq!(bytes[at..at + len], out, "{len} at {at}");
                let outside = bytes[..at].iter().chain(&bytes[at + len..]);
                assert!(outside.copied().all(|byte| byte == 0), "{len} at {at}");
            }
        }
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
