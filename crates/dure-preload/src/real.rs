//! The functions of the C library that hooks stand in front of.
//!
//! **Structure.** [`Real`] finds the next function of its name when it is first asked, and keeps the
//! address. **Invariants.** Finding it twice finds the same. **On a crash** nothing is kept.

use std::ffi::CStr;
use std::marker::PhantomData;

use dure_sync::atomic::{AtomicUsize, Ordering};

/// A function of type `F`.
pub(crate) struct Real<F> {
    name: &'static CStr,
    /// 0: not looked for. Any thread may write it, the same value: Relaxed.
    address: AtomicUsize,
    kind: PhantomData<F>,
}

impl<F: Copy> Real<F> {
    /// The function `name`, a text that ends with a zero.
    pub(crate) const fn new(name: &'static str) -> Real<F> {
        let Ok(name) = CStr::from_bytes_with_nul(name.as_bytes()) else {
            panic!("a name ends with a zero");
        };
        Real {
            name,
            address: AtomicUsize::new(0),
            kind: PhantomData,
        }
    }

    /// The function.
    #[inline]
    pub(crate) fn get(&self) -> F {
        let known = self.address.load(Ordering::Relaxed);
        let address = if known == 0 { self.find() } else { known };
        const { assert!(size_of::<F>() == size_of::<usize>()) };
        // SAFETY: the hook of this name says what type it has.
        unsafe { std::mem::transmute_copy(&address) }
    }

    #[cold]
    fn find(&self) -> usize {
        // SAFETY: a name with its end.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        assert!(!found.is_null(), "the C library has no {:?}", self.name);
        let address = found.addr();
        self.address.store(address, Ordering::Relaxed);
        address
    }
}
