//! Memory for pages, cut from slabs of up to 2 MiB.
//!
//! **Problem.** A page cache allocates and frees millions of aligned pages. From a general
//! allocator each costs a second page of address space for its header, a page fault and a clearing
//! of its own, and now and then a system call that stalls all threads of the process.
//!
//! **Structure.** A [`PageSlabs`] belongs to one core (its owner puts it under that core's lock)
//! and cuts pages from slabs: 64 KiB at first, so that a small cache stays small, then 512 KiB and
//! 2 MiB, which the kernel is asked to back with a huge page. A slab begins with its header: one
//! bit per free page, and a count of its users. A [`PageBox`] owns a page like a `Box`; dropping
//! it, on any core, sets the page's bit, which is found by the page's address, because slabs lie on
//! multiples of their size. So are slab allocators built (Bonwick, USENIX 1994); that one core
//! allocates and any core frees is from mimalloc (Leijen and others, 2019).
//!
//! # Lifetime of a slab
//! **Invariants.** Only the [`PageSlabs`] that lists a slab clears its bits, and only under `&mut`.
//! A slab lives as long as one of its pages, or its [`PageSlabs`]. **Crash.** Nothing is kept.

mod memory;

use std::alloc::Layout;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use crate::AlignedBytes;
use crate::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Slabs are 2^this bytes, the first, the second, and all others.
const SHIFTS: [u32; 3] = [16, 19, 21];

/// Words of free bits in a header: enough for the pages of the largest slab.
const WORDS: usize = 8;

/// Pages are taken from an older slab again when it has this many free ones, 1/16 of the largest
/// slab: fewer are not worth the search.
const WORTHWHILE: u32 = 32;

/// Slabs searched before a new one is allocated.
const SEARCHED_MAX: usize = 16;

struct Header {
    /// Pages in use, plus one for the `PageSlabs`.
    users: AtomicUsize,
    /// Bit n: page n is free. The page of the header never is.
    free: [AtomicU64; WORDS],
}

/// A slab listed in a `PageSlabs`.
struct Slab<const N: usize> {
    header: NonNull<Header>,
    shift: u32,
    /// No page has been taken since the last trim, which found none in use.
    idle: bool,
}

/// The slabs one core takes pages of `N` bytes from; see the module.
pub struct PageSlabs<const N: usize> {
    /// Pages are taken from the last one.
    slabs: Vec<Slab<N>>,
    /// Where the next search begins.
    search: usize,
}

/// A page of `N` bytes that has one owner, like a `Box`.
pub struct PageBox<const N: usize> {
    /// The page, and below its alignment the slab's shift, or 0 for a page of no slab.
    tagged: NonNull<u8>,
    _bytes: std::marker::PhantomData<AlignedBytes<N>>,
}

// SAFETY: it owns plain bytes; the header it reaches is atomic.
unsafe impl<const N: usize> Send for PageBox<N> {}
// SAFETY: through `&self` its bytes are only read.
unsafe impl<const N: usize> Sync for PageBox<N> {}
// SAFETY: the headers it points to are atomic, and it owns a share in each.
unsafe impl<const N: usize> Send for PageSlabs<N> {}
// SAFETY: nothing can be done through `&self`.
unsafe impl<const N: usize> Sync for PageSlabs<N> {}

impl<const N: usize> Default for PageSlabs<N> {
    fn default() -> Self {
        Self {
            slabs: Vec::new(),
            search: 0,
        }
    }
}

impl<const N: usize> PageSlabs<N> {
    /// Returns a page, with whatever it held before; a new one is zero.
    pub fn take(&mut self) -> PageBox<N> {
        if let Some(page) = self.take_at_hand() {
            return page;
        }
        let slab = Slab::new(SHIFTS[self.slabs.len().min(SHIFTS.len() - 1)]);
        let page = slab.claim().expect("a new slab has free pages");
        self.slabs.push(slab);
        page
    }

    /// Like `take`, but allocates no slab, and searches only a few of them for a free page.
    pub fn take_at_hand(&mut self) -> Option<PageBox<N>> {
        let page = self.slabs.last().and_then(Slab::claim);
        page.or_else(|| self.search(SEARCHED_MAX, WORTHWHILE))
    }

    /// Like `take`, but allocates no slab, and searches all of them for a free page.
    pub fn take_free(&mut self) -> Option<PageBox<N>> {
        self.search(usize::MAX, 1)
    }

    /// Takes a page from the first of the next `slabs` slabs that has at least `free` free pages;
    /// later pages are taken from that slab.
    fn search(&mut self, slabs: usize, free: u32) -> Option<PageBox<N>> {
        for _ in 0..slabs.min(self.slabs.len()) {
            self.search = (self.search + 1) % self.slabs.len();
            if self.slabs[self.search].free() >= free {
                let last = self.slabs.len() - 1;
                self.slabs.swap(self.search, last);
                self.slabs[last].idle = false;
                return self.slabs[last].claim();
            }
        }
        None
    }

    /// Frees the slabs of which no page has been in use since the last trim, except the one that
    /// pages are taken from. Memory that is needed again soon is kept: allocating it anew costs
    /// more than filling it.
    pub fn trim(&mut self) {
        let Some(last) = self.slabs.pop() else { return };
        self.slabs.retain_mut(|slab| {
            let unused = slab.is_unused();
            let was_idle = std::mem::replace(&mut slab.idle, unused);
            !(unused && was_idle)
        });
        self.slabs.push(last);
    }

    /// The size of all its slabs in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.slabs.iter().map(|slab| 1 << slab.shift).sum()
    }
}

impl<const N: usize> fmt::Debug for PageSlabs<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PageSlabs<{N}>({} bytes)", self.bytes())
    }
}

impl<const N: usize> Slab<N> {
    const PAGE: () = assert!(
        N.is_power_of_two() && N >= size_of::<Header>() && N >= 4096 && (1 << 21) / N <= 64 * WORDS,
        "pages are at least 4096 bytes, so that the header has room in one and the tag below one"
    );

    fn new(shift: u32) -> Self {
        const { Self::PAGE };
        let layout = layout(shift);
        let header = memory::allocate(layout).cast::<Header>();
        let pages = layout.size() / N;
        let free = std::array::from_fn(|word| {
            let bits = (word * 64..pages.min(word * 64 + 64)).filter(|&page| page > 0);
            AtomicU64::new(bits.fold(0, |word, page| word | 1 << (page % 64)))
        });
        let fresh = Header {
            users: AtomicUsize::new(1),
            free,
        };
        // SAFETY: the memory is new, aligned to its size, and has room for a header in its first
        // page.
        unsafe { header.write(fresh) };
        Self {
            header,
            shift,
            idle: false,
        }
    }

    fn header(&self) -> &Header {
        // SAFETY: the `PageSlabs` is one of its users, so the slab lives.
        unsafe { self.header.as_ref() }
    }

    /// Free pages; more may become free meanwhile.
    fn free(&self) -> u32 {
        // Relaxed: `claim` checks again.
        let count = |word: &AtomicU64| word.load(Ordering::Relaxed).count_ones();
        self.header().free.iter().map(count).sum()
    }

    /// Takes a free page. Only the `PageSlabs` calls this, one call at a time.
    fn claim(&self) -> Option<PageBox<N>> {
        for (n, word) in self.header().free.iter().enumerate() {
            // Relaxed: the bit is taken below, and no other task clears bits.
            let bits = word.load(Ordering::Relaxed);
            if bits == 0 {
                continue;
            }
            let bit = bits.trailing_zeros();
            // Acquire: pairs with the Release in `drop`. The last owner's accesses to the page come
            // before ours.
            word.fetch_and(!(1 << bit), Ordering::Acquire);
            // Relaxed: the `PageSlabs` is a user already, so the count does not rise from 0.
            self.header().users.fetch_add(1, Ordering::Relaxed);
            let page = n * 64 + usize::try_from(bit).expect("a bit number is below 64");
            // SAFETY: a free page is one of the slab's, so the offset is within its memory.
            let first = unsafe { self.header.cast::<u8>().add(page * N) };
            return Some(PageBox::tagged(first, self.shift));
        }
        None
    }

    /// No page of it is in use, nor will be unless the `PageSlabs` takes one.
    fn is_unused(&self) -> bool {
        // Relaxed: `leave`, which frees the memory, checks again.
        self.header().users.load(Ordering::Relaxed) == 1
    }
}

impl<const N: usize> Drop for Slab<N> {
    fn drop(&mut self) {
        // SAFETY: the `PageSlabs` was a user of it.
        unsafe { leave(self.header, self.shift) };
    }
}

fn layout(shift: u32) -> Layout {
    Layout::from_size_align(1 << shift, 1 << shift).expect("sizes of slabs are powers of two")
}

/// Removes a user; the last one frees the slab.
///
/// # Safety
/// The caller was a user of the slab of 2^`shift` bytes that begins with `header`, and is none any
/// more.
unsafe fn leave(header: NonNull<Header>, shift: u32) {
    // SAFETY: the caller is still counted, so the slab lives.
    let users = unsafe { &header.as_ref().users };
    // Release, and Acquire for the last one: all other users' accesses to the slab come before it
    // is freed.
    if users.fetch_sub(1, Ordering::AcqRel) != 1 {
        return;
    }
    // SAFETY: the last user is gone, so no task accesses its header any more.
    unsafe { header.drop_in_place() };
    // SAFETY: it was allocated with this layout by `Slab::new`.
    unsafe { memory::free(header.cast(), layout(shift)) };
}

impl<const N: usize> PageBox<N> {
    /// A page of zeroes that belongs to no slab.
    #[must_use]
    pub fn zeroed() -> Self {
        let page = Box::new(AlignedBytes([0; N]));
        Self::tagged(NonNull::from(Box::leak(page)).cast(), 0)
    }

    fn tagged(page: NonNull<u8>, shift: u32) -> Self {
        let tag = usize::try_from(shift).expect("the tag of a page is at most 21");
        Self {
            tagged: page.map_addr(|address| address | tag),
            _bytes: std::marker::PhantomData,
        }
    }

    fn shift(&self) -> u32 {
        u32::try_from(self.tagged.addr().get() & (N - 1)).expect("the tag of a page is at most 21")
    }

    /// A pointer to its bytes.
    #[inline]
    pub(crate) fn as_ptr(&self) -> *mut AlignedBytes<N> {
        self.tagged
            .as_ptr()
            .map_addr(|address| address & !(N - 1))
            .cast()
    }
}

impl<const N: usize> Deref for PageBox<N> {
    type Target = [u8; N];

    #[inline]
    fn deref(&self) -> &[u8; N] {
        // SAFETY: the page is this box's, and was initialised when its memory was allocated.
        let page = unsafe { &*self.as_ptr() };
        &page.0
    }
}

impl<const N: usize> DerefMut for PageBox<N> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8; N] {
        // SAFETY: as above, and `&mut self` is exclusive.
        let page = unsafe { &mut *self.as_ptr() };
        &mut page.0
    }
}

impl<const N: usize> Drop for PageBox<N> {
    fn drop(&mut self) {
        let shift = self.shift();
        let page = self.as_ptr();
        if shift == 0 {
            // SAFETY: a page of no slab was leaked by `zeroed`.
            drop(unsafe { Box::from_raw(page) });
            return;
        }
        let slab = page.map_addr(|address| address >> shift << shift);
        let header = NonNull::new(slab.cast::<Header>()).expect("a slab has an address");
        let n = (page.addr() - slab.addr()) / N;
        // SAFETY: this page is a user of the slab.
        let word = unsafe { &header.as_ref().free[n / 64] };
        // Release: pairs with the Acquire in `claim`.
        word.fetch_or(1 << (n % 64), Ordering::Release);
        // SAFETY: the page was a user, and is none now.
        unsafe { leave(header, shift) };
    }
}

impl<const N: usize> fmt::Debug for PageBox<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PageBox<{N}>({:p})", self.as_ptr())
    }
}

#[cfg(all(test, not(dure_backend = "loom")))]
mod tests {
    use super::*;
    use crate::thread;

    type Slabs = PageSlabs<4096>;

    #[test]
    fn pages_are_apart_and_aligned() {
        let mut slabs = Slabs::default();
        let mut pages: Vec<_> = (0..600).map(|_| slabs.take()).collect();
        for (n, page) in (0_u32..).zip(&mut pages) {
            assert!(page.as_ptr().addr().is_multiple_of(4096));
            assert_eq!(page[0], 0, "new memory is zero");
            page[..4].copy_from_slice(&n.to_le_bytes());
            page[4092..].copy_from_slice(&n.to_le_bytes());
        }
        for (n, page) in (0_u32..).zip(&pages) {
            assert_eq!(page[..4], n.to_le_bytes());
            assert_eq!(page[4092..], n.to_le_bytes());
        }
        assert_eq!(slabs.bytes(), (1 << 16) + (1 << 19) + (1 << 21));
    }

    #[test]
    fn freed_pages_are_taken_again() {
        let mut slabs = Slabs::default();
        let pages: Vec<_> = (0..15 + 127 + 511).map(|_| slabs.take()).collect();
        let full = slabs.bytes();
        drop(pages);
        let pages: Vec<_> = (0..15 + 127 + 511).map(|_| slabs.take()).collect();
        // The 15 pages of the smallest slab are not worth a search.
        assert!(slabs.bytes() <= full + (1 << 21), "{slabs:?} of {full}");
        drop(pages);
        let before = slabs.bytes();
        slabs.trim();
        assert_eq!(slabs.bytes(), before, "wanted again soon, perhaps");
        slabs.trim();
        assert!(slabs.bytes() <= 1 << 21, "{slabs:?}");
    }

    #[test]
    fn a_page_outlives_its_list() {
        let mut slabs = Slabs::default();
        let mut page = slabs.take();
        let mut alone = PageBox::<4096>::zeroed();
        drop(slabs);
        page[17] = 1;
        alone[17] = 2;
        assert_eq!(page[17] + alone[17], 3);
    }

    #[test]
    fn others_drop_while_the_owner_takes() {
        let mut slabs = Slabs::default();
        thread::scope(|scope| {
            for round in 0..20_u8 {
                let mut pages: Vec<_> = (0..200).map(|_| slabs.take()).collect();
                for page in &mut pages {
                    page.fill(round);
                }
                scope.spawn(move || {
                    for page in pages {
                        assert!(page.iter().all(|&byte| byte == round));
                    }
                });
            }
        });
        slabs.trim();
        slabs.trim();
        assert!(slabs.bytes() <= 1 << 21, "{slabs:?}");
    }
}
